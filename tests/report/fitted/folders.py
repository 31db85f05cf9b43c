"""Folders of fits without a fit, of every outcome, written by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.files import write_arrays, write_json, write_text
from darkbayes.metrics import Scores, kept_gain, scores
from darkbayes.outcomes import ClassPrediction, ClassTarget, NumberPrediction, NumberTarget, Prediction, SeveralTarget
from darkbayes.runs import provenance
from darkbayes.tables.schema import Category, ImageSchema, Number, TableSchema, schema_to_dict

ROWS = 120
COLUMNS = (
    Number("size", 5.0, 3.0, 5.0, flagged=False, low=0.0, high=10.0, whole=False),
    Category("town <b>", ("Oslo", "Rome"), flagged=True),
)
PRICE = NumberTarget("price", "identity", center=0.0, scale=1.0, low=0.0, high=25.0)
INCOME = NumberTarget("income", "log", center=0.0, scale=1.0, low=0.5, high=3.5)
BOTH = SeveralTarget((PRICE, INCOME))
DECISION = ClassTarget("decision", ("buys", "leaves", "waits"))
DIGIT = ClassTarget("class", tuple("0123456789"))
CHOICES = {
    **{"step_size": 0.02, "stiffness": 0.5, "heating": 0.1, "burn_in": 1024, "autocorrelation": 61.2, "rhat": 1.0},
    **{"thin": 6, "steps": 5000, "reason": "as asked for", "settled": True, "explanation": "step size 0.02"},
}
RUN = {
    **{"code": "agree", "chains": 4, "draws": 100, "rhat": 1.02, "effective": 300.0, "autocorrelation_steps": 40.0},
    **{"temperature": 1.0, "kinetic_temperature": None, "noise_to_signal": 0.5, "divergence": 0.01},
    **{"teacher_error": 0.004},
}

Said = tuple[np.ndarray, dict[str, Prediction], dict[str, np.ndarray]]
"""What is true, what each method predicts, and the columns."""


def numbers(random: np.random.Generator, target: Any) -> Said:
    """Noise of standard deviation 1 and doubts that grow with a column, in the target's transform."""
    size, parts = random.uniform(0, 10, ROWS), getattr(target, "parts", (target,))
    doubt = np.tile(0.1 + 0.3 * size, (len(parts), 1)).T
    shrunk = np.asarray([20.0 if part.transform == "log" else 1.0 for part in parts])
    center, total = 2 * size[:, None] / shrunk, np.sqrt(1 + doubt**2)
    y = center + total / shrunk * random.normal(size=doubt.shape)
    locations = {"student": center, "sgld": center, "sgd": np.full_like(center, 10.0) / shrunk}
    predictions = {}
    for method, location in locations.items():
        variance, noise = ((part / shrunk**2) for part in (total**2, np.ones_like(total)))
        encoded = NumberPrediction.standard(np.zeros((1, *location.shape)), location[None], variance[None], noise)
        predictions[method] = target.own_unit(encoded)
    logs = [part.transform == "log" for part in parts]
    columns = {"size": size, "town <b>": random.integers(-1, 2, ROWS)}
    return np.where(logs, np.exp(np.minimum(y, 5.0)), y), predictions, columns


def classes(random: np.random.Generator, number: int) -> Said:
    """Probabilities that are just right for student and teacher, and those of a network that knows nothing."""
    probs = random.dirichlet(np.full(number, 0.3), ROWS)
    y = np.array([random.choice(number, p=row) for row in probs], np.int32)
    predictions = {}
    for method, own in (("student", probs), ("sgld", probs), ("sgd", np.full_like(probs, 1 / number))):
        entropy = ClassPrediction.from_probs(own).entropy
        predictions[method] = ClassPrediction.from_probs(own, 0.75 * entropy)
    return y, predictions, {}


def course(column: Number | Category, target: Any) -> dict[str, Any]:
    """What is predicted along a column."""
    values = [*column.categories, None] if isinstance(column, Category) else np.linspace(-2.5, 12.5, 41).tolist()
    count, number = len(values), len(getattr(target, "classes", ()))
    aim, noise, doubt = np.linspace(1, 20, count), np.full(count, 0.4), np.linspace(0.1, 0.3, count)
    if number:
        aim = np.full((count, number), 1 / number)
    elif len(target.names) > 1:
        aim, noise, doubt = (np.stack([part, part], axis=1) for part in (aim, noise, doubt))
    lists = {"aim": aim.tolist(), "aleatoric": noise.tolist(), "epistemic": doubt.tolist()}
    return {"column": column.name, "values": values, "effect": 1.0} | lists


def held_out(said: Said) -> dict[str, np.ndarray]:
    """The arrays of a folder."""
    y, predictions, columns = said
    arrays = {"y": y} | {f"column.{name}": values for name, values in columns.items()}
    for method, prediction in predictions.items():
        arrays |= {f"{method}.{name}": values for name, values in prediction.summary().arrays().items()}
        arrays[f"{method}.log_likelihood"] = prediction.log_prob(y)
        position = prediction.position(y)
        arrays |= {f"{method}.position": position} if position.size else {}
    return arrays


