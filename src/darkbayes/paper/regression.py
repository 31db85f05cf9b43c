"""What the regression experiments share: tables, their splits, and every method on all splits side by side.

Inputs and targets are standardised on the training part of each split; scores are in the target's own unit.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import darkbayes as db
from darkbayes.baselines import PBP, SGD, Dropout, Ensemble, VariationalInference
from darkbayes.metrics import coverage, crps
from darkbayes.outcomes.heads.base import Head, Likelihood
from darkbayes.paper import common
from darkbayes.paper.common import fit_trials, named_key, part, scored, trained
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Data, Key

PAPER_TEST_ROWS = 50
METRICS = ("log_likelihood", "rmse", "crps", "coverage_90")
DRAWS = 200  # Draws from dropout and variational inference to predict with.
TRIAL = "a split of the data into a part to learn from and a part to score on"
Noise = Literal["known", "sampled", "input"]
"""What the teacher takes the noise of the target to be: known, one unknown level, or a function of the input."""


@dataclasses.dataclass(frozen=True)
class RegressionComparators:
    """Settings of the methods that distillation is compared with; Adam's rate is per mean loss and falls to zero."""

    batch_size: int = 100
    learning_rate: float = 1e-2
    sgd_steps: int = 400
    dropout_steps: int = 5_000
    dropout_rate: float = 0.3
    vi_steps: int = 20_000
    ensemble_steps: int = 100
    ensemble_size: int = 5
    pbp_passes: int = 40
    hmc_chains: int = 2
    hmc_warmup: int = 200
    hmc_draws: int = 100
    hmc_depth: int = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionPreset(common.Preset):
    """All the settings of a regression experiment."""

    noise: tuple[Noise, ...]
    sampler: Literal["fisher_sgld", "sgld"]
    """The teacher's; the paper's SGLD halves its step size every 80,000 steps."""
    batch_size: int
    jitter: tuple[float, ...]  # Standard deviations of the noise on queries; each is used for an equal share of them.
    prior_precision: float = 1.0
    noise_precision: float | None = None  # Where the noise is known.
    noise_prior: tuple[float, float] = (1.0, 0.1)
    """Shape and rate of the Gamma prior on the noise precision, where it is sampled."""
    hidden: tuple[int, ...] = (50,)  # Of teachers and of students, of which there is one for each kind of noise.
    comparators: RegressionComparators | None = None
    on: Literal["test", "validation"] = "test"
    splits: Literal["standard", "paper"] = "standard"

    def likelihood(self, noise: Noise) -> Likelihood:
        if self.noise_precision is not None and noise == "known":
            return db.outcomes.Gaussian(self.noise_precision)
        sampled = noise == "sampled"
        return db.outcomes.GaussianSampledNoise(1, *self.noise_prior) if sampled else db.outcomes.GaussianInputNoise()

    def head(self, noise: Noise) -> Head:
        # Where noise depends on the input, draws disagree on it: their mixture has tails that one Gaussian lacks.
        varying = noise == "input"
        return db.outcomes.MixtureHead(components=2) if varying else db.outcomes.GaussianHead()

    def sgd_rate(self, updates: int) -> optax.Schedule:
        """The paper's: multiplied by 0.8 every 5,000 steps."""
        return db.schedules.stepped(self.learning_rate, factor=0.8, every=5_000)


class Split(NamedTuple):
    """One split of a table, standardised."""

    train: Data
    test: Data
    center: float
    scale: float
    """What was subtracted from the target, and what it was divided by."""


def split_table(
    table: db.data.NamedTable, trials: int, seed: int, splits: str = "standard", on: str = "test"
) -> list[Split]:
    """The splits to run on; for validation, each training part is split once more and its test part never seen."""
    rows, data = len(table.y), db.data
    paper = splits == "paper"
    parts = data.random_splits(rows, PAPER_TEST_ROWS, trials, seed) if paper else data.standard_splits(rows, trials)
    if on == "validation":
        inner = data.random_splits(len(parts[0][0]), len(parts[0][1]), trials, seed)
        parts = [(train[new], train[held]) for (train, _), (new, held) in zip(parts, inner, strict=True)]
    return [standardised(table, *rows) for rows in parts]


