"""Draws every kind of picture (`outcomes/pictures.py`): small, to be read on a phone as well as in print.

Colours are those of Okabe and Ito, and every line and mark has a form of its own besides.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from darkbayes.outcomes.pictures import METHODS, MOST_POINTS, AlongColumn, Confusion, Curves, Picture, Scatter
from darkbayes.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE, Drawing, panels

SIZE = WIDTH, LOW = (4.6, 3.3)  # Inches: half a page, and a phone.
SQUARE, TALL = 3.9, 4.6
PLAIN_DECADES = 6  # Of a logarithmic axis, up to which its numbers are written out.
MOST_DRAWN = 1e30  # What is larger is not drawn.
LOOKS: dict[str, dict[str, Any]] = {
    "student": {"color": GREEN, "ls": "-", "marker": "o"},
    "sgld": {"color": PURPLE, "ls": "--", "marker": "s"},
    "sgd": {"color": GREY, "ls": ":", "marker": "^"},
    "noise": {"color": "#E69F00", "ls": "--", "marker": "s"},
    "doubt": {"color": BLUE, "ls": "-", "marker": "o"},
    "interval misses it": {"color": ORANGE, "ls": "-", "marker": "s"},
}
"""Of methods and kinds; others look as the student does."""
LINES: tuple[dict[str, Any], ...] = (
    LOOKS["student"],
    LOOKS["sgld"],
    {"color": ORANGE, "ls": "-.", "marker": "D"},
    {"color": "#56B4E9", "ls": ":", "marker": "v"},
    {"color": "#1a1a1a", "ls": (0, (5, 1, 1, 1, 1, 1)), "marker": "^"},
)
"""Of lines along a column, none in the colour of noise or doubt."""
SMALL: Any = STYLE | {
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.markersize": 3.5,
}


def cut(name: object, most: int) -> str:
    """A name that is not too long for a figure, and in which nothing is taken for a formula.

    >>> cut("a" * 30, 5), cut("$x", 5)
    ('aaaa…', '\\\\$x')
    """
    text = str(name)
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")


@contextmanager
def _axes(picture: Picture, height: float, rows: int = 1, legend: int = 2) -> Iterator[Any]:
    """The figure and its axes from top to bottom, with their names and a legend above them."""
    from matplotlib.ticker import ScalarFormatter, StrMethodFormatter

    with panels(rows, size=(WIDTH, height), style=SMALL, sharex=True) as (figure, axes):
        yield figure, *axes[:, 0]
        axes[-1, 0].set_xlabel(cut(picture.x, 48))
        axes[0, 0].set_ylabel(cut(picture.y, 48 // rows))
        handles: dict[str, Any] = {}
        for axis in axes[:, 0]:
            for side in (axis.xaxis, axis.yaxis):  # Large numbers are written with commas.
                largest = max(map(abs, side.get_view_interval()))
                if isinstance(side.get_major_formatter(), ScalarFormatter) and 10_000 <= largest < 1e9:
                    side.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            handles |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
        if handles:
            figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=legend)


def _scatter(picture: Scatter) -> Drawing:
    """What lies beyond the limits is drawn at the edge."""
    low, high = picture.limits
    with _axes(picture, SQUARE) as (figure, axis):
        for kind, pair in picture.points.items():
            look = LOOKS.get(kind, LOOKS["student"])
            values = (np.nan_to_num(each, posinf=high, neginf=low) for each in (*pair, *picture.whiskers.get(kind, ())))
            x, y, *ends = (np.clip(each, low, high) for each in values)
            if ends:
                axis.vlines(x, *ends, color=look["color"], lw=0.9, alpha=0.55)
            axis.plot(x, y, **(look | {"ls": ""}), alpha=0.7, mew=0, label=kind or None)
        _diagonal(axis, picture.limits)
        if picture.log:
            _logarithmic(axis, "xy")
    return figure


def _curves(picture: Curves) -> Drawing:
    with _axes(picture, SQUARE if picture.promise else LOW) as (figure, axis):
        if picture.band is not None:
            axis.fill_between(*picture.band, color=GREY, alpha=0.2, lw=0, label="promise kept (95% of tests)")
        for method in [method for method in reversed(METHODS) if method in picture.curves]:  # The student's on top.
            x, y = picture.curves[method]
            # A long curve is drawn with fewer points, its ends among them.
            points = np.unique(np.linspace(0, len(x) - 1, MOST_POINTS).round().astype(int))
            look = LOOKS[method] | ({"marker": ""} if len(points) > 15 else {})
            axis.plot(x[points], _finite(y[points]), **look, lw=1.8, label=METHODS[method])
            if method in picture.whiskers:
                axis.vlines(x, *picture.whiskers[method], color=look["color"], lw=1.2, label="95% interval")
        if picture.promise:
            _diagonal(axis, (0.0, 100.0))
            axis.set_ylim(0, 103)
        elif picture.log:
            _logarithmic(axis, "y")
        else:
            axis.set_ylim(bottom=0)
        axis.set_xlim(left=picture.begin)
    return figure


def _confusion(picture: Confusion) -> Drawing:
    counts, number, names = picture.counts, len(picture.names), [cut(name, 12) for name in picture.names]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    with _axes(picture, SQUARE) as (figure, axis):
        axis.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100)
        for row, column in zip(*np.nonzero(counts), strict=True):
            colour = "white" if shares[row, column] > 0.55 else "black"
            look = {"ha": "center", "va": "center", "color": colour, "fontsize": 9 if number < 8 else 7}
            axis.text(column, row, f"{counts[row, column]:,}", **look)
        _named_ticks(axis, names)
        axis.set_yticks(range(number), names)
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
    return figure


def _along(picture: AlongColumn) -> Drawing:
    """Lines along numbers, marks for categories."""
    numbers, spread = picture.seen is not None, 0.0 if picture.seen is not None else 0.1
    places = np.asarray(picture.values if numbers else range(len(picture.values)), np.float64)
    low, high = picture.seen or (-math.inf, math.inf)
    seen = (places >= low) & (places <= high)
    form = {"marker": "", "lw": 1.8} if numbers else {"ls": "", "ms": 5}
    parts = {"noise": picture.noise, "doubt": picture.doubt}
    looks = ((picture.lines, LINES, False), (parts, (LOOKS["noise"], LOOKS["doubt"]), True))
    with _axes(picture, TALL, 2, legend=3) as (figure, *both):
        for axis, (lines, own, floor) in zip(both, looks, strict=True):
            for k, ((name, line), look) in enumerate(zip(lines.items(), own, strict=False)):
                shifted = places + spread * (k - (len(lines) - 1) / 2)
                axis.plot(shifted, _finite(line), **(look | form), label=cut(name, 32))
            if picture.whole and not floor:
                axis.set_ylim(-2, 102)
            else:
                _limit(axis, list(lines.values()), seen, picture.log, floor)
            if picture.seen is not None:
                for end, far in zip(picture.seen, places[[0, -1]], strict=True):
                    axis.axvspan(end, far, color=GREY, alpha=0.14, lw=0, label="not seen in training")
        upper, lower = both
        lower.set_ylabel(cut(picture.unit, 22))
        if numbers:
            upper.set_xlim(places[0], places[-1])
        else:
            upper.set_xlim(-0.5, len(places) - 0.5)
            _named_ticks(lower, [cut(name, 14) for name in picture.values])
    return figure


def drawn(picture: Picture) -> Drawing:
    """The figure of a picture."""
    drawings: Any = {Scatter: _scatter, Curves: _curves, Confusion: _confusion, AlongColumn: _along}
    return drawings[type(picture)](picture)


# Axes


def _named_ticks(axis: Any, names: list[str]) -> None:
    """Names along the first axis, tilted where there is little room."""
    tilted = sum(map(len, names)) > 36
    axis.set_xticks(range(len(names)), names, rotation=35 * tilted, ha="right" if tilted else "center")


def _diagonal(axis: Any, limits: tuple[float, float]) -> None:
    """Where both axes, of the same limits, say the same."""
    axis.plot(limits, limits, "--", color=GREY, lw=1)
    axis.set(xlim=limits, ylim=limits)


def _logarithmic(axis: Any, which: str) -> None:
    """Make the axes `which` ("y" or "xy"), whose limits are set, logarithmic with plain numbers."""
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


def excursions(courses: list[dict[str, Any]]) -> Drawing:
    """The uncertainty of student and teacher along columns, in units of the teacher's where rows were seen."""
    rows = -(-len(courses) // 2)
    with panels(rows, 2, size=(WIDTH, 0.6 + 1.6 * rows), style=SMALL, sharey=True) as (figure, axes):
        for axis, course in zip(axes.flat, courses, strict=False):
            values, (low, high) = np.asarray(course["values"]), course["seen"]
            usual = np.median(np.asarray(course["teacher"])[(values >= low) & (values <= high)])
            for name, label in (("teacher", "sgld"), ("student", "student")):
                drawn = np.minimum(np.asarray(course[name]) / usual, MOST_DRAWN)
                axis.semilogy(values, drawn, label=name, color=LOOKS[label]["color"], ls=LOOKS[label]["ls"])
            for ends in ((values[0], low), (high, values[-1])):
                axis.axvspan(*ends, color="#eeeeee", zorder=0)
            axis.set_xlim(values[0], values[-1])
            axis.set_xlabel(cut(course["column"], 24))
        for empty in axes.flat[len(courses) :]:
            empty.set_axis_off()
        for axis in axes[:, 0]:
            axis.set_ylabel("times the usual")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure
