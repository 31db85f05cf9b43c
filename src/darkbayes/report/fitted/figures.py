"""Pictures for a fit's page: small ones, that are read on a phone as well as in print.

Colours are those of Okabe and Ito, and every line and mark has a form of its own besides.
"""

import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, ScalarFormatter, StrMethodFormatter

from darkbayes.report.estimates import by_chance, wilson
from darkbayes.report.figures import plt
from darkbayes.report.fitted.folder import METHODS, Fit, Held, Told
from darkbayes.report.fitted.numbers import LEVEL, covered, middle, most_entropy, risks
from darkbayes.tables import Category, Number, RealTarget

Figure = Any

NAMES = {"student": "student", "sgld": "teacher", "sgd": "plug-in network"}
COLOURS = {"student": "#009E73", "sgld": "#CC79A7", "sgd": "#555555"}
DASHES = {"student": "-", "sgld": "--", "sgd": ":"}
NOISE, DOUBT, WARNING, GREY = "#E69F00", "#0072B2", "#D55E00", "#555555"
CLASSES = ("#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#1a1a1a")
"""Colours of classes, in this order, none of them that of noise or doubt; no more classes than these are drawn."""
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
PLAIN_DECADES = 6
"""Of a logarithmic axis, up to which its numbers are written out."""
LEAST_CURVE = 3
"""Points that a curve over time must have."""
SIZE = (4.6, 3.3)
"""Inches: the width of half a page, and of a phone."""
MOST_POINTS = 300
"""Rows that are drawn one by one; of more, so many at random."""
MOST_CLASSES = 12
"""Classes up to which there is a confusion matrix."""
MOST_BARS = 10
"""Categories that are drawn."""
RELIABILITY_BINS = 10
LABEL = 18
"""Letters of a name after which it is cut."""
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "figure.constrained_layout.use": True,
    # Of the same run, the same page.
    "svg.hashsalt": "darkbayes",
}


def cut(name: object, most: int = LABEL) -> str:
    """A name that is not too long for a figure, and in which nothing is taken for a formula.

    >>> cut("a" * 30, 5), cut("$x")
    ('aaaa…', '\\\\$x')
    """
    text = str(name)
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")


@contextmanager
def _axes(height: float = SIZE[1], rows: int = 1, **how: Any) -> Iterator[tuple[Figure, Any]]:
    with plt.rc_context(STYLE):
        yield plt.subplots(rows, 1, figsize=(SIZE[0], height), **how)


def _chosen(rows: int) -> np.ndarray:
    """The rows that are drawn one by one."""
    if rows <= MOST_POINTS:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).permutation(rows)[:MOST_POINTS])


def _spread(points: int) -> np.ndarray:
    """The points of a long curve that are drawn, its ends among them."""
    return np.unique(np.linspace(0, points - 1, MOST_POINTS).round().astype(int))


def _unit_limits(target: RealTarget, values: np.ndarray) -> tuple[float, float]:
    """Ends of an axis that shows the true values and what is near them."""
    low, high = min(target.low, values.min()), max(target.high, values.max())
    if target.transform == "log":
        reach = (high / low) ** 0.15
        return low / reach, high * reach
    reach = 0.15 * ((high - low) or 1.0)
    return low - reach, high + reach


def predicted(fit: Fit, held: Held) -> Figure:
    """What the student predicts with its intervals, against what is true."""
    target, student = fit.real, held.student
    assert target is not None
    limits, rows = _unit_limits(target, held.y), _chosen(held.rows)
    low, high = student.real.interval(target, LEVEL)
    inside = covered(student.position, LEVEL) > 0
    with _axes(SIZE[0] * 0.85) as (figure, axis):
        for chosen, colour, marker, label in (
            (rows[inside[rows]], COLOURS["student"], "o", "interval holds the true value"),
            (rows[~inside[rows]], WARNING, "s", "interval misses it"),
        ):
            at = np.clip(held.y[chosen], *limits)
            axis.vlines(at, *(np.clip(of[chosen], *limits) for of in (low, high)), color=colour, lw=0.9, alpha=0.55)
            axis.plot(at, np.clip(middle(student, target)[chosen], *limits), marker, ms=3.2, color=colour, label=label)
        axis.plot(limits, limits, "--", color=GREY, lw=1, label="prediction is true")
        axis.set(
            xlim=limits, ylim=limits, xlabel=f"true {cut(target.name, 30)}", ylabel=f"predicted {cut(target.name, 30)}"
        )
        if target.transform == "log":
            _logarithmic(axis, "xy")
        _thousands(axis)
        figure.legend(loc="outside upper center", ncols=2)
    return figure


