"""The page of a fit, made from folders that are written by hand."""

import json
import math
import re
import shutil
from html import unescape
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from darkbayes.report.estimates import by_chance, ratio
from darkbayes.report.fitted.numbers import (
    calibration_error,
    confidence_verdict,
    gain_kept,
    interval_verdict,
    least_sure,
    noise_share,
    rank_correlation,
    risks,
    scores,
)

from darkbayes.errors import InvalidInput, RunError
from darkbayes.files import write_arrays, write_json, write_text
from darkbayes.report import markdown, pivot, terminal, write_figure, write_report
from darkbayes.report.fitted.folder import Held, Told, read_fit
from darkbayes.report.fitted.words import cautions, kept_words, paragraphs
from darkbayes.runs import provenance, row
from darkbayes.tables import (
    Category,
    ClassPredictions,
    ClassTarget,
    ImageSchema,
    Number,
    RealPredictions,
    RealTarget,
    TableSchema,
    schema_to_dict,
)

ROWS = 120
COLUMNS = (
    Number("size", 5.0, 3.0, 5.0, flagged=False, low=0.0, high=10.0, whole=False),
    Category("town <b>", ("Oslo", "Rome"), flagged=True),
)
METHODS = ("student", "sgld", "sgd")
CHOICES = {
    **{"step_size": 0.02, "stiffness": 0.5, "heating": 0.1, "burn_in": 1024, "autocorrelation": 61.2, "rhat": 1.0},
    **{"thin": 6, "steps": 5000, "reason": "as asked for", "settled": True, "explanation": "step size 0.02"},
}
RUN = {
    **{"code": "agree", "chains": 4, "draws": 100, "rhat": 1.02, "effective": 300.0, "autocorrelation_steps": 40.0},
    **{"temperature": 1.0, "kinetic_temperature": None, "noise_to_signal": 0.5, "divergence": 0.01},
    **{"teacher_error": 0.004},
}


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    """What a test drew is closed behind it."""
    yield
    plt.close("all")


def real_arrays(random: np.random.Generator, target: RealTarget) -> dict[str, np.ndarray]:
    """Noise of standard deviation 1 and doubts that grow with a column, in the target's transform."""
    size = random.uniform(0, 10, ROWS)
    doubt = 0.1 + 0.3 * size
    arrays = {"column.size": size, "column.town <b>": random.integers(-1, 2, ROWS)}
    locations = {"student": 2 * size, "sgld": 2 * size, "sgd": np.full(ROWS, 10.0)}
    total = np.sqrt(1 + doubt**2)
    y = 2 * size + total * random.normal(size=ROWS)
    if target.transform == "log":
        locations, y = {name: of / 20 for name, of in locations.items()}, np.exp(y / 20)
    arrays["y"] = y
    for name, location in locations.items():
        told = RealPredictions.of(target, location[:, None], total**2, np.ones(ROWS))
        arrays |= {f"{name}.{field}": of for field, of in vars(told).items()}
        arrays |= {f"{name}.log_likelihood": told.log_density(target, y), f"{name}.position": told.position(target, y)}
    return arrays


def class_arrays(random: np.random.Generator, classes: int) -> dict[str, np.ndarray]:
    """Probabilities that are just right for student and teacher, and those of a network that knows nothing."""
    probs = random.dirichlet(np.full(classes, 0.3), ROWS)
    y = np.array([random.choice(classes, p=of) for of in probs], np.int32)
    arrays = {"y": y}
    for name, of in (("student", probs), ("sgld", probs), ("sgd", np.full_like(probs, 1 / classes))):
        entropy = -(of * np.log(of + 1e-12)).sum(axis=1)
        told = ClassPredictions(of, entropy, 0.75 * entropy, 0.25 * entropy)
        arrays |= {f"{name}.{field}": array for field, array in vars(told).items()}
        arrays[f"{name}.log_likelihood"] = np.log(of[np.arange(ROWS), y] + 1e-12)
    return arrays


def along(column: Number | Category, classes: int | None) -> dict:
    """What is predicted along a column."""
    values = [*column.categories, None] if isinstance(column, Category) else np.linspace(-2.5, 12.5, 41).tolist()
    count = len(values)
    aim = np.linspace(1, 20, count) if classes is None else np.full((count, classes), 1 / classes)
    doubt = np.linspace(0.1, 0.3, count)
    return {
        **{"column": column.name, "values": values, "aim": aim.tolist(), "effect": 1.0},
        **{"aleatoric": np.full(count, 0.4).tolist(), "epistemic": doubt.tolist()},
    }


