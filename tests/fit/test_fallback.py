"""A student that is behind its teacher learns on; one that cannot follow it gets a simpler head."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import darkbayes as db
import short_fits
from darkbayes.files import read_json
from darkbayes.fit import Options, automatic, fit
from darkbayes.fit.automatic import Fitted
from darkbayes.outcomes import NumberTarget
from darkbayes.runs import Run
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
    monkeypatch.setattr(automatic, "FURTHER", 0)
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


def test_a_student_that_is_behind_learns_on_and_after_a_kill_to_the_same_bits(
    line: Data, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(automatic, "BEHIND", -np.inf)
    monkeypatch.setattr(automatic, "UPDATES", 400)
    short_fits.shorten(monkeypatch)
    options = Options(**SMALL, likelihood="one-noise", head="gaussian")

    def fitted(folder: str) -> Fitted:
        there = (tmp_path / folder).exists()
        return fit(line, TARGET, jax.random.key(0), options, run=Run(tmp_path / folder, {}, resume=there, quiet=True))

    first = fitted("run")
    gaps = read_json(tmp_path / "run" / "student" / "further.json")["behind"]
    assert len(gaps) > 1
    assert gaps[1] < gaps[0]
    assert "the student learned on from the draws that were kept" in first.notes[-1]
    said = [np.mean(by(line.x).log_prob(line.y)) for by in (first.predict_teacher, first.predict)]
    best = gaps[-1] if gaps[-1] < gaps[-2] else gaps[-2]
    assert said[0] - said[1] == pytest.approx(best, abs=1e-5)
    again = fitted("run")  # Chains are done, and what was decided is there: the lessons are gone through once more.
    for one, other in zip(jax.tree.leaves(first.params), jax.tree.leaves(again.params), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.diagnosis.runs[0].divergence == first.diagnosis.runs[0].divergence
    # There is none where there is no time, or where it is close enough.
    monkeypatch.setattr(automatic, "BEHIND", np.inf)
    assert not any("learned on" in note for note in fitted("near").notes)