def coverage_curve(held: Held) -> Figure:
    """How many true values the intervals of each level hold."""
    levels = np.linspace(0.05, 0.95, 19)
    band = np.transpose([by_chance(held.rows, level) for level in levels.tolist()]) / held.rows
    with _axes(SIZE[0] * 0.85) as (figure, axis):
        axis.fill_between(
            100 * levels, *(100 * of for of in band), color=GREY, alpha=0.2, lw=0, label="promise kept (95% of tests)"
        )
        axis.plot([0, 100], [0, 100], color=GREY, lw=0.8)
        for method in METHODS[::-1]:
            shares = [100 * covered(held.told[method].position, level).mean() for level in levels]
            axis.plot(100 * levels, shares, DASHES[method], color=COLOURS[method], lw=1.8, label=NAMES[method])
        axis.set(
            xlim=(0, 100),
            ylim=(0, 100),
            xlabel="promised: level of the interval (%)",
            ylabel="measured: true values inside (%)",
        )
        axis.annotate("too wide", (4, 92), color=GREY, fontsize=8)
        axis.annotate("too narrow", (96, 5), color=GREY, fontsize=8, ha="right")
        figure.legend(loc="outside upper center", ncols=2)
    return figure


def positions(held: Held) -> Figure:
    """Where in the student's predictive distributions the true values lie (PIT histogram)."""
    bins = 20 if held.rows >= 1000 else 10
    counts, edges = np.histogram(np.clip(held.student.position, 0, 1), bins, (0, 1))
    low, high = by_chance(held.rows, 1 / bins)
    with _axes() as (figure, axis):
        axis.axhspan(low, high, color=GREY, alpha=0.2, lw=0, label="expected (95% of tests)")
        axis.axhline(held.rows / bins, color=GREY, lw=1, ls="--")
        axis.bar(
            edges[:-1],
            counts,
            1 / bins,
            align="edge",
            color=COLOURS["student"],
            alpha=0.6,
            edgecolor="white",
            label="student",
        )
        axis.set(xlim=(0, 1), xlabel="predicted probability of a value below the true one", ylabel="rows")
        figure.legend(loc="outside upper center", ncols=2)
    return figure


def reliability(fit: Fit, held: Held, method: str) -> Figure:
    """How often a method is right where it is so sure, and how often it is so sure."""
    probs = held.told[method].classes.probs
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == held.y
    bins = RELIABILITY_BINS
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    seen = count > 0
    accuracy = np.bincount(bin_of, right, minlength=bins)[seen] / count[seen]
    claimed = np.bincount(bin_of, confidence, minlength=bins)[seen] / count[seen]
    low, high = wilson(accuracy, count[seen])
    edges = np.linspace(0, 100, bins + 1)
    with _axes(SIZE[0] * 0.9, 2, sharex=True, height_ratios=(3, 1)) as (figure, (upper, lower)):
        upper.bar(edges[:-1][seen], 100 * accuracy, 100 / bins, align="edge", color=COLOURS[method], alpha=0.3, lw=0)
        upper.errorbar(
            100 * claimed,
            100 * accuracy,
            100 * np.array([accuracy - low, high - accuracy]),
            fmt="o",
            ms=4,
            capsize=2,
            color=COLOURS[method],
            label=f"{NAMES[method]}, with 95% interval",
        )
        upper.plot([0, 100], [0, 100], "--", color=GREY, lw=1, label="as sure as right")
        upper.set(
            xlim=(100 / len(fit.classes) * 0.8 if len(fit.classes) < 4 else 0, 100),
            ylim=(0, 103),
            ylabel="how often right (%)",
        )
        lower.bar(edges[:-1], count, 100 / bins, align="edge", color=GREY, edgecolor="white")
        lower.set(xlabel="how sure of its answer (%)", ylabel=fit.cases)
        figure.legend(loc="outside upper center", ncols=2)
    return figure


