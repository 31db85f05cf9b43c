"""Which sampler to use: how far each is from the truth after so many gradients, and what its step size costs.

    darkbayes bench samplers --out results/samplers.json --figure docs/samplers.png

Every sampler runs on two posteriors, with a step size that it finds itself (``"auto"``) and with the best of three
multiples of that, chosen on a draw of the data (or a split) that is not reported on. The truth is NUTS. A curve point
at t gradients in all chains together averages the predictions of the second half of them, so that nothing has to be
said about burn-in; tuning is counted. Microcanonical chains take all examples in each of their gradients, which count
for as many minibatches as these are; what they find themselves is counted too, and the multiples are of the error they
may make.

Beside gradients there is time: how long one takes on this machine, all chains and settings side by side, compiling left
out.

An exact law adds how much some inflate the variance of a Gaussian, by stiffness.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import toy
from benchmarks.common import say, with_bar
from darkbayes import metrics
from darkbayes.data import as_data, load, standard_splits, toy2d
from darkbayes.model import Posterior, mlp
from darkbayes.model.priors import GaussianPrior
from darkbayes.outcomes import Prediction
from darkbayes.outcomes.heads.number import GaussianSampledNoise
from darkbayes.predict import predict_average, predict_draws
from darkbayes.runs import row
from darkbayes.teacher import (
    adjusted_mclmc_chain,
    gradients,
    mclmc_chain,
    minibatch_chain,
    nuts_chain,
    sample,
    samplers,
    tune_all,
)
from darkbayes.teacher.chain import start_chains, step_chains
from darkbayes.teacher.gradients.base import Gradients
from darkbayes.teacher.keeping import Average, average_add, average_init
from darkbayes.teacher.samplers import AutoStep
from darkbayes.teacher.stacking import Stack, at, stack
from darkbayes.teacher.tuning import with_choices
from darkbayes.types import Array, Chain, Data, Key

MULTIPLES = (0.5, 1.0, 2.0)
"""Of the step size that `tune` finds, from which the best is chosen."""
HALVINGS = 6
"""Points of a curve before its last, each after half as many steps."""
LOOK = 40
"""Gradients of a chain between two looks at the predictions, about."""
ENERGY_ERROR, REJECTED = 5e-4, 0.1
"""What microcanonical chains are asked for: the error of a step, or the share of paths that are not taken."""
PATH = 20
"""Gradients that a path takes, about."""
STIFFNESSES = (0.1, 0.5, 1.0)
"""eta/2 times the curvature: a step of SGLD multiplies the distance from the mode by one minus it."""
FRICTION = 0.1
"""Of all samplers with momentum."""
BARS = {"auto": 0.004, "tuned": 0.002}
"""On toy2d."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A posterior for each draw of the data, with what NUTS predicts at some inputs."""

    name: str
    posterior: Posterior
    data: list[Data]
    """The first is for choosing step sizes."""
    points: list[Array]
    truth: list[Prediction]
    batch_size: int | None
    chains: int
    steps: int

    @property
    def share(self) -> float | None:
        return None if self.batch_size is None else self.batch_size / self.posterior.num_data

    @property
    def whole(self) -> float:
        """The minibatches that all examples are."""
        return 1.0 / (self.share or 1.0)


class Contender(NamedTuple):
    """A sampler that waits for its step size."""

    sampler: AutoStep
    gradients: Gradients | None = None
    cost: float = 1.0
    """Minibatch gradients a step."""


class Whole(NamedTuple):
    """Chains on all examples, which find their own settings and count their gradients."""

    make: Callable[[Posterior, Data, float, int], Any]
    """From the error that is allowed, and the steps of the burn-in."""
    error: float
    cost: float
    """Gradients a step, about."""


