"""Which network is sampled: few candidates are tried on a part of the training rows that is kept aside.

Each candidate is what a fit would sample, in short: networks are optimised, chains begin where they end, and the draws
of all chains together predict the rows kept aside. The best log likelihood wins, or a simpler candidate that is as good
within its error. A likelihood of which the others are special cases is taken unless one of these is clearly better: it
gains more than they do from the longer chains of a fit. A candidate that diverges is out.
"""

import dataclasses
import itertools
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from darkbayes.compiled import compiled_soon
from darkbayes.errors import Divergence
from darkbayes.estimates import standard_error
from darkbayes.fit import sharing
from darkbayes.fit.kinds import describe_network, make_network
from darkbayes.model import Posterior
from darkbayes.model.layers import ACTIVATIONS
from darkbayes.model.priors import ScaledGaussianPrior
from darkbayes.outcomes import Target
from darkbayes.outcomes.heads.base import Predicted
from darkbayes.predict import said_together
from darkbayes.progress import LOGGER
from darkbayes.teacher.chain import Chains, collect, nothing_kept, raise_on_failure, start_chains
from darkbayes.teacher.microcanonical import MicrocanonicalChain
from darkbayes.types import Array, Data, Key, WeightedData

NETWORKS: tuple[tuple[int, ...], ...] = ((50,), (16, 16, 16), (16, 16, 16, 16), (32, 32, 32, 32))
"""Widths of hidden layers to try, the simplest first."""
ACTIVATION = "silu"
"""Smooth ones leave the posterior of deep networks smoother than ReLU does, and their chains move further."""
LEAST_ROWS, MOST_ROWS = 200, 2_500
"""Rows without which no choice is made, and those that are looked at where there are more."""
ASIDE = 0.2
"""The share of them that is kept aside."""
CHAINS, STEPS, DRAWS, START_STEPS = 8, 2_400, 24, 3_000
"""Chains, steps and kept draws of each, and steps of the optimisation before. Fewer chains understate what noise that
depends on the inputs is worth, which gains most from an average (`results/network-tuning.json`)."""
MOST_BELOW = 10.0
"""Nats below the median row that a row may count for: short chains leave a few rows far off that longer ones mend."""
EQUAL, GENERAL = 0.5, 1.0
"""Standard errors that a simpler candidate may be behind and still win, and that the general likelihood may: at full
length it was .015 nats behind at most, and up to 1 ahead (`results/network-tuning.json`)."""


