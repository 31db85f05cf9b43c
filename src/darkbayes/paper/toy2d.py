"""Toy 2-D classification: Table 2 and Figure 1 of the paper.

    darkbayes reproduce toy2d --preset best       about 2 minutes a trial on two cores
    darkbayes reproduce toy2d --preset literal
    darkbayes reproduce toy2d --preset quick      under a minute

KL from HMC on a grid. The paper: SGD 0.246, SGLD 0.007, students 2-10-2 0.031, 2-100-2 0.014, 2-10-10-2 0.009.
Ours: results/toy2d-best.json and results/toy2d-literal.json.

The paper gives no step sizes, learning rates or batch sizes for this problem. `literal` has its 100k steps, burn-in of
2k, every 100th draw kept, one chain, targets from the present draw alone and a student trained by SGD. `best` averages
targets over 16 chains and their reservoirs, and trains the students by Adam from four starting points, of which the one
closest to the teacher is kept.
"""

import jax
import jax.numpy as jnp
import numpy as np

from darkbayes.data import toy2d
from darkbayes.files import write_arrays
from darkbayes.model import GaussianPrior, Posterior, Softmax, mlp
from darkbayes.paper.toy import Experiment, Preset, Problem, summarise
from darkbayes.predict import ClassPredictive, metrics
from darkbayes.runs import Run
from darkbayes.student import SoftmaxStudent, uniform_box

PAPER = {
    "sgd": 0.246,
    "sgld": 0.007,
    "student 2-10-2": 0.031,
    "student 2-100-2": 0.014,
    "student 2-10-10-2": 0.009,
}

STUDENTS = ((10,), (100,), (10, 10))

PRESETS = {
    "best": Preset(
        trials=5,
        students=STUDENTS,
        step_size=1e-2,
        steps=52_000,
        burn_in=2_000,
        thin=100,
        chains=16,
        optimiser="adam",
        learning_rate=3e-3,
        query_batch=100,
        reservoir=64,
        reservoir_picks=2,
        restarts=4,
    ),
    "literal": Preset(
        trials=5,
        students=STUDENTS,
        step_size=1e-2,
        steps=100_000,
        burn_in=2_000,
        thin=100,
        optimiser="sgd",
        learning_rate=2e-3,
        query_batch=20,
        student_prior=1e-3,
    ),
    "quick": Preset(
        trials=1,
        students=STUDENTS,
        step_size=1e-2,
        steps=12_000,
        burn_in=2_000,
        thin=100,
        chains=8,
        optimiser="adam",
        learning_rate=5e-3,
        query_batch=64,
        reservoir=32,
        reservoir_picks=2,
        restarts=2,
        hmc_warmup=500,
        hmc_draws=1000,
    ),
}

GRID_LINES = 101


def problem() -> Problem:
    """The paper's 2-10-2 network with a unit Gaussian prior, and the grid on [-10, 10]^2."""
    line = jnp.linspace(-10.0, 10.0, GRID_LINES)
    grid = jnp.stack(jnp.meshgrid(line, line), axis=-1).reshape(-1, 2)
    posterior = Posterior(mlp([10], 2), Softmax(2), GaussianPrior(1.0), num_data=20)
    return Problem(posterior, grid, uniform_box(-10.0, 10.0), SoftmaxStudent(2))


def reproduce(run: Run, preset: Preset, trials: int, seed: int) -> list[dict]:
    """Run all trials; returns the rows of results and leaves the figure's arrays in the run's folder."""
    experiment = Experiment(run, problem(), preset)
    done = []
    for trial in range(trials):
        data_key, method_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), trial))
        data = toy2d(data_key)
        done.append(experiment.trial(f"trial-{trial}", data, method_key))
        if trial == 0:
            panels = {f"probs.{method}": arrays["probs"][:, 1] for method, arrays in done[0].items()}
            write_arrays(run.path / "figure.safetensors", panels | {"x": data.x, "y": data.y})

    def divergence(p: dict[str, np.ndarray], q: dict[str, np.ndarray]) -> float:
        first, second = (ClassPredictive.from_probs(jnp.asarray(of["probs"])) for of in (p, q))
        return metrics.kl(first, second)

    return summarise(done, divergence, PAPER)
