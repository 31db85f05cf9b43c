"""Small finished runs and exported files of the present version, which every later version must still read.

    python scripts/fixtures.py      writes tests/fixtures/VERSION, in a few minutes

Run once per release, and never again for a release that is out: `tests/test_fixtures.py` asks that what is there loads
and predicts the stored numbers for ever. Each folder holds

    run/ or student.onnx    what was fitted or exported, without checkpoints and report
    rows.csv or images/     odd but good input: missing numbers, unknown categories, quotes, other sizes of image
    predictions.csv         what this version predicted of it, by `darkbayes predict`
    evaluation.json         its scores, by `darkbayes evaluate --json`

and an estimator's folder its file, the rows and what it predicted of them as JSON.
"""

import contextlib
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from darkbayes import cli
from darkbayes.estimators import DistilledClassifier, DistilledRegressor
from darkbayes.version import __version__

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / ".".join(__version__.split(".")[:2])
ROWS = 120
SMALL = ["--hidden", "8", "--student-hidden", "16", "16", "--chains", "2", "--time-budget", "15s", "--quiet"]
ESTIMATOR: dict[str, Any] = {
    "hidden": (8,),
    "student_hidden": (16, 16),
    "chains": 2,
    "max_steps": 4000,
    "time_budget": None,
    "random_state": 0,
}
DISTRICTS = ["Altstadt", "Nové Město", "St. Mary, west", "dock"]
SPECIES = ["Adélie", "chinstrap", "gentoo, southern"]


def rents(rng: np.random.Generator) -> pd.DataFrame:
    """A number with one noise for all; categories, and numbers that are missing."""
    size, rooms, place = rng.uniform(20, 150, ROWS).round(1), rng.integers(1, 6, ROWS), rng.integers(4, size=ROWS)
    rent = 300 + 9 * size + 60 * place + 80 * rng.normal(size=ROWS)
    missing = np.where(rng.random(ROWS) < 0.1, np.nan, size)
    district = np.asarray(DISTRICTS)[place]
    return pd.DataFrame({"size": missing, "rooms": rooms, "district": district, "rent": rent.round(2)})


RENT_ROWS = """\ufeffdistrict,remark,rooms,size,rent\r
dock,,2,51.5,950\r
"St. Mary, west","two ""baths"",
and a garden",3,8.05e1,1210.5\r
Nové Město,no size known,1,,"500"\r
moon,a district never seen,4,2.4e2,2.5e3\r
,no district known, 2 ,30,+640.25\r
"""


def incomes(rng: np.random.Generator) -> pd.DataFrame:
    """A number that is modelled by its logarithm."""
    years, hours = rng.uniform(0, 20, ROWS).round(1), rng.uniform(5, 40, ROWS).round()
    income = np.exp(2.0 + 0.15 * years + 0.05 * hours + 0.5 * rng.normal(size=ROWS))
    return pd.DataFrame({"years of school": years, "hours": hours, "income": income.round(3)})


INCOME_ROWS = """income;hours;years of school
50;20;10
1e-3;;0
1234.5;40;20.0
7;60;-3
99;5;
"""


def penguins(rng: np.random.Generator) -> pd.DataFrame:
    """Classes by name."""
    species = rng.integers(3, size=ROWS)
    bill, mass = 40 + 4 * species + 2 * rng.normal(size=ROWS), 3500 + 700 * (species == 2) + 300 * rng.normal(size=ROWS)
    island = np.where(rng.random(ROWS) < 0.2, None, np.asarray(["Biscoe", "Dream"], object)[species % 2])
    names = np.asarray(SPECIES)[species]
    return pd.DataFrame({"bill": bill.round(1), "mass": mass.round(), "island": island, "species": names})


PENGUIN_ROWS = """bill,mass,island,species
39.1,3750,Biscoe,Adélie
50,5.5e3,,"gentoo, southern"
,,,chinstrap
45.5,3600,Torgersen,chinstrap
60,2.5e3,Dream,Adélie
"""


def loans(rng: np.random.Generator) -> pd.DataFrame:
    """A truth value, from numbers and another truth value."""
    debt, owner = rng.exponential(2.0, ROWS).round(2), rng.random(ROWS) < 0.5
    repaid = rng.random(ROWS) < 1 / (1 + np.exp(1.5 * debt - 3.0 - owner))
    return pd.DataFrame({"debt": debt, "owner": owner, "repaid": repaid})


LOAN_ROWS = """debt,owner,repaid
0.5,true,true
,FALSE,False
1e1,True,false
0,,TRUE
"""

TABLES: dict[str, tuple[Callable[[np.random.Generator], pd.DataFrame], str, str]] = {
    "rent": (rents, "rent", RENT_ROWS),
    "income": (incomes, "income", INCOME_ROWS),
    "penguins": (penguins, "species", PENGUIN_ROWS),
    "loans": (loans, "repaid", LOAN_ROWS),
}


