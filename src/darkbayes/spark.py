"""Predictions on Spark: a function for `DataFrame.mapInArrow`. It needs pyspark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from darkbayes.bulk import Predictor


def predictor(student: Path | str, **how: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What `DataFrame.mapInArrow` calls: it takes record batches and gives what is predicted of them.

    Args:
        student: a run's folder, or an ONNX file that `darkbayes export` wrote; only the driver reads it.
        **how: `keep`, `level` and `on_bad` as `darkbayes.bulk.Predictor` takes them.

    Returns:
        The function.
    """
    return _over_batches(Predictor(student, **how))


def predict(frame: Any, student: Path | str, **how: Any) -> Any:
    """The rows of a Spark data frame, predicted.

    Args:
        frame: the data frame, with the columns of the fit.
        student: a run's folder, or an ONNX file that `darkbayes export` wrote; only the driver reads it.
        **how: `keep`, `level` and `on_bad` as `darkbayes.bulk.Predictor` takes them.

    Returns:
        A data frame of the columns kept and of the predictions.
    """
    from pyspark.sql.pandas.types import from_arrow_schema  # pyright: ignore[reportMissingImports]
    from pyspark.sql.types import StructType  # pyright: ignore[reportMissingImports]

    each = Predictor(student, **how)
    each.check(frame.columns, "the data frame")
    # Spark goes by the places of columns, not by their names: in the order in which they are handed on.
    schema = StructType([*(frame.schema[name] for name in each.keep), *from_arrow_schema(each.nothing().schema).fields])
    return frame.mapInArrow(_over_batches(each), schema)


def _over_batches(each: Predictor) -> Callable[[Iterator[Any]], Iterator[Any]]:
    return lambda batches: map(each, batches)
