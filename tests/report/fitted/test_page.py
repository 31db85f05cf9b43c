"""The page of a fit: of every outcome, of folders that are written by hand and of those that 0.1 has left."""

import json
import re
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from darkbayes.errors import InvalidInput, RunError
from darkbayes.files import write_arrays, write_json
from darkbayes.report import write_figure, write_report
from darkbayes.report.fitted.folder import read_run
from report.fitted.folders import every_kind

FIXTURES = Path(__file__).parents[2] / "fixtures" / "0.1"
HELD = ["regression", "logarithm", "several", "classification", "images", "colours"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A folder of each kind, with its page."""
    folders = every_kind(tmp_path_factory.mktemp("fits"))
    for folder in folders.values():
        write_report(folder)
    return folders


def page_of(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def text_of(folder: Path, folded: bool = True) -> str:
    """The words of a page, with or without those that are folded."""
    body = page_of(folder).split("</head>")[1]
    body = body if folded else re.sub(r"<details>.*?</details>", "", body, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", body)))


@pytest.mark.parametrize("kind", HELD)
def test_every_section_is_there(folders, kind):
    cases = "images" if kind in ("images", "colours") else "rows"
    sections = [
        "Can its certainty be trusted?",
        f"Scores on {cases} that it had never seen",
        "What does it not know?",
        "Which columns matter?",
        "How it depends on each column",
        f"The {cases} that it is least sure of",
        "Does the student speak for its teacher?",
        "How this was made",
    ]
    if cases == "images":
        sections = [section for section in sections if "column" not in section]
    assert re.findall(r"<h2>(.*?)</h2>", page_of(folders[kind])) == sections


@pytest.mark.parametrize("kind", [*HELD, "all"])
def test_a_page_refers_to_nothing_outside_and_names_no_markup(folders, kind):
    page = page_of(folders[kind])
    assert "http" not in re.sub(r'src="data:[^"]*"', "", page)
    assert {link[:5] for link in re.findall(r'src="([^"]*)', page)} == {"data:"}
    assert "href" not in page
    assert "<script" not in page
    assert "<b>.csv" not in page
    assert "<i>" not in page.split("</style>")[1].replace('<i style="width', "").replace("</i>", "")


@pytest.mark.parametrize("kind", [*HELD, "all"])
def test_a_page_is_short_and_begins_with_what_to_do(folders, kind):
    text = text_of(folders[kind], folded=False)
    assert len(text.split()) <= 700
    verdict = (
        "Nobody knows yet how good it is." if kind == "all" else r"Good to use|Use it with care: \d cautions? below"
    )
    assert re.search(verdict, text.split("Can its certainty")[0])


def test_classes_are_ranked_and_trees_stand_beside_the_student(folders):
    for kind in ("classification", "images"):
        assert "Does it rank well? (ROC) Area under the student's curve over classes, each against" in text_of(
            folders[kind]
        )
        assert "Precision and recall The student's average precision" in text_of(folders[kind])
    text = text_of(folders["classification"])
    assert "gradient boosting (scikit-learn)" in text
    assert "column log likelihood lost size 0.50 ± 0.10" in text


@pytest.mark.parametrize("kind", [*HELD, "all"])
def test_every_picture_says_what_it_shows(folders, kind):
    images = re.findall(r"<img ([^>]*)>", page_of(folders[kind]))
    assert images
    assert all(re.search(r'alt="[^"]{5,}"', image) for image in images)


@pytest.mark.parametrize("kind", HELD)
def test_noise_and_doubt_have_the_names_that_statisticians_give_them(folders, kind):
    text = text_of(folders[kind])
    assert "is noise (aleatoric)" in text
    assert "is doubt (epistemic)" in text


def test_of_several_each_is_spoken_of_and_shown_by_its_name(folders):
    text = text_of(folders["several"])
    for name in ("price", "income"):
        assert f"half of the predictions of {name} are this close" in text
        assert f"Half of its predictions of {name} were off by less than" in text
        assert f"held the true {name} in" in text
        assert f"RMSE of {name}:" in text
        for title in ("Predictions against the truth", "The same uncertainties?", "size"):
            assert f"{name}: {title}" in text


def test_nothing_held_out_leaves_a_page_that_says_so(folders):
    text = text_of(folders["all"])
    assert "No rows were held out (--held-out 0)" in text
    assert "How it depends on each column" in text
    assert "Did the chains agree?" in text
    assert "Scores on" not in text
    with pytest.raises(InvalidInput, match=r"--held-out 0\.2"):
        write_figure(folders["all"], folders["all"] / "figure.png")


def test_the_same_folder_gives_the_same_page(folders):
    before = page_of(folders["regression"])
    write_report(folders["regression"])
    assert page_of(folders["regression"]) == before


def test_what_is_beyond_all_bounds_neither_breaks_the_page_nor_is_written_out(folders):
    text = text_of(folders["logarithm"])
    assert "off the scale" in text
    assert not re.search(r"\b(inf|nan)\b|\d{12}", text.replace("0" * 64, ""))


def test_the_most_uncertain_rows_are_shown_with_what_was_never_seen(folders):
    row = next(line for line in page_of(folders["regression"]).splitlines() if ">line 2<" in line)
    assert re.findall(r"<td>(.*?)</td>", row)[4:] == ["11 ↑", "missing"]
    assert page_of(folders["images"]).count("data:image/png") == 6


def test_every_choice_is_said(folders):
    text = text_of(folders["regression"])
    for words in (
        "480 to learn from, 120 held out at random (seed 0)",
        "price, a number from 0 to 25 in training",
        "id: every value is different",
        "hidden layers of 100 and 100 units, 11,803 weights",
        "sampled by 4 chains; its predictions here average 400 networks",
        "trained for 300 steps",
        "3 rows have no price",
        "60 seconds",
        "a note <i>",
        "Its sampler step size 0.02",
        "Here: the chains agree; the error of their average costs predictions about",
    ):
        assert words in text
    assert "held out at random, from each class alike (seed 0)" in text_of(folders["classification"])


def test_scores_are_those_of_the_results(folders):
    held = read_run(folders["classification"]).held
    wrong = int(np.sum(held.student.probs.argmax(axis=1) != held.y))
    assert held.scores["student"]["error"].value == pytest.approx(100 * wrong / 120)
    text = text_of(folders["classification"])
    assert f"It was wrong on {wrong} of 120 rows" in text
    student, held = read_run(folders["regression"]).held.student, read_run(folders["regression"]).held
    inside = int(np.sum(np.abs(held.y - student.mean[:, 0]) <= 1.6448536 * student.std[:, 0]))
    assert f"held the true price in {inside} of 120 rows, {100 * inside / 120:.1f} ±" in text_of(folders["regression"])


def test_the_main_figure_of_a_fit_can_be_had_as_an_image(folders, tmp_path):
    for kind in ("regression", "several", "classification"):
        write_figure(folders[kind], tmp_path / f"{kind}.png")
        assert (tmp_path / f"{kind}.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_that_lacks_an_array_is_refused_by_its_name(folders, tmp_path):
    shutil.copytree(folders["regression"], tmp_path, dirs_exist_ok=True)
    write_arrays(tmp_path / "held-out.safetensors", {"y": np.zeros(3)})
    with pytest.raises(RunError, match=r"has no 'student\.mean'"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rent", "Half of its predictions of rent were off by less than"),
        ("income", "modelled by its logarithm"),
        ("penguins", "to tell 3 classes of species apart (Adélie, chinstrap and gentoo, southern)"),
        ("loans", "It was wrong on 6 of 24 rows (25%)"),
        ("shapes", "to tell images of 3 classes apart"),
    ],
)
def test_what_0_1_has_left_becomes_a_page(name, words, tmp_path):
    shutil.copytree(FIXTURES / name / "run", tmp_path, dirs_exist_ok=True)
    write_report(tmp_path)
    assert words in text_of(tmp_path)
    assert len(text_of(tmp_path, folded=False).split()) <= 700
    write_figure(tmp_path, tmp_path / "figure.svg")


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


def test_an_example_of_several_names_each(folders):
    row = next(line for line in page_of(folders["several"]).splitlines() if ">line 2<" in line)
    prediction, truth, *parts = re.findall(r"<td>(.*?)</td>", row)[:4]
    for text in (prediction, truth, *parts):
        assert re.fullmatch(r"price \S.*, income \S.*", text)


def test_a_page_with_many_cautions_folds_some(tmp_path):
    path = every_kind(tmp_path)["regression"]
    facts = json.loads((path / "fit.json").read_text())
    facts |= {"leaks": [{"column": f"c{k}", "alone": 0.99, "next": 0.1} for k in range(9)], "trained": 50}
    write_json(path / "fit.json", facts)
    write_report(path)
    assert "Before you rely on it" in text_of(path, folded=False)
    assert "c8 alone gives" not in text_of(path, folded=False)
    assert "c8 alone gives" in text_of(path)
    assert len(text_of(path, folded=False).split()) <= 700
