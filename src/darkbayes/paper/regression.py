"""What the regression experiments share: tables, their splits, and every method on all splits side by side.

Inputs and targets are standardised on the training part of each split; scores are in the target's own unit.
"""

import dataclasses
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from darkbayes import metrics
from darkbayes.baselines import PBP, SGD, Dropout, Ensemble, VariationalInference
from darkbayes.data import Table, as_data, random_splits, standard_splits
from darkbayes.model import GaussianPrior, Posterior, mlp
from darkbayes.outcomes import Prediction
from darkbayes.outcomes.heads.number import (
    Gaussian,
    GaussianHead,
    GaussianInputNoise,
    GaussianSampledNoise,
    MixtureHead,
)
from darkbayes.paper import fitting
from darkbayes.paper.fitting import fit_trials, trained, tuned
from darkbayes.predict import predict_draws, predict_student
from darkbayes.runs import Run
from darkbayes.student import Queries, distillation, jitter, mix, side_by_side
from darkbayes.teacher import minibatch_chain, nuts_chain, sample
from darkbayes.teacher.samplers import AutoStep, default_sampler, fisher_sgld, sgld
from darkbayes.teacher.samplers.schedules import stepped
from darkbayes.teacher.stacking import at
from darkbayes.types import Array, Data, Key

PAPER_TEST_ROWS = 50
METRICS = ("log_likelihood", "rmse", "crps", "coverage_90")
DRAWS = 200
"""Draws from dropout and variational inference to predict with."""

TRIAL = "a split of the data into a part to learn from and a part to score on"

Noise = Literal["known", "sampled", "input"]
"""What the teacher takes the noise of the target to be: known, one unknown level, or a function of the input."""


@dataclasses.dataclass(frozen=True)
class Comparators:
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
class Preset(fitting.Preset):
    """All the settings of a regression experiment."""

    noise: tuple[Noise, ...]
    students: tuple[tuple[int, ...], ...]
    """The hidden layers of each student, which learns from a teacher of its own for each kind of noise."""
    sampler: Literal["fisher", "stepped"]
    """`fisher_sgld`, or the paper's SGLD, whose step size is halved every 80,000 steps."""
    batch_size: int
    jitter: tuple[float, ...]
    """Standard deviations of the noise on queries; each is used for an equal share of them."""
    prior_precision: float = 1.0
    noise_precision: float | None = None
    """Where the noise is known."""
    noise_prior: tuple[float, float] = (1.0, 0.1)
    """Shape and rate of the Gamma prior on the noise precision, where it is sampled."""
    hidden: tuple[int, ...] = (50,)
    comparators: Comparators | None = None
    on: Literal["test", "validation"] = "test"
    splits: Literal["standard", "paper"] = "standard"

    def likelihood(self, noise: Noise) -> Gaussian | GaussianSampledNoise | GaussianInputNoise:
        if noise == "known":
            assert self.noise_precision is not None
            return Gaussian(self.noise_precision)
        if noise == "sampled":
            return GaussianSampledNoise(shape=self.noise_prior[0], rate=self.noise_prior[1])
        return GaussianInputNoise()

    def head(self, noise: Noise) -> MixtureHead | GaussianHead:
        """The student's. Where the noise depends on the input, draws disagree on it as well: their mixture has long
        tails, which one Gaussian cannot follow and two can."""
        return MixtureHead(components=2, quadrature=8) if noise == "input" else GaussianHead()

    def sgd_rate(self, updates: int) -> optax.Schedule:
        """The paper's: multiplied by 0.8 every 5,000 steps."""
        return stepped(self.learning_rate, factor=0.8, every=5_000)


class Split(NamedTuple):
    """One split of a table, standardised."""

    train: Data
    test: Data
    center: float
    scale: float
    """What was subtracted from the target, and what it was divided by."""


def split_table(table: Table, preset: Preset, trials: int, seed: int) -> list[Split]:
    """The splits to run on; for validation, each training part is split once more and its test part never seen."""
    rows = len(table.y)
    if preset.splits == "standard":
        splits = standard_splits(rows, trials)
    else:
        splits = random_splits(rows, PAPER_TEST_ROWS, trials, seed)
    if preset.on == "validation":
        inner = random_splits(len(splits[0][0]), len(splits[0][1]), trials, seed)
        splits = [(train[new], train[held]) for (train, _), (new, held) in zip(splits, inner, strict=True)]
    return [_standardised(table, train, test) for train, test in splits]


