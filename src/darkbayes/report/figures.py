"""Pictures of predictions, each drawn from the files of a run's folder, in colours that do not rest on telling red from
green."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from darkbayes.files import read_arrays, read_json
from darkbayes.report.estimates import wilson
from darkbayes.report.tables import method_name

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555"
STYLE: Any = {"font.size": 9, "axes.titlesize": 10, "figure.constrained_layout.use": True}


def _arrays(folder: Path) -> dict[str, np.ndarray]:
    return read_arrays(folder / "figure.safetensors")


def _methods(arrays: dict[str, np.ndarray], prefix: str, order: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The methods of `order` that there are, and the students, the smallest first."""
    found = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
    students = [name for name in found if name.startswith("student") and "input noise" not in name]
    return [name for name in order if name in found], sorted(students, key=lambda name: (len(name), name))


def class_maps(folder: Path) -> Figure:
    """The probability of class 1 over the plane for each method, with the training points (the paper's Figure 1)."""
    arrays = _arrays(folder)
    others, students = _methods(arrays, "probs.", ("sgd", "hmc", "sgld"))
    methods = others + students
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
            axis.set_title(f"({letter}) {method_name(method)}")
            axis.set_aspect("equal")
        for axis in axes[-1]:
            axis.set_xlabel("$x_1$")
        for axis in axes[:, 0]:
            axis.set_ylabel("$x_2$")
        axes[0, 0].legend(loc="upper left", fontsize=7)
        figure.colorbar(image, ax=axes, label="predicted probability of class 1", shrink=0.8)
    return figure


def bands(folder: Path) -> Figure:
    """Mean and three standard deviations of each method, with those of HMC as outlines (the paper's Figure 2).

    Of the students only the smallest, which has the teacher's architecture as in the paper.
    """
    arrays = _arrays(folder)
    others, students = _methods(arrays, "mean.", ("pbp", "hmc", "vi", "sgd", "sgld"))
    methods = others + students[:1]
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
            axis.set_title(f"({letter}) {method_name(method)}")
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


def reliability(folder: Path, bins: int = 15) -> Figure:
    """How often a method is right where it is so sure: SGD, SGLD and the student, in the bins of the calibration error.

    A method is calibrated where its bars touch the diagonal. Whiskers are 95% intervals (Wilson), below are the shares
    of the images.
    """
    arrays = _arrays(folder)
    others, students = _methods(arrays, "probs.", ("sgd", "sgld"))
    # A comparator that was run alone is all there is.
    alone = ("dropout", "bbb gaussian", "bbb mixture", "ensemble")
    methods = others + students[:1] or _methods(arrays, "probs.", alone)[0]
    edges = np.linspace(0.0, 1.0, bins + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            2, len(methods), figsize=(8.4, 4.0), sharex=True, sharey="row", height_ratios=(3, 1), squeeze=False
        )
        for letter, method, (upper, lower) in zip("abc", methods, axes.T, strict=False):
            probs = arrays[f"probs.{method}"]
            confidence, right = probs.max(axis=1), probs.argmax(axis=1) == arrays["y"]
            bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
            count = np.bincount(bin_of, minlength=bins)
            seen = count > 0
            accuracy = np.bincount(bin_of, right, minlength=bins)[seen] / count[seen]
            low, high = wilson(accuracy, count[seen])
            upper.bar(middles[seen], accuracy, 1 / bins, color=BLUE, alpha=0.35, edgecolor=BLUE, label="accuracy")
            whiskers = [accuracy - low, high - accuracy]
            upper.errorbar(middles[seen], accuracy, whiskers, fmt="none", ecolor=BLUE, capsize=2)
            upper.plot([0, 1], [0, 1], "--", color=ORANGE, label="calibrated")
            upper.set_title(f"({letter}) {method_name(method)}")
            lower.bar(middles, count / len(probs), 1 / bins, color=GREY)
            lower.set_yscale("log")
            lower.set_xlabel("confidence in the predicted class")
        axes[0, 0].set_xlim(0, 1)
        axes[0, 0].set_ylabel("accuracy")
        axes[1, 0].set_ylabel("share of\nimages")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure


