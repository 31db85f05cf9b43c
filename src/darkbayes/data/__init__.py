"""Where examples come from."""

from darkbayes.data import augmentation as augmentation
from darkbayes.data.arrays import TOY1D_NOISE_VARIANCE as TOY1D_NOISE_VARIANCE
from darkbayes.data.arrays import as_data as as_data
from darkbayes.data.arrays import toy1d as toy1d
from darkbayes.data.arrays import toy2d as toy2d
from darkbayes.data.named import Images as Images
from darkbayes.data.named import NamedTable as NamedTable
from darkbayes.data.named import load as load
from darkbayes.data.named import random_splits as random_splits
from darkbayes.data.named import standard_splits as standard_splits
from darkbayes.data.sources import Dataset as Dataset
from darkbayes.namespaces import own


def __dir__() -> list[str]:
    return own(globals(), "augmentation")
