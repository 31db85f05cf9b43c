"""Where each chain is at which round of a distributed run, and for how many steps; plain numbers, no communication.

There are S workers and S groups of chains, one at each worker. A *round* is one trajectory: tau_s steps of the group
that is at worker s. Then the groups move on. A *tour* is 2S rounds, there and back: every group is handed to the next
worker S-1 times, stays where it is for one round more, and returns the same way,

    1 2 3 | 3 2 1 | 1 2 3 | 3 2 1 ...        (three workers, the group that starts at the first)

so that each shard gets two trajectories of every group. Why back: tours that go round and round have an order, and
what they sample is off by the first power of the trajectories' length; where the way back undoes the order, the first
power cancels and the second is left (as in Strang's splitting).
"""

from collections.abc import Sequence

import numpy as np


def rounds_of_tour(workers: int) -> int:
    """How many rounds there are before all groups are back and have seen each shard twice."""
    return 2 * workers


def places_passed(number: int, workers: int) -> int:
    """How many workers away from its first one a group is in round `number`.

    >>> [places_passed(number, 3) for number in range(8)]
    [0, 1, 2, 2, 1, 0, 0, 1]
    """
    phase = number % rounds_of_tour(workers)
    return min(phase, rounds_of_tour(workers) - 1 - phase)


def move_after(number: int, workers: int) -> int:
    """Where every group goes after round `number`: 1 to the next worker, -1 to the one before, 0 nowhere."""
    return places_passed(number + 1, workers) - places_passed(number, workers)


def lengths_by_speed(trajectory: int, speeds: Sequence[float] | np.ndarray) -> np.ndarray:
    """Trajectories of `trajectory` steps on average, shared out so that all workers end a round together.

    >>> lengths_by_speed(100, [10.0, 30.0])
    array([ 50, 150], dtype=int32)
    """
    speeds = np.asarray(speeds, np.float64)
    lengths = np.rint(trajectory * len(speeds) * speeds / speeds.sum())
    return np.maximum(lengths, 1).astype(np.int32)


def shares_of(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """The share of its steps that a chain takes at each shard: all shards are visited equally often.

    >>> shares_of([50, 150])
    array([0.25, 0.75])
    """
    lengths = np.asarray(lengths, np.float64)
    return lengths / lengths.sum()


def paths_of_groups(kept: np.ndarray, first_round: int) -> np.ndarray:
    """What was kept by worker and round, ``[workers, rounds, ...]``, as what became of each group of chains."""
    workers, rounds = kept.shape[:2]
    passed = np.array([places_passed(first_round + number, workers) for number in range(rounds)], int)
    at = (np.arange(workers)[:, None] + passed) % workers
    return kept[at, np.arange(rounds)]