def _standardised(table: Table, train: np.ndarray, test: np.ndarray) -> Split:
    x, y = table.x, table.y[:, None]
    spread = x[train].std(axis=0)
    x = (x - x[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    center, scale = y[train].mean(), y[train].std()
    y = (y - center) / scale
    return Split(as_data(x[train], y[train]), as_data(x[test], y[test]), float(center), float(scale))


class Experiment:
    """Every method on all splits of one table, in one folder of a run."""

    def __init__(self, run: Run, folder: str, preset: Preset, splits: list[Split], key: Key):
        """Put together what the methods share."""
        self.run, self.folder, self.preset, self.splits, self.key = run, folder, preset, splits, key
        self.stacked: Data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[split.train for split in splits])

    def posterior(self, noise: Noise) -> Posterior:
        """What is believed of the network's weights, given targets with that kind of noise."""
        likelihood = self.preset.likelihood(noise)
        return Posterior(
            mlp(self.preset.hidden, likelihood.width),
            likelihood,
            GaussianPrior(self.preset.prior_precision),
            num_data=len(self.splits[0].train.x),
        )

    def distilled(self, noise: Noise) -> dict[str, dict[str, np.ndarray]]:
        """The scores of the teacher and of each student; they share the teacher's randomness."""
        scores = {}
        kind = " input noise" if noise == "input" else ""
        for hidden in self.preset.students:
            widths = self.stacked.x.shape[-1], *hidden, self.preset.head(noise).width
            name = f"student{kind} " + "-".join(map(str, widths))
            arrays = self.run.once(self._path(name), partial(self._distil, name, noise, hidden))
            scores.setdefault("sgld" + kind, _part(arrays, "sgld"))
            scores[name] = _part(arrays, "student")
        return scores

    def _distil(self, name: str, noise: Noise, hidden: tuple[int, ...]) -> dict[str, Any]:
        preset, posterior = self.preset, self.posterior(noise)
        batch_size = min(preset.batch_size, posterior.num_data)
        sampler = self._sampler(posterior, batch_size)
        teachers = [
            minibatch_chain(
                posterior, sampler, *split.train, batch_size=batch_size, burn_in=preset.burn_in, thin=preset.thin
            )
            for split in self.splits
        ]
        # A key for each kind of noise, whichever the student, so that all have the same teacher.
        key = self._key(f"sgld {type(posterior.likelihood).__name__}")
        if preset.step_size == "auto":
            teachers, preset = tuned(self.run, self._path(name), teachers, key, preset)
        student, queries = (
            preset.student(hidden, preset.head(noise)),
            _mixed([jitter(scale) for scale in preset.jitter]),
        )
        runs = [distillation(teacher, student, queries, preset.settings) for teacher in teachers]
        parts = side_by_side(runs)
        state = self.run.distil(self._path(name), parts, key, preset.steps)
        weights, reservoir = parts.best(state), state.reservoir
        assert reservoir is not None
        return _scores(
            {
                "student": lambda k, x: predict_student(student, at(k, weights), x),
                # The draws that the reservoirs hold are a fair sample of all.
                "sgld": lambda k, x: predict_draws(posterior, at(k, reservoir.slots), x),
            },
            self.splits,
        )

    def _sampler(self, posterior: Posterior, batch_size: int) -> optax.GradientTransformationExtraArgs | AutoStep:
        preset = self.preset
        if preset.step_size == "auto":
            return default_sampler(posterior, batch_size)
        if preset.sampler == "stepped":
            return sgld(stepped(preset.step_size, factor=0.5, every=80_000))
        share = batch_size / posterior.num_data
        return fisher_sgld(preset.step_size, prior_precision=preset.prior_precision, batch_share=share)

    def fitted(self, name: str, method: Any, number: int) -> dict[str, np.ndarray]:
        """The scores of a comparator, fitted on all splits at once; it predicts with `number` draws."""
        return _part(self.run.once(self._path(name), partial(self._fit, name, method, number)), name)

    def _fit(self, name: str, method: Any, number: int) -> dict[str, Any]:
        fitted, keys = fit_trials(method, self._key(name), len(self.splits), self.stacked, axis=0)

        def predict(k: int, x: Array) -> Prediction:
            if isinstance(method, PBP):
                return predict_student(method, at(k, fitted), x)
            return predict_draws(method.posterior, method.draws(keys[k], at(k, fitted), number), x)

        return _scores({name: predict}, self.splits)

    def hmc(self, settings: Comparators) -> dict[str, np.ndarray]:
        """The scores of NUTS on the full posterior, split after split."""
        posterior = self.posterior("sampled")
        by_split = [
            _part(self.run.once(self._path(f"hmc/split-{k}"), partial(self._nuts, settings, posterior, k)), "hmc")
            for k in range(len(self.splits))
        ]
        scores = {metric: np.concatenate([arrays[metric] for arrays in by_split]) for metric in METRICS}
        return scores | {name: by_split[0][name] for name in ("mean", "std")}

    def _nuts(self, settings: Comparators, posterior: Posterior, k: int) -> dict[str, Any]:
        split, label = self.splits[k], None if self.run.quiet else f"hmc, split {k}"
        chain = nuts_chain(posterior, *split.train, burn_in=settings.hmc_warmup, max_tree_depth=settings.hmc_depth)
        key = jax.random.fold_in(self._key("hmc"), k)
        draws = sample(chain, key, num_chains=settings.hmc_chains, num_draws=settings.hmc_draws, label=label)
        return _scores({"hmc": lambda _, x: predict_draws(posterior, draws, x)}, [split])

    def _key(self, name: str) -> Key:
        """A key for each method, whichever others are run."""
        return jax.random.fold_in(self.key, zlib.crc32(name.encode()))

    def comparators(self, settings: Comparators) -> dict[str, dict[str, np.ndarray]]:
        """The scores of all the other methods."""
        settings = dataclasses.replace(settings, batch_size=min(settings.batch_size, len(self.splits[0].train.x)))
        sampled, varying = self.posterior("sampled"), self.posterior("input")
        dropout = trained(Dropout, sampled, settings, settings.dropout_steps, rate=settings.dropout_rate)
        methods = {
            "sgd": (trained(SGD, sampled, settings, settings.sgd_steps), 1),
            "pbp": (PBP(self.preset.hidden, settings.pbp_passes), 0),
            "vi": (trained(VariationalInference, sampled, settings, settings.vi_steps), DRAWS),
            "dropout mc": (dropout, DRAWS),
            "ensemble": (Ensemble(trained(SGD, varying, settings, settings.ensemble_steps), settings.ensemble_size), 1),
        }
        scores = {name: self.fitted(name, method, number) for name, (method, number) in methods.items()}
        return scores | {"hmc": self.hmc(settings)}

    def _path(self, name: str) -> str:
        return "/".join(filter(None, (self.folder, name.replace(" ", "-"))))


def _mixed(queries: list[Queries]) -> Queries:
    """Each generator for an equal share of the queries."""
    first, *rest = queries
    return mix(first, _mixed(rest), 1 / len(queries)) if rest else first


def _part(arrays: dict[str, np.ndarray], method: str) -> dict[str, np.ndarray]:
    """The arrays of one method among those of several."""
    return {name.removeprefix(f"{method}."): value for name, value in arrays.items() if name.startswith(f"{method}.")}


def _scores(methods: dict[str, Callable[[int, Array], Any]], splits: list[Split]) -> dict[str, Any]:
    """Each metric of each method on every split, in the target's unit, and what it predicts on the first."""
    arrays: dict[str, Any] = {}
    for name, predict in methods.items():
        scores = []
        for k, split in enumerate(splits):
            predictive, y = predict(k, split.test.x), split.test.y
            scores.append(
                (
                    metrics.log_likelihood(predictive, y) - np.log(split.scale),
                    metrics.rmse(predictive, y) * split.scale,
                    metrics.crps(predictive, y) * split.scale,
                    metrics.coverage(predictive, y, 0.9),
                )
            )
            if k == 0:
                arrays[f"{name}.mean"] = predictive.mean[:, 0] * split.scale + split.center
                arrays[f"{name}.std"] = predictive.std[:, 0] * split.scale
        arrays |= {f"{name}.{metric}": values for metric, values in zip(METRICS, np.transpose(scores), strict=True)}
    return arrays