def predicted_against_true(folder: Path) -> Figure:
    """Predicted mean and two standard deviations against the true value: SGD, SGLD, the student and PBP."""
    arrays = _arrays(folder)
    others, students = _methods(arrays, "mean.", ("sgd", "sgld", "pbp"))
    methods = others[:2] + students[:1] + others[2:]
    y = arrays["y"].ravel()
    line = np.array([y.min() - 2, y.max() + 2])
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, 2, figsize=(8.4, 6.4), sharex=True, sharey=True)
        for letter, method, axis in zip("abcd", methods, axes.flat, strict=False):
            mean, spread = arrays[f"mean.{method}"].ravel(), 2 * arrays[f"std.{method}"].ravel()
            inside = np.abs(y - mean) <= spread
            for chosen, colour, marker, label in (
                (inside, BLUE, "o", "true value within 2 std. dev."),
                (~inside, ORANGE, "s", "true value beyond"),
            ):
                axis.errorbar(
                    y[chosen], mean[chosen], spread[chosen], fmt=marker, ms=3, lw=0.8, color=colour, label=label
                )
            axis.plot(line, line, "--", color=GREY, lw=1)
            axis.set_title(f"({letter}) {method_name(method)}: {inside.mean():.0%} within")
        for axis in axes[-1]:
            axis.set_xlabel("true median value of homes (1,000 dollars)")
        for axis in axes[:, 0]:
            axis.set_ylabel("predicted (1,000 dollars)")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return figure


def differences_from_pbp(folder: Path) -> Figure:
    """Log likelihood on each data set, less that of PBP as it was published; whiskers are standard errors."""
    rows = [row for row in read_json(folder / "results.json")["rows"] if row["metric"] == "log_likelihood"]
    scores = {(row["dataset"], row["method"]): row for row in rows}
    datasets, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("dataset", "method"))
    methods = [name for name in ("student", "sgld") if name in methods] + [
        name for name in methods if name not in ("student", "sgld", "pbp, published")
    ]
    styles = zip((BLUE, ORANGE, GREY, GREEN, PURPLE), "osv^D", strict=True)
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8.4, 1.2 + 0.6 * len(datasets)))
        places = np.arange(len(datasets))
        for place, dataset in zip(places, datasets, strict=True):
            error = scores[dataset, "pbp, published"]["se"] or 0.0
            axis.fill_betweenx([place - 0.4, place + 0.4], -error, error, color=GREY, alpha=0.25, lw=0)
        for number, (method, (colour, marker)) in enumerate(zip(methods, styles, strict=False)):
            known = [(place, scores[name, method]) for place, name in enumerate(datasets) if (name, method) in scores]
            base = [scores[row["dataset"], "pbp, published"]["mean"] for _, row in known]
            axis.errorbar(
                [row["mean"] - zero for (_, row), zero in zip(known, base, strict=True)],
                [place + 0.15 * (number - (len(methods) - 1) / 2) for place, _ in known],
                xerr=[row["se"] or 0.0 for _, row in known],
                fmt=marker,
                ms=5,
                capsize=2,
                color=colour,
                mfc="white" if "published" in method else colour,
                label=method_name(method),
            )
        axis.axvline(0.0, color=GREY, lw=1, ls="--")
        axis.set_yticks(places, datasets)
        axis.invert_yaxis()
        axis.set_xlabel("log likelihood per test example above PBP's (nats); further right is better")
        figure.legend(loc="outside upper center", ncols=len(methods), fontsize=8)
    return figure


