"""The page of a fit, section by section."""

import base64
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.files import write_text
from darkbayes.report.chains import CAPTION as CHAINS_CAPTION
from darkbayes.report.chains import chains_line, chains_table
from darkbayes.report.choices import choices_table, first_explanation
from darkbayes.report.estimates import Estimate
from darkbayes.report.fitted import figures, words
from darkbayes.report.fitted.choices import chosen, columns_table
from darkbayes.report.fitted.folder import METHODS, Fit, Held, Told, read_fit
from darkbayes.report.fitted.numbers import (
    by_class,
    calibration_error_by_chance,
    confidence_verdict,
    covered,
    gain_kept,
    most_entropy,
    noise_share,
    scores,
)
from darkbayes.report.fitted.written import percent, short, signed, with_error
from darkbayes.report.tables import number
from darkbayes.report.template import rendered
from darkbayes.tables import Category, Number

MOST_VALUES = 8
"""Columns of the most uncertain rows that are shown; of more, those on which predictions depend most."""

MOST_LETTERS = 40
"""Of a value in the table of the most uncertain rows."""

HEADINGS = {
    "log_likelihood": "log likelihood (higher is better)",
    "rmse": "RMSE (lower is better)",
    "coverage_90": "inside the 90% interval (90% is right)",
    "error": "wrong answers, % (lower is better)",
    "brier": "Brier score (lower is better)",
    "ece": "calibration error (lower is better)",
}


class Shown(NamedTuple):
    """A figure on the page."""

    title: str
    caption: str
    """What to look for."""
    alt: str
    """What there is to see, for those who do not see it."""
    source: str


def write_fitted(folder: Path) -> Path:
    """Write ``report.html`` into the folder of a fit and return its path."""
    fit = read_fit(folder)
    page = rendered("fitted.html", **_content(fit))
    path = folder / "report.html"
    write_text(path, page)
    return path


def main_figure(folder: Path) -> Any:
    """The one figure that says most: predictions against the truth, or the reliability of the student."""
    fit = read_fit(folder)
    if fit.held is None:
        raise InvalidInput(f"{folder} has nothing held out: there is no figure of it (fit with --held-out 0.2)")
    return figures.predicted(fit, fit.held) if fit.real else figures.reliability(fit, fit.held, "student")


def _content(fit: Fit) -> dict[str, Any]:
    """All that the template shows."""
    held = fit.held
    noise = None if held is None else noise_share(held.student)
    return {
        "title": words.title(fit),
        "lead": words.lead(fit),
        "tiles": words.tiles(fit),
        "noise": None if noise is None or noise != noise else noise,
        "paragraphs": words.paragraphs(fit),
        "cautions": words.cautions(fit),
        "cases": fit.cases,
        "target": fit.target.name,
        "held": held is not None,
        "classes": bool(fit.classes),
        "scores": None if held is None else _scores(fit, held),
        "trust": [] if held is None else _trust(fit, held),
        "risk": None if held is None else _risk(fit, held),
        "examples": None if held is None else _examples(fit, held),
        "columns": _columns(fit),
        "fidelity": None if held is None else _fidelity(fit, held),
        "learning": _learning(fit),
        "chains": _chains(fit),
        "choices": _choices(fit),
        "chosen": chosen(fit),
        "column_table": columns_table(fit) if fit.table else None,
        "provenance": _provenance(fit),
    }


def _shown(title: str, caption: str, alt: str, figure: Any) -> Shown:
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": figures.STYLE["svg.hashsalt"]}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    return Shown(title, caption, alt, _source("svg+xml", buffer.getvalue()))


