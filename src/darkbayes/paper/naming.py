"""What several experiments call their methods, and the rows of results that their pages speak of."""

from typing import Any

METHODS = {
    "sgd": "SGD (plug-in)",
    "hmc": "HMC",
    "sgld": "SGLD",
    "pbp": "PBP",
    "vi": "variational inference",
    "dropout mc": "MC dropout",
    "ensemble": "deep ensemble",
}
"""What methods are called that more than one experiment has."""


def teacher(preset: Any) -> str:
    """The sampler that ran as the teacher; its rows are those of the method "sgld", as the paper has them."""
    if preset.step_size == "auto":
        return "Fisher SGLD with momentum"
    return "Fisher SGLD" if getattr(preset, "sampler", None) == "fisher" else "SGLD"


def rows_of(results: dict[str, Any], metric: str) -> dict[str, dict[str, Any]]:
    """The rows of a metric by method."""
    return {row["method"]: row for row in results["rows"] if row["metric"] == metric}


def students(rows: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of students."""
    return [row for method, row in rows.items() if method.startswith("student")]