def contenders(problem: Problem) -> dict[str, Contender | Whole]:
    """All the samplers, with settings that are the same on every problem."""
    examples, share = problem.posterior.num_data, problem.share
    by_name: dict[str, Contender | Whole] = {
        "sgld": Contender(samplers.sgld("auto")),
        "psgld": Contender(samplers.psgld("auto", num_data=examples)),
        "psgld with gamma": Contender(
            samplers.psgld("auto", num_data=examples, gamma=True), gradients.with_curvature(), 2.0
        ),
        "sghmc": Contender(samplers.sghmc("auto", friction=FRICTION)),
        "scale-adapted sghmc": Contender(
            samplers.scale_adapted_sghmc(
                "auto", friction=FRICTION, adapt_steps=problem.steps // 10, noisy_gradients=share is not None
            )
        ),
        "sgnht": Contender(samplers.sgnht("auto", friction=FRICTION)),
        "baoa": Contender(samplers.baoa("auto", friction=FRICTION)),
        "sgfs": Contender(samplers.sgfs("auto", prior_precision=1.0), gradients.per_example()),
        "sgfs full": Contender(samplers.sgfs("auto", prior_precision=1.0, full=True), gradients.per_example()),
        "sgrld": Contender(samplers.sgrld("auto", prior_precision=1.0), gradients.fisher_metric(), 2.0),
        "fisher_sgld": Contender(samplers.fisher_sgld("auto", prior_precision=1.0, batch_share=share)),
        "fisher_sgld with momentum": Contender(
            samplers.fisher_sgld("auto", prior_precision=1.0, batch_share=share, friction=FRICTION)
        ),
        "mclmc": Whole(
            lambda posterior, data, error, burn_in: mclmc_chain(posterior, *data, burn_in=burn_in, energy_error=error),
            ENERGY_ERROR,
            2.0,
        ),
        "adjusted mclmc": Whole(
            lambda posterior, data, error, burn_in: adjusted_mclmc_chain(
                posterior, *data, burn_in=burn_in, accept=1.0 - error
            ),
            REJECTED,
            PATH,
        ),
    }
    if share is not None:
        refresh = 50
        # Two gradients a step, and all the data at each refresh.
        by_name["sgld with svrg"] = Contender(
            samplers.sgld("auto"), gradients.svrg(refresh), 2.0 + 1.0 / (share * refresh)
        )
        del by_name["sgfs full"]  # A matrix of 700 x 700, factorised twice a step.
    return by_name


def rows(
    *, seed: int, quiet: bool, scale: float = 1.0, trials: int = 2, only: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Run samplers on both problems; `scale` multiplies the number of steps, and of NUTS draws.

    With `only`, those that are named run, and what is relative to SGLD needs it among them.
    """
    results = []
    for build in (toy_problem, boston_problem):
        problem = build(jax.random.key(seed), trials, scale, quiet)
        for name, contender in contenders(problem).items():
            if only is None or name in only:
                say(f"{problem.name}: {name}", quiet=quiet)
                results += _rows_of(problem, name, contender, jax.random.key(seed + 1))
    return results + _gains(results) + _bias_rows()


def toy_problem(key: Key, trials: int, scale: float, quiet: bool) -> Problem:
    """The paper's 2-10-2 network on 20 points, with all the data a step: a third of a million steps in 16 chains."""
    grid = toy.grid(25)
    data = [toy2d(jax.random.fold_in(key, trial)) for trial in range(1 + trials)]
    truth = [_truth(toy.POSTERIOR, one, grid, key, 4, round(4000 * scale), 10, quiet) for one in data]
    return Problem("toy2d", toy.POSTERIOR, data, [grid] * len(data), truth, None, 16, round(20_480 * scale))


def boston_problem(key: Key, trials: int, scale: float, quiet: bool) -> Problem:
    """Standard splits of Boston housing, 50 hidden units, batches of 64; compared at the test rows."""
    table = load("boston")
    data, points = [], []
    for train, test in standard_splits(len(table.y), 1 + trials):
        x = (table.x - table.x[train].mean(axis=0)) / table.x[train].std(axis=0)
        y = ((table.y - table.y[train].mean()) / table.y[train].std())[:, None]
        data.append(as_data(x[train], y[train]))
        points.append(jnp.asarray(x[test], jnp.float32))
    posterior = Posterior(
        mlp([50], 1), GaussianSampledNoise(shape=1.0, rate=0.1), GaussianPrior(1.0), num_data=len(data[0].x)
    )
    truth = [_truth(posterior, *pair, key, 4, round(200 * scale), 8, quiet) for pair in zip(data, points, strict=True)]
    return Problem("boston", posterior, data, points, truth, 64, 4, round(8_960 * scale))


def _truth(
    posterior: Posterior, data: Data, points: Array, key: Key, chains: int, draws: int, depth: int, quiet: bool
) -> Prediction:
    say("truth by NUTS", quiet=quiet)
    chain = nuts_chain(posterior, *data, burn_in=max(100, min(draws, 1000)), max_tree_depth=depth)
    return predict_draws(posterior, sample(chain, key, num_chains=chains, num_draws=max(50, draws)), points)


class Trial(NamedTuple):
    """Chains of each setting on each draw of the data, the settings along the first of both."""

    runs: list[Any]
    steps: list[int]
    """After which there is a point of the curve."""
    look: int
    """Steps between two looks at the predictions."""
    spent: list[list[float]]
    """Gradients of all chains, beside those that they count themselves, until each of these steps: by itself, tuned."""
    about: list[dict[str, float]]
    """What is told of each setting."""


def _tuned_trial(problem: Problem, contender: Contender, key: Key) -> Trial:
    """Minibatch chains with multiples of the step size that they find."""
    chains = [
        minibatch_chain(
            problem.posterior, contender.sampler, *data, batch_size=problem.batch_size, gradients=contender.gradients
        )
        for data in problem.data
    ]
    tuned, choices = tune_all(chains, key, num_chains=problem.chains, max_burn_in=problem.steps // 5)
    runs = [
        with_choices(chain, dataclasses.replace(chosen, step_size=chosen.step_size * multiple))
        for multiple in MULTIPLES
        for chain, chosen in zip(tuned, choices, strict=True)
    ]
    steps = [problem.steps >> halving for halving in range(HALVINGS, -1, -1)]
    spent = [
        [(step + tuning) * problem.chains * contender.cost for step in steps] for tuning in (choices[0].burn_in, 0)
    ]
    step_size = float(np.mean([chosen.step_size for chosen in choices[1:]]))
    about = [{"step_size": step_size * multiple, "multiple_of_auto": multiple} for multiple in MULTIPLES]
    return Trial(runs, steps, LOOK, spent, about)


def _whole_trial(problem: Problem, contender: Whole) -> Trial:
    """Chains on all examples, as many steps of them as take about as many gradients."""
    points, cost = 1 << HALVINGS, contender.cost * problem.whole
    look = max(1, round(LOOK / cost))
    # At least one look at each half of the shortest.
    last = points * max(round(problem.steps / cost / points), 2 * look)
    errors = [contender.error * multiple for multiple in MULTIPLES]
    runs = []
    for error in errors:
        for data in problem.data:
            chain = contender.make(problem.posterior, data, error, last // 5)
            runs.append(dataclasses.replace(chain, target=jnp.asarray(chain.target, jnp.float32)))
    steps = [last >> halving for halving in range(HALVINGS, -1, -1)]
    about = [{"error": error, "multiple_of_auto": multiple} for error, multiple in zip(errors, MULTIPLES, strict=True)]
    return Trial(runs, steps, look, [[0.0] * len(steps)] * 2, about)


def _rows_of(problem: Problem, name: str, contender: Contender | Whole, key: Key) -> list[dict[str, Any]]:
    """The curves of a sampler, with its own step size and with the best multiple of it."""
    tune_key, run_key = jax.random.split(key)
    whole = isinstance(contender, Whole)
    trial = _whole_trial(problem, contender) if whole else _tuned_trial(problem, contender, tune_key)
    number, tries, steps = len(problem.data), len(MULTIPLES), tuple(trial.steps)
    given = stack("bench samplers", trial.runs), run_key, jnp.stack(problem.points * tries), problem.chains
    compiled = _run.lower(*given, steps, trial.look).compile()  # pyright: ignore[reportFunctionMemberAccess]
    began = time.perf_counter()
    averages, counted = jax.block_until_ready(compiled(*given, steps, trial.look))
    seconds = (time.perf_counter() - began) / len(trial.runs)
    divergence = np.array(
        [
            [metrics.kl(problem.truth[k % number], predict_average(at(k, average))) for k in range(len(trial.runs))]
            for average in averages
        ]
    ).reshape(len(steps), tries, number)
    divergence = np.where(np.isfinite(divergence), divergence, np.inf)
    counted = np.asarray(counted, np.float64).reshape(len(steps), tries, number) * problem.whole
    best = int(np.argmin(divergence[-1, :, 0]))
    results = []
    for spent, (setting, place) in zip(trial.spent, (("auto", MULTIPLES.index(1.0)), ("tuned", best)), strict=True):
        evaluations = np.round(np.asarray(spent) + counted[:, place, 1:].mean(axis=-1)).astype(int)
        reported = divergence[:, place, 1:]
        result = row(name, f"kl_{problem.name}_{setting}", list(reported[-1])) | trial.about[place]
        result["curve"] = [[count, float(kl.mean())] for count, kl in zip(evaluations.tolist(), reported, strict=True)]
        without_tuning = trial.spent[-1][-1] + counted[-1].mean()
        result["us_per_gradient"] = 1e6 * seconds / float(without_tuning)
        results.append(with_bar(result, "at most", BARS[setting]) if problem.name == "toy2d" else result)
    return results


def _gains(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times fewer gradients than SGLD each sampler takes to come as close as SGLD ever does; likewise time."""
    by_name = {(result["method"], result["metric"]): result for result in rows}
    gains = []
    for (name, metric), result in by_name.items():
        if ("sgld", metric) not in by_name or not metric.endswith("_tuned"):
            continue
        sgld, gain = by_name["sgld", metric], metric.replace("kl_", "gain_").removesuffix("_tuned")
        most, target = min(sgld["curve"], key=lambda point: point[1])
        reached = [number for number, divergence in result["curve"] if divergence <= target]
        if reached:
            gains.append(row(name, gain, [most / reached[0]]))
        if reached and "us_per_gradient" in result and "us_per_gradient" in sgld:
            times = most * sgld["us_per_gradient"] / (reached[0] * result["us_per_gradient"])
            gains.append(row(name, f"{gain}_time", [times]))
    return gains


@eqx.filter_jit
def _run(
    runs: Stack[Chain], key: Key, points: Array, num_chains: int, steps: tuple[int, ...], look_every: int
) -> tuple[list[Average], list[Array]]:
    """What each run predicts at its points after each of `steps`, averaged over the second half of them.

    With it go the gradients that its chains have counted by then, all together.
    """

    def one_run(chain: Any, key: Key, x: Array) -> tuple[list[Average], list[Array]]:
        def predictions(chains: Any) -> Any:
            return jax.vmap(lambda draw: chain.posterior.distribution(draw, x))(chains.draws)

        def look(carry: tuple[Any, Average], _: Any) -> tuple[tuple[Any, Average], None]:
            chains = jax.lax.fori_loop(0, look_every, lambda _, now: step_chains(chain, now), carry[0])
            return (chains, average_add(carry[1], predictions(chains))), None

        chains = start_chains(chain, key, num_chains)
        nothing, done, averages, counted = average_init(predictions(chains)), 0, [], []
        # Steps double from point to point: what lies between two is the second half of all up to the later one.
        for until in (steps[0] // 2, *steps):
            looks = (until - done) // look_every
            (chains, average), _ = jax.lax.scan(look, (chains, nothing), length=looks)
            done += looks * look_every
            averages.append(average)
            counted.append(jnp.sum(chains.states.gradients) if counts else jnp.zeros((), jnp.int32))
        return averages[1:], counted[1:]

    counts = hasattr(runs.example, "adjusted")
    return runs.each(one_run, jax.random.split(key, runs.number), points)


def _bias_rows() -> list[dict[str, Any]]:
    """By how much some samplers inflate the variance along a direction of a given stiffness s, exactly.

    On a Gaussian of variance 1 the positions of SGHMC with friction alpha are an autoregression of second order, whose
    variance is 1 / (1 - s / (2 (2 - alpha))); SGLD is that with alpha = 1. BAOA has the variance 1 at every step size.
    """
    pulls = {"sgld": 0.5, "sghmc": 0.5 / (2.0 - FRICTION), "baoa": 0.0}
    return [
        row(name, f"inflation_{stiffness}", [round(100 * (1 / (1 - pull * stiffness) - 1), 6)])
        for name, pull in pulls.items()
        for stiffness in STIFFNESSES
    ]
