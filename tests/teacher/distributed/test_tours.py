"""Where each chain is at which round: plain numbers."""

import numpy as np
import pytest

from darkbayes.teacher.distributed.tours import lengths_by_speed, move_after, paths_of_groups, places_passed


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_every_group_sees_each_shard_once_a_tour_and_no_two_meet(workers: int) -> None:
    rounds = 4 * workers
    at = np.array(
        [[(group + places_passed(number, workers)) % workers for number in range(rounds)] for group in range(workers)]
    )
    for number in range(0, rounds, workers):
        assert (np.sort(at[:, number : number + workers], axis=1) == np.arange(workers)).all()
    assert (np.sort(at, axis=0) == np.arange(workers)[:, None]).all()
    moves = [move_after(number, workers) for number in range(rounds - 1)]
    np.testing.assert_array_equal((at[:, :-1] + moves) % workers, at[:, 1:])


@pytest.mark.parametrize("workers", [3, 4, 7])
def test_tours_read_the_same_backwards(workers: int) -> None:
    """About the middle of some round, so that what the order of shards does to the first power cancels."""
    cycle = [places_passed(number, workers) for number in range(2 * workers)]
    backwards = cycle[::-1]
    assert any(cycle == backwards[by:] + backwards[:by] for by in range(2 * workers))


def test_lengths_follow_speed_and_are_never_nothing() -> None:
    np.testing.assert_array_equal(lengths_by_speed(10, [1.0, 1.0, 2.0]), [8, 8, 15])
    np.testing.assert_array_equal(lengths_by_speed(10, [1e-6, 1.0]), [1, 20])


def test_the_paths_of_groups_undo_their_travels() -> None:
    kept = np.array([[(worker - places_passed(3 + number, 3)) % 3 for number in range(9)] for worker in range(3)])
    np.testing.assert_array_equal(paths_of_groups(kept, 3), np.arange(3)[:, None] * np.ones(9))
