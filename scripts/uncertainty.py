"""Draw docs/uncertainty.png: noise and doubt of a number and of a class, by estimators as they are.

python scripts/uncertainty.py [OUT.png]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from PIL import Image

import darkbayes as db

OUT = Path(__file__).parent.parent / "docs" / "uncertainty.png"
NOISE, DOUBT, MEAN = "#e69f00", "#0072b2", "#009e73"
"""The colours of the report."""
COLOURS = 128
"""That the picture may have, for a small file."""


def curve() -> tuple[np.ndarray, np.ndarray]:
    """A sine with noise, and a gap where nothing was measured."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-3, -1, 40), rng.uniform(0.6, 2.6, 40)])
    return x, np.sin(1.5 * x) + 0.2 * rng.normal(size=len(x))


def moons() -> tuple[np.ndarray, np.ndarray]:
    """Two classes whose edges overlap."""
    rng = np.random.default_rng(1)
    angle, label = rng.uniform(0, np.pi, 160), np.repeat([0, 1], 80)
    sign = 1 - 2 * label
    points = np.stack([sign * np.cos(angle) + label - 0.5, sign * np.sin(angle) + 0.5 * label - 0.25], axis=1)
    return points + 0.22 * rng.normal(size=points.shape), label


def draw_curve(upper: Axes, lower: Axes) -> None:
    """The regression: above what is predicted, below how unsure it is."""
    x, y = curve()
    grid = np.linspace(-5, 5, 300)[:, None]
    model = db.DistilledRegressor(random_state=0).fit(x[:, None], y)
    mean, (_, noise, doubt) = model.predict(grid), map(np.sqrt, model.decompose(grid))
    total = np.sqrt(noise**2 + doubt**2)
    upper.fill_between(grid[:, 0], mean - 2 * total, mean + 2 * total, color=DOUBT, alpha=0.25, lw=0)
    upper.fill_between(grid[:, 0], mean - 2 * noise, mean + 2 * noise, color=NOISE, alpha=0.5, lw=0)
    upper.plot(grid[:, 0], mean, color=MEAN)
    upper.plot(x, y, ".", color="black", ms=4)
    upper.set(ylim=(-4, 4), title="a number: the prediction and two standard deviations", xticks=[])
    lower.plot(grid[:, 0], noise, color=NOISE, ls="--", label="noise (aleatoric)")
    lower.plot(grid[:, 0], doubt, color=DOUBT, label="doubt (epistemic)")
    lower.set(ylim=(0, 1), xlabel="x", ylabel="standard deviation")
    lower.legend(frameon=False, loc="upper center", ncols=2)


def draw_maps(axes: list[Axes]) -> None:
    """The classification: where the classes overlap, and where nothing was seen."""
    x, y = moons()
    model = db.DistilledClassifier(random_state=0).fit(x, y)
    line = np.linspace(-4, 4, 120)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    _, noise, doubt = model.decompose(grid)
    for axis, part, colours, name in (
        (axes[0], noise, "Oranges", "a class: noise (aleatoric)"),
        (axes[1], doubt, "Blues", "a class: doubt (epistemic)"),
    ):
        image = np.asarray(part).reshape(len(line), len(line))
        drawn = axis.imshow(image, extent=(-4, 4, -4, 4), origin="lower", cmap=colours, vmin=0, vmax=np.log(2))
        for label, mark in enumerate("ox"):
            axis.scatter(*x[y == label].T, marker=mark, s=9, c="black", linewidths=0.7)
        axis.set(title=name, xticks=[], yticks=[])
        plt.colorbar(drawn, ax=axis, shrink=0.8, label="nats")


def main(out: Path) -> None:
    """Fit both and draw."""
    figure = plt.figure(figsize=(10.5, 4.4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.5, 1])
    upper, lower = left.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    draw_curve(upper, lower)
    draw_maps(list(right.subplots(2, 1)))
    figure.savefig(out, dpi=110)
    Image.open(out).convert("RGB").quantize(COLOURS).save(out, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
