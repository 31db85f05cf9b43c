"""One self-contained HTML page, made from the files of a run's folder and nothing else."""

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from darkbayes.errors import InvalidInput
from darkbayes.files import read_json, write_text
from darkbayes.report.chains import CAPTION, chains_line, chains_table, student_label
from darkbayes.report.choices import CAPTION as CHOICES_CAPTION
from darkbayes.report.choices import choices_table, first_explanation
from darkbayes.report.tables import RIVALS, measured, method_name, number, pivot, repeated
from darkbayes.report.template import rendered

Results = dict[str, Any]


class Words(NamedTuple):
    """What the page of an experiment says; ``{...}`` is filled from the run's settings."""

    title: str
    lead: str
    quick: str
    """How the preset `quick` is smaller than the experiment itself."""
    trial: str
    """What a trial is."""
    summary: Callable[[Results], str]
    """What the numbers say, in a sentence or two."""
    figure: str
    caption: str
    curves: str = "the grid, for the first draw of the data"
    """Where students were compared with their teacher as they learned."""


def write_report(folder: Path) -> Path:
    """Write ``report.html`` into a finished run's folder and return its path."""
    results, config = read_json(folder / "results.json"), read_json(folder / "config.json")
    if results["experiment"] == "fit":
        from darkbayes.report.fitted.page import write_fitted

        return write_fitted(folder)
    words = WORDS[results["experiment"]]
    footnote = f"{repeated(results).capitalize()}; a trial is {words.trial}."
    marked = [cell for table in pivot(results) for row in table.rows for cell in row if hasattr(cell, "best")]
    page = rendered(
        "page.html",
        title=words.title + (", quick preset (a subset)" if results["preset"] == "quick" else ""),
        lead=_filled(words.lead, config),
        caution=_caution(words, results, config),
        summary=words.summary(results),
        tables=pivot(results),
        footnote=footnote + (" Bold: the better of the student and PBP." if marked else ""),
        figures=_figures(folder, results),
        choices=_choices(results),
        chains=_chains(folder, results),
        provenance=results["provenance"],
        config=config,
    )
    path = folder / "report.html"
    write_text(path, page)
    return path


def write_figure(folder: Path, path: Path) -> None:
    """Write the figure of a finished run as an image, in the format that the name of `path` ends in."""
    from darkbayes.report.figures import FIGURES
    from darkbayes.report.fitted.page import main_figure

    check_figure(path)
    experiment = read_json(folder / "results.json")["experiment"]
    figure = main_figure(folder) if experiment == "fit" else FIGURES[experiment](folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def write_bench_figure(results: Results, path: Path) -> None:
    """Write the figure of a benchmark's results as an image."""
    from darkbayes.report.figures import BENCHES

    path.parent.mkdir(parents=True, exist_ok=True)
    BENCHES[results["experiment"]](results["rows"]).savefig(path, dpi=150)


def check_figure(path: Path) -> None:
    """Refuse a file name that no image can have."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidInput(f"--figure {path} must end in .png, .svg or .pdf")


def _filled(text: str, config: dict[str, Any]) -> str:
    """The text with the run's settings in it."""
    layers = [784, *config.get("hidden", ()), 10]
    return text.format(**{"train": 0, "trials": 0} | config | {"network": "-".join(map(str, layers))})


def _caution(words: Words, results: Results, config: dict[str, Any]) -> str:
    """What a reader must know before comparing the numbers with others."""
    cautions = []
    if results["preset"] == "quick":
        smaller = _filled(words.quick, config)
        cautions.append(f"This is the quick preset, a small version of the experiment: {smaller}.")
    if config.get("on") == "validation":
        cautions.append("Scored on the validation part, by which settings are chosen, not on the test part.")
    return " ".join(cautions)


def _rows(results: Results, metric: str) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in results["rows"] if row["metric"] == metric}


def _students(rows: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for method, row in rows.items() if method.startswith("student")]


def _toy_summary(results: Results) -> str:
    rows = _rows(results, "kl_from_hmc")
    best, plug_in = min(_students(rows), key=lambda row: row["mean"]), rows["sgd"]
    return (
        f"One network, the {method_name(best['method'])}, is {measured(best)} nats from HMC; "
        f"the plug-in network is {measured(plug_in)} nats away, {plug_in['mean'] / best['mean']:,.0f} times as far."
    )