def confusion(fit: Fit, held: Held) -> Figure:
    """Which class is taken for which."""
    number = len(fit.classes)
    answers = held.student.classes.probs.argmax(axis=1)
    counts = np.bincount(held.y * number + answers, minlength=number**2).reshape(number, number)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names = [cut(name, 12) for name in fit.classes]
    with _axes(SIZE[0] * 0.9) as (figure, axis):
        axis.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100)
        for row, column in np.ndindex(number, number):
            if counts[row, column]:
                colour = "white" if shares[row, column] > 0.55 else "black"
                axis.text(
                    column,
                    row,
                    f"{counts[row, column]:,}",
                    ha="center",
                    va="center",
                    color=colour,
                    fontsize=9 if number < 8 else 7,
                )
        long = max(map(len, names)) > 4
        axis.set_xticks(
            range(number),
            names,
            rotation=40 if long and number > 3 else 0,
            ha="right" if long and number > 3 else "center",
        )
        axis.set_yticks(range(number), names)
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
        axis.set(xlabel=f"answer of the student ({fit.cases})", ylabel="true class")
    return figure


def risk_curve(fit: Fit, held: Held) -> Figure:
    """The error on the rows that each method is surest of, for growing shares of them."""
    with _axes() as (figure, axis):
        found = {method: risks(held.told[method], held.y) for method in METHODS}
        for method in METHODS[::-1]:
            shares, risk = (of[_spread(len(of))] for of in found[method])
            axis.plot(100 * shares, _finite(risk), DASHES[method], color=COLOURS[method], lw=1.8, label=NAMES[method])
        axis.axhline(_finite(found["student"][1])[-1], color=GREY, lw=0.7)
        values = np.concatenate([_finite(risk) for _, risk in found.values()])
        values = values[np.isfinite(values)]
        if fit.real and len(values) and values.min() > 0 and values.max() > 50 * values.min():
            axis.set_ylim(0.8 * values.min(), 1.25 * values.max())
            _logarithmic(axis, "y")
        else:
            axis.set_ylim(bottom=0)
        label = f"RMSE of {cut(fit.target.name, 24)}" if fit.real else "wrong answers (%)"
        _thousands(axis)
        axis.set(xlim=(0, 100), xlabel=f"{fit.cases} answered, the surest first (%)", ylabel=label)
        figure.legend(loc="outside upper center", ncols=3)
    return figure


def _thousands(axis: Any) -> None:
    """Write large numbers with commas."""
    for of in (axis.xaxis, axis.yaxis):
        largest = max(map(abs, of.get_view_interval()))
        if isinstance(of.get_major_formatter(), ScalarFormatter) and 10_000 <= largest < 1e9:
            of.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _logarithmic(axis: Any, which: str) -> None:
    """Make the axes `which` ("x", "y" or "xy"), whose limits are set, logarithmic with plain numbers."""
    for of in which:
        getattr(axis, f"set_{of}scale")("log")
        one = getattr(axis, f"{of}axis")
        low, high = getattr(axis, f"get_{of}lim")()
        decades = math.log10(high / low)
        if decades < PLAIN_DECADES:
            one.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2 else (1.0,)))
            one.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
            one.set_minor_formatter(NullFormatter())


def _finite(values: np.ndarray) -> np.ndarray:
    """What can be drawn; the rest is a gap."""
    values = np.asarray(values, np.float64)
    return np.where(np.isfinite(values) & (np.abs(values) < 1e30), values, np.nan)