def standardised(table: db.data.NamedTable, train: np.ndarray, test: np.ndarray) -> Split:
    """One split, by the rows to train on."""
    x, y = table.x, table.y[:, None]
    spread, center, scale = x[train].std(axis=0), y[train].mean(), y[train].std()
    x, y = (x - x[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0), (y - center) / scale
    parts = (db.data.as_data(x[rows], y[rows]) for rows in (train, test))
    return Split(next(parts), next(parts), float(center), float(scale))


class RegressionExperiment:
    """Every method on all splits of one table."""

    def __init__(self, run: db.Run, preset: RegressionPreset, splits: list[Split], key: Key):
        self.run, self.preset, self.splits, self.key = run, preset, splits, key
        self.stacked: Data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[split.train for split in splits])

    def posterior(self, noise: Noise) -> db.Posterior:
        likelihood, prior = self.preset.likelihood(noise), db.priors.GaussianPrior(self.preset.prior_precision)
        network = db.mlp(self.preset.hidden, likelihood.width)
        return db.Posterior(network, likelihood, prior, num_data=len(self.splits[0].train.x))

    def distilled(self, noise: Noise) -> dict[str, dict[str, np.ndarray]]:
        """The scores of a teacher and of its student."""
        kind = " input noise" if noise == "input" else ""
        widths = self.stacked.x.shape[-1], *self.preset.hidden, self.preset.head(noise).width
        name = f"student{kind} " + "-".join(map(str, widths))
        arrays = self.run.once(path_of(name), partial(self._distil, name, noise))
        return {self.preset.sampler + kind: part(arrays, "teacher"), name: part(arrays, "student")}

    def _distil(self, name: str, noise: Noise) -> dict[str, Any]:
        preset, posterior = self.preset, self.posterior(noise)
        batch_size = min(preset.batch_size, posterior.num_data)
        assert preset.step_size != "auto"
        if preset.sampler == "sgld":
            sampler = db.sgld(db.schedules.stepped(preset.step_size, factor=0.5, every=80_000))
        else:
            own: Any = {"prior_precision": preset.prior_precision, "batch_share": batch_size / posterior.num_data}
            sampler = db.samplers.fisher_sgld(preset.step_size, **own)
        teachers = [preset.teacher(posterior, sampler, split.train, batch_size) for split in self.splits]
        key = self._key(f"sgld {type(posterior.likelihood).__name__}")
        student = preset.student(preset.hidden, preset.head(noise))
        queries = mixed([*map(db.queries.jitter, preset.jitter)])
        each = [db.distillation(teacher, student, queries, preset.settings) for teacher in teachers]
        parts = db.student.side_by_side(each)
        state = self.run.distil(path_of(name), parts, key, preset.steps)
        weights, reservoir = parts.best(state), state.reservoir
        assert reservoir is not None
        methods = {
            "student": lambda k, x: db.predict_student(student, at(k, weights), x),
            # The draws that the reservoirs hold are a fair sample of all.
            "teacher": lambda k, x: db.predict_draws(posterior, at(k, reservoir.slots), x),
        }
        return split_scores(methods, self.splits)

    def fitted(self, name: str, method: Any, number: int) -> dict[str, np.ndarray]:
        """The scores of a comparator, fitted on all splits at once; it predicts with `number` draws."""

        def compute() -> dict[str, Any]:
            predict = fit_trials(method, self._key(name), len(self.splits), self.stacked, axis=0)
            return split_scores({name: lambda k, x: predict(k, number, x)}, self.splits)

        return part(self.run.once(path_of(name), compute), name)

    def hmc(self, settings: RegressionComparators) -> dict[str, np.ndarray]:
        posterior = self.posterior("sampled")

        def compute(k: int) -> dict[str, Any]:
            split, label = self.splits[k], None if self.run.quiet else f"hmc, split {k}"
            lengths: Any = {"burn_in": settings.hmc_warmup, "max_tree_depth": settings.hmc_depth}
            chain = db.teacher.nuts_chain(posterior, *split.train, **lengths)
            key = jax.random.fold_in(self._key("hmc"), k)
            draws = db.sample(chain, key, num_chains=settings.hmc_chains, num_draws=settings.hmc_draws, label=label)
            return split_scores({"hmc": lambda _, x: db.predict_draws(posterior, draws, x)}, [split])

        places = range(len(self.splits))
        by_split = [part(self.run.once(f"hmc/split-{k}", partial(compute, k)), "hmc") for k in places]
        return by_split[0] | {metric: np.concatenate([arrays[metric] for arrays in by_split]) for metric in METRICS}

    def comparators(self, settings: RegressionComparators) -> dict[str, dict[str, np.ndarray]]:
        settings = dataclasses.replace(settings, batch_size=min(settings.batch_size, len(self.splits[0].train.x)))
        sampled, varying = self.posterior("sampled"), self.posterior("input")
        dropout = trained(Dropout, sampled, settings, settings.dropout_steps, rate=settings.dropout_rate)
        member = trained(SGD, varying, settings, settings.ensemble_steps)
        methods = {
            "sgd": (trained(SGD, sampled, settings, settings.sgd_steps), 1),
            "pbp": (PBP(self.preset.hidden, settings.pbp_passes), 0),
            "vi": (trained(VariationalInference, sampled, settings, settings.vi_steps), DRAWS),
            "dropout mc": (dropout, DRAWS),
            "ensemble": (Ensemble(member, settings.ensemble_size), 1),
        }
        scores = {name: self.fitted(name, method, number) for name, (method, number) in methods.items()}
        return scores | {"hmc": self.hmc(settings)}

    def _key(self, name: str) -> Key:
        """A key for each method, whichever others are run."""
        return named_key(self.key, name)


def path_of(name: str) -> str:
    """What files of a method are called."""
    return name.replace(" ", "-")


def mixed(queries: list[db.queries.Queries]) -> db.queries.Queries:
    """Each generator for an equal share of the queries."""
    first, *rest = queries
    return db.queries.mix(first, mixed(rest), 1 / len(queries)) if rest else first


def split_scores(methods: dict[str, Callable[[int, Array], Any]], splits: list[Split]) -> dict[str, Any]:
    """Each metric of each method on every split, in the target's unit, and what it predicts on the first."""
    arrays: dict[str, Any] = {}
    for name, predict in methods.items():
        scores = []
        for k, split in enumerate(splits):
            prediction, y, scale = predict(k, split.test.x), split.test.y, split.scale
            more = scale * crps(prediction, y), coverage(prediction, y)
            scores.append((*scored(prediction, y, scale).values(), *more))
            if k == 0:
                arrays[f"{name}.mean"] = prediction.mean[:, 0] * scale + split.center
                arrays[f"{name}.std"] = prediction.std[:, 0] * scale
        arrays |= {f"{name}.{metric}": values for metric, values in zip(METRICS, np.transpose(scores), strict=True)}
    return arrays
