"""A fit's folder: from a prepared table or images to a student, its scores, and all that a report shows.

Besides the files of every run (`runs.py`):

    schema.json               what the columns are, and what is predicted
    fit.json                  what was fitted to what, in words and numbers
    student.safetensors       the student's weights
    student.onnx              the student, with its schema inside
    held-out.safetensors      what student, teacher and plug-in network say of the rows held out
    examples.json             the most uncertain of these rows; of images also those it is sure of and the worst, which
                              are in examples.safetensors
    dependence.json           predictions and uncertainty along each column
    excursions.json           the doubt of student and teacher far beyond what was seen
"""

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from darkbayes.checkpoints import named_leaves
from darkbayes.errors import InvalidInput, require_level
from darkbayes.export import quantise, to_onnx
from darkbayes.files import write_arrays, write_bytes, write_json
from darkbayes.fit import sharing
from darkbayes.fit.automatic import Fitted, fit, predicted_by_draws, table_queries
from darkbayes.fit.checks import drift, leaks
from darkbayes.fit.choosing import Model, make_posterior
from darkbayes.fit.exporting import int8_loss
from darkbayes.fit.insights import dependence, importance
from darkbayes.fit.kinds import describe_network
from darkbayes.fit.neighbour import compared, neighbour
from darkbayes.fit.options import Options
from darkbayes.fit.plugin import plug_in
from darkbayes.fit.prepare import Prepared
from darkbayes.fit.probing import check_outside, excursions
from darkbayes.metrics import LEVEL, Scores, kept_gain, scores
from darkbayes.outcomes import Prediction, Target
from darkbayes.outcomes.guarantee import by_luck, rows_needed
from darkbayes.runs import Run
from darkbayes.shipped import MODEL, Shipped
from darkbayes.tables.schema import TableSchema
from darkbayes.tables.stored import schema_to_json

LEAST_CALIBRATING = 100
"""Rows held out from which on there is a guarantee unless it is not wanted."""
EXAMPLES = 12
"""Of the rows held out, how many of the most uncertain are told."""
IMAGES = 8
"""Of the images held out, how many it is surest of, least sure of for noise and for doubt, and most wrong about."""


