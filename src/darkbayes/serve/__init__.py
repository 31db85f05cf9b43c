"""Predictions over HTTP from an exported student, with a page to try it: FastAPI over onnxruntime, without JAX.

server.py       the process: where it listens, how it stops
connections.py  who may be connected, and for how long
gate.py         who may ask; logs
app.py          what is answered
pool.py         processes that do the work, and who waits for them; process.py is one of them, work.py its work
reading.py, description.py, inference.py     bodies and answers
limits.py, measures.py                       what may be asked for, and what is counted
"""

from darkbayes.serve.app import make_app as make_app
from darkbayes.serve.limits import Limits as Limits
from darkbayes.serve.server import serve as serve
