"""Which network is sampled: the best on rows set aside, the simplest where these are too few, or what was asked for."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import darkbayes as db
from darkbayes.fit import Options, automatic, choosing
from darkbayes.fit.choosing import Chosen, Model, candidates, choose_model
from darkbayes.outcomes import ClassTarget, NumberTarget
from darkbayes.types import Data

TARGET = NumberTarget("y", "identity", 0.0, 1.0, -3.0, 3.0)
KEY = jax.random.key(0)


def noisier_to_the_right(rows: int) -> Data:
    """One input, and a target that is all noise, ten times as wide at the right end as at the left."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.7, 1.7, (rows, 1))
    y = np.exp(0.7 * x) * rng.normal(size=(rows, 1)) / 1.5
    return Data(x.astype(np.float32), y.astype(np.float32))  # pyright: ignore[reportArgumentType]


def chosen_of(rows: int, models: list[Model]) -> Chosen:
    return choose_model(noisier_to_the_right(rows), TARGET, models, KEY)


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Candidates have the log likelihood that is given for them, on every row alike, and nothing is sampled."""

    def score(scores: dict[Model, float | None]) -> None:
        def tried(rest: Data, aside: Data, target: Any, model: Model, *others: Any) -> np.ndarray | None:
            value = scores[model]
            return None if value is None else np.full(len(aside.x), value)

        monkeypatch.setattr(choosing, "_tried", tried)

    return score


ALL = candidates(TARGET)


def test_candidates_begin_with_the_simplest_and_keep_to_what_is_given() -> None:
    networks = choosing.NETWORKS
    assert [(model.hidden, model.likelihood) for model in ALL] == [
        (hidden, likelihood)
        for hidden in networks
        for likelihood in ("one-noise", "input-noise")
        for _ in TARGET.prior_precisions
    ]
    assert {model.activation for model in ALL} == {"silu"}
    assert candidates(TARGET, (4,), "relu", "input-noise") == [Model((4,), "relu", "input-noise", 0.1)]
    classes = ClassTarget("sort", ("a", "b"))
    assert candidates(classes, (4,), None, None) == [Model((4,), "silu", "softmax", 0.1)]
    assert {model.prior for model in candidates(classes)} == {0.1, 1.0}  # A looser one lets draws be sure for nothing.
    assert Options(hidden=(4, 4)).model(TARGET) == Model((4, 4), "silu", "one-noise", 0.1)


def test_few_rows_take_the_simplest_and_say_so() -> None:
    chosen = chosen_of(choosing.LEAST_ROWS - 1, ALL)
    assert chosen == Chosen(ALL[0], "the simplest, as 199 rows are too few to choose by (200 are needed)")


def test_what_is_given_is_taken_as_asked_for_on_any_number_of_rows() -> None:
    model = Model((4,), "relu", "input-noise", 0.1)
    for rows in (10, 1000):
        assert chosen_of(rows, [model]) == Chosen(model, "as asked for")


def test_noise_that_depends_on_the_input_is_found_and_all_candidates_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a whole choice with short chains; the true law has 0.4 nats a row more than the best with one noise."""
    for name, value in {"CHAINS": 2, "STEPS": 400, "START_STEPS": 300, "NETWORKS": ((4,), (5,))}.items():
        monkeypatch.setattr(choosing, name, value)
    models = candidates(TARGET)
    chosen = chosen_of(400, models)
    assert chosen.model.likelihood == "input-noise"
    assert "of 5" in chosen.reason
    assert "on 80 training rows set aside" in chosen.reason
    # The likelihood is chosen by one network, the network by that likelihood, and the prior by both.
    assert {(each["hidden"], each["likelihood"]) for each in chosen.tried} == {
        *(((5,), "one-noise"), ((5,), "input-noise"), ((4,), "input-noise")),
    }
    assert [each["prior"] for each in chosen.tried] == pytest.approx([0.1, 0.1, 0.1, 1.0, 0.01])
    scores = {(each["hidden"], each["likelihood"]): each for each in chosen.tried[:3]}
    assert all(np.isfinite([each["log_likelihood"], each["gap_se"]]).all() for each in chosen.tried)
    assert scores[(5,), "input-noise"]["log_likelihood"] > scores[(5,), "one-noise"]["log_likelihood"] + 0.1
    assert scores[(5,), "one-noise"]["gap_se"] > 0
    assert min(each["gap_se"] for each in chosen.tried) == 0


def test_the_best_wins_and_of_equals_the_simplest(scored: Any) -> None:
    scores = dict.fromkeys(ALL, -1.0)
    scored(scores)
    same_noise = [model for model in ALL if model.likelihood == "one-noise"]
    assert chosen_of(300, same_noise).model == ALL[0]
    best = ALL[-1]
    better = {each: -0.9 + 0.2 * (each.hidden == best.hidden) for each in ALL if each.likelihood == best.likelihood}
    scored(scores | better | {best: -0.5})
    chosen = chosen_of(300, ALL)
    assert chosen.model == best
    assert chosen.reason == "the best of 7 on 60 training rows set aside"


