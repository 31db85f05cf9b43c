"""Images: a folder of digits, a subfolder for each, to probabilities that know when they guess; by the command line.

    pip install "darkbayes[all]"
    python examples/images.py            about a minute on two cores
    python examples/images.py --tiny     three digits and next to no sampling, to see that it runs

The same in a shell, once the images are there:

    darkbayes fit runs/examples/digits/fit --out runs/examples/digits/run --time-budget 15s
    darkbayes predict runs/examples/digits/run runs/examples/digits/new -o predictions.csv
"""

import csv
import shutil
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from darkbayes import cli

ROOT = Path("runs/examples/digits")


def write_images(classes: int, most: int) -> None:
    """The 8 x 8 digits that come with scikit-learn as PNG: one in ten is kept for new ones, the others are to fit."""
    shutil.rmtree(ROOT, ignore_errors=True)
    digits = load_digits(n_class=classes)
    for place, (image, label) in enumerate(zip(digits.images[:most], digits.target[:most], strict=True)):
        folder = ROOT / ("new" if place % 10 == 0 else "fit") / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.uint8(image / 16 * 255)).save(folder / f"{place}.png")


def main(tiny: bool) -> None:
    """Fit, score on new images, and name those of which the student is least sure."""
    write_images(*((3, 100) if tiny else (10, 1797)))
    small = ["--network", "mlp", "--hidden", "8", "--student-hidden", "16", "--chains", "2", "--effort", "0.02"]
    more = small if tiny else ["--time-budget", "15s"]
    cli.main(["fit", str(ROOT / "fit"), "--out", str(ROOT / "run"), "--quiet", *more])
    cli.main(["evaluate", str(ROOT / "run"), str(ROOT / "new"), "--quiet"])
    cli.main(["predict", str(ROOT / "run"), str(ROOT / "new"), "-o", str(ROOT / "new.csv"), "--quiet"])

    with (ROOT / "new.csv").open(newline="", encoding="utf-8") as opened:
        rows = sorted(csv.DictReader(opened), key=lambda row: -float(row["entropy"]))
    for row in rows[:5]:
        print(f"{row['file']}: {row['prediction']} with {float(row['probability']):.0%}, unsure")


if __name__ == "__main__":
    main(tiny="--tiny" in sys.argv)
