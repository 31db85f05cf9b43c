"""How predictions depend on each column."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from darkbayes.fit.insights import dependence
from darkbayes.tables.schema import Number, TableSchema


def test_the_effect_of_a_column_is_that_on_the_output_which_it_moves_most_in_its_own_unit():
    """A column that moves a small output by all of its spread counts as much as one that moves a large output so."""
    names = ("large", "small")
    columns = tuple(Number(name, 0.5, 0.3, 0.5, flagged=False, low=0.0, high=1.0, whole=False) for name in names)
    target: Any = SimpleNamespace(names=names)
    values = np.tile(np.linspace(0, 1, 11), 11)
    frame = {"large": values, "small": np.sort(values)}

    def predict(rows: Any) -> Any:
        aim = np.stack([1000 * rows["large"], 0.001 * rows["small"]], axis=1).astype(float)
        return SimpleNamespace(course=lambda: {"aim": aim, "aleatoric": aim, "epistemic": aim})

    effects = [course["effect"] for course in dependence(TableSchema(columns, target), frame, predict)]
    assert effects == pytest.approx([1.5 / np.std(values)] * 2)