def learning_curves(
    curves: dict[str, list[dict[str, float]]],
    plateaus: dict[str, dict[str, Any]] | None = None,
    teacher_error: float | None = None,
) -> Figure:
    """How close each student was to its teacher as it learned, where it stopped, and how exact the teacher is."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8.4, 2.8))
        colours = (BLUE, ORANGE, GREEN, PURPLE, GREY)
        for (name, lines), colour, dashes in zip(curves.items(), colours, ("-", "--", "-.", ":", "-"), strict=False):
            steps, divergences = ([line[key] for line in lines] for key in ("step", "kl"))
            axis.semilogy(steps, divergences, dashes, color=colour, label=name)
            plateau = (plateaus or {}).get(name)
            if plateau is not None and plateau["stopped"]:
                level, ends = plateau["level"], [plateau["since"], steps[-1]]
                axis.plot(ends, [level, level], color="black", lw=0.8, marker="|", ms=8)
                axis.annotate(
                    f"stopped at {level:.3g}", (ends[0], level), (0, 5), textcoords="offset points", fontsize=7
                )
        if teacher_error:
            axis.axhline(teacher_error, color=GREY, lw=1, ls=(0, (1, 3)), label="the teacher's own error")
        axis.set_xlabel("steps of each chain")
        axis.set_ylabel("KL(teacher so far || student)")
        axis.legend()
    return figure


def size_curve(rows: list[dict[str, Any]]) -> Figure:
    """How close students of growing width come to their teacher, against their numbers of parameters."""
    rows = sorted(rows, key=lambda row: row["parameters"])
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8.4, 2.8))
        parameters, means = ([row[key] for row in rows] for key in ("parameters", "mean"))
        axis.errorbar(
            parameters, means, [row["se"] or 0.0 for row in rows], fmt="o-", color=BLUE, mfc="white", capsize=2
        )
        for row in rows:
            if row.get("chosen"):
                axis.plot(row["parameters"], row["mean"], "o", color=ORANGE, ms=7, zorder=3, label="chosen")
            label = method_name(row["method"]).removeprefix("student ")
            axis.annotate(label, (row["parameters"], row["mean"]), (4, 6), textcoords="offset points", fontsize=8)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.margins(0.1, 0.15)  # Room for the labels.
        axis.set_xlabel("parameters of the student")
        axis.set_ylabel("KL(teacher || student)")
        if any(row.get("chosen") for row in rows):
            axis.legend()
    return figure


FIGURES = {
    "toy2d": class_maps,
    "toy1d": bands,
    "mnist": reliability,
    "boston": predicted_against_true,
    "uci": differences_from_pbp,
}
"""The figure of each experiment, drawn from its run's folder."""


SAMPLERS = {"toy2d": "2-D toy, 2-10-2", "boston": "Boston housing, 13-50-1"}
LINES = (BLUE, ORANGE, GREEN, PURPLE, GREY, "#E69F00", "#56B4E9")
MARKS = "os^Dv<>Phx*p+"


def sampler_curves(rows: list[dict[str, Any]]) -> Figure:
    """How close each sampler is to NUTS after so many gradients, with its own step size and with the best one."""
    by_panel = {row["metric"]: [of for of in rows if of["metric"] == row["metric"]] for row in rows if "curve" in row}
    names = list(dict.fromkeys(row["method"] for of in by_panel.values() for row in of))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            len(SAMPLERS), 2, figsize=(8.4, 3.4 * len(SAMPLERS)), sharex="row", sharey="row", squeeze=False
        )
        for line, (problem, title) in zip(axes, SAMPLERS.items(), strict=True):
            for axis, setting in zip(line, ("auto", "tuned"), strict=True):
                for row in by_panel.get(f"kl_{problem}_{setting}", []):
                    place = names.index(row["method"])
                    axis.plot(
                        *np.transpose(row["curve"]),
                        color=LINES[place % len(LINES)],
                        marker=MARKS[place % len(MARKS)],
                        ls=("-", "--")[place // len(LINES) % 2],
                        ms=4,
                        lw=1,
                        label=method_name(row["method"]),
                    )
                axis.set_xscale("log")
                axis.set_yscale("log")
                axis.set_title(f"{title}, {'step size found by itself' if setting == 'auto' else 'best step size'}")
                axis.set_xlabel("gradients, all chains together")
            line[0].set_ylabel("KL(NUTS || sampler)")
        shown: dict[str, Any] = {}
        for axis in axes.flat:
            handles, labels = axis.get_legend_handles_labels()
            shown |= dict(zip(labels, handles, strict=True))
        figure.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=4, fontsize=7)
    return figure


def target_curve(rows: list[dict[str, Any]]) -> Figure:
    """How close students come to the truth, against the draws that their targets average."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(5.6, 3.0))
        for metric, label, color, mark in (
            ("kl_student", "student 2-10-10-2", BLUE, "o"),
            ("kl_teacher", "its teacher", ORANGE, "s"),
        ):
            of = sorted((row for row in rows if row["metric"] == metric), key=lambda row: row["draws"])
            axis.errorbar(
                [row["draws"] for row in of],
                [row["mean"] for row in of],
                [row["se"] or 0.0 for row in of],
                color=color,
                marker=mark,
                capsize=2,
                label=label,
            )
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks([row["draws"] for row in of], [str(row["draws"]) for row in of])
        axis.set_xlabel("draws that a target averages, at equal gradients and updates")
        axis.set_ylabel("KL(NUTS || method)")
        axis.legend()
    return figure


BENCHES = {"bench-samplers": sampler_curves, "bench-targets": target_curve}
"""The figures of benchmarks that have one."""
