"""Which rows to learn from and which to test on."""

import numpy as np

from darkbayes.errors import InvalidInput, require_count

Split = tuple[np.ndarray, np.ndarray]  # Indices of the rows to train on and of those to test on.


def standard_splits(examples: int, number: int = 20) -> list[Split]:
    """The splits of the UCI benchmark of Hernandez-Lobato and Adams (2015), bit for bit: nine tenths to train.

    Their files are drawn one after another from one old generator, so the first of twenty are the first of any number.

    Args:
        examples, number: how many rows the data set has, and how many splits.

    Returns:
        Indices of the rows to train on and of those to test on, for each split.

    >>> train, test = standard_splits(506)[0]
    >>> len(train), len(test), test[:3]
    (455, 51, array([...]))
    """
    examples, number = require_count("examples", examples, 2), require_count("number", number)
    generator = np.random.RandomState(1)  # A newer generator would give other splits.
    cut = int(np.floor(0.9 * examples + 0.5))
    if cut == examples:
        raise InvalidInput(f"examples={examples} leaves no row to test on: at least 6 are needed")
    orders = [generator.choice(range(examples), examples, replace=False) for _ in range(number)]
    return [(order[:cut].astype(np.int64), order[cut:].astype(np.int64)) for order in orders]


def random_splits(examples: int, test: int, number: int, seed: int = 0) -> list[Split]:
    """Random splits with `test` rows to test on; the paper's own for Boston, never published, had 50 of 506.

    Args:
        examples, test: how many rows the data set has, and how many of them to test on.
        number: how many splits.
        seed: where the randomness comes from.

    Returns:
        Indices of the rows to train on and of those to test on, for each split.

    >>> [(len(train), len(test)) for train, test in random_splits(506, test=50, number=2)]
    [(456, 50), (456, 50)]
    """
    examples, test = require_count("examples", examples, 2), require_count("test", test)
    if test >= examples:
        most = examples - 1
        raise InvalidInput(f"test={test} leaves none of the {examples} examples to train on: use at most {most}")
    generator = np.random.default_rng(require_count("seed", seed, 0))
    orders = [generator.permutation(examples) for _ in range(require_count("number", number))]
    return [(order[test:], order[:test]) for order in orders]
