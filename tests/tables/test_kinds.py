"""Files of many kinds: each is fitted to the same values or refused for a stated reason, and the docs say which."""

import importlib.util

import numpy as np
import pandas as pd
import pytest

from darkbayes.tables import frame_of, read_batches
from tables import kinds

SAID = dict(zip(kinds.KINDS, kinds.DOCS.read_text().partition(kinds.BEGIN)[2].splitlines()[3:], strict=False))


def values_of(frame):
    return {name: values.tolist() for name, values in frame.items()}


@pytest.mark.parametrize("name", kinds.KINDS)
def test_the_docs_say_what_happens_to_a_kind_of_file(tmp_path, name):
    kind = kinds.KINDS[name]
    if kind.needs and importlib.util.find_spec(kind.needs) is None:
        pytest.skip(f"{kind.needs} is not installed")
    row, source, table, ready = kinds.tried(name, tmp_path)
    assert row == SAID[name], "python tests/tables/kinds.py writes the docs anew"
    if ready is None:
        return
    frame, truth = frame_of(table, ready.schema), kinds.TRUTH
    np.testing.assert_allclose(frame["size"], truth["size"])
    assert frame["town"].tolist() == truth["town"].tolist()
    days = (truth["sold"] - truth["sold"].min()).dt.days
    elapsed = frame["sold (days)"]
    np.testing.assert_allclose(elapsed - elapsed.min(), days)
    for part in ("year", "month"):
        assert frame[f"sold ({part})"].tolist() == getattr(truth["sold"].dt, part).tolist()
    assert frame["sold (weekday)"].tolist() == truth["sold"].dt.isocalendar().day.tolist()
    made = [column.name for column in ready.schema.columns]
    assert (set(made) == {"size", "town", *(f"sold ({part})" for part in ("year", "month", "weekday", "days"))}) == (
        kind.whole
    )
    if not isinstance(source, pd.DataFrame) and not hasattr(source, "__arrow_c_stream__"):
        (batch,) = read_batches(source, ready.schema, target=True, **kind.layout)
        assert values_of(batch.frame) == values_of(frame)
        np.testing.assert_allclose(batch.target, truth["price"])


def test_the_docs_have_a_row_for_every_kind():
    table = kinds.DOCS.read_text().partition(kinds.BEGIN)[2].partition(kinds.END)[0].strip().splitlines()
    assert len(table) == len(kinds.HEAD) + len(kinds.KINDS)