def rows(said: Said) -> list[dict[str, Any]]:
    """The scores."""
    y, predictions, _ = said
    lines = []
    for method, prediction in predictions.items():
        collected = Scores()
        collected.add(prediction, y)
        lines += collected.rows(method)
    kept = kept_gain(*(predictions[method].log_prob(y) for method in ("student", "sgld", "sgd")))
    share = {"method": "student", "metric": "gain_kept", "mean": kept.share.value, "se": kept.share.error}
    lines.append(share | {"clear": kept.clear, "own": list(kept.own), "trials": 1})
    return [line | {"held_out": ROWS, "draws": 400} for line in lines]


def build(path: Path, schema: TableSchema | ImageSchema, said: Said | None, **results: Any) -> Path:
    """A fit's folder without a fit."""
    target, table = schema.target, isinstance(schema, TableSchema)
    if said is not None:
        write_arrays(path / "held-out.safetensors", held_out(said))
        values = {"size": 11.0, "town <b>": None} if table else None
        examples = [{"row": k, "place": f"line {k + 2}", "values": values} for k in range(0, ROWS, ROWS // 6)]
        write_json(path / "examples.json", examples)
        if not table:
            images = np.random.default_rng(0).integers(0, 256, (6, *schema.shape), np.uint8)
            write_arrays(path / "examples.safetensors", {"images": images})
    if table:
        write_json(path / "dependence.json", [course(column, target) for column in schema.columns])
    facts = {
        **{"rows": 600, "trained": 600 - ROWS, "held_out": ROWS if said else 0, "dropped": 3, "draws": 400},
        **{"options": {"hidden": [50], "student_hidden": [100, 100], "chains": 4, "time_budget": 60.0}},
        **{"parameters": 11_803, "notes": ["a note <i>"], "plug_in_steps": 300},
    }
    if said is not None and table:
        worth = [{"column": column.name, "mean": 0.5, "se": 0.1} for column in schema.columns]
        trees = [line | {"method": "trees"} for line in rows(said) if line["method"] == "sgd"]
        facts |= {"importance": worth, "neighbour": {"rows": trees, "ahead": [0.4, 0.1]}, "leaks": [], "drift": []}
    if said is not None:
        each = target.each(said[1]["student"], said[0])  # pyright: ignore[reportOptionalMemberAccess]
        facts["outputs"] = [{metric: list(score) for metric, score in scores(*one).items()} for one in each]
    diagnosis = {"verdict": {"code": "agree", "text": "the chains agree"}, "counts": {"agree": 1}, "warnings": []}
    content = {
        **{"experiment": "fit", "preset": "auto", "rows": rows(said) if said else []},
        "provenance": provenance(0, 1.0) | {"commit": "0123abc"},
        "choices": {"student": [CHOICES]},
        "diagnostics": {"student": diagnosis | {"plateau": None, "runs": [RUN]}},
    }
    write_json(path / "results.json", content | results)
    write_json(path / "config.json", {"source": "shop <b>.csv", "sha256": "0" * 64, "seed": 0})
    write_json(path / "fit.json", facts)
    write_json(path / "schema.json", schema_to_dict(schema))
    lines = [{"step": 1000 * k, "loss": 1.0, "kl": 0.1 / k if k else None} for k in range(6)]
    write_text(path / "student" / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    return path


def every_kind(path: Path) -> dict[str, Path]:
    """A folder of each kind."""
    random = np.random.default_rng(0)
    regression = TableSchema(COLUMNS, PRICE, {"id": "every value is different"})
    wild = numbers(random, INCOME)
    # Far from all data, what is predicted of the logarithm is beyond all bounds in the target's own unit.
    student: Any = wild[1]["student"]
    student.mean[:2], student.std[:2], student.location[:2] = np.inf, np.finfo(np.float32).max, 1e4
    folders = {
        "regression": build(path / "a", regression, numbers(random, PRICE)),
        "logarithm": build(path / "b", TableSchema(COLUMNS, INCOME), wild),
        "several": build(path / "c", TableSchema(COLUMNS, BOTH), numbers(random, BOTH)),
        "classification": build(path / "d", TableSchema(COLUMNS, DECISION), classes(random, 3)),
        "images": build(path / "e", ImageSchema(1, 8, 8, 0.0, 1.0, DIGIT), classes(random, 10)),
        "colours": build(path / "f", ImageSchema(3, 8, 8, 0.0, 1.0, DIGIT), classes(random, 10)),
        "all": build(path / "g", TableSchema(COLUMNS, PRICE), None),
    }
    far = course(COLUMNS[0], INCOME)
    far["aim"][0], far["epistemic"][-1] = float("inf"), 1e60
    write_json(folders["logarithm"] / "dependence.json", [far])
    return folders