def along(fit: Fit, of: dict[str, Any]) -> Figure:
    """What is predicted along a column, and both uncertainties."""
    assert fit.table is not None
    column = next(column for column in fit.table.columns if column.name == of["column"])
    with _axes(SIZE[0] * 1.0, 2, sharex=isinstance(column, Number)) as (figure, axes):
        if isinstance(column, Number):
            _along_numbers(fit, column, of, axes)
            axes[1].set_xlabel(cut(column.name, 40))
        else:
            _along_categories(fit, column, of, axes)
        for axis in axes:
            _thousands(axis)
        handles = {
            label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=3)
    return figure


def _aims(fit: Fit, of: dict[str, Any]) -> tuple[list[tuple[str, np.ndarray]], str]:
    """The lines of what is predicted, and the name of their axis."""
    aim = _finite(np.asarray(of["aim"], np.float64))
    if fit.real:
        return [("prediction", aim)], cut(fit.target.name, 24)
    if len(fit.classes) == 2:
        return [(f"probability of {cut(fit.classes[1])}", 100 * aim[:, 1])], "probability (%)"
    changing = np.argsort(-np.ptp(aim, axis=0), kind="stable")[: len(CLASSES)]
    return [(cut(fit.classes[k]), 100 * aim[:, k]) for k in sorted(changing.tolist())], "probability (%)"


def _uncertainties(fit: Fit, of: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, str]:
    """Noise and doubt, standard deviations or per cent of complete ignorance, and the name of their axis."""
    parts = [np.asarray(of[name], np.float64) for name in ("aleatoric", "epistemic")]
    if fit.real:
        noise, doubt = (_finite(np.sqrt(np.maximum(part, 0))) for part in parts)
        return noise, doubt, f"± {cut(fit.target.name, 20)}"
    most = most_entropy(len(fit.classes))
    noise, doubt = (100 * np.maximum(part, 0) / most for part in parts)
    return noise, doubt, "uncertainty (%)"


def _along_numbers(fit: Fit, column: Number, of: dict[str, Any], axes: Any) -> None:
    values = np.asarray(of["values"], np.float64)
    seen = (values >= column.low) & (values <= column.high)
    lines, label = _aims(fit, of)
    noise, doubt, uncertainty = _uncertainties(fit, of)
    colours = CLASSES if len(lines) > 1 else (COLOURS["student"],)
    for (name, line), colour, dashes in zip(lines, colours, LINES, strict=False):
        axes[0].plot(values, line, color=colour, ls=dashes, lw=1.8, label=name)
    axes[0].set_ylabel(label)
    if fit.real:
        axes[1].plot(values, noise, "--", color=NOISE, lw=2, label="noise")
        axes[1].plot(values, doubt, "-", color=DOUBT, lw=2, label="doubt")
        for axis, drawn in ((axes[0], [lines[0][1]]), (axes[1], [noise, doubt])):
            _limit(axis, np.stack(drawn), seen, log=fit.real.transform == "log", floor=axis is axes[1])
    else:
        axes[1].fill_between(values, 0, noise, color=NOISE, alpha=0.75, lw=0, label="noise")
        axes[1].fill_between(
            values,
            noise,
            noise + doubt,
            facecolor=DOUBT,
            alpha=0.75,
            hatch="////",
            edgecolor="white",
            lw=0,
            label="doubt",
        )
        axes[0].set_ylim(-2, 102)
        axes[1].set_ylim(0, 100)
    axes[1].set_ylabel(uncertainty)
    for place, axis in enumerate(axes):
        for end, far in ((column.low, values[0]), (column.high, values[-1])):
            axis.axvspan(
                end,
                far,
                color=GREY,
                alpha=0.14,
                lw=0,
                label="not seen in training" if place == 0 and end == column.high else None,
            )
        axis.set_xlim(values[0], values[-1])
    if fit.held is not None and column.name in fit.held.columns:
        rows = fit.held.columns[column.name][_chosen(fit.held.rows)]
        inside = rows[(rows >= values[0]) & (rows <= values[-1])]
        axes[0].plot(
            inside,
            np.full(len(inside), 0.02),
            "|",
            color="black",
            ms=5,
            mew=0.5,
            alpha=0.5,
            transform=axes[0].get_xaxis_transform(),
        )


