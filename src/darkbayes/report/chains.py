"""Did the chains meet? What results say about their distillations: a line for the terminal, a table for the page."""

import re
from collections import Counter
from functools import partial
from statistics import median
from typing import Any

from darkbayes.report.tables import PLAIN, Table, group_table, number
from darkbayes.teacher.diagnostics.convergence import WORSE

WORDS = {
    "agree": "agree",
    "few": "agree on few predictions",
    "one_chain": "of one chain",
    "short": "too short to judge",
    "apart": "apart",
}
"""What is said of runs with each verdict."""

COLUMNS = {
    "rhat": ("R-hat", max),
    "effective": ("effective predictions", min),
    "autocorrelation_steps": ("steps to a fresh prediction", max),
    "temperature": ("temperature", None),
    "kinetic_temperature": ("kinetic temperature", None),
    "noise_to_signal": ("gradient noise to signal", max),
    "divergence": ("KL(teacher || student)", max),
    "teacher_error": ("the teacher's own error", max),
}
"""What the numbers of a run are called, and which of several is the worst."""

CAPTION = (
    "Judged by what each chain predicts at up to 32 inputs over the whole run, not by its weights. R-hat compares the "
    "halves of all chains, at the worst of these inputs: 1 is agreement. Effective predictions are how many "
    "independent ones would tell the average as well. The temperature of draws from the posterior is 1. The teacher's "
    "own error is the KL divergence that its finite number of draws would explain. Of several runs the median, and the "
    "worst in brackets."
)


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
    """
    diagnoses = results.get("diagnostics", {})
    if not diagnoses:
        return ""
    name, worst = max(diagnoses.items(), key=lambda item: (WORSE.index(item[1]["verdict"]["code"]), _rhat(item[1])))
    counts = sum((Counter(diagnosis["counts"]) for diagnosis in diagnoses.values()), start=Counter())
    line = worst["verdict"]["text"]
    if len(diagnoses) > 1 and worst["verdict"]["code"] == "agree":
        line += f", in the worst of {counts.total()} runs"
    elif len(diagnoses) > 1:
        shares = ", ".join(f"{counts[code]} {WORDS[code]}" for code in WORSE if counts[code])
        line = f"{name}: {line}; of {counts.total()} runs {shares}"
    warnings = [warning for diagnosis in diagnoses.values() for warning in diagnosis["warnings"]]
    texts = {warning["code"]: warning["text"] for warning in warnings}
    for code, times in Counter(warning["code"] for warning in warnings).items():
        line += f"; {texts[code]}" + (f" (in {times} of {len(diagnoses)} distillations)" if len(diagnoses) > 1 else "")
    return line


def _rhat(diagnosis: dict[str, Any]) -> float:
    """The largest R-hat of the runs; one that is not finite was stored as nothing."""
    return max((run.get("rhat") or 0.0 for run in diagnosis.get("runs", [])), default=0.0)


def chains_table(results: dict[str, Any]) -> Table | None:
    """A row for each student, over the trials or splits; None for results without any diagnostics."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, diagnosis in results.get("diagnostics", {}).items():
        groups.setdefault(student_label(name), []).extend(diagnosis["runs"])
    if not groups:
        return None
    numbers = {
        heading: partial(_cell, key, worst)
        for key, (heading, worst) in COLUMNS.items()
        if any(run[key] for runs in groups.values() for run in runs)  # Neither unknown nor zero everywhere.
    }
    return group_table("student", groups, {"runs": lambda runs: str(len(runs)), **numbers, "chains agree in": _share})


def _cell(key: str, worst: Any, runs: list[dict[str, Any]]) -> str:
    known = [run[key] for run in runs if run[key] is not None]
    if not known:
        return ""
    middle = _short(median(known))
    return middle if worst is None or len(known) == 1 else f"{middle} ({_short(worst(known))})"


def _short(value: float) -> str:
    return number(float(f"{value:.3g}"))


def _share(runs: list[dict[str, Any]]) -> str:
    good = sum(run["code"] == "agree" for run in runs)
    return "all" if good == len(runs) else f"{good} of {len(runs)}"
