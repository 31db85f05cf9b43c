"""A guarantee holds the truth as often as was asked, however wrong the model is, and is the same in every form."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import stats

from darkbayes.errors import InvalidInput
from darkbayes.fit import guarantee_level
from darkbayes.outcomes import (
    ClassPrediction,
    ClassTarget,
    CountPrediction,
    CountTarget,
    NumberPrediction,
    NumberTarget,
    SeveralTarget,
)
from darkbayes.outcomes.guarantee import Guarantee, by_luck, calibrated
from darkbayes.tables.schema import schema_from_dict, schema_to_dict

RNG = np.random.default_rng(0)
START = RNG.bit_generator.state
PLAIN = NumberTarget("weight", "identity", 0.0, 1.0, -3.0, 3.0)
LOG = NumberTarget("price", "log", 0.0, 1.0, 0.1, 9.0)
PAIR = SeveralTarget((LOG, PLAIN))
SORTS = ClassTarget("sort", ("a", "b", "c"))
COUNT = CountTarget("calls", 2.0, 0.0, 9.0)
GROUPS, SIZE = 1_000, 20  # Of a group, all rows but the last calibrate, and the last is counted.


@pytest.fixture(autouse=True)
def begin_anew():
    """The same numbers for a test, whichever others run."""
    RNG.bit_generator.state = START


def mixtures(rows: int, logs: tuple[bool, ...], components: int = 3) -> NumberPrediction:
    shape = (components, rows, len(logs))
    logits = np.log(RNG.dirichlet(np.ones(components), shape[1:]).transpose(2, 0, 1))
    parts = logits, RNG.normal(size=shape), np.exp(RNG.normal(size=shape))
    return dataclasses.replace(NumberPrediction.standard(*parts), logs=logs)


def counts(rows: int) -> CountPrediction:
    rate = np.exp(RNG.normal(size=(2, rows, 1)))
    return CountPrediction.of_mixture(np.full(rate.shape, np.log(0.5)), rate, np.full(rate.shape, 0.3))


def classes(rows: int, sharpness: float = 1.0) -> ClassPrediction:
    logits = sharpness * RNG.normal(size=(rows, 3))
    return ClassPrediction.from_probs(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))


def wrong(kind: str, rows: int) -> tuple[Any, Any, np.ndarray]:
    """A target, predictions of it that are biased and far too sure, and the truth."""
    if kind == "count":
        said = counts(rows)
        return COUNT, said, RNG.poisson(4 * said.mean).astype(np.float64)
    if kind == "class":
        said = classes(rows, 5.0)
        return SORTS, said, np.argmax(said.log_probs / 5 + RNG.gumbel(size=(rows, 3)), axis=1)
    target = {"plain": PLAIN, "log": LOG, "pair": PAIR}[kind]
    logs = tuple(number.logarithmic for number in target.numbers)
    said = mixtures(rows, logs)
    y = 0.5 + 3 * RNG.normal(size=(rows, len(logs)))
    return target, said, np.where(logs, np.exp(y), y)


@pytest.mark.parametrize("kind", ["plain", "log", "class"])
def test_a_new_row_is_held_with_the_probability_of_its_rank(kind: str) -> None:
    """Of 19 rows that calibrate 0.9 the 18th is the bound: 18 in 20 are held. Fails once in 10,000 runs."""
    _, said, y = wrong(kind, GROUPS * SIZE)
    scores = said.strangeness(y)[:, -1].reshape(GROUPS, SIZE)
    held = sum(group[-1] <= calibrated(group[:-1, None], 0.9).bounds[0] for group in scores)
    low, high = stats.binom.ppf([5e-5, 1 - 5e-5], GROUPS, 0.9)
    assert low <= held <= high


@pytest.mark.parametrize("kind", ["plain", "log", "pair", "class", "count"])
def test_regions_of_a_wrong_model_hold_the_truth_as_often_as_was_asked(kind: str) -> None:
    target, said, y = wrong(kind, 8_000)
    level = 0.8
    given = target.guaranteed(said[:4_000], y[:4_000], level)
    shown = given.own_unit(said[4_000:]) if kind in ("class", "count") else said[4_000:]
    shown = dataclasses.replace(shown, guarantee=given.guarantee)
    share, reach = shown.covered(y[4_000:], level).mean(axis=0), 1.96 * np.sqrt(level * (1 - level) / 2_000)
    chance = level - reach, level + reach  # Of those that calibrate, and of those that are counted.
    assert (share >= chance[0]).all()
    # Counts and classes are few: what is just enough may be more than was asked.
    assert (share <= (1.0 if kind in ("class", "count") else chance[1])).all()
    assert (said[4_000:].covered(y[4_000:], level).mean(axis=0) < chance[0]).all()


@pytest.mark.parametrize("kind", ["plain", "log", "pair", "count"])
def test_an_interval_holds_just_the_truths_that_are_not_too_strange(kind: str) -> None:
    _, said, y = wrong(kind, 500)
    y[:20] *= 1_000.0  # Beyond all that the model thinks possible.
    scores = said.strangeness(y)
    assert (scores >= 0).all()
    assert np.isfinite(scores).all()
    for bound in (0.1, 1.0, 3.0, 5.9, 6.1, 40.0):
        low, high = said.reach(np.full(y.shape[1], bound))
        assert np.isfinite(low).all()
        assert np.isfinite(high).all()
        np.testing.assert_array_equal((low <= y) & (y <= high), scores <= bound)


def test_of_a_gaussian_the_interval_is_that_of_normalised_residuals() -> None:
    """As MAPIE's ResidualNormalisedScore has it: mean +- q std, q a quantile of |y - mean| / std."""
    said, y, level = mixtures(61, (False,), components=1), 3 * RNG.normal(size=(61, 1)), 0.9
    given = PLAIN.guaranteed(said[:51], y[:51], level)
    residuals = np.abs(y - said.mean)[:51] / said.std[:51]
    q = np.quantile(residuals, np.ceil(52 * level) / 51, method="inverted_cdf")
    low, high = dataclasses.replace(said[51:], guarantee=given.guarantee).interval(level)
    np.testing.assert_allclose(low, (said.mean - q * said.std)[51:], rtol=1e-5)
    np.testing.assert_allclose(high, (said.mean + q * said.std)[51:], rtol=1e-5)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_sets_are_the_least_ambiguous_ones_and_never_empty(level: float) -> None:
    """As MAPIE's "lac" has them: p >= 1 - q, q a quantile of 1 - p of the true class; and the most probable class."""
    said = classes(400, 2.0)
    y = np.argmax(said.log_probs + RNG.gumbel(size=(400, 3)), axis=1)
    given = SORTS.guaranteed(said[:201], y[:201], level)
    q = np.quantile(1 - said.probs[np.arange(201), y[:201]], np.ceil(202 * level) / 201, method="inverted_cdf")
    sets = given.own_unit(said[201:]).sets(level)
    expected, best = said.probs[201:] >= 1 - q - 1e-5, said.probs[201:].argmax(axis=1)
    assert expected.any(axis=1).all() == (level > 0.5)
    expected[np.arange(199), best] = True
    np.testing.assert_array_equal(sets, expected)


