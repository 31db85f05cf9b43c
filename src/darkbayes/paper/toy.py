"""What the two toy experiments share: truth by HMC, the plug-in network, the teacher and its students, and comparators
of the experiment's own, each measured by its KL from the truth on a grid of inputs."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from darkbayes.files import write_arrays
from darkbayes.model import Posterior
from darkbayes.outcomes import Prediction
from darkbayes.outcomes.heads.base import Head
from darkbayes.paper import fitting, naming
from darkbayes.predict import predict_average, predict_draws, predict_plugin, predict_student
from darkbayes.report import Names, RunWords, figures, measured
from darkbayes.runs import Run, row
from darkbayes.student import Queries, Student, distillation
from darkbayes.teacher import minibatch_chain, nuts_chain, sample
from darkbayes.teacher.chain import MinibatchChain
from darkbayes.teacher.diagnostics.convergence import split_rhat
from darkbayes.teacher.samplers import default_sampler, sgld
from darkbayes.teacher.samplers.schedules import stepped
from darkbayes.types import Array, Data, Key

TEACHER = "teacher."
"""What marks the teacher's arrays among a student's."""


Methods = dict[str, dict[str, np.ndarray]]
"""What each method predicts on the grid, as named arrays."""
Comparators = dict[str, Callable[[Key, Data], Prediction]]
"""Methods that one experiment adds: each is fitted and predicts on the grid."""


class Problem(NamedTuple):
    """A toy problem apart from its data, and how to look at it."""

    posterior: Posterior
    grid: Array
    """Where predictive distributions are compared."""
    queries: Queries
    head: Head


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset(fitting.Preset):
    """All the settings of a toy experiment."""

    students: tuple[tuple[int, ...], ...]
    """The hidden layers of each student."""
    sgd_step_size: float
    """Of the plug-in network, in the teacher's convention: half of it times the gradient at full-data scale."""
    hmc_chains: int = 4
    hmc_warmup: int = 1000
    hmc_draws: int = 5000

    def sgd_rate(self, updates: int) -> optax.Schedule:
        """Falls by 0.8 after every twentieth of the updates (for 100k of them, the paper's schedule for Boston)."""
        return stepped(self.learning_rate, factor=0.8, every=max(1, updates // 20))


class Experiment:
    """The methods of a toy experiment, built once, so that all trials share their compiled loops."""

    def __init__(self, run: Run, problem: Problem, preset: Preset, comparators: Comparators):
        """Build the plug-in network's optimiser and the students."""
        self.run, self.problem, self.preset, self.comparators = run, problem, preset, comparators
        self.plug_in = optax.with_extra_args_support(optax.sgd(preset.sgd_step_size / 2))
        width = problem.grid.shape[-1]
        self.students = {
            "-".join(map(str, (width, *hidden, problem.head.width))): preset.student(hidden, problem.head)
            for hidden in preset.students
        }

    def trial(self, folder: str, data: Data, teacher: MinibatchChain, key: Key) -> Methods:
        """The predictions of every method on the grid, by method; what was computed before is not computed again."""
        hmc_key, sgd_key, distil_key, *keys = jax.random.split(key, 3 + len(self.comparators))
        methods = {
            "hmc": self.run.once(f"{folder}/hmc", lambda: self.hmc(f"{folder}/hmc", data, hmc_key)),
            "sgd": self.run.once(f"{folder}/sgd", lambda: self.sgd(data, sgd_key)),
        }
        for name, own_key in zip(self.comparators, keys, strict=True):
            methods[name] = self.run.once(f"{folder}/{name}", partial(self.compared, name, data, own_key))
        students = {}
        for label, student in self.students.items():
            name = f"{folder}/student-{label}"
            distilled = partial(self.distilled, name, student, teacher, distil_key)
            students[f"student {label}"] = self.run.once(name, distilled)
        # Every student had the same teacher, draw for draw: its randomness does not depend on who listens.
        first = next(iter(students.values()))
        taught = {name.removeprefix(TEACHER): value for name, value in first.items() if name.startswith(TEACHER)}
        return methods | {"sgld": taught} | students

    def hmc(self, name: str, data: Data, key: Key) -> dict[str, Any]:
        """The truth."""
        label = None if self.run.quiet else name
        preset, posterior, grid = self.preset, self.problem.posterior, self.problem.grid
        chain = nuts_chain(posterior, *data, burn_in=preset.hmc_warmup)
        draws = sample(chain, key, num_chains=preset.hmc_chains, num_draws=preset.hmc_draws, label=label)
        return as_arrays(predict_draws(posterior, draws, grid)) | {"rhat": prediction_rhat(posterior, draws, grid)}

    def sgd(self, data: Data, key: Key) -> dict[str, Any]:
        """The plug-in network."""
        posterior = self.problem.posterior
        chain = minibatch_chain(posterior, self.plug_in, *data, batch_size=None, burn_in=self.preset.steps - 1)
        draws = sample(chain, key, num_chains=1, num_draws=1)
        weights = jax.tree.map(lambda leaf: leaf[0, 0], draws)
        return as_arrays(predict_plugin(posterior, weights, self.problem.grid))

    def compared(self, name: str, data: Data, key: Key) -> dict[str, Any]:
        """A comparator."""
        return as_arrays(self.comparators[name](key, data))

    def distilled(self, name: str, student: Student, teacher: MinibatchChain, key: Key) -> dict[str, Any]:
        """A student of the teacher, and what that predicts."""
        problem, preset = self.problem, self.preset
        parts = distillation(teacher, student, problem.queries, preset.settings, monitor=problem.grid)
        state = self.run.distil(name, parts, key, preset.steps)
        taught = as_arrays(predict_average(state.average))
        own = as_arrays(predict_student(student, parts.best(state), problem.grid))
        return own | {TEACHER + name: value for name, value in taught.items()}


def prediction_rhat(posterior: Posterior, draws: Any, grid: Array) -> float:
    """The largest split R-hat over (at most about 500) grid points of what draws predict there."""
    points = grid[:: max(1, len(grid) // 500)]

    def outputs(draw: Any) -> Array:
        return posterior.distribution(draw, points).traced()

    predictions = jax.vmap(lambda chain: jax.lax.map(outputs, chain))(draws)
    return float(split_rhat(predictions).max())


def as_arrays(prediction: Any) -> dict[str, Any]:
    """A prediction on the grid in a form that can be stored."""
    return {"mean": prediction.mean, "variance": prediction.variance}


def run_trials(
    run: Run,
    problem: Problem,
    preset: Preset,
    trials: int,
    seed: int,
    draw: Callable[[Key], Data],
    figure: Callable[[Data, Methods], dict[str, Any]],
    comparators: Comparators | None = None,
) -> list[Methods]:
    """The predictions of every trial, each on data of its own; the first leaves the arrays of the figure."""
    keys = [jax.random.split(jax.random.fold_in(jax.random.key(seed), trial)) for trial in range(trials)]
    data = [draw(data_key) for data_key, _ in keys]
    teachers, preset = build_teachers(run, problem, preset, data, jax.random.key(seed))
    experiment = Experiment(run, problem, preset, comparators or {})
    done = []
    for trial, (_, method_key) in enumerate(keys):
        done.append(experiment.trial(f"trial-{trial}", data[trial], teachers[trial], method_key))
        if trial == 0:
            write_arrays(run.path / "figure.safetensors", figure(data[0], done[0]))
    return done


def build_teachers(
    run: Run, problem: Problem, preset: Preset, data: list[Data], key: Key
) -> tuple[list[MinibatchChain], Preset]:
    """The teacher of each trial, and the preset with the lengths that teachers which tune themselves have found."""
    auto = preset.step_size == "auto"
    sampler = default_sampler(problem.posterior, None) if auto else sgld(preset.step_size)
    teachers = [
        minibatch_chain(
            problem.posterior, sampler, *examples, batch_size=None, burn_in=preset.burn_in, thin=preset.thin
        )
        for examples in data
    ]
    return fitting.tuned(run, "teacher", teachers, key, preset, problem.grid) if auto else (teachers, preset)


def summarise(
    trials: list[Methods],
    divergence: Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], float],
    paper: dict[str, float],
) -> list[dict[str, Any]]:
    """Rows of results: both KL divergences between the truth and each method, and the truth's own R-hat."""
    rows = []
    for method in [name for name in trials[0] if name != "hmc"]:
        forward = [divergence(trial["hmc"], trial[method]) for trial in trials]
        reverse = [divergence(trial[method], trial["hmc"]) for trial in trials]
        rows.append(row(method, "kl_from_hmc", forward, paper.get(method)))
        rows.append(row(method, "kl_to_hmc", reverse))
    rows.append(row("hmc", "rhat_max", [float(trial["hmc"]["rhat"]) for trial in trials]))
    return rows


NAMES = Names(
    metrics={
        "kl_from_hmc": "KL(HMC || method)",
        "kl_to_hmc": "KL(method || HMC)",
        "rhat_max": "largest split R-hat of the predictions",
    }
)


def words(results: dict[str, Any], names: Names, *, lead: str, where: str, **own: Any) -> RunWords:
    """What the page of a run says.

    Args:
        results: The run's.
        names: What methods and metrics are called.
        lead: What is fitted to what.
        where: Where methods are compared.
        **own: The title, and what is said of the figure.

    Returns:
        All of it, with what both experiments say alike.
    """
    rows = naming.rows_of(results, "kl_from_hmc")
    best, plug_in = min(naming.students(rows), key=lambda row: row["mean"]), rows["sgd"]
    return RunWords(
        lead=f"{lead} HMC on the full posterior is the truth; {names.method('sgld')} approximates it with many "
        "networks, and each student is one network that was distilled from it while it ran. The closer to zero a "
        f"method's KL divergence from HMC, averaged over {where}, the better.",
        summary=f"One network, the {names.method(best['method'])}, is {measured(best)} nats from HMC; the plug-in "
        f"network is {measured(plug_in)} nats away, {plug_in['mean'] / best['mean']:,.0f} times as far.",
        trial="a draw of the data",
        quick="one draw of the data, shorter chains and fewer draws by HMC",
        figure="Predictive distributions",
        curves="the grid, for the first draw of the data",
        **own,
    )


def method_panels(methods: list[str]) -> Any:
    """A figure with a panel for each method, three in a row."""
    rows = -(-len(methods) // 3)
    return figures.panels(rows, 3, size=(figures.WIDTH, 2.7 * rows), sharex=True, sharey=True)
