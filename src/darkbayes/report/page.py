"""One self-contained HTML page, made from the files of a run's folder and nothing else."""

import base64
import io
import json
from pathlib import Path
from typing import Any

from darkbayes.errors import InvalidInput
from darkbayes.files import read_arrays, read_json, write_text
from darkbayes.report.tables import METHODS, measured, pivot, repeated

TITLES = {
    "toy2d": "Toy 2-D classification: Table 2 and Figure 1 of Bayesian Dark Knowledge",
    "toy1d": "Toy 1-D regression: Figure 2 of Bayesian Dark Knowledge",
}
_TRUTH = (
    "HMC on the full posterior is the truth; SGLD approximates it with many networks, and each student is one network "
    "that was distilled from SGLD while it ran. The closer to zero a method's KL divergence from HMC, averaged over "
)
LEADS = {
    "toy2d": "A 2-10-2 network is fitted to twenty points of two classes. "
    f"{_TRUTH}a grid on [-10, 10] x [-10, 10], the better.",
    "toy1d": "A network with ten hidden units is fitted to twenty noisy points of a cubic. "
    f"{_TRUTH}[-6, 6], the better.",
}
CAPTIONS = {
    "toy2d": "The colour is the predicted probability of class 1 for the first draw of the data. Away from the points "
    "a Bayesian prediction fades towards one half; the plug-in network stays certain.",
    "toy1d": "Mean and three standard deviations for the first draw of the data; dashed, those of HMC.",
}
CURVES = "KL divergence of each student from the teacher's average so far, on the grid, for the first draw of the data."


def write_report(folder: Path) -> Path:
    """Write ``report.html`` into a finished run's folder and return its path."""
    import jinja2

    results, config = read_json(folder / "results.json"), read_json(folder / "config.json")
    experiment = results["experiment"]
    template = jinja2.Environment(autoescape=True).from_string(
        (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    )
    page = template.render(
        title=TITLES[experiment],
        lead=LEADS[experiment],
        summary=_summary(results),
        table=pivot(results),
        repeated=repeated(results),
        figures=_figures(folder, experiment, read_arrays(folder / "figure.safetensors")),
        provenance=results["provenance"],
        config=config,
    )
    path = folder / "report.html"
    write_text(path, page)
    return path


def write_figure(folder: Path, path: Path) -> None:
    """Write the figure of a finished run as an image, in the format that the name of `path` ends in."""
    from darkbayes.report.figures import FIGURES

    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidInput(f"--figure {path} must end in .png, .svg or .pdf")
    experiment = read_json(folder / "results.json")["experiment"]
    path.parent.mkdir(parents=True, exist_ok=True)
    FIGURES[experiment](read_arrays(folder / "figure.safetensors")).savefig(path, dpi=150)


def _summary(results: dict[str, Any]) -> str:
    """What the numbers say, in a sentence."""
    rows = {row["method"]: row for row in results["rows"] if row["metric"] == "kl_from_hmc"}
    best = min((row for row in rows.values() if row["method"].startswith("student")), key=lambda row: row["mean"])
    plug_in = rows["sgd"]
    return (
        f"One network, the {METHODS.get(best['method'], best['method'])}, is {measured(best)} nats from HMC; "
        f"the plug-in network is {measured(plug_in)} nats away, {plug_in['mean'] / best['mean']:,.0f} times as far."
    )


def _figures(folder: Path, experiment: str, arrays: dict[str, Any]) -> list[dict[str, str]]:
    from darkbayes.report import figures

    shown = [
        {
            "title": "Predictive distributions",
            "caption": CAPTIONS[experiment],
            "png": _png(figures.FIGURES[experiment](arrays)),
        }
    ]
    curves = _curves(folder)
    if curves:
        png = _png(figures.learning_curves(curves))
        shown.append({"title": "How the students learned", "caption": CURVES, "png": png})
    return shown


def _curves(folder: Path) -> dict[str, list[dict[str, float]]]:
    return {
        path.parent.name.replace("student-", "student "): [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("trial-0/student-*/metrics.jsonl"), key=lambda path: (len(str(path)), path))
    }


def _png(figure: Any) -> str:
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    plt.close(figure)
    return base64.b64encode(buffer.getvalue()).decode()
