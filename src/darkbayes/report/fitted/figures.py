"""Draws every kind of picture (`outcomes/pictures.py`): small, to be read on a phone as well as in print.

Colours are those of Okabe and Ito, and every line and mark has a form of its own besides.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import singledispatch
from typing import Any

import numpy as np

from darkbayes.outcomes import pictures
from darkbayes.outcomes.pictures import METHODS, Picture
from darkbayes.report.figures import STYLE, Drawing, panels

COLOURS = {"student": "#009E73", "sgld": "#CC79A7", "sgd": "#555555"}
DASHES = {"student": "-", "sgld": "--", "sgd": ":"}
NOISE, DOUBT, WARNING, GREY = "#E69F00", "#0072B2", "#D55E00", "#555555"
LINES = ("#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#1a1a1a")
"""Colours of lines, none of them that of noise or doubt."""
LINE_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
PLAIN_DECADES = 6
"""Of a logarithmic axis, up to which its numbers are written out."""
MANY_TIMES = 50
"""The largest number as a multiple of the smallest, from which an axis of errors is logarithmic."""
MOST_DRAWN = 1e30
"""What is larger is not drawn."""
SIZE = (4.6, 3.3)
"""Inches: the width of half a page, and of a phone."""
SQUARE, TALL = 3.9, 4.6
LABEL = 18
"""Letters of a name after which it is cut."""
SMALL: Any = STYLE | {
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}
STACKED = {"color": DOUBT, "hatch": "////", "edgecolor": "white", "label": "doubt"}


def cut(name: object, most: int = LABEL) -> str:
    """A name that is not too long for a figure, and in which nothing is taken for a formula.

    >>> cut("a" * 30, 5), cut("$x")
    ('aaaa…', '\\\\$x')
    """
    text = str(name)
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")


@contextmanager
def _axes(height: float = SIZE[1], rows: int = 1, legend: int = 2, **how: Any) -> Iterator[Any]:
    """The figure and its axes from top to bottom; whatever has a label is in a legend above them."""
    with panels(rows, size=(SIZE[0], height), style=SMALL, **how) as (figure, axes):
        yield figure, *axes[:, 0]
        handles: dict[str, Any] = {}
        for axis in axes[:, 0]:
            _thousands(axis)
            handles |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
        if handles:
            figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=legend)


@singledispatch
def drawn(picture: Picture) -> Drawing:
    """The figure of a picture."""
    raise NotImplementedError(type(picture).__name__)


@drawn.register
def _(picture: pictures.AgainstTruth) -> Drawing:
    limits, held = picture.limits, (picture.low <= picture.truth) & (picture.truth <= picture.high)
    truth, middle, low, high = (
        np.clip(values, *limits) for values in (picture.truth, picture.middle, picture.low, picture.high)
    )
    with _axes(SQUARE) as (figure, axis):
        for rows, colour, marker, label in (
            (held, COLOURS["student"], "o", "interval holds the true value"),
            (~held, WARNING, "s", "interval misses it"),
        ):
            axis.vlines(truth[rows], low[rows], high[rows], color=colour, lw=0.9, alpha=0.55)
            axis.plot(truth[rows], middle[rows], marker, ms=3.2, color=colour, label=label)
        _diagonal(axis, limits, picture.log, label="prediction is true")
        name = cut(picture.name, 30)
        axis.set(xlabel=f"true {name}", ylabel=f"predicted {name}")
    return figure


@drawn.register
def _(picture: pictures.StudentAgainstTeacher) -> Drawing:
    looks = {"noise": (NOISE, "s"), "doubt": (DOUBT, "o")}
    with _axes(SQUARE) as (figure, axis):
        for kind, pair in picture.points.items():
            colour, marker = looks.get(kind, (COLOURS["student"], "o"))
            at = [np.clip(np.nan_to_num(values, posinf=picture.limits[1]), *picture.limits) for values in pair]
            axis.plot(*at, marker, ms=3.5, color=colour, alpha=0.6, mew=0, label=kind or None)
        _diagonal(axis, picture.limits, picture.log)
        axis.set(xlabel=f"teacher: {cut(picture.label, 36)}", ylabel=f"student: {cut(picture.label, 36)}")
    return figure


@drawn.register
def _(picture: pictures.CoverageCurve) -> Drawing:
    levels, band = 100 * picture.levels, [100 * end for end in picture.band]
    with _axes(SQUARE) as (figure, axis):
        axis.fill_between(levels, *band, color=GREY, alpha=0.2, lw=0, label="promise kept (95% of tests)")
        axis.plot([0, 100], [0, 100], color=GREY, lw=0.8)
        _by_method(axis, {method: (levels, 100 * shares) for method, shares in picture.shares.items()})
        axis.set(xlim=(0, 100), ylim=(0, 100), ylabel="measured: true values inside (%)")
        axis.set_xlabel("promised: level of the interval (%)")
        axis.annotate("too wide", (4, 92), color=GREY, fontsize=8)
        axis.annotate("too narrow", (96, 5), color=GREY, fontsize=8, ha="right")
    return figure


@drawn.register
def _(picture: pictures.Positions) -> Drawing:
    bins = len(picture.counts)
    look = {"color": COLOURS["student"], "alpha": 0.6, "edgecolor": "white", "label": "student"}
    with _axes() as (figure, axis):
        axis.axhspan(*picture.band, color=GREY, alpha=0.2, lw=0, label="expected (95% of tests)")
        axis.axhline(picture.counts.sum() / bins, color=GREY, lw=1, ls="--")
        axis.bar(np.arange(bins) / bins, picture.counts, 1 / bins, align="edge", **look)
        axis.set(xlim=(0, 1), xlabel="predicted probability of a value below the true one", ylabel=picture.cases)
    return figure


@drawn.register
def _(picture: pictures.Reliability) -> Drawing:
    bins, colour, accuracy = len(picture.counts), COLOURS[picture.method], 100 * picture.accuracy
    left, some = 100 * np.arange(bins) / bins, picture.counts > 0
    whiskers = [accuracy - 100 * picture.whiskers[0], 100 * picture.whiskers[1] - accuracy]
    look = {"fmt": "o", "ms": 4, "capsize": 2, "label": f"{METHODS[picture.method]}, with 95% interval"}
    with _axes(0.9 * TALL, 2, sharex=True, height_ratios=(3, 1)) as (figure, upper, lower):
        upper.bar(left[some], accuracy, 100 / bins, align="edge", color=colour, alpha=0.3, lw=0)
        upper.errorbar(100 * picture.claimed, accuracy, whiskers, color=colour, **look)
        upper.plot([0, 100], [0, 100], "--", color=GREY, lw=1, label="as sure as right")
        upper.set(xlim=(100 * picture.begin, 100), ylim=(0, 103), ylabel="how often right (%)")
        lower.bar(left, picture.counts, 100 / bins, align="edge", color=GREY, edgecolor="white")
        lower.set(xlabel="how sure of its answer (%)", ylabel=picture.cases)
    return figure


@drawn.register
def _(picture: pictures.Confusion) -> Drawing:
    counts, number, names = picture.counts, len(picture.names), [cut(name, 12) for name in picture.names]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    tilted = number > 3 and max(map(len, names)) > 4
    with _axes(0.9 * TALL) as (figure, axis):
        axis.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100)
        for row, column in zip(*np.nonzero(counts), strict=True):
            colour = "white" if shares[row, column] > 0.55 else "black"
            look = {"ha": "center", "va": "center", "color": colour, "fontsize": 9 if number < 8 else 7}
            axis.text(column, row, f"{counts[row, column]:,}", **look)
        axis.set_xticks(range(number), names, rotation=40 * tilted, ha="right" if tilted else "center")
        axis.set_yticks(range(number), names)
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
        axis.set(xlabel=f"answer of the student ({picture.cases})", ylabel="true class")
    return figure


@drawn.register
def _(picture: pictures.RiskCurve) -> Drawing:
    curves = {}
    for method, (shares, risk) in picture.curves.items():
        # A long curve is drawn with fewer points, its ends among them.
        points = np.unique(np.linspace(0, len(shares) - 1, pictures.MOST_POINTS).round().astype(int))
        curves[method] = (100 * shares[points], _finite(risk[points]))
    values = np.concatenate([risk for _, risk in curves.values()])
    values = values[np.isfinite(values)]
    with _axes(legend=3) as (figure, axis):
        _by_method(axis, curves)
        axis.axhline(curves["student"][1][-1], color=GREY, lw=0.7)
        if len(values) and 0 < MANY_TIMES * values.min() < values.max():
            axis.set_ylim(0.8 * values.min(), 1.25 * values.max())
            _logarithmic(axis, "y")
        else:
            axis.set_ylim(bottom=0)
        axis.set(xlim=(0, 100), xlabel=f"{picture.cases} answered, the surest first (%)", ylabel=cut(picture.label, 32))
    return figure


@drawn.register
def _(picture: pictures.LearningCurve) -> Drawing:
    marks = "o-" if len(picture.steps) < 20 else "-"
    with _axes() as (figure, axis):
        axis.semilogy(picture.steps, picture.distances, marks, ms=3, color=COLOURS["student"], label="student")
        if picture.teacher_error:
            look = {"color": COLOURS["sgld"], "ls": "--", "lw": 1.5, "label": "what the teacher itself does not know"}
            axis.axhline(picture.teacher_error, **look)
        axis.set(xlabel="steps of each chain", ylabel="distance from the teacher\n(KL divergence, nats)")
    return figure


@drawn.register
def _(picture: pictures.AlongColumn) -> Drawing:
    with _axes(TALL, 2, legend=3, sharex=True) as (figure, upper, lower):
        (_along_categories if picture.seen is None else _along_numbers)(picture, upper, lower)
        upper.set_ylabel(cut(picture.label, 24))
        lower.set_ylabel(cut(picture.unit, 22))
        lower.set_xlabel(cut(picture.column, 40))
        if picture.whole:
            upper.set_ylim(-2, 102)
            lower.set_ylim(0, 100)
        else:
            values = np.arange(len(picture.values)) if picture.seen is None else np.asarray(picture.values)
            low, high = picture.seen or (-math.inf, math.inf)
            seen = (values >= low) & (values <= high)
            _limit(upper, list(picture.lines.values()), seen, picture.log, floor=False)
            _limit(lower, [picture.noise, picture.doubt], seen, picture.log, floor=True)
    return figure


def _along_numbers(picture: pictures.AlongColumn, upper: Any, lower: Any) -> None:
    values, noise, doubt = np.asarray(picture.values), _finite(picture.noise), _finite(picture.doubt)
    assert picture.seen is not None
    for (name, line), colour, dashes in zip(picture.lines.items(), LINES, LINE_DASHES, strict=False):
        upper.plot(values, _finite(line), color=colour, ls=dashes, lw=1.8, label=cut(name, 32))
    if picture.whole:
        lower.fill_between(values, 0, noise, color=NOISE, alpha=0.75, lw=0, label="noise")
        lower.fill_between(values, noise, noise + doubt, alpha=0.75, lw=0, **STACKED)
    else:
        lower.plot(values, noise, "--", color=NOISE, lw=2, label="noise")
        lower.plot(values, doubt, "-", color=DOUBT, lw=2, label="doubt")
    for axis in (upper, lower):
        for end, far in zip(picture.seen, values[[0, -1]], strict=True):
            axis.axvspan(end, far, color=GREY, alpha=0.14, lw=0, label="not seen in training")
    upper.set_xlim(values[0], values[-1])
    ticks = picture.ticks[(picture.ticks >= values[0]) & (picture.ticks <= values[-1])]
    foot = {"transform": upper.get_xaxis_transform(), "color": "black", "ms": 5, "mew": 0.5, "alpha": 0.5}
    upper.plot(ticks, np.full(len(ticks), 0.02), "|", **foot)


def _along_categories(picture: pictures.AlongColumn, upper: Any, lower: Any) -> None:
    places, names = np.arange(len(picture.values)), [cut(name, 14) for name in picture.values]
    noise, doubt = _finite(picture.noise), _finite(picture.doubt)
    width = 0.8 / len(picture.lines)
    for k, ((name, line), colour) in enumerate(zip(picture.lines.items(), LINES, strict=False)):
        at = places + (k - (len(picture.lines) - 1) / 2) * width
        if picture.whole:
            upper.bar(at, line, width, color=colour, edgecolor="white", label=cut(name, 32))
        else:  # Points, since a bar would have to begin at zero, where prices and logarithms do not.
            upper.plot(at, _finite(line), "D", color=colour, label=cut(name, 32))
    if picture.whole:
        lower.bar(places, noise, 0.6, color=NOISE, edgecolor="white", label="noise")
        lower.bar(places, doubt, 0.6, noise, **STACKED)
    else:
        lower.plot(places - 0.1, noise, "s", color=NOISE, label="noise")
        lower.plot(places + 0.1, doubt, "o", color=DOUBT, label="doubt")
        for axis in (upper, lower):
            axis.grid(axis="x", color=GREY, alpha=0.2)
    crowded = sum(map(len, names)) > 36
    upper.set_xlim(-0.5, len(names) - 0.5)
    lower.set_xticks(places, names, rotation=35 * crowded, ha="right" if crowded else "center")


def _by_method(axis: Any, curves: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """A line for each method, the student's on top."""
    for method in reversed(METHODS):
        axis.plot(*curves[method], DASHES[method], color=COLOURS[method], lw=1.8, label=METHODS[method])


