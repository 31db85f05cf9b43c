"""The figures of the benchmarks that have one, drawn from their rows alone."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.names import NAMES
from darkbayes.report.figures import BLUE, COLOURS, ORANGE, WIDTH, Drawing, legend_below, panels

PROBLEMS = {"toy2d": "2-D toy, 2-10-2", "boston": "Boston housing, 13-50-1"}
SETTINGS = {"auto": "step size found by itself", "tuned": "best step size"}
LINES = (*COLOURS, "#E69F00", "#56B4E9")
MARKS = "os^Dv<>Phx*p+"


def sampler_curves(rows: list[dict[str, Any]]) -> Drawing:
    """How close each sampler is to NUTS after so many gradients, with its own step size and with the best one."""
    curves = [row for row in rows if "curve" in row]
    methods = list(dict.fromkeys(row["method"] for row in curves))
    size = (WIDTH, 3.4 * len(PROBLEMS))
    with panels(len(PROBLEMS), len(SETTINGS), size=size, sharex="row", sharey="row") as (figure, axes):
        for line, (problem, title) in zip(axes, PROBLEMS.items(), strict=True):
            for axis, (setting, what) in zip(line, SETTINGS.items(), strict=True):
                for row in (row for row in curves if row["metric"] == f"kl_{problem}_{setting}"):
                    place = methods.index(row["method"])
                    axis.plot(
                        *np.transpose(row["curve"]),
                        color=LINES[place % len(LINES)],
                        marker=MARKS[place % len(MARKS)],
                        ls=("-", "--")[place // len(LINES) % 2],
                        ms=4,
                        lw=1,
                        label=NAMES.method(row["method"]),
                    )
                axis.loglog()
                axis.set_title(f"{title}, {what}")
                axis.set_xlabel("gradients, all chains together")
            line[0].set_ylabel("KL(NUTS || sampler)")
        legend_below(figure, axes, ncols=4, fontsize=7)
    return figure


def target_curve(rows: list[dict[str, Any]]) -> Drawing:
    """How close students come to the truth, against the draws that their targets average."""
    draws = sorted({row["draws"] for row in rows})
    with panels(size=(5.6, 3.0)) as (figure, ((axis,),)):
        for metric, label, colour, mark in (
            ("kl_student", "student 2-10-10-2", BLUE, "o"),
            ("kl_teacher", "its teacher", ORANGE, "s"),
        ):
            by_draws = {row["draws"]: row for row in rows if row["metric"] == metric}
            means, errors = ([by_draws[number][key] or 0.0 for number in draws] for key in ("mean", "se"))
            axis.errorbar(draws, means, errors, color=colour, marker=mark, capsize=2, label=label)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(draws, list(map(str, draws)))
        axis.set_xlabel("draws that a target averages, at equal gradients and updates")
        axis.set_ylabel("KL(NUTS || method)")
        axis.legend()
    return figure


FIGURES: dict[str, Callable[[list[dict[str, Any]]], Drawing]] = {"samplers": sampler_curves, "targets": target_curve}
"""By the name of the benchmark."""
