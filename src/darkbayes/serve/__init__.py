"""Predictions over HTTP from an exported student, with a page to try it: FastAPI over onnxruntime, without JAX."""

from darkbayes.serve.app import make_app as make_app
from darkbayes.serve.app import serve as serve
from darkbayes.serve.reading import Limits as Limits