def _mnist_summary(results: Results) -> str:
    error, score, kept = (_rows(results, metric) for metric in ("error", "log_likelihood", "gain_kept"))
    if "student" not in error:
        return "A comparator on its own, without teacher and student."
    networks, ratio = _rows(results, "networks")["sgld"]["mean"], _rows(results, "predict_ratio")["sgld"]["mean"]
    student, teacher = (
        f"{number(error[name]['mean'])}% of the images with a log likelihood of {number(score[name]['mean'])}"
        for name in ("student", "sgld")
    )
    text = f"The student, one network, errs on {student}; SGLD, the average of {number(networks)}, on {teacher}. "
    if score["sgld"]["mean"] > score["sgd"]["mean"]:
        text += f"The student keeps {kept['student']['mean']:.0%} of what SGLD gains in log likelihood over SGD. "
    return text + f"Predicting with the student takes 1/{number(ratio)} of the time."


def _boston_summary(results: Results) -> str:
    rows = _rows(results, "log_likelihood")
    student = _students(rows)[0]
    others = [f"{method_name(name)} has {measured(rows[name])}" for name in ("sgld", "sgd", "pbp") if name in rows]
    return (
        f"The {method_name(student['method'])}, one network, has a log likelihood of {measured(student)} per example; "
        + ", ".join(others)
        + "."
    )


def _uci_summary(results: Results) -> str:
    ours, theirs = (
        {row["dataset"]: row["mean"] for row in results["rows"] if (row["method"], row["metric"]) == chosen}
        for chosen in ((RIVALS[0], "log_likelihood"), (RIVALS[1], "log_likelihood"))
    )
    above = [name for name in ours if ours[name] > theirs[name]]
    return (
        f"The student, one network, has a higher log likelihood than PBP as published on {len(above)} of {len(ours)} "
        "data sets" + (f" ({', '.join(above)})." if above else ".")
    )


_TRUTH = (
    "HMC on the full posterior is the truth; SGLD approximates it with many networks, and each student is one network "
    "that was distilled from SGLD while it ran. The closer to zero a method's KL divergence from HMC, averaged over "
)
_TOY_QUICK = "one draw of the data, shorter chains and fewer draws by HMC"
_SPLIT = "a split of the data into a part to learn from and a part to score on"

WORDS = {
    "toy2d": Words(
        title="Toy 2-D classification: Table 2 and Figure 1 of Bayesian Dark Knowledge",
        lead="A 2-10-2 network is fitted to twenty points of two classes. "
        f"{_TRUTH}a grid on [-10, 10] x [-10, 10], the better.",
        quick=_TOY_QUICK,
        trial="a draw of the data",
        summary=_toy_summary,
        figure="Predictive distributions",
        caption="The colour is the predicted probability of class 1 for the first draw of the data. Away from the "
        "points a Bayesian prediction fades towards one half; the plug-in network stays certain.",
    ),
    "toy1d": Words(
        title="Toy 1-D regression: Figure 2 of Bayesian Dark Knowledge",
        lead="A network with ten hidden units is fitted to twenty noisy points of a cubic. "
        f"{_TRUTH}[-6, 6], the better. PBP and variational inference approximate the posterior by a Gaussian for each "
        "weight.",
        quick=_TOY_QUICK,
        trial="a draw of the data",
        summary=_toy_summary,
        figure="Predictive distributions",
        caption="Mean and three standard deviations for the first draw of the data; dashed, those of HMC. Of the "
        "students the one with the teacher's ten hidden units is shown, as in the paper.",
    ),
    "mnist": Words(
        title="MNIST: Tables 3 and 4 of Bayesian Dark Knowledge",
        lead="A {network} network learns handwritten digits from {train:,} images. SGLD averages the predictions of "
        "many networks drawn from the posterior; the student is one network of the same size, distilled from them. "
        "Errors are in per cent of the images, log likelihoods in nats per image.",
        quick="the first {train:,} training images only, a smaller network ({network}) and shorter runs",
        trial="a run from random starts of its own, on the same images",
        summary=_mnist_summary,
        figure="Is a method as often right as it is sure?",
        caption="Images are sorted into 15 bins by the probability that the method gives to its own answer. Bars show "
        "how often the answer is right, with 95% intervals; a calibrated method's bars reach the dashed line. Below, "
        "the share of images in each bin, on a logarithmic scale. First trial.",
        curves="the images that are scored, mean over the trials",
    ),
    "boston": Words(
        title="Boston housing: Table 5 of Bayesian Dark Knowledge",
        lead="A network with fifty hidden units predicts the median value of homes in 506 districts of Boston from "
        "thirteen features. The data are of 1970 and one feature encodes race: they are here because the paper and its "
        "peers report on them. Log likelihoods are in nats per example, RMSE and CRPS in 1,000 dollars, all in the "
        "original units. The paper's own splits were never published, so its numbers can be compared in kind only.",
        quick="a subset of the splits ({trials}) and shorter runs",
        trial=_SPLIT,
        summary=_boston_summary,
        figure="Predictions on the first split",
        caption="Predicted mean and two standard deviations for every home in the test part of the first split. About "
        "95% of them should cross the dashed line, on which the prediction is the true value.",
        curves="256 queries that it did not learn from, mean over the splits",
    ),
    "uci": Words(
        title="Regression on the UCI data sets, beside what others published",
        lead="The customary benchmark for uncertainty in regression: one hidden layer of fifty units (the student has "
        "two of a hundred), the standard splits with nine tenths to learn from, scores in the original units of the "
        "data. Ours beside published numbers of the same benchmark.",
        quick="a subset of the data sets or splits, and shorter runs",
        trial=_SPLIT,
        summary=_uci_summary,
        figure="How far from PBP",
        caption="Log likelihood per test example, less that of PBP as published. Whiskers are one standard error of "
        "the method itself, the grey band one of PBP. Filled: ours; open: published.",
    ),
}


