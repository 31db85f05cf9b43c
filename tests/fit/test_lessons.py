"""Where the average over the chains is known too roughly, a fit runs as many again."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

import darkbayes as db
from darkbayes import runs
from darkbayes.fit.lessons import Taught, taught
from darkbayes.model import Draw
from darkbayes.runs import Run, Unkept
from darkbayes.student.diagnosis import chains_agreement
from darkbayes.student.loop import Distillation, steps_of
from darkbayes.teacher.diagnostics import convergence
from darkbayes.teacher.keeping import at_traced, trace_read

STEPS, BURN_IN, THIN, CHAINS = 212, 10, 4, 3
ROUNDS = 50, 51
"""Draws of each of the first chains and of the others: of the steps two are left over, which are made up for."""
TINY = 1e-6
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def parts(classes: db.Data, logistic: db.Network) -> Distillation:
    """Chains that begin at one of six draws each, all far from each other."""
    posterior = db.Posterior(logistic, db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    start: Any = Draw(100.0 * np.arange(1.0, 7.0, dtype=np.float32)[:, None, None] * np.ones((6, 2, 2)), ())
    start = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), start)
    how: Any = {"batch_size": None, "burn_in": BURN_IN, "thin": THIN, "start": start}
    chain = db.minibatch_chain(posterior, db.sgld(1e-2), *classes, **how)
    student = db.Student(logistic, db.outcomes.SoftmaxHead(2), optax.adam(1e-3))
    settings = db.Settings(num_chains=CHAINS, query_batch=4, reservoir=4)
    return db.distillation(chain, student, db.queries.uniform_box(-5, 5), settings)


@pytest.fixture
def goal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what the error of the average may be."""

    def put(error: float) -> None:
        monkeypatch.setattr(convergence, "MEDIAN_ERROR", error)
        monkeypatch.setattr(convergence, "LARGE_ERROR", error)

    return put


def run_of(parts: Distillation, longer: Distillation | None, deadline: float | None = None, run: Any = None) -> Taught:
    return taught(parts, longer, KEY, STEPS, weights=None, deadline=deadline, run=run or Unkept())


@pytest.mark.parametrize(
    ("error", "allowed", "deadline", "again", "note"),
    [
        (np.inf, True, None, False, ""),
        (TINY, False, None, False, ""),
        (TINY, True, 0.0, False, "there was no time for as many again"),
        (TINY, True, None, True, "as many again were run from other starts"),
    ],
    ids=["known well enough", "so many steps and no more", "no time", "again"],
)
def test_there_are_as_many_chains_again_where_needed_and_allowed(
    parts: Distillation, goal: Any, error: float, allowed: bool, deadline: float | None, again: bool, note: str
) -> None:
    goal(error)
    done = run_of(parts, parts if allowed else None, deadline)
    assert (done.again, note in done.note, bool(done.note)) == (again, True, bool(note))
    if deadline is None:
        assert int(done.state.average.count) == CHAINS * sum(ROUNDS[: 1 + again])
        assert steps_of(done.state.updates) == THIN * sum(ROUNDS[: 1 + again])
        assert chains_agreement(parts.chain, done.state).chains == CHAINS * (1 + again)


def test_new_chains_begin_where_no_other_did(parts: Distillation) -> None:
    first = parts.init(KEY)
    later = parts.renewed(KEY, first)
    begun = [np.asarray(state.teacher.draws.network)[:, 0, 0] for state in (first, later)]
    assert sorted(np.concatenate(begun).tolist()) == [100.0 * place for place in range(1, 7)]


@pytest.mark.parametrize("again", [False, True])
def test_new_chains_count_for_no_more_than_those_whose_place_they_took(
    parts: Distillation, goal: Any, again: bool
) -> None:
    """The present draw of each would be of new chains alone, while what is kept is of both."""
    goal(TINY)
    state = run_of(parts, parts if again else None).state
    heard, now = parts._draws_at_hand(state, KEY).network, state.teacher.draws.network
    assert state.reservoir is not None
    kept = set(np.asarray(state.reservoir.slots.network)[..., 0, 0].ravel().tolist())
    heard, now = (set(np.asarray(weights)[:, 0, 0].tolist()) for weights in (heard, now))
    assert now - kept  # The last draws may have been kept.
    assert heard & (now - kept) == (set() if again else now - kept)
    assert heard <= kept | now


def test_chains_that_others_took_the_place_of_are_replicates_of_their_own(parts: Distillation, goal: Any) -> None:
    """The error of the average is that of the means of all six, over the root of six."""
    goal(TINY)
    state = run_of(parts, parts).state
    (values, stride), judged = trace_read(state.trace), chains_agreement(parts.chain, state)
    assert (stride, values.shape[1]) == (1, sum(ROUNDS))
    means = np.concatenate([values[:, : ROUNDS[0]].mean(axis=1), values[:, ROUNDS[0] : 2 * ROUNDS[0]].mean(axis=1)])
    probability = at_traced(np.asarray(state.average.mean["probs"], np.float64)[:, 1:])
    errors = means.std(axis=0, ddof=1) / np.sqrt(2 * CHAINS * probability * (1 - probability))
    assert judged.error == pytest.approx(np.median(errors), rel=1e-5)


def test_a_run_killed_among_the_new_chains_ends_in_the_same_bits(
    parts: Distillation, goal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal(TINY)
    whole = run_of(parts, parts, run=Run(tmp_path / "whole", {}, quiet=True))
    save = runs.save_checkpoint

    def killed(folder: Path, state: Any, step: int) -> None:
        save(folder, state, step)
        if step > at:
            raise KeyboardInterrupt

    monkeypatch.setattr(runs, "CHECKPOINT_SECONDS", -1.0)  # One after every chunk.
    monkeypatch.setattr(runs, "CHECKPOINT_SHARE", np.inf)
    # Before the first chains are done, as they are, in the burn-in of the others, and later.
    for at in (100, STEPS - 3, STEPS, STEPS + BURN_IN + 40):  # noqa: B007
        monkeypatch.setattr(runs, "save_checkpoint", killed)
        with pytest.raises(KeyboardInterrupt):
            run_of(parts, parts, run=Run(tmp_path / "broken", {}, resume=True, quiet=True))
    monkeypatch.setattr(runs, "save_checkpoint", save)
    goal(np.inf)  # What was decided stays.
    broken = run_of(parts, parts, run=Run(tmp_path / "broken", {}, resume=True, quiet=True))
    assert broken.note == whole.note
    files = [tmp_path / name / "student" / "student.safetensors" for name in ("whole", "broken")]
    assert files[0].read_bytes() == files[1].read_bytes()