def _source(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


# Scores


def _names(fit: Fit) -> dict[str, str]:
    return {
        "student": "student (one network)",
        "sgld": f"teacher ({fit.facts['draws']:,} networks)",
        "sgd": "plug-in network",
    }


def _scores(fit: Fit, held: Held) -> dict[str, Any]:
    """Student, teacher and plug-in network side by side."""
    found = {method: scores(held.told[method], held.y) for method in METHODS}
    kept = gain_kept(held)
    differences = {"student": signed(kept.own), "sgld": signed(kept.gain), "sgd": "–"}
    metrics = [name for name in HEADINGS if name in found["student"]]
    header = [
        "",
        HEADINGS["log_likelihood"],
        "log likelihood above the plug-in network",
        *(HEADINGS[name] for name in metrics[1:]),
    ]
    rows = [
        [name, _score(found[method], "log_likelihood"), differences[method]]
        + [_score(found[method], metric) for metric in metrics[1:]]
        for method, name in _names(fit).items()
    ]
    notes = [
        f"± is one standard error over the {held.rows:,} {fit.cases} held out: another test of this size would "
        "differ by "
        "about so much. Differences from the plug-in network are taken row by row, which makes them surer than the "
        f"scores themselves. All this takes the {fit.cases} to be independent of each other: where several are of "
        "the same "
        "person or thing, the true errors are larger."
    ]
    if fit.classes:
        confidence = held.student.classes.probs.max(axis=1)
        notes.append(
            f"In a test of this size, even a student whose probabilities were all exactly right would show a "
            "calibration "
            f"error of {short(calibration_error_by_chance(confidence))}."
        )
    return {"header": header, "rows": rows, "kept": words.kept_words(fit, kept), "notes": " ".join(notes)}


def _score(found: dict[str, Any], metric: str) -> str:
    value = found[metric]
    if metric == "coverage_90":
        return f"{with_error(value._replace(value=100 * value.value, error=100 * (value.error or 0.0)), 1)}%"
    return with_error(value).replace("-", "−")


# Figures


def _sampled(held: Held) -> str:
    return f" ({figures.MOST_POINTS} of {held.rows:,}, at random)" if held.rows > figures.MOST_POINTS else ""


def _trust(fit: Fit, held: Held) -> list[Shown]:
    if not fit.real:
        shown = [
            _shown(
                f"{figures.NAMES[method][0].upper()}{figures.NAMES[method][1:]}: as often right as sure?",
                _reliability_words(held, method),
                f"Reliability diagram of the {figures.NAMES[method]}, with a histogram of its confidence.",
                figures.reliability(fit, held, method),
            )
            for method in METHODS
        ]
        if len(fit.classes) <= figures.MOST_CLASSES:
            caption = (
                f"Each line holds the {fit.cases} of one true class; on the diagonal are the right answers. Look for "
                "dark squares off the diagonal: classes that are taken for each other. The darker, the larger the "
                "share of the line."
            )
            alt = "Confusion matrix of the student: " + "; ".join(
                f"{spot.name}, {spot.wrong} of {spot.rows} wrong" for spot in by_class(fit)
            )
            shown.append(_shown("Which class is taken for which?", caption, alt, figures.confusion(fit, held)))
        return shown
    name = fit.target.name
    return [
        _shown(
            "Predictions against the truth",
            f"Each mark is a row{_sampled(held)}: the middle of what the student deems likely, and its 90% interval. "
            "Good "
            "predictions lie near the dashed line; about one interval in ten should miss it. What lies beyond the "
            "frame "
            "is drawn at its edge.",
            f"Predicted {name} with 90% intervals against the true {name}.",
            figures.predicted(fit, held),
        ),
        _shown(
            "Do intervals keep their promise?",
            "For intervals of every level, how many true values they hold. A line inside the grey band keeps the "
            "promise, "
            "as far as a test of this size can tell; below it the intervals are too narrow, above it too wide.",
            "Measured coverage against the promised level: "
            + ", ".join(
                f"{level:.0%} gives {covered(held.student.position, level).mean():.0%}" for level in (0.5, 0.8, 0.9)
            ),
            figures.coverage_curve(held),
        ),
        _shown(
            "Where do true values fall?",
            "In each predicted distribution the true value has a place, from 0 (lowest) to 1 (highest). All places "
            "should "
            "be equally common: flat bars, inside the grey band. A U says too sure, a hump too timid, a slope that "
            "predictions are too low (rising) or too high (falling).",
            "Histogram of the probability that the student gives to values below the true one (PIT).",
            figures.positions(held),
        ),
    ]


def _reliability_words(held: Held, method: str) -> str:
    found = confidence_verdict(held.told[method], held.y)
    claimed = held.told[method].classes.probs.max(axis=1).mean()
    verdict = {"kept": "as sure as it should be, on average", "timid": "too timid", "bold": "too bold"}[found.verdict]
    return f"Sure to {percent(claimed)} on average, right on {percent(found.measured.value)}: {verdict}."


def _risk(fit: Fit, held: Held) -> dict[str, Any]:
    caption = (
        f"From left to right, ever more {fit.cases} are answered, the surest first. A model that knows what it does "
        "not "
        "know has a line that rises to the right: what it is sure of, it gets right. The thin level line is the "
        "student's "
        "error on all of them. The left end rests on few and is rough."
    )
    figure = _shown(
        "Errors among the surest",
        caption,
        "Risk-coverage curves of student, teacher and plug-in network.",
        figures.risk_curve(fit, held),
    )
    return {"words": words.passing_on(fit), "figure": figure}


def _columns(fit: Fit) -> list[Shown]:
    if fit.table is None:
        return []
    columns = {column.name: column for column in fit.table.columns}
    return [_column(fit, of, columns[of["column"]]) for of in fit.dependence]


def _column(fit: Fit, of: dict[str, Any], column: Number | Category) -> Shown:
    many = isinstance(column, Category) and len(of["values"]) > figures.MOST_BARS
    caption = (
        f"The {figures.MOST_BARS} of {len(of['values'])} categories whose predictions differ most." if many else ""
    )
    seen = f", seen from {short(column.low)} to {short(column.high)}" if isinstance(column, Number) else ""
    what = "prediction" if fit.real else "probabilities"
    alt = f"Above, the {what} along {column.name}{seen}; below, noise and doubt."
    return _shown(column.name, caption, alt, figures.along(fit, of))


def _fidelity(fit: Fit, held: Held) -> dict[str, Any]:
    what = "predictions" if fit.real else "probabilities of the true class"
    shown = [
        _shown(
            f"The same {'predictions' if fit.real else 'probabilities'}?",
            f"The {what} of student and teacher for each {fit.cases[:-1]}{_sampled(held)}. On the dashed line they "
            "are the same.",
            f"Scatter of the student's {what} against the teacher's.",
            figures.same_answers(fit, held),
        ),
        _shown(
            "The same uncertainties?",
            "Noise and doubt as the student tells them in one pass, against those of all the teacher's networks. Doubt "
            "above the dashed line is told too large, below it too small.",
            "Scatter of the student's noise and doubt against the teacher's.",
            figures.same_doubts(fit, held),
        ),
    ]
    return {"words": words.fidelity(fit), "figures": shown}


def _learning(fit: Fit) -> Shown | None:
    figure = figures.learning(fit)
    if figure is None:
        return None
    caption = (
        "The line should fall and then stay level. Where it comes near the dashed line, the student is as close to its "
        "teacher as the teacher is to what it would say with endless draws."
    )
    return _shown(
        "How the student learned", caption, "Distance of the student from its teacher over the steps.", figure
    )


# The most uncertain


def _examples(fit: Fit, held: Held) -> dict[str, Any]:
    if fit.images is not None:
        pictures = [
            _told(fit, held, of) | {"source": _thumbnail(image)}
            for of, image in zip(fit.examples, fit.images, strict=True)
        ]
        return {"pictures": pictures}
    names = list((fit.examples[0]["values"] or {}) if fit.examples else {})
    if len(names) > MOST_VALUES:
        important = [of["column"] for of in fit.dependence][:MOST_VALUES]
        shown = [name for name in names if name in important]
    else:
        shown = names
    header = ["", "prediction", "truth", "noise", "doubt", *shown]
    rows, beyond = [], False
    for of in fit.examples:
        told = _told(fit, held, of)
        values = [_value(fit, name, of["values"][name]) for name in shown]
        beyond = beyond or any(value[-1:] in "↑↓?" for value in values if value)
        rows.append([told["place"], told["prediction"], told["truth"], told["noise"], told["doubt"], *values])
    notes = []
    if len(shown) < len(names):
        notes.append(f"Of {len(names)} columns, those on which predictions depend most are shown.")
    if beyond:
        notes.append("↓ lower and ↑ higher than all that was seen in training; ? a category that was not seen.")
    return {"header": header, "rows": rows, "notes": " ".join(notes)}


def _told(fit: Fit, held: Held, of: dict[str, Any]) -> dict[str, str]:
    """One of the most uncertain rows: what the student says, and what is true."""
    row, student = of["row"], held.student
    place = str(of["place"])
    if fit.real:
        real = student.real
        return {
            "place": place,
            "prediction": with_error(Estimate(float(real.mean[row]), float(real.std[row]))),
            "truth": short(float(held.y[row])),
            "noise": f"± {short(float(real.aleatoric_std[row]))}",
            "doubt": f"± {short(float(real.epistemic_std[row]))}",
        }
    return _told_class(fit, student, place, row, int(held.y[row]))


def _told_class(fit: Fit, student: Told, place: str, row: int, truth: int) -> dict[str, str]:
    told, most = student.classes, most_entropy(len(fit.classes))
    order = np.argsort(-told.probs[row], kind="stable")[:2]
    answer = ", ".join(f"{fit.classes[k]} {percent(told.probs[row, k])}" for k in order.tolist())
    return {
        "place": place,
        "prediction": answer,
        "truth": fit.classes[truth],
        "right": "right" if order[0] == truth else "wrong",
        "noise": percent(max(told.expected_entropy[row], 0.0) / most),
        "doubt": percent(max(told.mutual_information[row], 0.0) / most),
    }


def _value(fit: Fit, name: str, value: Any) -> str:
    """A value of a row, marked where nothing like it was seen."""
    assert fit.table is not None
    column = next(of for of in fit.table.columns if of.name == name)
    if value is None:
        return "missing"
    if isinstance(column, Category):
        text = str(value) if len(str(value)) <= MOST_LETTERS else f"{str(value)[:MOST_LETTERS]}…"
        return text if value in column.categories else f"{text} ?"
    mark = " ↓" if value < column.low else " ↑" if value > column.high else ""
    return f"{number(value)}{mark}"


def _thumbnail(image: np.ndarray) -> str:
    """A small image of values from 0 to 255, ``[channels, height, width]``."""
    import matplotlib.image

    pixels = np.moveaxis(np.asarray(image, np.uint8), 0, -1)
    pixels = np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, pixels, format="png", metadata={"Software": "darkbayes"})
    return _source("png", buffer.getvalue())


# How it came about


def _chains(fit: Fit) -> dict[str, Any] | None:
    table = chains_table(fit.results)
    if table is None:
        return None
    # Of one student there is one row: it is easier read from above to below.
    numbers = dict(zip(table.header[2:-1], table.rows[0][2:-1], strict=True))
    return {
        "line": chains_line(fit.results),
        "numbers": numbers,
        "caption": CHAINS_CAPTION.rpartition(" Of several")[0],
    }


def _choices(fit: Fit) -> dict[str, Any] | None:
    table = choices_table(fit.results)
    if table is None:
        return None
    return {
        "numbers": dict(zip(table.header[2:], table.rows[0][2:], strict=True)),
        "words": first_explanation(fit.results),
    }


def _provenance(fit: Fit) -> dict[str, str]:
    names = {"version": "darkbayes", "jax": "JAX", "wall_s": "seconds"}
    told = {names.get(name) or name: str(value) for name, value in fit.results["provenance"].items()}
    return {"source's sha256": fit.config["sha256"]} | told
