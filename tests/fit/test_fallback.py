"""A student that cannot follow its teacher gets a simpler head."""

from typing import Any

import jax
import numpy as np
import pytest

import darkbayes as db
import short_fits
from darkbayes.fit import Options, automatic, fit
from darkbayes.outcomes import NumberTarget
from darkbayes.types import Data

TARGET = NumberTarget("y", "identity", 0.0, 1.0, -3.0, 3.0)
SMALL: Any = {"hidden": (4,), "activation": "relu", "student_hidden": (8,), "chains": 2, "effort": 0.1}


@pytest.fixture(scope="module")
def line() -> Data:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1))
    return Data(x.astype(np.float32), (x + 0.3 * rng.normal(size=(60, 1))).astype(np.float32))  # pyright: ignore[reportArgumentType]


def test_a_student_that_ran_away_is_replaced_by_one_with_a_simpler_head(
    line: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mixture is made to run away: its weights are enlarged before they are looked at."""
    monkeypatch.setattr(automatic, "UPDATES", 6_000)  # Of which it takes a tenth: enough for a line.
    short_fits.shorten(monkeypatch)
    best = db.student.Distillation.best
    monkeypatch.setattr(
        db.student.Distillation, "best", lambda self, state: jax.tree.map(lambda leaf: 30 * leaf, best(self, state))
    )
    fitted = fit(line, TARGET, jax.random.key(0), Options(**SMALL, likelihood="one-noise"))
    assert fitted.options.head == "gaussian"
    assert "the student has the head 'gaussian': with it, it is " in fitted.notes[-1]
    teacher, student = (
        np.mean(said.log_prob(line.y)) for said in (fitted.predict_teacher(line.x), fitted.predict(line.x))
    )
    assert student > teacher - automatic.TOO_FAR
    assert fitted.diagnosis.runs[0].agreement.chains == 2
    # Somebody's own choice of a head is not changed.
    kept = fit(line, TARGET, jax.random.key(0), Options(**SMALL, likelihood="one-noise", head="mixture"))
    assert kept.options.head == "mixture"
