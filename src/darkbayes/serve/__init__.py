"""Predictions over HTTP from an exported student, with a page to try it: FastAPI over onnxruntime, without JAX."""

from darkbayes.serve.app import make_app as make_app
from darkbayes.serve.limits import Limits as Limits
from darkbayes.serve.running import serve as serve
