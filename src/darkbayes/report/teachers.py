"""What results say of their teachers: what each chose, and whether its chains met. Lines for the terminal, tables for
the page."""

import re
from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from statistics import median
from typing import Any

from darkbayes.report.tables import PLAIN, PageTable, number
from darkbayes.teacher.diagnostics.convergence import WORSE

Run = dict[str, Any]  # The numbers of one run.


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else number(float(f"{value:.3g}"))


# What a teacher that tunes itself has chosen


def _inflation(choices: Run) -> float:
    """By how much discretisation inflates the variance along the stiffest direction."""
    return 1 / (1 - choices["stiffness"] / 2) - 1 if choices["stiffness"] < 2 else float("inf")


CHOICES: dict[str, tuple[Callable[[Run], float], Callable[[float], str]]] = {
    "step size": (itemgetter("step_size"), _short),
    "variance inflated by": (_inflation, "{:.0%}".format),
    "minibatches' share of the noise": (itemgetter("heating"), "{:.0%}".format),
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
    lines = []
    for folder, chosen in results.get("choices", {}).items():
        about = ", ".join(filter(None, (_part(folder), f"{len(chosen)} runs" if len(chosen) > 1 else "")))
        restless = len(chosen) - _settled(chosen)
        line = f"step size {_chosen('step size', chosen)}, {_chosen('steps', chosen)} steps"
        line += f" ({restless} run{'s' * (restless > 1)} did not settle)" if restless else ""
        lines.append(f"{about}: {line}" if about else line)
    return "; ".join(lines)


def _settled(chosen: list[Run]) -> int:
    return sum(run.get("settled", True) for run in chosen)


def _chosen(name: str, chosen: list[Run]) -> str:
    value, written = CHOICES[name]
    values = [value(run) for run in chosen]
    middle, least, most = map(written, (median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def choices_table(results: dict[str, Any]) -> PageTable | None:
    """A row for each part, over its runs; None for results of teachers that chose nothing."""
    parts = {_part(folder) or "all": chosen for folder, chosen in results.get("choices", {}).items()}
    restless = any(_settled(chosen) < len(chosen) for chosen in parts.values())
    rows = []
    for label, chosen in parts.items():
        settled = [f"{_settled(chosen)} of {len(chosen)}"] * restless
        rows.append([label, str(len(chosen)), *(_chosen(heading, chosen) for heading in CHOICES), *settled])
    header = ["data", "runs", *CHOICES, *["settled in"] * restless]
    return PageTable("", header, rows, []) if parts else None


def first_explanation(results: dict[str, Any]) -> str:
    """What the first run's teacher says for itself, if it was kept."""
    return next((chosen[0].get("explanation", "") for chosen in results.get("choices", {}).values() if chosen), "")


# Did the chains meet?

VERDICTS = {
    "agree": "agree",
    "few": "known too roughly",
    "one_chain": "of one chain",
    "short": "too short to judge",
    "apart": "apart",
}
"""What is said of runs with each verdict."""
CHAINS = {
    "error": ("Monte Carlo error, median input", max),
    "error_large": ("at 95% of the inputs", max),
    "rhat": ("R-hat", max),
    "effective": ("effective predictions", min),
    "autocorrelation_steps": ("steps to a fresh prediction", max),
    "temperature": ("temperature", None),
    "temperature_stiffest": ("temperature, stiffest direction", None),
    "temperature_softest": ("temperature, softest direction", None),
    "temperature_predictions": ("temperature, direction of the predictions", None),
    "kinetic_temperature": ("kinetic temperature", None),
    "noise_to_signal": ("gradient noise to signal", max),
    "divergence": ("KL(teacher || student)", max),
    "teacher_error": ("the teacher's own error", max),
}
"""What the numbers of a run are called, and which of several is the worst."""


def student_label(folder: str) -> str:
    """What the student of a run's folder is called.

    >>> student_label("trial-0/student-2-10-2"), student_label("yacht/student-input-noise-6-50-2")
    ('student 2-10-2', 'yacht, student 6-50-2, noise from the input')
    """
    *parents, name = re.sub(r"(^|/)trial-\d+/", r"\1", folder).split("/")
    name = name.replace("-input-noise", " input noise").replace("student-", "student ")
    return ", ".join([*parents, PLAIN.method(name.replace("input noise-", "input noise "))])


def chains_line(results: dict[str, Any]) -> str:
    """The worst verdict of all distillations, and how many runs have each; empty for results without any.

    >>> good = {"verdict": {"code": "agree", "text": "the chains agree"}, "counts": {"agree": 5}, "warnings": []}
    >>> chains_line({"diagnostics": {"student": good}})
    'the chains agree'
    >>> bad = {"verdict": {"code": "apart", "text": "the chains have not met"}, "counts": {"apart": 1}, "warnings": []}
    >>> chains_line({"diagnostics": {"trial-0/student": good, "trial-1/student": bad}})
    'trial-1/student: the chains have not met; of 6 runs 5 agree, 1 apart'
    >>> chains_line({"diagnostics": {"student": good | {"runs": [{"teacher_error": 0.0123}]}}})
    'the chains agree; the error of their average costs predictions about 0.012 nats a row'
    """
    diagnoses = results.get("diagnostics", {})
    if not diagnoses:
        return ""

    def badness(item: tuple[str, Any]) -> tuple[int, float]:
        """By the verdict, then by the largest R-hat; one that is not finite was stored as nothing."""
        rhats = (run.get("rhat") or 0.0 for run in item[1].get("runs", []))
        return WORSE.index(item[1]["verdict"]["code"]), max(rhats, default=0.0)

    name, worst = max(diagnoses.items(), key=badness)
    counts = sum((Counter(diagnosis["counts"]) for diagnosis in diagnoses.values()), start=Counter())
    line, errors = worst["verdict"]["text"], [run.get("teacher_error") for run in worst.get("runs", [])]
    if len(diagnoses) == len(errors) == 1 and errors[0]:
        line += f"; the error of their average costs predictions about {errors[0]:.2g} nats a row"
    if len(diagnoses) > 1 and worst["verdict"]["code"] == "agree":
        line += f", in the worst of {counts.total()} runs"
    elif len(diagnoses) > 1:
        shares = ", ".join(f"{counts[code]} {VERDICTS[code]}" for code in WORSE if counts[code])
        line = f"{name}: {line}; of {counts.total()} runs {shares}"
    warnings = [warning for diagnosis in diagnoses.values() for warning in diagnosis["warnings"]]
    texts = {warning["code"]: warning["text"] for warning in warnings}
    for code, times in Counter(warning["code"] for warning in warnings).items():
        line += f"; {texts[code]}" + (f" (in {times} of {len(diagnoses)} distillations)" if len(diagnoses) > 1 else "")
    return line


def chains_table(results: dict[str, Any]) -> PageTable | None:
    """A row for each student, over the trials or splits; None for results without any diagnostics."""
    groups: dict[str, list[Run]] = {}
    for name, diagnosis in results.get("diagnostics", {}).items():
        groups.setdefault(student_label(name), []).extend(diagnosis["runs"])
    every = [run for runs in groups.values() for run in runs]
    shown = [key for key in CHAINS if any(run.get(key) for run in every)]  # Neither unknown nor zero everywhere.
    rows = []
    for label, runs in groups.items():
        good, cells = sum(run["code"] == "agree" for run in runs), []
        for key in shown:
            known, worst = [run[key] for run in runs if run.get(key) is not None], CHAINS[key][1]
            several = f" ({_short(worst(known))})" if worst and len(known) > 1 else ""
            cells.append(_short(median(known)) + several if known else "")
        rows.append([label, str(len(runs)), *cells, "all" if good == len(runs) else f"{good} of {len(runs)}"])
    header = ["student", "runs", *(CHAINS[key][0] for key in shown), "chains agree in"]
    return PageTable("", header, rows, []) if groups else None
