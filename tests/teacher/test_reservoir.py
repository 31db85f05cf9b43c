"""The reservoir is a uniform sample of all draws so far, exactly."""

import math
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from darkbayes.teacher.keeping import Reservoir, reservoir_add, reservoir_init, reservoir_pick

pytestmark = pytest.mark.usefixtures("strict")

COPIES = 20_000


def fill(size: int, count: int, copies: int = COPIES) -> Reservoir:
    """Many reservoirs that were offered the draws 1, 2, ..., count."""

    @jax.jit
    def run(keys: jax.Array) -> Reservoir:
        def one(key: jax.Array) -> Reservoir:
            def offer(reservoir: Reservoir, step: tuple[jax.Array, jax.Array]) -> tuple[Reservoir, None]:
                return reservoir_add(step[0], reservoir, step[1]), None

            draws = jnp.arange(1, count + 1, dtype=jnp.int32)
            start = reservoir_init(size, jnp.int32(-1))
            return jax.lax.scan(offer, start, (jax.random.split(key, count), draws))[0]

        return jax.vmap(one)(keys)

    return run(jax.random.split(jax.random.key(0), copies))


def test_each_new_draw_goes_to_the_slot_that_algorithm_r_says() -> None:
    """The exact argument: the n-th draw goes to slot j uniform on 0..n-1, and is dropped where there is no such slot.

    If after n - 1 draws every subset of `size` of them is equally likely, this rule keeps it so after n (Vitter, 1985).
    """
    reservoir = Reservoir(jnp.array([10, 11, 12], jnp.int32), jnp.int32(6))
    for key in jax.random.split(jax.random.key(0), 20):
        slot = int(jax.random.randint(key, (), 0, 7))
        added = reservoir_add(key, reservoir, jnp.int32(99))
        expected = [10, 11, 12]
        if slot < 3:
            expected[slot] = 99
        assert added.slots.tolist() == expected
        assert int(added.count) == 7


@pytest.mark.parametrize(("size", "count"), [(4, 3), (4, 4), (1, 1)])
def test_a_reservoir_that_is_not_overfull_keeps_every_draw_in_order(size: int, count: int) -> None:
    reservoir = fill(size, count, copies=3)
    np.testing.assert_array_equal(reservoir.count, count)
    np.testing.assert_array_equal(reservoir.slots[:, :count], np.tile(np.arange(1, count + 1), (3, 1)))
    np.testing.assert_array_equal(reservoir.slots[:, count:], 0)


@pytest.mark.parametrize(("size", "count"), [(2, 3), (2, 5), (3, 6)])
def test_all_subsets_of_the_draws_are_equally_likely(size: int, count: int) -> None:
    """Chi-square over all subsets, 20,000 reservoirs; fails by chance with probability 1e-4 a case for another seed."""
    slots = np.sort(np.asarray(fill(size, count).slots), axis=1)
    subsets = Counter(map(tuple, slots.tolist()))
    assert len(subsets) == math.comb(count, size)
    assert stats.chisquare(list(subsets.values())).pvalue > 1e-4


def test_a_long_past_is_kept_as_likely_as_the_present() -> None:
    """Chi-square of one pick from each reservoir of 4 of 50; fails by chance with probability 1e-4 for another seed."""
    reservoirs = fill(4, 50)
    assert all(len(set(row)) == 4 for row in reservoirs.slots[:100].tolist())
    keys = jax.random.split(jax.random.key(1), COPIES)
    picks = jax.vmap(lambda key, reservoir: reservoir_pick(key, reservoir, 1, jnp.int32(0))[0])(keys, reservoirs)
    assert stats.chisquare(np.bincount(picks - 1, minlength=50)).pvalue > 1e-4


@pytest.mark.parametrize(("count", "filled"), [(1, 1), (3, 3), (5, 5), (9, 5)])
def test_picks_are_uniform_over_the_filled_slots(count: int, filled: int) -> None:
    """Chi-square of 10,000 picks; fails by chance with probability 1e-4 a case for another seed."""
    reservoir = Reservoir(jnp.arange(5, dtype=jnp.int32), jnp.int32(count))
    picks = np.asarray(reservoir_pick(jax.random.key(count), reservoir, 10_000, jnp.int32(-1)))
    counts = np.bincount(picks, minlength=5)
    assert counts[filled:].sum() == 0
    assert stats.chisquare(counts[:filled]).pvalue > 1e-4 or filled == 1


def test_an_empty_reservoir_gives_what_it_is_told_to_give_instead() -> None:
    instead = jnp.array([1.0, 2.0])
    picks = reservoir_pick(jax.random.key(0), reservoir_init(3, instead), 4, instead)
    np.testing.assert_array_equal(picks, np.tile(instead, (4, 1)))


def test_all_leaves_of_a_draw_stay_together(trees_equal: Any) -> None:
    def draw(number: int) -> dict[str, Any]:
        return {"w": jnp.full((2, 3), number, jnp.float32), "b": (jnp.float32(number), ())}

    reservoir = reservoir_init(3, draw(-1))
    for number, key in enumerate(jax.random.split(jax.random.key(1), 10)):
        reservoir = reservoir_add(key, reservoir, draw(number))
    picked = reservoir_pick(jax.random.key(2), reservoir, 4, draw(-1))
    assert picked["w"].shape == (4, 2, 3)
    for row in range(4):
        number = int(picked["b"][0][row])
        assert trees_equal(jax.tree.map(lambda leaf, row=row: leaf[row], picked), draw(number))
