"""Where a student goes from here: an ONNX file for onnxruntime, a PyTorch module, plain arrays."""

from darkbayes.export.onnx import to_onnx
from darkbayes.export.pytorch import to_state_dict, to_torch
from darkbayes.export.quantise import quantisation_loss, quantise
from darkbayes.export.weights import to_arrays

__all__ = ["quantisation_loss", "quantise", "to_arrays", "to_onnx", "to_state_dict", "to_torch"]
