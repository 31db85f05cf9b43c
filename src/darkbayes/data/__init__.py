"""Where examples come from."""

from darkbayes.data.arrays import as_data, as_inputs, check_batch_size, minibatch
from darkbayes.data.toys import TOY1D_NOISE_VARIANCE, toy1d, toy2d

__all__ = ["TOY1D_NOISE_VARIANCE", "as_data", "as_inputs", "check_batch_size", "minibatch", "toy1d", "toy2d"]