def fit_folder(
    prepared: Prepared,
    config: dict[str, Any],
    options: Options,
    seed: int,
    out: Path,
    *,
    guarantee: float | None = None,
    resume: bool,
    quiet: bool,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    """Fit, score and export.

    Args:
        prepared: what is learned from, and held out.
        config: what tells the run from another.
        options: what is not to be chosen automatically.
        seed: where the randomness comes from.
        out: the run's folder.
        guarantee: the share of new rows whose truth intervals or sets are to hold: the rows held out calibrate it.
        resume: whether to go on with the run that the folder holds.
        quiet: whether to show no progress bars.
        mesh: the devices of the processes that share the chains, all of which call this.

    Returns:
        The results, which are in the folder as well; nothing on processes other than the first.
    """
    schema, target = prepared.schema, prepared.schema.target
    target.check_kinds(options.likelihood, options.head)
    began, run = time.time(), Run(out, config, resume=resume, quiet=quiet, mesh=mesh)
    fit_key, plug_key = sharing.split(jax.random.key(seed), 2)
    table = schema if isinstance(schema, TableSchema) else prepared.features
    queries = None if table is None else table_queries(table)
    whole: Any = {"backbone": prepared.backbone, "features": prepared.features}
    # The plug-in network is as large as the student. It is trained beside the chains, which leave a core idle.
    kind: Any = target.likelihoods[0], target.prior_precisions[0], options.network
    wide = make_posterior(prepared.train, target, Model(options.student_hidden, "relu", *kind))
    beside = ThreadPoolExecutor(1)
    try:
        alone = prepared.held_out is None or not run.first
        plug = None if alone else beside.submit(plug_in, wide, prepared.train, plug_key)
        trees = beside.submit(neighbour, prepared, seed) if run.first else None
        fitted = fit(prepared.train, target, fit_key, options, queries=queries, run=run, rows=prepared.rows)
    except BaseException:
        beside.shutdown(wait=mesh is None, cancel_futures=True)  # Where a process is lost, the others end soon.
        raise
    beside.shutdown()
    if trees is None:
        return {}
    content = to_onnx(fitted.student, fitted.params, schema, **whole)
    shipped = Shipped(out / MODEL, content=content)
    write_arrays(out / "student.safetensors", named_leaves(fitted.params))
    facts, rows = _facts(prepared, fitted), []
    facts |= {"leaks": leaks(prepared), "drift": drift(prepared)}
    if isinstance(schema, TableSchema):
        assert prepared.train_frame is not None
        courses = dependence(schema, prepared.train_frame, shipped.predict, seed)
        write_json(out / "dependence.json", courses)
        both, columns = (fitted.predict, fitted.predict_teacher), [course["column"] for course in courses]
        write_json(out / "excursions.json", excursions(schema, prepared.train_frame, columns, *both, seed))
        if prepared.held_out is not None and isinstance(prepared.held_out_frame, dict):
            frame = prepared.held_out_frame
            facts["outside"] = check_outside(schema, frame, len(prepared.truth), *both, seed)
            facts["importance"] = importance(columns, frame, prepared.truth, shipped.predict, seed)
    if plug is not None and prepared.held_out is not None:
        draw, facts["plug_in_steps"] = plug.result()
        predictions = {
            # The backbone has run on these images already.
            "student": shipped.predict(prepared.held_out_frame)  # pyright: ignore[reportArgumentType]
            if prepared.backbone is None
            else shipped.predict_encoded(np.asarray(prepared.held_out.x)),
            "sgld": target.own_unit(fitted.predict_teacher(prepared.held_out.x)),
            "sgd": target.own_unit(
                predicted_by_draws(wide, jax.tree.map(lambda leaf: np.asarray(leaf)[None], draw), prepared.held_out.x)
            ),
        }
        rows = _scored(prepared, predictions, facts["draws"])
        each = target.each(predictions["student"], prepared.truth)
        facts["outputs"] = [{metric: list(score) for metric, score in scores(*one).items()} for one in each]
        if (said := trees.result()) is not None:
            facts["neighbour"] = compared(said, predictions["student"], prepared.truth)
        _keep(prepared, predictions, out)
        if prepared.backbone is None:
            held: Any = [(prepared.held_out_frame, prepared.truth)]
            facts["int8_loss"] = int8_loss(content, quantise(content), held)
        if guarantee is not None:
            target, facts["guarantee"] = _guaranteed(prepared, predictions["student"], guarantee)
            schema = dataclasses.replace(schema, target=target)
            content = to_onnx(fitted.student, fitted.params, schema, **whole)
    write_json(out / "schema.json", schema_to_json(schema))
    write_bytes(out / MODEL, content)
    write_json(out / "fit.json", facts)
    run.took("fit", time.time() - began)
    return run.finish("fit", "auto", rows, seed)


def _facts(prepared: Prepared, fitted: Fitted) -> dict[str, Any]:
    """What was fitted to what."""
    target, options = prepared.schema.target, fitted.options
    after = f" on the features of {prepared.facts['backbone']['name']}" if prepared.backbone else ""
    networks = [describe_network(options.network, widths) for widths in (options.hidden or (), options.student_hidden)]
    return prepared.facts | {
        "networks": [f"a network with {words}{after}" for words in networks],
        "task": target.task,
        "target": target.name,
        "options": dataclasses.asdict(fitted.options),
        "model": dataclasses.asdict(fitted.chosen),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(fitted.params)),
        "draws": len(jax.tree.leaves(fitted.draws)[0]),
        "notes": [*prepared.notes, *fitted.notes[1:]],  # The network has a line of its own.
    }


def guarantee_level(asked: str, held_out: int) -> float | None:
    """The level of the guarantee, None for no guarantee.

    Args:
        asked: a number, "none", or "auto": the usual level where enough rows are held out for its coverage to be what
            it says within a few hundredths.
        held_out: how many rows are.

    Returns:
        The level.

    >>> guarantee_level("auto", 100), guarantee_level("auto", 99), guarantee_level("0.8", 4)
    (0.9, None, 0.8)
    """
    if asked in ("auto", "none"):
        return LEVEL if asked == "auto" and held_out >= LEAST_CALIBRATING else None
    try:
        level = require_level("guarantee", float(asked))
    except ValueError:
        raise InvalidInput(f"guarantee must be a share such as 0.9, auto or none, not {asked}") from None
    if held_out < (needed := rows_needed(level)):
        few = f"needs {needed:,} rows that are held out to calibrate it, and there are {held_out:,}"
        remedy = "give more rows, hold out a larger share, or ask for a lower level"
        raise InvalidInput(f"guarantee {asked} {few}: {remedy}")
    return level