def shape(kind: str, rng: np.random.Generator, pixels: int = 8) -> Image.Image:
    """A noisy grey image of a bar across, a bar down, or both."""
    canvas, middle = np.zeros((pixels, pixels)), pixels // 2
    if kind in ("across", "cross"):
        canvas[middle + rng.integers(-1, 2)] = 200
    if kind in ("down", "cross"):
        canvas[:, middle + rng.integers(-1, 2)] = 200
    return Image.fromarray(np.uint8(np.clip(canvas + rng.normal(0, 20, canvas.shape), 0, 255)))


def write_images(folder: Path, number: int, rng: np.random.Generator) -> None:
    """A subfolder of so many images for each kind."""
    for kind in ("across", "cross", "down"):
        (folder / kind).mkdir(parents=True)
        for k in range(number):
            shape(kind, rng).save(folder / kind / f"{k}.png")


def darkbayes(*arguments: Any) -> str:
    """What a command prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        cli.main([str(argument) for argument in arguments])
    return printed.getvalue()


def keep(run: str, folder: Path) -> None:
    """The files of a run, without what a later version need not read."""
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoint*", "report.html"))


def keep_answers(folder: Path, model: str, source: str) -> None:
    """What a student says of the rows or images beside it, asked there, since answers hold the paths of images."""
    with contextlib.chdir(folder):
        darkbayes("predict", model, source, "-o", "predictions.csv", "--quiet")
        Path("evaluation.json").write_text(darkbayes("evaluate", model, source, "--json", "--quiet"), encoding="utf-8")


def make_tables() -> None:
    """A run for each table, and one of them in eight bits."""
    for seed, (name, (table, target, rows)) in enumerate(TABLES.items()):
        table(np.random.default_rng(seed)).to_csv(f"{name}.csv", index=False)
        darkbayes("fit", f"{name}.csv", "--target", target, "--out", name, *SMALL)
        keep(name, OUT / name / "run")
        (OUT / name / "rows.csv").write_text(rows, encoding="utf-8", newline="")
        keep_answers(OUT / name, "run", "rows.csv")
    small = OUT / "rent-int8"
    small.mkdir()
    darkbayes("export", "rent", "--int8", "-o", small / "student.onnx")
    shutil.copy(OUT / "rent" / "rows.csv", small)
    keep_answers(small, "student.onnx", "rows.csv")


def make_images() -> None:
    """A run on a folder of images, asked about images of other sizes, colours and formats as well."""
    rng = np.random.default_rng(0)
    write_images(Path("shapes"), ROWS // 3, rng)
    darkbayes("fit", "shapes", "--out", "run", *SMALL)
    keep("run", OUT / "shapes" / "run")
    images = OUT / "shapes" / "images"
    write_images(images, 2, rng)
    shape("across", rng, pixels=19).save(images / "across" / "large.png")
    shape("down", rng).convert("RGB").save(images / "down" / "coloured.bmp")
    shape("cross", rng).convert("1").save(images / "cross" / "black and white.gif")
    keep_answers(OUT / "shapes", "run", "images")


def make_estimators() -> None:
    """A saved regressor and a saved classifier, with what they say of rows."""
    for name, made in (("rent", DistilledRegressor(**ESTIMATOR)), ("penguins", DistilledClassifier(**ESTIMATOR))):
        table, target, rows = TABLES[name]
        frame, folder = table(np.random.default_rng(0)), OUT / type(made).__name__
        folder.mkdir()
        made.fit(frame.drop(columns=target), frame[target]).save(folder / "estimator.safetensors")
        asked = pd.read_csv(io.StringIO(rows.removeprefix("\ufeff")), skipinitialspace=True)
        asked[list(made.feature_names_in_)].to_csv(folder / "rows.csv", index=False)
        X = pd.read_csv(folder / "rows.csv")
        answers = {"predict": made.predict(X), "parts": np.stack(made.decompose(X))}
        if isinstance(made, DistilledRegressor):
            answers |= {"std": made.predict(X, return_std=True)[1], "interval": made.predict_interval(X, 0.8)}
        else:
            answers |= {"probabilities": made.predict_proba(X)}
        text = json.dumps({name: values.tolist() for name, values in answers.items()}, indent=1, ensure_ascii=False)
        (folder / "predictions.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Make them all."""
    if OUT.exists():
        sys.exit(f"{OUT} is there: fixtures are made once; remove it only if its version is not out yet")
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        make_tables()
        make_images()
        make_estimators()
        darkbayes("reproduce", "toy2d", "--preset", "quick", "--out", "toy2d", "--quiet", "--no-report")
        keep("toy2d", OUT / "toy2d" / "run")


if __name__ == "__main__":
    main()
