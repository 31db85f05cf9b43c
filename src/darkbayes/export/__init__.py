"""Where a student goes from here: an ONNX file for onnxruntime, a PyTorch module, plain arrays."""

from darkbayes.export.backbone import Backbone as Backbone
from darkbayes.export.backbone import load_backbone as load_backbone
from darkbayes.export.onnx import to_onnx as to_onnx
from darkbayes.export.pytorch import to_arrays as to_arrays
from darkbayes.export.pytorch import to_state_dict as to_state_dict
from darkbayes.export.pytorch import to_torch as to_torch
from darkbayes.export.quantise import quantise as quantise
from darkbayes.export.tracing import backbone_of as backbone_of
from darkbayes.namespaces import own


def __dir__() -> list[str]:
    return own(globals())
