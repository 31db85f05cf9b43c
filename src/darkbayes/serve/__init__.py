"""Predictions over HTTP from an exported student, with a page to try it: FastAPI over onnxruntime, without JAX."""

from darkbayes.serve.app import make_app
from darkbayes.serve.limits import Limits
from darkbayes.serve.running import serve

__all__ = ["Limits", "make_app", "serve"]