def _limit(axis: Any, drawn: np.ndarray, seen: np.ndarray, *, log: bool, floor: bool) -> None:
    """Let the axis show what is predicted where data are, and what lies beyond only as far as that stays readable."""
    if log:
        drawn = np.log10(np.where(drawn > 0, drawn, np.nan))
    inner, every = drawn[:, seen], drawn
    if not np.isfinite(inner).any():
        return
    low, high = np.nanmin(inner), np.nanmax(inner)
    span = max(high - low, 0.2 if log else 0.1 * max(abs(low), abs(high)), 1e-9)
    low, high = (
        max(np.nanmin(every), low - 0.8 * span) - 0.08 * span,
        min(np.nanmax(every), high + 0.8 * span) + 0.08 * span,
    )
    if log:
        axis.set_ylim(*(10.0 ** np.clip([low, high], -300, 300)))
        _logarithmic(axis, "y")
    else:
        axis.set_ylim(0.0 if floor else low, high)


def _along_categories(fit: Fit, column: Category, of: dict[str, Any], axes: Any) -> None:
    lines, label = _aims(fit, of)
    noise, doubt, uncertainty = _uncertainties(fit, of)
    aim = np.stack([line for _, line in lines])
    spread = np.nan_to_num(np.abs(aim - np.nanmean(aim, axis=1, keepdims=True)).max(axis=0))
    shown = np.sort(np.argsort(-spread, kind="stable")[:MOST_BARS])
    names = ["(missing)" if of["values"][k] is None else cut(of["values"][k], 14) for k in shown]
    places = np.arange(len(shown))
    if fit.real:
        # Points, since a bar would have to begin at zero, where prices and logarithms do not.
        axes[0].plot(places, lines[0][1][shown], "D", color=COLOURS["student"], label=lines[0][0])
        axes[1].plot(places - 0.1, noise[shown], "s", color=NOISE, label="noise")
        axes[1].plot(places + 0.1, doubt[shown], "o", color=DOUBT, label="doubt")
        log, every = fit.real.transform == "log", np.ones(len(shown), bool)
        _limit(axes[0], lines[0][1][None, shown], every, log=log, floor=False)
        _limit(axes[1], np.stack([noise, doubt])[:, shown], every, log=log, floor=True)
        for axis in axes:
            axis.grid(axis="x", color=GREY, alpha=0.2)
            axis.set_xlim(-0.5, len(shown) - 0.5)
    else:
        width = 0.8 / len(lines)
        colours = CLASSES if len(lines) > 1 else (COLOURS["student"],)
        for k, ((name, line), colour) in enumerate(zip(lines, colours, strict=False)):
            at = places + (k - (len(lines) - 1) / 2) * width
            axes[0].bar(at, line[shown], width, color=colour, edgecolor="white", label=name)
        axes[1].bar(places, noise[shown], 0.6, color=NOISE, edgecolor="white", label="noise")
        axes[1].bar(
            places, doubt[shown], 0.6, noise[shown], color=DOUBT, hatch="////", edgecolor="white", label="doubt"
        )
        axes[0].set_ylim(0, 100)
        axes[1].set_ylim(0, 100)
    axes[0].set_ylabel(label)
    axes[1].set_ylabel(uncertainty)
    crowded = sum(map(len, names)) > 36
    axes[0].set_xticks(places, [""] * len(names))
    axes[1].set_xticks(places, names, rotation=35 if crowded else 0, ha="right" if crowded else "center")
    axes[1].set_xlabel(cut(column.name, 40))