def _guaranteed(prepared: Prepared, student: Prediction, level: float) -> tuple[Target, dict[str, Any]]:
    """The target with its guarantee, which all rows held out calibrate; what it is and what it changes.

    The student learnt from none of these rows, and its scores do not depend on the guarantee.
    """
    rows, target = len(prepared.truth), prepared.schema.target.guaranteed(student, prepared.truth, level)
    low, high = by_luck(level, rows)
    luck = f"by the luck of these {rows:,} the share may be anything from {low:.0%} to {high:.0%}"
    facts = {"level": level, "rows": rows, "promise": target.promise, "change": target.change(student), "luck": luck}
    return target, facts


def _scored(prepared: Prepared, predictions: dict[str, Prediction], draws: int) -> list[dict[str, Any]]:
    """Rows of results: the scores of all on the rows held out, and the share of the gain that the student keeps."""
    rows, truth = [], prepared.truth
    for method, prediction in predictions.items():
        collected = Scores()
        collected.add(prediction, truth)
        rows += collected.rows(method)
    kept = kept_gain(*(predictions[method].log_prob(truth) for method in ("student", "sgld", "sgd")))
    share = {"method": "student", "metric": "gain_kept", "mean": kept.share.value, "se": kept.share.error}
    rows.append(share | {"clear": kept.clear, "own": list(kept.own), "examples": len(truth), "trials": 1})
    return [row | {"held_out": len(truth), "draws": draws} for row in rows]


def _keep(prepared: Prepared, predictions: dict[str, Prediction], out: Path) -> None:
    """Keep what all say of the rows held out, for the report."""
    arrays: dict[str, Any] = {"y": prepared.truth}
    for method, prediction in predictions.items():
        arrays |= {f"{method}.{name}": values for name, values in prediction.summary().arrays().items()}
        arrays[f"{method}.log_likelihood"] = prediction.log_prob(prepared.truth)
        position = prediction.position(prepared.truth)
        arrays |= {f"{method}.position": position} if position.size else {}
    write_arrays(out / "held-out.safetensors", arrays)
    examples = _examples(prepared, predictions["student"])
    write_json(out / "examples.json", examples)
    if isinstance(prepared.held_out_frame, np.ndarray):
        images = prepared.held_out_frame[[example["row"] for example in examples]]
        write_arrays(out / "examples.safetensors", {"images": images})


def _examples(prepared: Prepared, prediction: Prediction) -> list[dict[str, Any]]:
    """The rows of which the student is least sure, in a form for JSON; of images, by group."""
    frame = prepared.held_out_frame

    def values(k: int) -> dict[str, Any]:
        assert isinstance(frame, dict)
        row = {name: column[k] for name, column in frame.items()}
        # NaN is unlike itself.
        return {name: None if cell is None or cell != cell else cell for name, cell in row.items()}

    order = np.argsort(prediction.uncertainty)[::-1]
    if isinstance(frame, dict):
        return [{"row": k, "place": prepared.places[k], "values": values(k)} for k in order[:EXAMPLES].tolist()]
    noise, doubt = prediction.parts
    whole = np.maximum(noise + doubt, np.finfo(np.float32).tiny)
    # By size and by share: most images of which it is unsure have some of both.
    groups = {
        "sure": order[::-1],
        "noise": np.argsort(noise**2 / whole)[::-1],
        "doubt": np.argsort(doubt**2 / whole)[::-1],
        "worst": np.argsort(prediction.log_prob(prepared.truth)),
    }
    return [
        {"row": k, "place": prepared.places[k], "values": None, "group": group}
        for group, rows in groups.items()
        for k in rows[:IMAGES].tolist()
    ]
