"""What the two toy experiments share: truth by HMC, the plug-in network, the teacher and its students, and comparators
of the experiment's own, each measured by its KL from the truth on a grid of inputs."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import darkbayes as db
from darkbayes.files import write_arrays
from darkbayes.outcomes.heads.base import Head
from darkbayes.paper import common
from darkbayes.paper.common import TUNED, Row, part, rows_of
from darkbayes.report import Names, RunWords, measured
from darkbayes.runs import row
from darkbayes.teacher import sample
from darkbayes.teacher.chain import MinibatchChain
from darkbayes.types import Array, Data, Key

Arrays = dict[str, np.ndarray]
Methods = dict[str, Arrays]  # What each method predicts on the grid.


class ToyProblem(NamedTuple):
    """A toy problem, and how to look at it."""

    posterior: db.Posterior
    head: Head
    queries: db.queries.Queries
    grid: Array  # Where predictive distributions are compared.
    draw: Callable[[Key], Data]  # The data of a trial.
    divergence: Callable[[Arrays, Arrays], float]
    figure: Callable[[Data, Methods], dict[str, Any]]  # What is drawn of the first trial.
    paper: Mapping[str, float] = {}  # The paper's divergences.
    comparators: Mapping[str, Callable[[Key, Data], dict[str, Any]]] = {}
    """Methods of this problem alone: each is fitted and predicts on the grid."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyPreset(common.Preset):
    """All the settings of a toy experiment."""

    students: tuple[tuple[int, ...], ...]  # The hidden layers of each student.
    sgd_step_size: float
    """Of the plug-in network, in the teacher's convention: half of it times the gradient at full-data scale."""
    hmc_chains: int = 4
    hmc_warmup: int = 1000
    hmc_draws: int = 5000

    def sgd_rate(self, updates: int) -> optax.Schedule:
        """Falls by 0.8 after every twentieth of the updates (for 100k of them, the paper's schedule for Boston)."""
        return db.schedules.stepped(self.learning_rate, factor=0.8, every=max(1, updates // 20))


def presets(best: ToyPreset, *, literal: dict[str, Any], quick: dict[str, Any]) -> dict[str, ToyPreset]:
    """All presets, of which two have changes of their own."""
    sgd: Any = {"optimiser": "sgd", "settings": db.Settings(query_batch=20), "student_prior": 1e-3}
    small: Any = {"trials": 1, "hmc_warmup": 500, "hmc_draws": 1000}
    changes = {"best": {}, "auto": {"step_size": "auto"}, "literal": sgd | literal, "quick": small | quick}
    return {name: dataclasses.replace(best, **own) for name, own in changes.items()}


class ToyExperiment:
    """The methods of a toy experiment, built once, so that all trials share their compiled loops."""

    def __init__(self, run: db.Run, problem: ToyProblem, preset: ToyPreset):
        self.run, self.problem, self.preset = run, problem, preset
        self.plug_in = optax.with_extra_args_support(optax.sgd(preset.sgd_step_size / 2))
        inputs, head = problem.grid.shape[-1], problem.head
        self.students = {
            "-".join(map(str, (inputs, *hidden, head.width))): preset.student(hidden, head)
            for hidden in preset.students
        }

    def trial(self, folder: str, data: Data, teacher: MinibatchChain, key: Key, sampler: str) -> Methods:
        own, methods, students = self.problem.comparators, {}, {}
        hmc_key, sgd_key, distil_key, *keys = jax.random.split(key, 3 + len(own))
        others = {"hmc": partial(self.hmc, f"{folder}/hmc"), "sgd": self.sgd, **own}
        for (name, predict), own_key in zip(others.items(), (hmc_key, sgd_key, *keys), strict=True):
            methods[name] = self.run.once(f"{folder}/{name}", partial(predict, own_key, data))
        for label, student in self.students.items():
            name = f"{folder}/student-{label}"
            lessons = partial(self.distilled, name, student, teacher, distil_key)
            students[f"student {label}"] = self.run.once(name, lessons)
        # Every student had the same teacher, draw for draw: its randomness does not depend on who listens.
        return methods | {sampler: part(next(iter(students.values())), "teacher")} | students

    def hmc(self, name: str, key: Key, data: Data) -> dict[str, Any]:
        preset, posterior, grid = self.preset, self.problem.posterior, self.problem.grid
        chain = db.teacher.nuts_chain(posterior, *data, burn_in=preset.hmc_warmup)
        label = None if self.run.quiet else name
        draws = sample(chain, key, num_chains=preset.hmc_chains, num_draws=preset.hmc_draws, label=label)
        points = grid[:: max(1, len(grid) // 500)]  # At most about 500.
        traced = partial(jax.lax.map, lambda draw: posterior.distribution(draw, points).traced())
        said = jax.vmap(traced)(draws)
        rhat = float(db.teacher.diagnostics.split_rhat(said).max())
        return as_arrays(db.predict_draws(posterior, draws, grid)) | {"rhat": rhat}

    def sgd(self, key: Key, data: Data) -> dict[str, Any]:
        posterior = self.problem.posterior
        chain = db.minibatch_chain(posterior, self.plug_in, *data, batch_size=None, burn_in=self.preset.steps - 1)
        draws = sample(chain, key, num_chains=1, num_draws=1)
        weights = jax.tree.map(lambda leaf: leaf[0, 0], draws)
        return as_arrays(db.predict_plugin(posterior, weights, self.problem.grid))

    def distilled(self, name: str, student: db.Student, teacher: MinibatchChain, key: Key) -> dict[str, Any]:
        problem, preset = self.problem, self.preset
        parts = db.distillation(teacher, student, problem.queries, preset.settings, monitor=problem.grid)
        state = self.run.distil(name, parts, key, preset.steps)
        taught = as_arrays(db.predict_average(state.average))
        own = as_arrays(db.predict_student(student, parts.best(state), problem.grid))
        return own | {f"teacher.{name}": value for name, value in taught.items()}


def as_arrays(prediction: Any) -> dict[str, Any]:
    """A prediction on the grid in a form that can be stored."""
    return {"mean": prediction.mean, "variance": prediction.variance}


def reproduce(make: Callable[[Any], ToyProblem], run: db.Run, preset: Any, trials: int, seed: int) -> list[Row]:
    """Run all trials of the problem that `make` makes for the preset, each on data of its own."""
    problem = make(preset)
    keys = [jax.random.split(jax.random.fold_in(jax.random.key(seed), trial)) for trial in range(trials)]
    data = [problem.draw(data_key) for data_key, _ in keys]
    auto = preset.step_size == "auto"
    sampler = db.samplers.default_sampler(problem.posterior, None) if auto else db.sgld(preset.step_size)
    teachers = [preset.teacher(problem.posterior, sampler, examples, None) for examples in data]
    if auto:
        how: Any = {"num_chains": preset.settings.num_chains, "thin_by": preset.settings.update_every}
        teachers, choices = run.tune("teacher", teachers, jax.random.key(seed), monitor=problem.grid, **how)
        lengths = {length: getattr(choices[0], length) for length in ("steps", "burn_in", "thin")}
        preset = dataclasses.replace(preset, **lengths)
    experiment, done = ToyExperiment(run, problem, preset), []
    for trial, (_, key) in enumerate(keys):
        done.append(experiment.trial(f"trial-{trial}", data[trial], teachers[trial], key, TUNED if auto else "sgld"))
    write_arrays(run.path / "figure.safetensors", problem.figure(data[0], done[0]))
    rows = []
    for method in [name for name in done[0] if name != "hmc"]:
        forward = [problem.divergence(trial["hmc"], trial[method]) for trial in done]
        reverse = [problem.divergence(trial[method], trial["hmc"]) for trial in done]
        paper = problem.paper.get("sgld" if method == TUNED else method)
        rows.append(row(method, "kl_from_hmc", forward, paper))
        rows.append(row(method, "kl_to_hmc", reverse))
    return [*rows, row("hmc", "rhat_max", [float(trial["hmc"]["rhat"]) for trial in done])]


def words(
    folder: Path, results: dict[str, Any], config: Any, names: Names, *, lead: str, where: str, draw: Any, **own: Any
) -> RunWords:
    """What the page of a run says, with what both experiments say alike."""
    rows = rows_of(results, "kl_from_hmc")
    students = [row for method, row in rows.items() if method.startswith("student")]
    best, plug_in = min(students, key=lambda row: row["mean"]), rows["sgd"]
    return RunWords(
        lead=f"{lead} HMC is the truth; the teacher approximates it with many networks, and each student is "
        f"one network distilled from it. Methods are judged by their KL divergence from HMC, averaged over {where}.",
        summary=f"One network, the {names.method(best['method'])}, is {measured(best)} nats from HMC; the plug-in "
        f"network is {measured(plug_in)} nats away, {plug_in['mean'] / best['mean']:,.0f} times as far.",
        trial="a draw of the data",
        quick="one draw of the data, shorter chains and fewer draws by HMC",
        figure="Predictive distributions",
        curves="the grid, for the first draw of the data",
        draw=lambda: draw(folder, names),
        **own,
    )
