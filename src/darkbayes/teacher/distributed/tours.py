"""Where each chain is at which round of a distributed run, and for how many steps; plain numbers, no communication.

There are S workers and S groups of chains, one at each worker. A *round* is one trajectory: tau_s steps of the group
that is at worker s. Then every group is handed to a neighbour, all the same way, so that there is one at each worker
again. A *tour* is S rounds, in which every group sees each shard once. Tours change direction,

    1 2 3 | 2 1 3 | 1 2 3 | 2 1 3 ...        (three workers, the group that starts at the first)

because tours that go round and round have an order, and what they sample is off by the first power of the
trajectories' length; this sequence reads the same backwards, so the first power cancels (as in Strang's splitting).
"""

from collections.abc import Sequence

import numpy as np


def places_passed(number: int, workers: int) -> int:
    """How many workers further than its first one a group is in round `number`.

    >>> [places_passed(number, 3) for number in range(8)]
    [0, 1, 2, 1, 0, 2, 0, 1]
    """
    phase = number % (2 * workers)
    return phase if phase < workers else (-2 - phase) % workers


def move_after(number: int, workers: int) -> int:
    """Where every group goes after round `number`: 1 to the next worker, -1 to the one before.

    >>> [move_after(number, 3) for number in range(8)]
    [1, 1, -1, -1, -1, 1, 1, 1]
    """
    return 1 if (number + 1) % (2 * workers) < workers else -1


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