def _figures(folder: Path, results: Results) -> list[dict[str, str]]:
    from darkbayes.report import figures

    experiment = results["experiment"]
    words = WORDS[experiment]
    shown = [{"title": words.figure, "caption": words.caption, "png": _png(figures.FIGURES[experiment](folder))}]
    sizes = [row for row in results["rows"] if row["metric"] == "kl_from_teacher"]
    if sizes:
        caption = (
            "KL divergence from the teacher at held-out queries for students of growing width; filled: the chosen one."
        )
        shown.append({"title": "How wide a student?", "caption": caption, "png": _png(figures.size_curve(sizes))})
    if "diagnostics" not in results:
        shown += _learning(folder, results)
    return shown


def _learning(folder: Path, results: Results) -> list[dict[str, str]]:
    """How the students learned, with the level at which one stopped where that is known; of the first trial."""
    from darkbayes.report import figures

    curves = _curves(folder)
    if not curves:
        return []
    known = {student_label(name): of for name, of in reversed(results.get("diagnostics", {}).items())}
    plateaus = {name: of["plateau"] for name, of in known.items() if name in curves and of["plateau"] is not None}
    errors = [run["teacher_error"] for of in known.values() for run in of["runs"]]
    caption = (
        f"KL divergence of each student from the teacher's average so far, on {WORDS[results['experiment']].curves}."
    )
    if any(plateau["stopped"] for plateau in plateaus.values()):
        caption += " Where a student has stopped following, the level is marked."
    png = _png(figures.learning_curves(curves, plateaus, sorted(errors)[len(errors) // 2] if errors else None))
    return [{"title": "How the students learned", "caption": caption, "png": png}]


def _chains(folder: Path, results: Results) -> dict[str, Any] | None:
    """Whether the chains agree, in words, numbers and a figure; None for results that do not tell."""
    table = chains_table(results)
    if table is None:
        return None
    line = chains_line(results)
    return {"line": line, "caption": CAPTION, "table": table, "figures": _learning(folder, results)}


def _choices(results: Results) -> dict[str, Any] | None:
    """What a teacher that tunes itself has chosen, in numbers and words; None for one that was told."""
    table = choices_table(results)
    if table is None:
        return None
    return {"table": table, "explanation": first_explanation(results), "caption": CHOICES_CAPTION}


def _curves(folder: Path) -> dict[str, list[dict[str, float]]]:
    """What each student's distillation wrote as it went, for the first trial where each has a folder of its own."""
    paths = [*folder.glob("trial-0/student*/metrics.jsonl"), *folder.glob("student*/metrics.jsonl")]
    curves = {}
    for path in sorted(paths, key=lambda path: (len(str(path)), path)):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        curves[student_label(path.parent.name)] = [line for line in lines if line["kl"] is not None]
    return {name: lines for name, lines in curves.items() if lines}


def _png(figure: Any) -> str:
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    plt.close(figure)
    return base64.b64encode(buffer.getvalue()).decode()
