"""Toy 1-D regression: Figure 2 of the paper.

    darkbayes reproduce toy1d --preset best       about 2 minutes a trial on two cores
    darkbayes reproduce toy1d --preset auto       with a teacher that tunes itself
    darkbayes reproduce toy1d --preset quick      under a minute

The paper shows pictures only; measured here is the KL from HMC between Gaussians of the same moments, mean over
[-6, 6]. Its table says 10 examples, its text 20: we take 20, as do Hernandez-Lobato and Adams, whose problem it is.
Inputs and targets are divided by their standard deviations under the problem's law; the noise variance is the known 9.
Presets differ as those of toy2d.

PBP has the same network but infers the noise and the prior's precision, as its authors do. Variational inference has
the very posterior of the others: Graves would fit the prior as well, but then his distance from HMC would mix another
prior with another approximation.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import darkbayes as db
from darkbayes.baselines import PBP, VariationalInference
from darkbayes.outcomes.heads.number import Normal, kl_normal
from darkbayes.paper import toy
from darkbayes.paper.common import TEACHERS, falling_adam, titled_panels
from darkbayes.report import Names, figures
from darkbayes.types import Data, Key


@dataclass(frozen=True, kw_only=True)
class Toy1dPreset(toy.ToyPreset):
    """All the settings of the 1-D experiment."""

    pbp_passes: int = 40
    vi_steps: int = 20_000
    vi_learning_rate: float = 1e-2  # Adam's, which falls to zero along a cosine.
    vi_samples: int = 8  # Draws a step, which steady the gradient.
    vi_draws: int = 2_000  # Draws to predict with, as many as the paper has of SGLD.


BEST = Toy1dPreset(
    students=((10,), (32, 32)),
    step_size=1e-4,
    sgd_step_size=1e-4,
    steps=220_000,
    burn_in=20_000,
    learning_rate=1e-2,
    settings=db.Settings(num_chains=16, query_batch=100, update_every=4, reservoir=64, reservoir_picks=2, restarts=8),
)
SMALL = db.Settings(num_chains=8, query_batch=64, update_every=4, reservoir=32, reservoir_picks=2, restarts=4)
PRESETS = toy.presets(BEST, literal={"learning_rate": 3e-4}, quick={"steps": 60_000, "settings": SMALL})
LOW, HIGH, GRID_POINTS = -6.0, 6.0, 241

# The standard deviations of x, uniform on [-4, 4], and of x^3; their means are zero.
SCALE_X, SCALE_Y = 4.0 / 3.0**0.5, 64.0 / 7.0**0.5


def problem(preset: Toy1dPreset = BEST) -> toy.ToyProblem:
    """A 1-10-1 network with a unit Gaussian prior for the scaled data, and the grid on [-6, 6]."""
    grid = jnp.linspace(LOW, HIGH, GRID_POINTS)[:, None] / SCALE_X
    likelihood = db.outcomes.Gaussian(noise_precision=SCALE_Y**2 / db.data.TOY1D_NOISE_VARIANCE)
    posterior = db.Posterior(db.mlp([10], 1), likelihood, db.priors.GaussianPrior(1.0), num_data=20)
    pbp, optimiser = PBP((10,), preset.pbp_passes), falling_adam(preset.vi_learning_rate, preset.vi_steps)
    vi = VariationalInference(posterior, optimiser, preset.vi_steps, None, samples=preset.vi_samples, empirical=False)

    def by_vi(key: Key, data: Data) -> dict[str, Any]:
        fit_key, draw_key = jax.random.split(key)
        draws = vi.draws(draw_key, vi.fit(fit_key, data), preset.vi_draws)
        return toy.as_arrays(db.predict_draws(posterior, draws, grid))

    head, queries = db.outcomes.GaussianHead(), db.queries.uniform_box(LOW / SCALE_X, HIGH / SCALE_X)
    others = {"pbp": lambda key, data: toy.as_arrays(db.predict_student(pbp, pbp.fit(key, data), grid)), "vi": by_vi}
    return toy.ToyProblem(posterior, head, queries, grid, scaled_toy1d, divergence, figure_arrays, {}, others)


reproduce = partial(toy.reproduce, problem)


def scaled_toy1d(key: Key) -> Data:
    """A draw of the data in the units of the network."""
    data = db.data.toy1d(key)
    return Data(data.x / SCALE_X, data.y / SCALE_Y)


def divergence(p: toy.Arrays, q: toy.Arrays) -> float:
    """KL(p || q) between Gaussians of these moments."""
    gaussians = [Normal(jnp.asarray(arrays["mean"]), jnp.asarray(arrays["variance"])) for arrays in (p, q)]
    return float(jnp.mean(kl_normal(*gaussians)))


def figure_arrays(data: Data, methods: toy.Methods) -> dict[str, Any]:
    """The training points and the predictions of each method, in the units of the problem."""
    points = {"x": data.x * SCALE_X, "y": data.y * SCALE_Y, "grid": np.linspace(LOW, HIGH, GRID_POINTS)}
    means = {f"mean.{name}": arrays["mean"][:, 0] * SCALE_Y for name, arrays in methods.items()}
    stds = {f"std.{name}": np.sqrt(arrays["variance"][:, 0]) * SCALE_Y for name, arrays in methods.items()}
    return points | means | stds


def bands(folder: Path, names: Names) -> figures.Drawing:
    """Mean and three standard deviations of each method, with those of HMC as outlines (the paper's Figure 2)."""
    arrays = figures.figure_arrays(folder)
    others, students = figures.methods_in(arrays, "mean.", ("pbp", "hmc", "vi", "sgd", *TEACHERS))
    methods, grid = others + students[:1], arrays["grid"]
    truth = [arrays["mean.hmc"] + side * 3 * arrays["std.hmc"] for side in (-1, 1)]
    with titled_panels([*map(names.method, methods)], 3, 2.7) as (figure, axes, used):
        for method, axis in zip(methods, used, strict=True):
            mean, spread = arrays[f"mean.{method}"], 3 * arrays[f"std.{method}"]
            filled = {"color": figures.BLUE, "alpha": 0.25, "lw": 0, "label": "±3 std. dev."}
            axis.fill_between(grid, mean - spread, mean + spread, **filled)
            axis.plot(grid, mean, color=figures.BLUE, label="mean")
            for edge in truth if method != "hmc" else ():
                axis.plot(grid, edge, color=figures.ORANGE, lw=1, ls="--", label="HMC ±3 std. dev.")
            axis.scatter(arrays["x"], arrays["y"], s=12, color="black", zorder=3, label="training data")
        figures.label_edges(axes, "x", "y")
        figures.legend_below(figure, axes)
    return figure


words = partial(
    toy.words,
    title="Toy 1-D regression: Figure 2 of Bayesian Dark Knowledge",
    lead="A network with ten hidden units is fitted to twenty noisy points of a cubic.",
    where="[-6, 6]",
    caption="Mean and three standard deviations for the first draw of the data; dashed, those of HMC. Of the "
    "students the one with the teacher's ten hidden units is shown, as in the paper.",
    alt="The mean and a band of three standard deviations with the training points, one panel for each method.",
    draw=bands,
)