def test_without_a_guarantee_a_set_has_the_most_probable_classes_that_have_the_level() -> None:
    said = ClassPrediction.from_probs(np.asarray([[0.5, 0.3, 0.2], [0.05, 0.95, 0.0], [0.1, 0.2, 0.7]]))
    expected = [[True, True, False], [False, True, False], [False, True, True]]
    np.testing.assert_array_equal(said.sets(0.75), expected)
    np.testing.assert_array_equal(said.width(0.75)[:, 0], [2, 1, 2])
    np.testing.assert_array_equal(said.covered(np.asarray([1, 0, 2]), 0.75)[:, 0], [True, False, True])


@pytest.mark.parametrize("kind", ["plain", "count"])
@pytest.mark.parametrize("bound", [0.0, 0.7, 4.0, 9.0])
def test_intervals_of_other_levels_lie_around_the_guaranteed_one_or_inside(kind: str, bound: float) -> None:
    said = dataclasses.replace(wrong(kind, 50)[1], guarantee=Guarantee(0.8, 100, (bound,)))
    ends = np.asarray([said.interval(level) for level in (0.3, 0.79, 0.8, 0.81, 0.99)])
    assert (np.diff(ends[:, 0], axis=0) <= 0).all()
    assert (np.diff(ends[:, 1], axis=0) >= 0).all()


@pytest.mark.parametrize(("level", "needed"), [(0.5, 1), (0.9, 9), (0.95, 19), (0.99, 99)])
def test_too_few_rows_are_refused_with_how_many_are_needed(level: float, needed: int) -> None:
    scores = RNG.random((needed, 1))
    assert calibrated(scores, level).bounds[0] == pytest.approx(scores.max(), rel=1e-5)
    with pytest.raises(
        InvalidInput, match=rf"guarantee {level} needs at least {needed} rows .* there are {needed - 1}: give more"
    ):
        calibrated(scores[1:], level)


def test_the_luck_of_the_rows_that_calibrate_is_as_large_as_was_said() -> None:
    """2,000 calibrations by 30 uniform scores, of which the bound is the share that is held."""
    bounds = np.asarray([calibrated(rows[:, None], 0.9).bounds[0] for rows in RNG.random((2_000, 30))])
    low, high = by_luck(0.9, 30)
    assert np.mean(bounds < low) == pytest.approx(0.025, abs=0.012)
    assert np.mean(bounds > high) == pytest.approx(0.025, abs=0.012)


def test_a_student_that_says_nothing_finite_gets_no_guarantee() -> None:
    scores = np.where(np.arange(50) < 30, np.inf, 1.0)[:, None]
    with pytest.raises(InvalidInput, match="not finite for 60% of the rows"):
        calibrated(scores, 0.9)


@pytest.mark.parametrize("target", [PLAIN, PAIR, SORTS, COUNT], ids=lambda target: target.name)
def test_a_guarantee_is_stored_with_the_target_and_files_without_one_are_read(target: Any) -> None:
    given = dataclasses.replace(target, guarantee=Guarantee(0.9, 50, (1.5, 2.5)))
    assert schema_from_dict(schema_to_dict(given)) == given
    stored = schema_to_dict(target)
    del stored["guarantee"]
    assert schema_from_dict(stored) == target


def test_the_level_of_a_fit_is_checked_against_the_rows_held_out() -> None:
    assert guarantee_level("none", 1_000) is None
    for asked in ("1", "-0.1", "0", "nan", "much", ""):
        with pytest.raises(InvalidInput, match=r"guarantee must .* not"):
            guarantee_level(asked, 1_000)
    with pytest.raises(InvalidInput, match=r"guarantee 0.95 needs 19 rows .* there are 12: give more rows"):
        guarantee_level("0.95", 12)