def _diagonal(axis: Any, limits: tuple[float, float], log: bool, label: str | None = None) -> None:
    """Where both axes, of the same limits, say the same."""
    axis.plot(limits, limits, "--", color=GREY, lw=1, label=label)
    axis.set(xlim=limits, ylim=limits)
    if log:
        _logarithmic(axis, "xy")


def _thousands(axis: Any) -> None:
    """Write large numbers with commas."""
    from matplotlib.ticker import ScalarFormatter, StrMethodFormatter

    for side in (axis.xaxis, axis.yaxis):
        largest = max(map(abs, side.get_view_interval()))
        if isinstance(side.get_major_formatter(), ScalarFormatter) and 10_000 <= largest < 1e9:
            side.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _logarithmic(axis: Any, which: str) -> None:
    """Make the axes `which` ("x", "y" or "xy"), whose limits are set, logarithmic with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for name in which:
        getattr(axis, f"set_{name}scale")("log")
        side, (low, high) = getattr(axis, f"{name}axis"), getattr(axis, f"get_{name}lim")()
        decades = math.log10(high / low)
        if decades < PLAIN_DECADES:
            side.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2 else (1.0,)))
            side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
            side.set_minor_formatter(NullFormatter())


def _finite(values: np.ndarray) -> np.ndarray:
    """What can be drawn; the rest is a gap."""
    values = np.asarray(values, np.float64)
    return np.where(np.isfinite(values) & (np.abs(values) < MOST_DRAWN), values, np.nan)


def _limit(axis: Any, lines: list[np.ndarray], seen: np.ndarray, log: bool, floor: bool) -> None:
    """Let the axis show what is predicted where data are, and what lies beyond only as far as that stays readable."""
    every = _finite(np.stack(lines))
    if log:
        every = np.log10(np.where(every > 0, every, np.nan))
    if not np.isfinite(every[:, seen]).any():
        return
    low, high = np.nanmin(every[:, seen]), np.nanmax(every[:, seen])
    span = max(high - low, 0.2 if log else 0.1 * max(abs(low), abs(high)), 1e-9)
    low = max(np.nanmin(every), low - 0.8 * span) - 0.08 * span
    high = min(np.nanmax(every), high + 0.8 * span) + 0.08 * span
    if log:
        axis.set_ylim(*(10.0 ** np.clip([low, high], -300, 300)))
        _logarithmic(axis, "y")
    else:
        axis.set_ylim(0.0 if floor else low, high)
