"""`fit` of small images with its defaults, beside a plug-in network of the student's size and scikit-learn's network.

    darkbayes bench digits        about half an hour

scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, in a folder of files as a person has them, on five splits.
The student is scored by the file that ships. `MLPClassifier` has its defaults, on the same standardised pixels.
"""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import announced, say, with_bar
from darkbayes.cli.common import require
from darkbayes.fit import Options, Prepared, fit_folder, for_images, prepare_images
from darkbayes.metrics import error, log_likelihood
from darkbayes.outcomes import ClassPrediction
from darkbayes.runs import row
from darkbayes.tables import read_image_folder

SCORES = {"log_likelihood": log_likelihood, "error": error}


def rows(*, seed: int, quiet: bool, splits: int = 5, **options: Any) -> list[dict[str, Any]]:
    """Log likelihood and error of every method over the splits, and by how much the student is ahead of the others."""
    require("PIL", "sklearn")
    scores: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "digits"
        write_digits(root)
        folder = read_image_folder(root)
        for split in range(splits):
            prepared = prepare_images(folder, root, seed=seed + split)
            chosen, _ = for_images(Options(**options), prepared.schema.shape, len(prepared.train.x))
            how: Any = {"resume": False, "quiet": True}
            results = fit_folder(prepared, {"split": split}, chosen, seed + split, Path(place) / f"run-{split}", **how)
            own = {(one["method"], one["metric"]): one["mean"] for one in results["rows"]}
            said = _mlp(prepared, seed + split)
            own |= {("mlp", name): score(said, prepared.truth) for name, score in SCORES.items()}
            for (method, metric), value in own.items():
                if metric in SCORES:
                    scores.setdefault((method, metric), []).append(value)
            say(f"split {split}: {own['student', 'log_likelihood']:.4f}", quiet=quiet)
    made = [row(method, metric, values) for (method, metric), values in scores.items()]
    for other in ("sgd", "mlp"):
        ahead = np.subtract(scores["student", "log_likelihood"], scores[other, "log_likelihood"]).tolist()
        made.append(with_bar(row(f"student over {other}", "gain", ahead), "at least", 0.0))
    return announced(made, quiet=quiet)


def write_digits(root: Path) -> None:
    """The digits as files, in a folder for each of them."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        (root / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * (255 / 16)).round().astype(np.uint8)).save(root / str(label) / f"{number:04}.png")


def _mlp(prepared: Prepared, seed: int) -> ClassPrediction:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    held = prepared.held_out
    assert held is not None
    network = MLPClassifier(random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(np.asarray(prepared.train.x).reshape(len(prepared.train.x), -1), np.asarray(prepared.train.y))
    return ClassPrediction.from_probs(network.predict_proba(np.asarray(held.x).reshape(len(held.x), -1)))
