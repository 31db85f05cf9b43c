"""A fit's folder: from a prepared table or images to a student, its scores, and all that a report shows.

Besides the files of every run (`runs.py`):

    schema.json               what the columns are, and what is predicted
    fit.json                  what was fitted to what, in words and numbers
    student.safetensors       the student's weights
    student.onnx              the student, with its schema inside
    held-out.safetensors      what student, teacher and plug-in network say of the rows held out, and the columns of
                              dependence.json in these rows
    examples.json             the most uncertain of these rows, and examples.safetensors if they are images
    dependence.json           predictions and uncertainty along each column
"""

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from darkbayes.checkpoints import named_leaves
from darkbayes.export import quantisation_loss, quantise, to_onnx
from darkbayes.files import write_arrays, write_bytes, write_json
from darkbayes.fit.automatic import Fitted, Options, fit, make_posterior, table_queries
from darkbayes.fit.insights import dependence
from darkbayes.fit.plugin import plug_in
from darkbayes.fit.prepare import Prepared
from darkbayes.fit.scores import log_densities, predictions, rows, score
from darkbayes.predict import Predictive, RegressionPredictive, predict_plugin
from darkbayes.report.fitted.folder import read_held
from darkbayes.report.fitted.numbers import gain_kept, scores
from darkbayes.runs import Run
from darkbayes.tables import (
    Category,
    ClassPredictions,
    ClassTarget,
    Frame,
    Predictions,
    RealTarget,
    TableSchema,
    schema_to_dict,
)

EXAMPLES = 12
"""Of the rows held out, how many of the most uncertain are told."""


def fit_folder(
    prepared: Prepared, config: dict[str, Any], options: Options, seed: int, out: Path, *, resume: bool, quiet: bool
) -> dict[str, Any]:
    """Fit, score and export; returns the results, which are in the folder as well."""
    began, run = time.time(), Run(out, config, resume=resume, quiet=quiet)
    schema, target = prepared.schema, prepared.schema.target
    classes = len(target.classes) if isinstance(target, ClassTarget) else None
    fit_key, plug_key = jax.random.split(jax.random.key(seed))
    queries = table_queries(schema) if isinstance(schema, TableSchema) else None
    # The plug-in network is as large as the student. It is trained beside the chains, which leave a core idle.
    wide = make_posterior(prepared.train, classes, dataclasses.replace(options, hidden=options.student_hidden))
    with ThreadPoolExecutor(1) as beside:
        plug = None if prepared.held_out is None else beside.submit(plug_in, wide, prepared.train, plug_key)
        fitted = fit(prepared.train, classes, fit_key, options, queries=queries, run=run)
    write_json(out / "schema.json", schema_to_dict(schema))
    write_arrays(out / "student.safetensors", named_leaves(fitted.params))
    write_bytes(out / "student.onnx", to_onnx(fitted.student, fitted.params, schema))
    facts, found, along = _facts(prepared, fitted, options), [], []
    if isinstance(schema, TableSchema):
        assert prepared.train_frame is not None

        def predict(frame: Frame) -> Predictions:
            return predictions(target, fitted.predict(schema.encode(frame)))

        along = dependence(schema, prepared.train_frame, predict, seed)
        write_json(out / "dependence.json", along)
    if plug is not None:
        draw, facts["plug_in_steps"] = plug.result()
        names = [of["column"] for of in along]
        found = _held_out(prepared, fitted, partial(predict_plugin, wide, draw), names, out)
        facts["int8_loss"] = _int8_loss(prepared, (out / "student.onnx").read_bytes())
    write_json(out / "fit.json", facts)
    run.seconds = time.time() - began
    return run.finish("fit", "auto", found, seed)


def _facts(prepared: Prepared, fitted: Fitted, options: Options) -> dict[str, Any]:
    """What was fitted to what."""
    count = sum(leaf.size for leaf in jax.tree.leaves(fitted.params))
    return prepared.facts | {
        "task": "classification" if isinstance(prepared.schema.target, ClassTarget) else "regression",
        "target": prepared.schema.target.name,
        "options": dataclasses.asdict(options),
        "parameters": count,
        "draws": len(jax.tree.leaves(fitted.draws)[0]),
        "notes": prepared.notes,
    }


