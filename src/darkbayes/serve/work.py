"""What is done to answer a request, in whatever process: read its body, predict, write the answer."""

import csv
import io
import json
import sys
import traceback
from typing import Any, Literal, NamedTuple

from darkbayes.serve import inference
from darkbayes.serve.description import as_csv, as_json
from darkbayes.serve.limits import Limits, Refused, as_bytes
from darkbayes.serve.reading import Reader
from darkbayes.shipped import Shipped
from darkbayes.tables.schema import TableSchema

JSON = "application/json"
MOST_TOLD = 4000  # Bytes of notes that travel in the head of a CSV's answer.


class Task(NamedTuple):
    """A request for predictions, of which nothing has been read yet but its head."""

    body: bytes
    route: Literal["predict", "infer"] = "predict"
    sends_csv: bool = False
    wants_csv: bool = False
    level: float | None = None
    head: int | None = None  # Bytes of JSON before tensors in binary.


class Answer(NamedTuple):
    """What a request is answered with."""

    body: bytes
    status: int = 200
    media_type: str = JSON
    headers: dict[str, str] = {}  # noqa: RUF012
    rows: int = 0  # Predicted.


class Worker:
    """Answers requests to one student, which the Open Inference Protocol calls by this name."""

    def __init__(self, shipped: Shipped, limits: Limits, name: str):
        self.shipped, self.name, self.limits = shipped, name, limits
        self.reader = Reader(shipped.schema, limits)

    def warm_up(self) -> None:
        """Read and write a row without values: the first request need not wait for what does so to be loaded."""
        if isinstance(self.shipped.schema, TableSchema):
            names = list(self.shipped.schema.wanted)
            self.answer(Task(as_bytes({"rows": [dict.fromkeys(names)]})))
            line = io.StringIO()
            csv.writer(line, quoting=csv.QUOTE_ALL).writerows([names, [""] * len(names)])
            self.answer(Task(line.getvalue().encode(), sends_csv=True, wants_csv=True))

    def answer(self, task: Task) -> Answer:
        """The answer, or why there is none; never an exception."""
        try:
            return self._infer(task) if task.route == "infer" else self._predict(task)
        except Refused as problem:
            return Answer(problem.body, problem.status, headers=problem.headers)
        except Exception as problem:
            traceback.print_exc(file=sys.stderr)
            remedy = "this is a fault of the service: see its log, and report it"
            return Answer(as_bytes({"error": f"the service failed ({type(problem).__name__})", "remedy": remedy}), 500)

    def _predict(self, task: Task) -> Answer:
        asked = self.reader.csv(task.body) if task.sends_csv else self.reader.json(task.body)
        target = self.shipped.schema.target
        level = asked.level or task.level or target.level
        prediction, outside = self.shipped.predict(asked.inputs), self.shipped.schema.outside(asked.inputs)
        rows = len(prediction)
        if not task.wants_csv:
            return Answer(as_json(prediction, target, level, outside, asked.notes), rows=rows)
        notes = {"darkbayes-notes": json.dumps(asked.notes)[:MOST_TOLD]}
        return Answer(as_csv(prediction, target, level, outside), 200, "text/csv; charset=utf-8", notes, rows)

    def _infer(self, task: Task) -> Answer:
        asked = inference.read(task.body, task.head, self.shipped, self.limits)
        values = self.shipped.run(asked.inputs, [output.name for output in asked.outputs])
        body, head = inference.written(asked, values, self.name)
        rows = len(next(iter(asked.inputs.values())))
        if head is None:
            return Answer(body, rows=rows)
        return Answer(body, 200, "application/octet-stream", {inference.HEAD: str(head)}, rows)


def as_message(fields: Task | Answer) -> tuple[bytes, bytes]:
    """A task or an answer as JSON and a body, as it travels between processes."""
    about: dict[str, Any] = fields._asdict()
    body = about.pop("body")
    return json.dumps(about).encode(), body
