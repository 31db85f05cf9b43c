"""Rows that do not fit the device, streamed past the chains: a pool of them at a time.

A pool is P rows one after the other of all N, which lie in a random order. Each of the M examples of a step is drawn
from the present pool with replacement, and every `window` steps the next pool takes its place. An epoch takes all pools
from a random row on, in a random order; so which rows a step may see depends on the seed and on its number alone.

**What it does to the law of a sampler.** Every row is as likely as any other in any step, so gradients are unbiased.
Their noise has that of minibatches and that of pools, which stays for a window. As chains hardly move within one, it
adds up like noise that is new in each step, of a variance that is at most `window` M/P = u times that of minibatches, u
being how often a row is drawn before it goes: it is u + u^2 = E[k^2] for a Poisson k, where fresh rows would have u.
Over an epoch that noise cancels, as all rows come up; chains that forget more slowly than that see less of it. So a
sampler's variance is inflated at most as if the noise of minibatches were 1 + u times what it is, and a chain that is
tuned for `REUSE` = u is told to keep to a limit that is lower by as much. A distillation changes pools between two kept
draws: where `chain.thin` is longer than the window, it takes the place of that.
"""

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import numpy as np

from darkbayes.errors import require_count
from darkbayes.types import Data

REUSE = 0.5
"""How often a row is drawn before it goes, on average."""


class Feed:
    """Pools of rows by the number of the step, each read ahead while the one before it is in use.

    Args:
        load: ``load(start, stop)`` are the rows of these places in numpy; beyond the last come the first again.
        examples: N, how many there are.
        pool: P, how many are there at a time.
        window: how many steps they stay.
        seed: where the order comes from.

    >>> feed = Feed(lambda start, stop: Data(np.arange(start, stop)[:, None] % 10, np.zeros(stop - start)), 10, 5, 2, 0)
    >>> [np.asarray(feed.rows(step).x).ravel().tolist() for step in (0, 1, 2)]
    [[8, 9, 0, 1, 2], [8, 9, 0, 1, 2], [3, 4, 5, 6, 7]]
    """

    def __init__(self, load: Callable[[int, int], Data], examples: int, pool: int, window: int, seed: int):
        self.examples, self.pool = require_count("examples", examples), require_count("pool", pool)
        self.window, self._load, self._seed = require_count("window", window), load, seed
        self._reader = ThreadPoolExecutor(1, "rows")
        self._pools: dict[int, Future[Data]] = {}

    # Programs are compiled for shapes, whatever is fed.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Feed)

    def __hash__(self) -> int:
        return hash(Feed)

    def rows(self, step: int) -> Data:
        """The pool of a step, on the device."""
        now = step // self.window
        self._pools = {
            number: self._pools.get(number) or self._reader.submit(self._read, number) for number in (now, now + 1)
        }
        return self._pools[now].result()

    def left(self, step: int) -> int:
        """How many steps, from this one on, have the same pool."""
        return self.window - step % self.window

    def start(self, number: int) -> int:
        """The place of the first row of a pool."""
        epoch, place = divmod(number, max(self.examples // self.pool, 1))
        first, order = _epoch(self._seed, epoch, self.examples, self.pool)
        return int((first + order[place] * self.pool) % self.examples)

    def _read(self, number: int) -> Data:
        start = self.start(number)
        return jax.device_put(self._load(start, start + self.pool))


@functools.lru_cache(maxsize=2)
def _epoch(seed: int, epoch: int, examples: int, pool: int) -> tuple[int, np.ndarray]:
    """The row at which an epoch begins, and the order of its pools."""
    rng = np.random.default_rng([seed, epoch])
    return int(rng.integers(examples)), rng.permutation(max(examples // pool, 1))