def build(path: Path, schema: TableSchema | ImageSchema, arrays: dict[str, np.ndarray] | None, **results) -> Path:
    """A fit's folder without a fit."""
    target, table = schema.target, isinstance(schema, TableSchema)
    classes = len(target.classes) if isinstance(target, ClassTarget) else None
    rows = []
    if arrays is not None:
        write_arrays(path / "held-out.safetensors", arrays)
        chosen = range(0, ROWS, ROWS // 6)
        values = {"size": 11.0, "town <b>": None} if table else None
        write_json(path / "examples.json", [{"row": k, "place": f"line {k + 2}", "values": values} for k in chosen])
        if not table:
            images = np.random.default_rng(0).integers(0, 256, (6, *schema.shape), np.uint8)
            write_arrays(path / "examples.safetensors", {"images": images})
        means = {method: float(np.mean(arrays[f"{method}.log_likelihood"])) for method in METHODS}
        more = {"held_out": ROWS, "draws": 400}
        rows = [row(method, "log_likelihood", [mean]) | more for method, mean in means.items()]
        rows.append(row("student", "gain_kept", [1.0]) | more | {"se": 0.25, "clear": True})
    if table:
        write_json(path / "dependence.json", [along(column, classes) for column in schema.columns])
    facts = {
        **{"rows": 600, "trained": 600 - ROWS, "held_out": ROWS if rows else 0, "dropped": 3},
        **{"task": "regression" if classes is None else "classification", "target": target.name, "draws": 400},
        **{"options": {"hidden": [50], "student_hidden": [100, 100], "chains": 4, "time_budget": 60.0}},
        **{"parameters": 11_803, "notes": ["a note <i>"], "plug_in_steps": 300},
    }
    diagnosis = {"verdict": {"code": "agree", "text": "the chains agree"}, "counts": {"agree": 1}, "warnings": []}
    found = {
        **{
            "experiment": "fit",
            "preset": "auto",
            "rows": rows,
            "provenance": provenance(0, 1.0) | {"commit": "0123abc"},
        },
        "choices": {"student": [CHOICES]},
        "diagnostics": {"student": diagnosis | {"plateau": None, "runs": [RUN]}},
    }
    write_json(path / "results.json", found | results)
    write_json(path / "config.json", {"source": "shop <b>.csv", "sha256": "0" * 64, "seed": 0})
    write_json(path / "fit.json", facts)
    write_json(path / "schema.json", schema_to_dict(schema))
    lines = [{"step": 1000 * k, "loss": 1.0, "kl": 0.1 / k if k else None} for k in range(6)]
    write_text(path / "student" / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    return path


PRICE = RealTarget("price", "identity", center=0.0, scale=1.0, low=0.0, high=25.0)
DECISION = ClassTarget("decision", ("buys", "leaves", "waits"))
TABLES = {"regression": PRICE, "classification": DECISION}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A folder of each kind, with its page."""
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("fits")
    log = RealTarget("price", "log", center=0.0, scale=1.0, low=0.5, high=3.5)
    wild = real_arrays(random, log)
    # Far from all data, what is predicted of the logarithm is beyond all bounds in the target's own unit.
    wild["student.mean"][:2], wild["student.std"][:2] = np.inf, np.finfo(np.float32).max
    digit = ClassTarget("class", tuple("0123456789"))
    ignored = {"id": "every value is different"}
    found = {
        "regression": build(path / "a", TableSchema(COLUMNS, PRICE, ignored), real_arrays(random, PRICE)),
        "logarithm": build(path / "b", TableSchema(COLUMNS, log), wild),
        "classification": build(path / "c", TableSchema(COLUMNS, DECISION), class_arrays(random, 3)),
        "images": build(path / "d", ImageSchema(1, 8, 8, 0.0, 1.0, digit), class_arrays(random, 10)),
        "colours": build(path / "e", ImageSchema(3, 8, 8, 0.0, 1.0, digit), class_arrays(random, 10)),
        "all": build(path / "f", TableSchema(COLUMNS, PRICE), None),
    }
    wild_along = along(COLUMNS[0], None)
    wild_along["aim"][0], wild_along["epistemic"][-1] = math.inf, 1e60
    write_json(path / "b" / "dependence.json", [wild_along])
    for folder in found.values():
        write_report(folder)
    return found


def page_of(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def text_of(folder: Path) -> str:
    """The words of a page."""
    body = page_of(folder).split("</head>")[1]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", body)))


# The page


@pytest.mark.parametrize("kind", ["regression", "logarithm", "classification", "images", "colours"])
def test_every_section_is_there(folders, kind):
    page = page_of(folders[kind])
    sections = re.findall(r'<h2 id="(\w+)"', page)
    columns = [] if kind in ("images", "colours") else ["columns"]
    expected = ["scores", "trust", "surest", "examples", *columns, "fidelity", "chains", "choices", "words", "origin"]
    assert sections == expected
    assert set(re.findall(r'href="#(\w+)"', page)) == set(sections)


@pytest.mark.parametrize("kind", ["regression", "logarithm", "classification", "images", "all"])
def test_a_page_refers_to_nothing_outside_and_names_no_markup(folders, kind):
    page = page_of(folders[kind])
    assert "http" not in re.sub(r'src="data:[^"]*"', "", page)
    assert set(re.findall(r'(?:src|href)="([^"]{5})', page)) <= {
        "data:",
        *(of[:5] for of in re.findall(r'href="(#\w+)"', page)),
    }
    assert "<script" not in page
    assert "<b>.csv" not in page
    assert "<i>" not in page.split("</style>")[1].replace('<i style="width', "").replace("</i>", "")


@pytest.mark.parametrize("kind", ["regression", "logarithm", "classification", "images", "all"])
def test_every_picture_says_what_it_shows(folders, kind):
    images = re.findall(r"<img ([^>]*)>", page_of(folders[kind]))
    assert images
    assert all(re.search(r'alt="[^"]{5,}"', image) for image in images)


def test_nothing_held_out_leaves_a_page_that_says_so(folders):
    text = text_of(folders["all"])
    assert "No rows were held out (--held-out 0)" in text
    assert "How it depends on each column" in text
    assert "Did the chains agree?" in text
    assert 'id="scores"' not in page_of(folders["all"])
    with pytest.raises(InvalidInput, match=r"--held-out 0\.2"):
        write_figure(folders["all"], folders["all"] / "figure.png")


def test_the_same_folder_gives_the_same_page(folders):
    before = page_of(folders["regression"])
    write_report(folders["regression"])
    assert page_of(folders["regression"]) == before


def test_what_is_beyond_all_bounds_neither_breaks_the_page_nor_is_written_out(folders):
    text = text_of(folders["logarithm"])
    assert "beyond all bounds" in text
    assert not re.search(r"\b(inf|nan)\b|\d{12}", text.replace("0" * 64, ""))


def test_the_most_uncertain_rows_are_told_with_what_was_never_seen(folders):
    cells = re.findall(r"<td>(.*?)</td>", page_of(folders["regression"]))
    place = cells.index("line 2")
    assert cells[place + 5 : place + 7] == ["11 ↑", "missing"]
    assert page_of(folders["images"]).count("data:image/png") == 6


def test_every_choice_is_told(folders):
    text = text_of(folders["regression"])
    for words in (
        "480 to learn from, 120 held out at random (seed 0)",
        "id: every value is different",
        "hidden layers of 100 and 100 units, 11,803 weights",
        "sampled by 4 chains; its predictions here average 400 networks",
        "trained for 300 steps",
        "3 rows have no price",
        "60 seconds",
        "a note <i>",
        "In words: step size 0.02.",
        "Here: the chains agree.",
    ):
        assert words in text


def test_the_main_figure_of_a_fit_can_be_had_as_an_image(folders, tmp_path):
    for kind in ("regression", "classification"):
        write_figure(folders[kind], tmp_path / f"{kind}.png")
        assert (tmp_path / f"{kind}.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_that_lacks_an_array_is_refused_by_its_name(folders, tmp_path):
    shutil.copytree(folders["regression"], tmp_path, dirs_exist_ok=True)
    write_arrays(tmp_path / "held-out.safetensors", {"y": np.zeros(3)})
    with pytest.raises(RunError, match=r"has no 'student\.mean'"):
        write_report(tmp_path)


# The numbers


def test_the_coverage_of_intervals_is_that_counted_by_hand(folders):
    held = read_fit(folders["regression"]).held
    student = held.student.real
    inside = int(np.sum(np.abs(held.y - student.mean) <= 1.6448536 * student.std))
    assert f"they held it in {inside} of 120 rows" in text_of(folders["regression"])
    assert f"promised 90%, measured {100 * inside / 120:.1f} ±" in text_of(folders["regression"])


def test_the_share_of_wrong_answers_is_that_counted_by_hand(folders):
    held = read_fit(folders["classification"]).held
    wrong = int(np.sum(held.student.classes.probs.argmax(axis=1) != held.y))
    assert f"It was wrong on {wrong} of 120 rows" in text_of(folders["classification"])
    found = scores(held.student, held.y)
    assert found["error"].value == pytest.approx(100 * wrong / 120)
    assert found["log_likelihood"].error == pytest.approx(np.std(held.student.log_likelihood, ddof=1) / 120**0.5)


def told(**more) -> Told:
    """Four rows of a regression."""
    zeros = np.zeros(4)
    fields = dict.fromkeys(("mean", "std", "aleatoric_std", "epistemic_std", "location", "spread"), zeros)
    kept = {name: more.pop(name, zeros) for name in ("log_likelihood", "position")}
    return Told(RealPredictions(**fields | more), **kept)


def test_the_share_kept_is_taken_row_by_row():
    student, teacher = np.array([1.0, 2.0, 1.0, 2.0]), np.array([2.0, 4.0, 2.0, 4.0])
    sides = {"student": told(log_likelihood=student), "sgld": told(log_likelihood=teacher), "sgd": told()}
    kept = gain_kept(Held(np.zeros(4), sides, {}))
    assert kept.share == (0.5, 0.0)
    assert kept.gain.value == 3.0
    assert kept.told


@pytest.mark.parametrize(
    ("teacher", "words"),
    [
        ([1.0, 1.1, 0.9, 1.0], "keeps 50 ±"),
        ([-1.0, -1.1, -0.9, -1.0], "no gain of which the student could keep a share"),
        ([5.0, -4.0, 5.0, -4.0], "may be chance"),
        ([np.inf, 1.0, 1.0, 1.0], "cannot be told"),
    ],
)
def test_a_share_of_no_gain_is_not_told(folders, teacher, words):
    sides = {"student": told(log_likelihood=np.array([0.5, 0.6, 0.4, 0.5])), "sgd": told()}
    held = Held(np.zeros(4), sides | {"sgld": told(log_likelihood=np.array(teacher))}, {})
    text = kept_words(read_fit(folders["regression"]), gain_kept(held))
    assert words in text
    assert ("%" in text) == ("keeps 50" in words)


def test_noise_and_doubt_are_shares_of_the_variance():
    assert noise_share(told(aleatoric_std=np.full(4, 3.0), epistemic_std=np.full(4, 4.0))) == pytest.approx(9 / 25)


def test_risk_grows_over_the_rows_from_the_surest_to_the_least_sure():
    shares, risk = risks(told(mean=np.array([4.0, 1.0, 2.0, 3.0]), std=np.array([4.0, 1.0, 2.0, 3.0])), np.zeros(4))
    assert shares.tolist() == [1.0]  # Fewer rows than the curve begins with.
    assert risk == pytest.approx([math.sqrt(30 / 4)])


@pytest.mark.parametrize(
    ("position", "verdict"),
    [(np.linspace(0.005, 0.995, 100), "kept"), (np.full(100, 0.5), "timid"), (np.tile([0.01, 0.5], 50), "bold")],
)
def test_intervals_are_judged_by_what_chance_would_bring(position, verdict):
    assert interval_verdict(position).verdict == verdict


@pytest.mark.parametrize(("right", "verdict"), [(80, "kept"), (95, "timid"), (60, "bold")])
def test_probabilities_are_judged_by_what_chance_would_bring(right, verdict):
    probs = np.tile([0.8, 0.2], (100, 1))
    entropy = np.zeros(100)
    student = Told(ClassPredictions(probs, entropy, entropy, entropy), entropy, np.array(()))
    assert confidence_verdict(student, (np.arange(100) >= right).astype(int)).verdict == verdict


def test_the_binomial_range_is_the_one_of_the_tables():
    # Quantiles 0.025 and 0.975 of the binomial distribution.
    assert by_chance(20, 0.5) == (6, 14)
    assert by_chance(10, 0.1) == (0, 3)


def test_a_ratio_to_nothing_is_unknown():
    assert math.isnan(ratio(np.ones(3), np.zeros(3)).value)


def test_calibration_error_is_the_mean_gap():
    assert calibration_error(np.full(4, 0.9), np.array([1.0, 1.0, 1.0, 0.0])) == pytest.approx(0.15)


def test_equal_values_share_their_rank():
    assert rank_correlation(np.array([1.0, 1.0, 2.0]), np.array([3.0, 3.0, 5.0])) == 1.0
    assert math.isnan(rank_correlation(np.ones(3), np.arange(3.0)))


# The words


def test_the_least_sure_part_is_where_doubt_was_put(folders):
    fit = read_fit(folders["regression"])
    spot = least_sure(fit)
    assert spot.column == "size"
    assert spot.where.endswith("or more")
    assert f"It is least sure where size {spot.where}" in text_of(folders["regression"])


def test_doubt_beyond_what_was_seen_is_told_and_missed_where_it_does_not_grow(folders, tmp_path):
    grows = "its doubt grows most along size: from ±0.445 to ±0.548 at 12.5"
    assert grows in text_of(folders["regression"])
    assert grows in text_of(folders["all"])
    shutil.copytree(folders["all"], tmp_path, dirs_exist_ok=True)
    falls = along(COLUMNS[0], None)
    falls["epistemic"] = [0.1, *[0.3] * 39, 0.1]
    write_json(tmp_path / "dependence.json", [falls])
    assert dict(paragraphs(read_fit(tmp_path))) == {
        "What does it not know?": "Its doubt does not grow beyond what was seen of size: do not take its certainty "
        "there for knowledge."
    }


def test_a_student_that_is_worse_than_a_plug_in_network_is_called_so(folders, tmp_path):
    shutil.copytree(folders["regression"], tmp_path, dirs_exist_ok=True)
    arrays = real_arrays(np.random.default_rng(0), PRICE)
    for name in [name for name in arrays if name.startswith("student.")]:
        other = name.replace("student", "sgd")
        arrays[name], arrays[other] = arrays[other], arrays[name]
    write_arrays(tmp_path / "held-out.safetensors", arrays)
    fit = read_fit(tmp_path)
    said = dict(paragraphs(fit))
    assert "That one did better" in said["Was it worth the effort?"]
    assert "too narrow" in said["Can its certainty be trusted?"]
    assert any("does not speak for its teacher" in caution for caution in cautions(fit))


def test_chains_that_do_not_agree_and_a_budget_that_ran_out_are_cautions(folders, tmp_path):
    apart = {"code": "apart", "text": "the chains have not met"}
    diagnosis = {"verdict": apart, "counts": {"apart": 1}, "warnings": [], "plateau": None}
    runs = [RUN | {"code": "apart", "rhat": 1.62}]
    build(
        tmp_path,
        TableSchema(COLUMNS, PRICE),
        real_arrays(np.random.default_rng(0), PRICE),
        diagnostics={"student": diagnosis | {"runs": runs}},
        choices={"student": [CHOICES | {"steps": 9000, "reason": "as many as 30 seconds allow"}]},
    )
    text = " ".join(cautions(read_fit(tmp_path)))
    assert "4 chains did not come to the same predictions (R-hat 1.62; up to 1.1 is agreement)" in text
    assert "larger --time-budget" in text
    assert "ended the fit after 5,000 of 9,000 steps" in text
    assert "Only" not in text


# The terminal


def test_in_a_terminal_methods_have_rows_with_names_for_people(folders, capsys):
    results = json.loads((folders["regression"] / "results.json").read_text())
    assert [line[0] for line in pivot(results)[0].rows] == [
        "student (one network)",
        "teacher (400 draws)",
        "plug-in network",
    ]
    terminal(results)
    printed = " ".join(capsys.readouterr().out.split())
    assert "± standard error over 120 examples held out" in printed
    assert "the student keeps 100% ± 25% of what the teacher gains over the plug-in network" in printed
    assert "120 examples held out" in markdown(results)
    results["rows"][-1]["clear"] = False
    assert "no gain to keep" in pivot(results)[0].notes[0]
    terminal(results | {"rows": []})
    assert "nothing was held out" in capsys.readouterr().out


# The browser


def test_every_page_is_readable_on_a_phone(folders):
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install '.[browser]'")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    complaints: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(offline=True, viewport={"width": 390, "height": 800}).new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        for folder in folders.values():
            page.goto((folder / "report.html").as_uri())
            widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
            assert widths[0] <= widths[1]
            assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
            assert page.evaluate("[...document.images].every(image => image.getBoundingClientRect().right <= 390)")
        browser.close()
    assert not complaints
