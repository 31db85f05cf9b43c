"""What all figures share: their style, in colours that do not rest on telling red from green, their panels and legends;
and the figures that any run can have. Nothing is drawn through the state of pyplot."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from darkbayes.files import read_arrays
from darkbayes.metrics import binned
from darkbayes.report.tables import PLAIN, Names

Drawing = Any  # A figure of matplotlib, which is loaded when something is drawn.

COLOURS = BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555"
"""Of Okabe and Ito, and a grey."""
STYLE: Any = {"font.size": 9, "axes.titlesize": 10}
WIDTH = 8.4


@contextmanager
def panels(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float], style: Any = STYLE, **how: Any
) -> Iterator[tuple[Drawing, Any]]:
    """A figure that nobody else holds, of a size in inches, and its axes ``[rows, columns]``."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(style):
        figure = Figure(figsize=size)
        yield figure, figure.subplots(rows, columns, squeeze=False, **how)
        # Here, once and for all: a figure that has the engine with it is drawn twice whenever it is saved.
        ConstrainedLayoutEngine().execute(figure)


def lettered(axes: Any, titles: Sequence[str]) -> list[Any]:
    """The first axes, which now have these titles with a letter before each; those beyond are left empty."""
    for axis, letter, title in zip(axes.flat, "abcdefghi", titles, strict=False):
        axis.set_title(f"({letter}) {title}")
    for empty, above in zip(axes.flat[len(titles) :], axes.flat[len(titles) - axes.shape[1] :], strict=False):
        empty.set_axis_off()
        above.xaxis.set_tick_params(labelbottom=True)
    return list(axes.flat[: len(titles)])


def label_edges(axes: Any, x: str, y: str) -> None:
    """Name the axes at the foot and at the left."""
    for axis in axes[-1]:
        axis.set_xlabel(x)
    for axis in axes[:, 0]:
        axis.set_ylabel(y)


def legend_below(figure: Drawing, axes: Any, **how: Any) -> None:
    """One legend for all axes, under them."""
    labelled: dict[str, Any] = {}
    for axis in axes.flat:
        handles, labels = axis.get_legend_handles_labels()
        labelled = dict(zip(labels, handles, strict=True)) | labelled
    how = {"ncols": len(labelled), "fontsize": 8} | how
    figure.legend(list(labelled.values()), list(labelled), loc="outside lower center", **how)


def figure_arrays(folder: Path) -> dict[str, np.ndarray]:
    """What an experiment has left in a run's folder to be drawn."""
    return read_arrays(folder / "figure.safetensors")


def methods_in(arrays: dict[str, np.ndarray], prefix: str, order: Sequence[str]) -> tuple[list[str], list[str]]:
    """The methods of `order` that there are, and the students, the smallest first."""
    names = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
    students = [name for name in names if name.startswith("student") and "input noise" not in name]
    return [name for name in order if name in names], sorted(students, key=lambda name: (len(name), name))


def reliability(probs: dict[str, np.ndarray], y: np.ndarray, bins: int, cases: str) -> Drawing:
    """How often methods are right where they are so sure.

    A method is calibrated where its bars touch the diagonal. Whiskers are 95% intervals (Wilson), below are the shares
    of the cases.
    """
    middles = (np.arange(bins) + 0.5) / bins
    rows: Any = {"sharex": True, "sharey": "row", "height_ratios": (3, 1)}
    with panels(2, len(probs), size=(WIDTH, 4.0), **rows) as (figure, axes):
        lettered(axes[:1], list(probs))
        for predicted, (upper, lower) in zip(probs.values(), axes.T, strict=True):
            count, _, accuracy, low, high = binned(predicted.max(axis=1), predicted.argmax(axis=1) == y, bins)
            seen = count > 0
            upper.bar(middles[seen], accuracy, 1 / bins, color=BLUE, alpha=0.35, edgecolor=BLUE, label="accuracy")
            whiskers = [accuracy - low, high - accuracy]
            upper.errorbar(middles[seen], accuracy, whiskers, fmt="none", ecolor=BLUE, capsize=2)
            upper.plot([0, 1], [0, 1], "--", color=ORANGE, label="calibrated")
            lower.bar(middles, count / len(predicted), 1 / bins, color=GREY)
            lower.set_yscale("log")
            lower.set_xlabel("confidence in the predicted class")
        axes[0, 0].set_xlim(0, 1)
        axes[0, 0].set_ylabel("accuracy")
        axes[1, 0].set_ylabel(f"share of\n{cases}")
        legend_below(figure, axes)
    return figure


def learning_curves(
    curves: dict[str, list[dict[str, float]]],
    plateaus: dict[str, dict[str, Any]],
    teacher_error: float | None = None,
    size: tuple[float, float] = (WIDTH, 2.8),
) -> Drawing:
    """How close each student was to its teacher as it learned, where it stopped, and how exact the teacher is."""
    with panels(size=size) as (figure, ((axis,),)):
        for (name, lines), colour, dashes in zip(curves.items(), COLOURS, ("-", "--", "-.", ":", "-"), strict=False):
            steps, divergences = ([line[key] for line in lines] for key in ("step", "kl"))
            axis.semilogy(steps, divergences, dashes, color=colour, label=name)
            plateau = plateaus.get(name)
            if plateau is not None and plateau["stopped"]:
                level, ends = plateau["level"], [plateau["since"], steps[-1]]
                axis.plot(ends, [level, level], color="black", lw=0.8, marker="|", ms=8)
                place = {"xy": (ends[0], level), "xytext": (0, 5), "textcoords": "offset points"}
                axis.annotate(f"stopped at {level:.3g}", **place, fontsize=7)
        if teacher_error:
            axis.axhline(teacher_error, color=GREY, lw=1, ls=(0, (1, 3)), label="the teacher's own error")
        axis.set_xlabel("steps of each chain")
        axis.set_ylabel("KL(teacher so far || student)")
        axis.legend()
    return figure


def size_curve(rows: list[dict[str, Any]], names: Names = PLAIN) -> Drawing:
    """How close students of growing width come to their teacher, against their numbers of parameters."""
    rows = sorted(rows, key=lambda row: row["parameters"])
    with panels(size=(WIDTH, 2.8)) as (figure, ((axis,),)):
        parameters, means = ([row[key] for row in rows] for key in ("parameters", "mean"))
        errors = [row["se"] or 0.0 for row in rows]
        axis.errorbar(parameters, means, errors, fmt="o-", color=BLUE, mfc="white", capsize=2)
        for row in rows:
            if row.get("chosen"):
                axis.plot(row["parameters"], row["mean"], "o", color=ORANGE, ms=7, zorder=3, label="chosen")
            label = names.method(row["method"]).removeprefix("student ")
            axis.annotate(label, (row["parameters"], row["mean"]), (4, 6), textcoords="offset points", fontsize=8)
        axis.loglog()
        axis.margins(0.1, 0.15)  # Room for the labels.
        axis.set_xlabel("parameters of the student")
        axis.set_ylabel("KL(teacher || student)")
        if any(row.get("chosen") for row in rows):
            axis.legend()
    return figure
