"""Build the wheel and try it as a user would: in an empty environment for each way to install it.

python scripts/try_wheel.py                         base, table and serve; minutes, most of them downloads
python scripts/try_wheel.py base torch              some of them
python scripts/try_wheel.py base dist/NAME.whl      of a wheel that is there
"""

import subprocess
import sys
import tempfile
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIXTURE = ROOT / "tests" / "fixtures" / "0.1" / "rent"
DISTIL = """
import jax, optax, darkbayes as db
data = db.data.toy2d(jax.random.key(0))
posterior = db.Posterior(db.mlp([4], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
teacher = db.minibatch_chain(posterior, db.sgld(1e-2), *data, batch_size=None, burn_in=20, thin=10)
student = db.Student(db.mlp([4], 2), db.outcomes.SoftmaxHead(2), optax.adam(1e-3))
done = db.distil(teacher, student, db.queries.uniform_box(-9, 9), jax.random.key(1), steps=50, quiet=True)
assert db.predict_student(student, done.params, data.x).probs.shape == (20, 2)
"""


def base(folder: Path) -> None:
    """Distil a small network."""
    _run(folder, "python", "-c", DISTIL)


def table(folder: Path) -> None:
    """Fit a table for a moment, predict its rows, and those of a student of an earlier version."""
    _run(folder, "darkbayes", "data", "get", "boston", "--out", ".")
    _run(folder, "darkbayes", "fit", "boston.csv", "--target", "MEDV", "--time-budget", "5s", "--out", "run", "--quiet")
    for model, rows in (("run", "boston.csv"), (FIXTURE / "run", FIXTURE / "rows.csv")):
        _run(folder, "darkbayes", "predict", model, rows, "-o", "predictions.csv", "--quiet")


def serve(folder: Path) -> None:
    """Serve a student of an earlier version, and ask whether it is well."""
    command = [folder / "bin" / "darkbayes", "serve", FIXTURE / "run", "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            address = service.stdout.readline().strip()
            with urllib.request.urlopen(f"{address.rstrip('/')}/healthz", timeout=300) as answer:
                assert answer.status == 200
        finally:
            service.terminate()


def torch(folder: Path) -> None:
    """Load what `export --torch` needs."""
    _run(folder, "python", "-c", "import torch, darkbayes; darkbayes.export")


WAYS = {way.__name__: way for way in (base, table, serve, torch)}


def _run(folder: Path, program: str, *arguments: str | Path) -> None:
    subprocess.run([folder / "bin" / program, *arguments], cwd=folder, check=True)


def main() -> None:
    """Build, then install and try each."""
    with tempfile.TemporaryDirectory() as scratch:
        wheels = [Path(word).resolve() for word in sys.argv[1:] if word.endswith(".whl")]
        if not wheels:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
            subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", scratch, ROOT], check=True)
            wheels = list(Path(scratch).glob("darkbayes-*.whl"))
        (wheel,) = wheels
        for way in [word for word in sys.argv[1:] if not word.endswith(".whl")] or ["base", "table", "serve"]:
            folder = Path(scratch) / way
            venv.create(folder, with_pip=True)
            wanted = f"{wheel}[{way}]" if way != "base" else str(wheel)
            _run(folder, "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wanted)
            for command in ("--help", "doctor"):
                _run(folder, "darkbayes", command)
            WAYS[way](folder)
            print(f"{way}: works from {wheel.name}", flush=True)


if __name__ == "__main__":
    main()
