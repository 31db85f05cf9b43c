"""Where a student goes from here: an ONNX file for onnxruntime, a PyTorch module."""

from darkbayes.export.onnx import to_onnx

__all__ = ["to_onnx"]
