"""Where examples come from."""

from darkbayes.data.arrays import as_data, as_inputs, check_batch_size, minibatch
from darkbayes.data.catalogue import CATALOGUE, Dataset, find
from darkbayes.data.named import Images, Table, load
from darkbayes.data.sources import cache_folder, fetch, whereabouts
from darkbayes.data.splits import random_splits, standard_splits
from darkbayes.data.toys import TOY1D_NOISE_VARIANCE, toy1d, toy2d

__all__ = [
    "CATALOGUE",
    "TOY1D_NOISE_VARIANCE",
    "Dataset",
    "Images",
    "Table",
    "as_data",
    "as_inputs",
    "cache_folder",
    "check_batch_size",
    "fetch",
    "find",
    "load",
    "minibatch",
    "random_splits",
    "standard_splits",
    "toy1d",
    "toy2d",
    "whereabouts",
]
