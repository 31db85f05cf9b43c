"""Pictures of predictive distributions, in colours that do not rest on telling red from green."""

from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from darkbayes.report.tables import METHODS

ORDER = ("sgd", "hmc", "sgld")
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"
STYLE: Any = {"font.size": 9, "axes.titlesize": 10, "figure.constrained_layout.use": True}


def _methods(arrays: dict[str, np.ndarray], prefix: str) -> list[str]:
    """The methods in the paper's order: plug-in, HMC, SGLD, then the students."""
    found = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
    return sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), len(name), name))


def class_maps(arrays: dict[str, np.ndarray]) -> Figure:
    """The probability of class 1 over the plane for each method, with the training points (the paper's Figure 1)."""
    methods = _methods(arrays, "probs.")
    side = round(len(arrays[f"probs.{methods[0]}"]) ** 0.5)
    line = np.linspace(-10.0, 10.0, side)
    with plt.rc_context(STYLE):
        rows = -(-len(methods) // 3)
        figure, axes = plt.subplots(rows, 3, figsize=(8.4, 2.7 * rows), sharex=True, sharey=True, squeeze=False)
        image: Any = None
        for letter, method, axis in zip("abcdefghi", methods, axes.flat, strict=False):
            image = axis.pcolormesh(
                line, line, arrays[f"probs.{method}"].reshape(side, side), cmap="PuOr", vmin=0, vmax=1, rasterized=True
            )
            for label, marker in ((0, "o"), (1, "^")):
                points = arrays["x"][arrays["y"] == label]
                axis.scatter(*points.T, s=18, marker=marker, c="white", edgecolors="black", label=f"class {label}")
            axis.set_title(f"({letter}) {METHODS.get(method, method)}")
            axis.set_aspect("equal")
        for axis in axes[-1]:
            axis.set_xlabel("$x_1$")
        for axis in axes[:, 0]:
            axis.set_ylabel("$x_2$")
        axes[0, 0].legend(loc="upper left", fontsize=7)
        figure.colorbar(image, ax=axes, label="predicted probability of class 1", shrink=0.8)
    return figure


def bands(arrays: dict[str, np.ndarray]) -> Figure:
    """Mean and three standard deviations of each method, with those of HMC as outlines (the paper's Figure 2)."""
    methods = _methods(arrays, "mean.")
    grid = arrays["grid"]
    truth = [arrays["mean.hmc"] + side * 3 * arrays["std.hmc"] for side in (-1, 1)]
    with plt.rc_context(STYLE):
        rows = -(-len(methods) // 3)
        figure, axes = plt.subplots(rows, 3, figsize=(8.4, 2.7 * rows), sharex=True, sharey=True, squeeze=False)
        for letter, method, axis in zip("abcdefghi", methods, axes.flat, strict=False):
            mean, spread = arrays[f"mean.{method}"], 3 * arrays[f"std.{method}"]
            axis.fill_between(grid, mean - spread, mean + spread, color=BLUE, alpha=0.25, lw=0, label="±3 std. dev.")
            axis.plot(grid, mean, color=BLUE, label="mean")
            if method != "hmc":
                for number, edge in enumerate(truth):
                    axis.plot(grid, edge, color=ORANGE, lw=1, ls="--", label="HMC ±3 std. dev." if not number else None)
            axis.scatter(arrays["x"], arrays["y"], s=12, color="black", zorder=3, label="training data")
            axis.set_title(f"({letter}) {METHODS.get(method, method)}")
        for axis in axes.flat[len(methods) :]:
            axis.set_axis_off()
        for axis in axes[-1]:
            axis.set_xlabel("x")
        for axis in axes.flat[max(0, len(methods) - 3) : len(methods)]:
            axis.xaxis.set_tick_params(labelbottom=True)
        for axis in axes[:, 0]:
            axis.set_ylabel("y")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return figure


def learning_curves(curves: dict[str, list[dict[str, float]]]) -> Figure:
    """How close each student was to its teacher as it learned."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8.4, 2.8))
        colours = (BLUE, ORANGE, "#009E73", "#CC79A7", GREY)
        for (name, lines), colour, dashes in zip(curves.items(), colours, ("-", "--", "-.", ":", "-"), strict=False):
            known = [line for line in lines if line["kl"] is not None]
            axis.semilogy(
                [line["step"] for line in known], [line["kl"] for line in known], dashes, color=colour, label=name
            )
        axis.set_xlabel("steps of each chain")
        axis.set_ylabel("KL(teacher so far || student)")
        axis.legend()
    return figure


FIGURES = {"toy2d": class_maps, "toy1d": bands}
"""The figure of each experiment, drawn from the arrays in its run's folder."""