@pytest.mark.parametrize(("ahead", "chosen"), [(0.1, "input-noise"), (0.2, "one-noise")])
def test_a_likelihood_with_the_others_as_special_cases_gives_way_to_what_is_clearly_better(
    ahead: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 60 rows, whose scores differ by one nat to either side, the error of the distance is .13."""

    def tried(rest: Data, aside: Data, target: Any, model: Model, *others: Any) -> np.ndarray:
        return np.resize([-1.0, 1.0], len(aside.x)) if model.likelihood == "input-noise" else np.full(60, ahead)

    monkeypatch.setattr(choosing, "_tried", tried)
    choice = chosen_of(300, ALL)
    assert choice.model == next(model for model in ALL if model.likelihood == chosen)
    assert ("; input-noise, as one-noise is not clearly better" in choice.reason) == (chosen == "input-noise")


def test_a_candidate_that_diverges_is_dropped_and_named(scored: Any) -> None:
    models = candidates(TARGET, likelihood="one-noise", prior=0.1)
    scored(dict.fromkeys(models, -1.0) | {models[0]: None, models[2]: -0.5})
    chosen = chosen_of(300, models)
    assert chosen.model == models[2]
    assert chosen.reason.endswith("; diverged: a hidden layer of 50 (silu), one-noise, prior precision 0.1")
    scores = {each["hidden"]: (each["log_likelihood"], each["gap_se"]) for each in chosen.tried}
    assert [scores[model.hidden] for model in models] == [(None, None), (-1.0, 0.0), (-0.5, 0.0), (-1.0, 0.0)]


def test_where_time_is_up_the_best_so_far_is_taken_and_said_so(scored: Any) -> None:
    scored(dict.fromkeys(ALL, -1.0))
    chosen = choose_model(noisier_to_the_right(300), TARGET, ALL, KEY, deadline=0.0)
    assert len(chosen.tried) == 1
    assert chosen.model._asdict() == {name: chosen.tried[0][name] for name in Model._fields}
    assert chosen.reason == "the best of 1 on 60 training rows set aside; there was no time to try more"


def test_where_all_diverge_there_is_nothing_to_sample(scored: Any) -> None:
    scored(dict.fromkeys(ALL))
    with pytest.raises(db.Divergence, match="no network could be sampled: standardise the inputs, or look for values"):
        chosen_of(300, ALL)


def test_chains_that_diverge_count_as_a_candidate_that_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(*others: Any) -> Any:
        raise db.Divergence("far off")

    monkeypatch.setattr(choosing.sharing, "optimised", diverge)
    with pytest.raises(db.Divergence, match="no network could be sampled"):
        chosen_of(300, ALL)


@pytest.mark.parametrize(("broken", "out"), [(10, False), (50, True)], ids=["a few rows", "most rows"])
def test_rows_that_a_candidate_says_nothing_finite_of_count_for_little_or_put_it_out(
    broken: int, out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = np.r_[np.full(broken, np.nan), np.zeros(60 - broken)]
    said = SimpleNamespace(log_prob=lambda y: scores)
    for name in ("optimised", "whole_chain"):
        monkeypatch.setattr(choosing.sharing, name, lambda *given, **named: None)
    monkeypatch.setattr(choosing, "_predicted", lambda *given: said)
    data = noisier_to_the_right(60)
    tried = choosing._tried(data, data, TARGET, ALL[0], KEY, 10)
    if out:
        assert tried is None
    else:
        assert tried is not None
        assert tried.min() == -choosing.MOST_BELOW


def test_a_fit_goes_on_with_what_is_left(scored: Any) -> None:
    """And tells the choice, with its options filled in."""
    models = candidates(TARGET, (4,), "relu")
    scored({models[0]: None, models[1]: -1.0})
    options = Options(hidden=(4,), activation="relu", student_hidden=(8,), chains=2, max_steps=30, time_budget=None)
    fitted = db.fit.fit(noisier_to_the_right(300), TARGET, KEY, options)
    assert fitted.chosen.model == models[1]
    assert "; diverged: a hidden layer of 4 (relu), one-noise" in fitted.chosen.reason
    assert (fitted.options.hidden, fitted.options.activation) == ((4,), "relu")
    assert (fitted.options.likelihood, fitted.options.head) == ("input-noise", "mixture")
    assert np.isfinite(fitted.predict(np.zeros((3, 1), np.float32)).mean).all()


def test_networks_whose_chains_would_be_cut_short_are_left_out() -> None:
    """Few rows leave time for the largest network; more do not, unless there is more effort."""

    def left(rows: int, effort: float = 1.0) -> set[tuple[int, ...]]:
        x = np.zeros((rows, 8), np.float32)
        options = Options(effort=effort)
        return {model.hidden for model in automatic._affordable(ALL, Data(x, x[:, :1]), TARGET, options)}

    assert left(300) == set(choosing.NETWORKS)
    assert left(2_000) == set(choosing.NETWORKS[:3])
    assert left(2_000, effort=16.0) == set(choosing.NETWORKS)
    assert left(1_000_000) == set(choosing.NETWORKS)  # None takes its steps on all rows.