def _held_out(
    prepared: Prepared, fitted: Fitted, predict_plug_in: Callable[[Any], Predictive], names: list[str], out: Path
) -> list[dict[str, Any]]:
    """Let all predict the rows held out, keep what they say, with the columns `names`, and return rows of results."""
    held, target = prepared.held_out, prepared.schema.target
    assert held is not None
    told: dict[str, Predictive] = {
        "student": fitted.predict(held.x),
        "sgld": fitted.predict_teacher(held.x),
        "sgd": predict_plug_in(held.x),
    }
    y = np.asarray(held.y)
    arrays: dict[str, Any] = {"y": target.decode(y) if isinstance(target, RealTarget) else y}
    for method, predictive in told.items():
        own = predictions(target, predictive)
        arrays |= {f"{method}.{name}": of for name, of in vars(own).items()}
        arrays[f"{method}.log_likelihood"] = log_densities(target, predictive, y)
        if isinstance(predictive, RegressionPredictive):
            arrays[f"{method}.position"] = np.asarray(predictive.cdf(held.y))[:, 0]
    write_arrays(out / "held-out.safetensors", arrays | _columns(prepared, names))
    examples = _examples(prepared, predictions(target, told["student"]))
    write_json(out / "examples.json", examples)
    if isinstance(prepared.held_out_frame, np.ndarray):
        write_arrays(out / "examples.safetensors", {"images": prepared.held_out_frame[[of["row"] for of in examples]]})
    found = rows({method: score(target, predictive, y) for method, predictive in told.items()})
    counts = {"held_out": len(y), "draws": len(jax.tree.leaves(fitted.draws)[0])}
    return [row | counts | of for row, of in zip(found, _errors(found, out, target), strict=True)]


def _int8_loss(prepared: Prepared, content: bytes) -> float:
    """The log likelihood a row, in nats, that the student would lose by weights in eight bits."""
    schema, target, held = prepared.schema, prepared.schema.target, prepared.held_out
    assert held is not None
    y = np.asarray(held.y)
    told = target.decode(y) if isinstance(target, RealTarget) else np.asarray(target.classes, object)[y]
    inputs = schema.matrices(prepared.held_out_frame)  # pyright: ignore[reportArgumentType]
    return quantisation_loss(content, quantise(content), inputs, told)


def _errors(found: list[dict[str, Any]], out: Path, target: RealTarget | ClassTarget) -> list[dict[str, Any]]:
    """The standard error of each row of results over the rows held out, and whether there is a gain to keep."""
    held = read_held(out, target)
    kept, errors = gain_kept(held), {method: scores(of, held.y) for method, of in held.told.items()}
    return [
        {"se": kept.share.error, "clear": kept.told}
        if row["metric"] == "gain_kept"
        else {"se": errors[row["method"]][row["metric"]].error}
        for row in found
    ]


def _columns(prepared: Prepared, names: list[str]) -> dict[str, np.ndarray]:
    """Columns of the rows held out; a category by its place among the categories of its column, -1 for none of them."""
    schema, frame, found = prepared.schema, prepared.held_out_frame, {}
    if isinstance(schema, TableSchema) and isinstance(frame, dict):
        for column in schema.columns:
            if column.name in names and isinstance(column, Category):
                place = {name: k for k, name in enumerate(column.categories)}
                codes = [place.get(value, -1) for value in frame[column.name].tolist()]
                found[f"column.{column.name}"] = np.asarray(codes, np.int32)
            elif column.name in names:
                found[f"column.{column.name}"] = frame[column.name]
    return found


def _examples(prepared: Prepared, told: Predictions) -> list[dict[str, Any]]:
    """The rows of which the student is least sure, in a form for JSON."""
    doubt = told.entropy if isinstance(told, ClassPredictions) else told.std
    frame = prepared.held_out_frame

    def values(k: int) -> dict[str, Any] | None:
        if not isinstance(frame, dict):
            return None
        row = {name: of[k] for name, of in frame.items()}
        return {name: None if of is None or of != of else of for name, of in row.items()}  # NaN is unlike itself.

    chosen = np.argsort(doubt)[::-1][:EXAMPLES].tolist()
    return [{"row": k, "place": prepared.places[k], "values": values(k)} for k in chosen]
