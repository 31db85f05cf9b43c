"""Predictions on Ray: Parquet in, Parquet out, a file for each block. It needs ray and pandas.

Reading, predicting and writing a block are one task. Ray runs it again if its worker dies, and what it writes then has
the same name. The folder gets its own name when all are there: killed and started again, a run leaves every row once.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from darkbayes.bulk import Predictor
from darkbayes.errors import InvalidInput
from darkbayes.files import ASIDE, sync_folder


def predict(
    student: Path | str,
    source: Path | str | Sequence[Path | str],
    out: Path | str,
    *,
    blocks: int | None = None,
    **how: Any,
) -> Path:
    """Predict Parquet files with Ray Data, on the cluster that is connected or else on this machine.

    Args:
        student: a run's folder, or an ONNX file that `darkbayes export` wrote; only the driver reads it.
        source: a Parquet file, several, or a folder of them, where every worker can read them.
        out: the folder to write, on a disk that all workers share. It must not be there.
        blocks: how many there are, and so files; by default Ray decides by their size.
        **how: `keep`, `level` and `on_bad` as `darkbayes.bulk.Predictor` takes them. Files are not in the order of the
            rows: keep a key.

    Returns:
        The folder.
    """
    import ray.data  # pyright: ignore[reportMissingImports]

    if "://" in str(out):
        raise InvalidInput(f"out must be a folder of a disk, not {out}: map_batches takes darkbayes.bulk.Predictor")
    folder = Path(out).absolute()
    if folder.exists():
        raise InvalidInput(f"{out} already exists: name another folder, or delete it")
    each, aside = Predictor(student, **how), folder.with_name(f".{folder.name}{ASIDE}")
    shutil.rmtree(aside, ignore_errors=True)  # What a killed run left.
    several = source if isinstance(source, list | tuple) else [source]
    context: Any = ray.data.DataContext.get_current()
    newer = getattr(context, "use_datasource_v2", None)
    # It would hand blocks from reader to writer by the object store, and has no say in how many there are.
    context.use_datasource_v2 = False
    try:
        rows = ray.data.read_parquet([str(path) for path in several], override_num_blocks=blocks)
        predicted: Any = rows.map_batches(_table(each), batch_format="pyarrow", batch_size=None)
        predicted.write_parquet(str(aside))
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    finally:
        context.use_datasource_v2 = newer
    os.rename(aside, folder)
    sync_folder(folder.parent)
    return folder


def _table(each: Predictor) -> Any:
    def predicted(table: Any) -> Any:
        return type(table).from_batches([each(table)])

    return predicted
