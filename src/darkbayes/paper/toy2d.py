"""Toy 2-D classification: Table 2 and Figure 1 of the paper.

    darkbayes reproduce toy2d --preset best       about 2 minutes a trial on two cores
    darkbayes reproduce toy2d --preset auto       with a teacher that tunes itself
    darkbayes reproduce toy2d --preset quick      under a minute

KL from HMC on a grid. The paper: SGD 0.246, SGLD 0.007, students 2-10-2 0.031, 2-100-2 0.014, 2-10-10-2 0.009.

The paper gives no step sizes, learning rates or batch sizes for this problem. `literal` has its lengths, one chain,
targets from the present draw alone and a student trained by SGD. `best` averages targets over 16 chains and their
reservoirs, and trains the students by Adam from four starting points, of which the one closest to the teacher is kept.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import darkbayes as db
from darkbayes.paper import toy
from darkbayes.paper.common import TEACHERS, titled_panels
from darkbayes.report import Names, figures
from darkbayes.types import Data

PAPER = {"sgd": 0.246, "sgld": 0.007, "student 2-10-2": 0.031, "student 2-100-2": 0.014, "student 2-10-10-2": 0.009}
BEST = toy.ToyPreset(
    students=((10,), (100,), (10, 10)),
    step_size=1e-2,
    sgd_step_size=1e-2,
    steps=52_000,
    burn_in=2_000,
    learning_rate=3e-3,
    settings=db.Settings(num_chains=16, query_batch=100, reservoir=64, reservoir_picks=2, restarts=4),
)
SMALL = db.Settings(num_chains=8, query_batch=64, reservoir=32, reservoir_picks=2, restarts=2)
PRESETS = toy.presets(
    BEST,
    literal={"steps": 100_000, "learning_rate": 2e-3},
    quick={"steps": 12_000, "learning_rate": 5e-3, "settings": SMALL},
)
EDGE, GRID_LINES = 10.0, 101


def problem(preset: toy.ToyPreset = BEST) -> toy.ToyProblem:
    """The paper's 2-10-2 network with a unit Gaussian prior, and the grid on [-10, 10]^2."""
    line = jnp.linspace(-EDGE, EDGE, GRID_LINES)
    grid = jnp.stack(jnp.meshgrid(line, line), axis=-1).reshape(-1, 2)
    posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)

    def divergence(p: toy.Arrays, q: toy.Arrays) -> float:
        return db.metrics.kl(*(db.outcomes.ClassPrediction.from_probs(method["mean"]) for method in (p, q)))

    head, queries = db.outcomes.SoftmaxHead(2), db.queries.uniform_box(-EDGE, EDGE)
    return toy.ToyProblem(posterior, head, queries, grid, db.data.toy2d, divergence, figure_arrays, PAPER)


reproduce = partial(toy.reproduce, problem)


def figure_arrays(data: Data, methods: toy.Methods) -> dict[str, Any]:
    """The training points, and the probability of class 1 on the grid by each method."""
    return {f"probs.{name}": arrays["mean"][:, 1] for name, arrays in methods.items()} | {"x": data.x, "y": data.y}


def class_maps(folder: Path, names: Names) -> figures.Drawing:
    """The probability of class 1 over the plane for each method, with the training points (the paper's Figure 1)."""
    arrays = figures.figure_arrays(folder)
    others, students = figures.methods_in(arrays, "probs.", ("sgd", "hmc", *TEACHERS))
    methods = others + students
    side = round(len(arrays[f"probs.{methods[0]}"]) ** 0.5)
    line, image = np.linspace(-EDGE, EDGE, side), None
    with titled_panels([*map(names.method, methods)], 3, 2.7) as (figure, axes, used):
        for method, axis in zip(methods, used, strict=True):
            probs = arrays[f"probs.{method}"].reshape(side, side)
            image = axis.pcolormesh(line, line, probs, cmap="PuOr", vmin=0, vmax=1, rasterized=True)
            for label, marker in ((0, "o"), (1, "^")):
                points = arrays["x"][arrays["y"] == label]
                axis.scatter(*points.T, s=18, marker=marker, c="white", edgecolors="black", label=f"class {label}")
            axis.set_aspect("equal")
        figures.label_edges(axes, "$x_1$", "$x_2$")
        axes[0, 0].legend(loc="upper left", fontsize=7)
        figure.colorbar(image, ax=axes, label="predicted probability of class 1", shrink=0.8)
    return figure


words = partial(
    toy.words,
    title="Toy 2-D classification: Table 2 and Figure 1 of Bayesian Dark Knowledge",
    lead="A 2-10-2 network is fitted to twenty points of two classes.",
    where="a grid on [-10, 10] x [-10, 10]",
    caption="Predicted probability of class 1 for the first draw of the data. Away from the points a Bayesian "
    "prediction fades towards one half; the plug-in network stays certain.",
    alt="Maps of the predicted probability of class 1 with the training points, one for each method.",
    draw=class_maps,
)
