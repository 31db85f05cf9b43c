"""What a teacher that tunes itself has chosen: a line for the terminal, a table for the page."""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from statistics import median
from typing import Any

from darkbayes.report.tables import Table, group_table, number

CAPTION = (
    "Every run was tuned before it began: the step size so that neither discretisation nor minibatches change the "
    "posterior by more than was allowed, burn-in and thinning by what the log posterior and the predictions did. Of "
    "several runs the median, and the least and the greatest in brackets."
)


def _inflation(choices: dict[str, Any]) -> float:
    """By how much discretisation inflates the variance along the stiffest direction."""
    return 1 / (1 - choices["stiffness"] / 2) - 1 if choices["stiffness"] < 2 else float("inf")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else number(float(f"{value:.3g}"))


def _percent(value: float) -> str:
    return f"{value:.0%}"


COLUMNS: dict[str, tuple[Callable[[dict[str, Any]], float], Callable[[float], str]]] = {
    "step size": (itemgetter("step_size"), _short),
    "variance inflated by": (_inflation, _percent),
    "minibatches' share of the noise": (itemgetter("heating"), _percent),
    "burn-in": (itemgetter("burn_in"), _short),
    "steps to a fresh prediction": (itemgetter("autocorrelation"), _short),
    "one draw kept in": (itemgetter("thin"), _short),
    "steps": (itemgetter("steps"), _short),
}
"""What is shown of the choices, and how it is written."""


def _part(folder: str) -> str:
    """What a folder of choices is of: a data set, or nothing where there is only one kind of run.

    >>> _part("boston/student-13-50-2"), _part("teacher")
    ('boston', '')
    """
    return ", ".join(folder.split("/")[:-1])


def choices_line(results: dict[str, Any]) -> str:
    """What was chosen, part by part; empty for results of teachers that chose nothing.

    >>> chosen = {"step_size": 0.02, "burn_in": 1024, "thin": 7, "steps": 11024, "stiffness": 0.5, "heating": 0.1}
    >>> choices_line({"choices": {"teacher": [chosen], "yacht/student": [chosen | {"settled": False}]}})
    'step size 0.02, 11,024 steps; yacht: step size 0.02, 11,024 steps (1 run did not settle)'
    """
    return "; ".join(_line(folder, chosen) for folder, chosen in results.get("choices", {}).items())


def _line(folder: str, chosen: list[dict[str, Any]]) -> str:
    name = [_part(folder)] if _part(folder) else []
    runs = [f"{len(chosen)} runs"] if len(chosen) > 1 else []
    step_size, steps = (_cell(*COLUMNS[column], chosen) for column in ("step size", "steps"))
    line = ": ".join([", ".join(name + runs)] * bool(name + runs) + [f"step size {step_size}, {steps} steps"])
    restless = len(chosen) - _settled(chosen)
    return line + (f" ({restless} run{'s' * (restless > 1)} did not settle)" if restless else "")


def _settled(chosen: list[dict[str, Any]]) -> int:
    return sum(run.get("settled", True) for run in chosen)


def choices_table(results: dict[str, Any]) -> Table | None:
    """A row for each part, over its runs; None for results of teachers that chose nothing."""
    parts = results.get("choices", {})
    if not parts:
        return None
    columns: dict[str, Callable[[Any], str]] = {"runs": lambda chosen: str(len(chosen))}
    columns |= {heading: partial(_cell, *how) for heading, how in COLUMNS.items()}
    if any(_settled(chosen) < len(chosen) for chosen in parts.values()):
        columns["settled in"] = lambda chosen: f"{_settled(chosen)} of {len(chosen)}"
    return group_table("data", {_part(part) or "all": chosen for part, chosen in parts.items()}, columns)


def _cell(value: Callable[..., float], written: Callable[[float], str], chosen: list[dict[str, Any]]) -> str:
    values = [value(run) for run in chosen]
    middle, least, most = map(written, (median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def first_explanation(results: dict[str, Any]) -> str:
    """What the first run's teacher says for itself, if it was kept."""
    firsts = [chosen[0].get("explanation", "") for chosen in results.get("choices", {}).values() if chosen]
    return firsts[0] if firsts else ""