def same_answers(fit: Fit, held: Held) -> Figure:
    """What the student predicts against what its teacher does."""
    student, teacher = held.told["student"], held.told["sgld"]
    rows = _chosen(held.rows)
    with _axes(SIZE[0] * 0.85) as (figure, axis):
        if isinstance(fit.target, RealTarget):
            limits = _unit_limits(fit.target, held.y)
            at = [np.clip(middle(of, fit.target)[rows], *limits) for of in (teacher, student)]
            name = cut(fit.target.name, 30)
        else:
            limits, name = (0.0, 100.0), "probability of the true class (%)"
            at = [100 * of.classes.probs[np.arange(held.rows), held.y][rows] for of in (teacher, student)]
        axis.plot(limits, limits, "--", color=GREY, lw=1)
        axis.plot(*at, "o", ms=3.5, color=COLOURS["student"], alpha=0.6, mew=0)
        axis.set(xlim=limits, ylim=limits, xlabel=f"teacher: {name}", ylabel=f"student: {name}")
        if fit.real and fit.real.transform == "log":
            _logarithmic(axis, "xy")
        _thousands(axis)
    return figure


def same_doubts(fit: Fit, held: Held) -> Figure:
    """Both uncertainties of the student against those of its teacher."""
    rows = _chosen(held.rows)
    pairs = [_told_parts(fit, held.told[method]) for method in ("sgld", "student")]
    everything = np.concatenate([part[rows] for pair in pairs for part in pair])
    everything = everything[np.isfinite(everything) & (everything > 0)]
    log = isinstance(fit.target, RealTarget) and fit.target.transform == "log"
    with _axes(SIZE[0] * 0.85) as (figure, axis):
        if log and len(everything):
            low, high = np.quantile(everything, [0.01, 0.99]).tolist()
            limits = (0.7 * low, 1.4 * high)
        else:
            limits = (0.0, 1.08 * float(np.quantile(everything, 0.995)) if len(everything) else 1.0)
        axis.plot(limits, limits, "--", color=GREY, lw=1)
        for place, (name, colour, marker) in enumerate((("noise", NOISE, "s"), ("doubt", DOUBT, "o"))):
            at = [np.clip(np.nan_to_num(pair[place][rows], posinf=limits[1]), *limits) for pair in pairs]
            axis.plot(*at, marker, ms=3.5, color=colour, alpha=0.6, mew=0, label=name)
        unit = f"± {cut(fit.target.name, 24)}" if fit.real else "uncertainty (%)"
        axis.set(xlim=limits, ylim=limits, xlabel=f"teacher: {unit}", ylabel=f"student: {unit}")
        if limits[0] > 0:
            _logarithmic(axis, "xy")
        _thousands(axis)
        figure.legend(loc="outside upper center", ncols=2)
    return figure


def _told_parts(fit: Fit, told: Told) -> tuple[np.ndarray, np.ndarray]:
    """Noise and doubt of each row, as standard deviations or in per cent of complete ignorance."""
    if fit.real:
        return told.real.aleatoric_std, told.real.epistemic_std
    most = most_entropy(len(fit.classes)) / 100
    return told.classes.expected_entropy / most, told.classes.mutual_information / most


def learning(fit: Fit) -> Figure | None:
    """How close the student was to its teacher as it learned, and how exact the teacher itself is."""
    lines = [line for line in fit.curve if line["kl"] is not None]
    if len(lines) < LEAST_CURVE:
        return None
    runs = fit.results.get("diagnostics", {}).get("student", {}).get("runs", [])
    error = runs[0].get("teacher_error") if runs else None
    with _axes() as (figure, axis):
        axis.semilogy(
            [line["step"] for line in lines],
            [line["kl"] for line in lines],
            "o-" if len(lines) < 20 else "-",
            ms=3,
            color=COLOURS["student"],
            label="student",
        )
        if error:
            axis.axhline(error, color=COLOURS["sgld"], ls="--", lw=1.5, label="what the teacher itself does not know")
        _thousands(axis)
        axis.set(
            xlabel="steps of each chain", ylabel=textwrap.fill("distance from the teacher (KL divergence, nats)", 28)
        )
        figure.legend(loc="outside upper center", ncols=2)
    return figure