class Model(NamedTuple):
    """A network that may be sampled, and what it says of the target."""

    hidden: tuple[int, ...]
    activation: str
    likelihood: str
    prior: float
    """The precision of the prior on biases; on weights it is so many times as large as a unit has inputs."""
    network: str = "mlp"
    """What kind of network it is (`KINDS`)."""

    def __str__(self) -> str:
        layers = describe_network(self.network, self.hidden)
        return f"{layers} ({self.activation}), {self.likelihood}, prior precision {self.prior:g}"


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The model, and how it was chosen."""

    model: Model
    reason: str
    tried: tuple[dict[str, Any], ...] = ()
    """Each candidate with its log likelihood on the rows kept aside and the standard error of its distance to the best;
    None for one that diverged."""


def make_posterior(data: Data, target: Target, model: Model) -> Posterior:
    """What is believed of the weights of a model."""
    likelihood = target.likelihood(model.likelihood)
    network = make_network(model.network, model.hidden, likelihood.width, ACTIVATIONS[model.activation])
    return Posterior(network, likelihood, ScaledGaussianPrior(model.prior), num_data=len(data.x))


def cells(data: Data, target: Target, model: Model) -> int:
    """The work of a step on all rows: rows times weights."""
    posterior = make_posterior(data, target, model)
    draw = jax.eval_shape(posterior.init, jax.random.key(0), data.x[:1])
    if model.network in ("cnn", "resnet"):
        # There a weight is multiplied at many places.
        each: Any = jax.jit(posterior.network.apply).lower(draw.network, data.x[:1]).cost_analysis()
        return len(data.x) * round(each["flops"] / 2)
    return len(data.x) * sum(leaf.size for leaf in jax.tree.leaves(draw))


def candidates(
    target: Target,
    hidden: tuple[int, ...] | None = None,
    activation: str | None = None,
    likelihood: str | None = None,
    prior: float | None = None,
    network: str = "mlp",
) -> list[Model]:
    """What may be sampled where some of it is given, the simplest first; one prior for a network that was named."""
    several = ((), *NETWORKS[:2]) if network == "head" else NETWORKS
    networks = several if hidden is None else (tuple(hidden),)
    kinds = target.likelihoods if likelihood is None else (likelihood,)
    priors = target.prior_precisions[: None if hidden is None else 1] if prior is None else (prior,)
    every = itertools.product(networks, kinds, priors)
    return [Model(widths, activation or ACTIVATION, kind, precision, network) for widths, kind, precision in every]


def choose_model(
    data: Data,
    target: Target,
    models: list[Model],
    key: Key,
    most_steps: int | None = None,
    deadline: float | None = None,
) -> Chosen:
    """The candidate, of which the simplest come first, that predicts best; with a record of all.

    Each chain takes `most_steps` at most, and no further candidate is tried after the `deadline`, a moment of
    ``time.time()``, where they are given.
    """
    if len(models) == 1:
        return Chosen(models[0], "as asked for")
    if len(data.x) < LEAST_ROWS:
        reason = f"the simplest, as {len(data.x)} rows are too few to choose by ({LEAST_ROWS} are needed)"
        return Chosen(models[0], reason)
    split_key, try_key = sharing.split(key, 2)
    order = sharing.permutation(split_key, len(data.x))[:MOST_ROWS]
    cut = int(ASIDE * len(order))
    aside, rest = (sharing.some_rows(data, rows) for rows in (order[:cut], order[cut:]))
    steps = min(most_steps or STEPS, STEPS)
    LOGGER.info("choosing among %d networks by short chains, on %d rows set aside", len(models), cut)
    scores: dict[Model, np.ndarray | None] = {}
    passed_over: list[Model] = []

    def best_of(some: list[Model]) -> Model:
        for model in some:
            if model not in scores and scores and late():
                passed_over.append(model)
            elif model not in scores:
                scores[model] = _tried(rest, aside, target, model, try_key, steps)
        best = max(some, key=lambda model: -np.inf if (score := scores.get(model)) is None else score.mean())
        general = [model for model in some if model.likelihood == target.general != best.likelihood]
        return general[0] if general and is_near(general[0], best, GENERAL) else best

    def late() -> bool:
        return deadline is not None and time.time() > deadline

    def is_near(model: Model, best: Model, errors: float) -> bool:
        """Whether it is that few standard errors behind the best."""
        score, top = scores.get(model), scores[best]
        if score is None or top is None:
            return False
        gap = top - score
        return bool(gap.mean() <= errors * (standard_error(gap) or 0.0))

    # One thing after another, of the middle network at first: a third of all combinations.
    best = models[0]._replace(hidden=models[len(models) // 2].hidden)
    for name in ("likelihood", "hidden", "prior"):
        best = best_of([model for model in models if model == best._replace(**{name: getattr(model, name)})])
    top = scores[best]
    if top is None:
        raise Divergence("no network could be sampled: standardise the inputs, or look for values that are far off")
    errors = {model: None if score is None else standard_error(top - score) for model, score in scores.items()}
    equal = [model for model in models if model.likelihood == best.likelihood and is_near(model, best, EQUAL)]
    tried = tuple(
        model._asdict() | {"log_likelihood": None if score is None else float(score.mean()), "gap_se": errors[model]}
        for model, score in scores.items()
    )
    reason = f"the best of {len(tried)} on {cut:,} training rows set aside"
    if equal[0] != best:
        reason = (
            f"the simplest of {len(tried)} within half a standard error of the best on {cut:,} training rows set aside"
        )
    plainer = {model.likelihood: score for model, score in scores.items() if score is not None}
    plainer = [kind for kind, score in plainer.items() if kind != best.likelihood and score.mean() >= top.mean()]
    more = [f"; {best.likelihood}, as {kind} is not clearly better" for kind in plainer]
    more += [f"; diverged: {model}" for model, score in scores.items() if score is None]
    more += ["; there was no time to try more"] * bool(passed_over)
    return Chosen(equal[0], reason + "".join(more), tried)


def _tried(rest: Data, aside: Data, target: Target, model: Model, key: Key, steps: int) -> np.ndarray | None:
    """The weighted log likelihood of each row kept aside; None if the chains diverge, or predict nothing finite."""
    start_key, chain_key = sharing.split(key, 2)
    posterior = make_posterior(rest, target, model)
    half = max(steps // 2, 1)
    try:
        start = sharing.optimised(posterior, rest, start_key, CHAINS, min(START_STEPS, steps))
        chain = sharing.whole_chain(posterior, rest, start, burn_in=half, thin=max(half // DRAWS, 1))
        scores = _predicted(chain, chain_key, aside.x).log_prob(np.asarray(aside.y))
    except Divergence:
        return None
    scores = np.where(np.isnan(scores), -np.inf, scores)
    middle = np.median(scores)
    if not np.isfinite(middle):
        return None
    weights = np.asarray(aside.weights / aside.weights.mean()) if isinstance(aside, WeightedData) else 1.0
    return weights * np.maximum(scores, middle - MOST_BELOW)


def _predicted(chain: MicrocanonicalChain, key: Key, x: Any) -> Any:
    """What the draws of a few chains predict together."""
    chains, said = _sampled(chain, key, sharing.fill_rows(x))
    raise_on_failure(chain, chains)
    return jax.device_get(said).prediction()[: len(x)]


@compiled_soon
def _sampled(chain: Any, key: Key, x: Array) -> tuple[Chains, Predicted]:
    """Chains at their ends, and what their draws predict: all in one program, since each candidate needs its own."""
    chains = start_chains(chain, key, CHAINS)
    chains, draws = collect(chain, (chains, nothing_kept(chains, DRAWS)), chain.burn_in + chain.thin * DRAWS)
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws)
    return chains, said_together(chain.posterior, flat, x)
