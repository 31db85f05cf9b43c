"""Which network is sampled: few candidates are tried on a part of the training rows that is kept aside.

Each candidate is what a fit would sample, in short: networks are optimised, chains begin where they end, and the draws
of all chains together predict the rows kept aside. The best log likelihood wins, or a simpler candidate that is as good
within its error. A candidate that diverges is out.
"""

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import numpy as np

from darkbayes.errors import Divergence
from darkbayes.estimates import standard_error
from darkbayes.fit import sharing
from darkbayes.model import GaussianPrior, Posterior, mlp
from darkbayes.model.layers import ACTIVATIONS
from darkbayes.outcomes import Target
from darkbayes.predict import predict_draws
from darkbayes.teacher import sample
from darkbayes.types import Data, Key

NETWORKS: tuple[tuple[int, ...], ...] = ((50,), (16, 16, 16))
"""Widths of hidden layers to try, the simplest first."""
ACTIVATION = "silu"
"""Smooth ones leave the posterior of deep networks smoother than ReLU does, and their chains move further."""
LEAST_ROWS, MOST_ROWS = 200, 2_500
"""Rows without which no choice is made, and those that are looked at where there are more."""
ASIDE = 0.2
"""The share of them that is kept aside."""
CHAINS, STEPS, DRAWS, START_STEPS = 4, 1_800, 24, 1_500
"""Chains, steps and kept draws of each, and steps of the optimisation before."""
EQUAL = 0.5
"""Standard errors that a simpler candidate may be behind and still win."""


class Model(NamedTuple):
    """A network that may be sampled, and what it says of the target."""

    hidden: tuple[int, ...]
    activation: str
    likelihood: str

    def __str__(self) -> str:
        layers = "no hidden layer" if not self.hidden else "hidden layers of " + ", ".join(map(str, self.hidden))
        layers = layers.replace("layers", "layer") if len(self.hidden) == 1 else layers
        return f"{layers} ({self.activation}), {self.likelihood}"


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
    network = mlp(model.hidden, likelihood.width, ACTIVATIONS[model.activation])
    return Posterior(network, likelihood, GaussianPrior(target.prior_precision), num_data=len(data.x))


def candidates(
    target: Target, hidden: tuple[int, ...] | None, activation: str | None, likelihood: str | None
) -> list[Model]:
    """What may be sampled where some of it is given, the simplest first."""
    networks = NETWORKS if hidden is None else (tuple(hidden),)
    kinds = target.likelihoods if likelihood is None else (likelihood,)
    return [Model(widths, activation or ACTIVATION, kind) for widths, kind in itertools.product(networks, kinds)]


def choose_model(data: Data, target: Target, models: list[Model], key: Key, most_steps: int | None = None) -> Chosen:
    """The candidate that predicts best.

    Args:
        data: all that a fit may learn from, encoded.
        target: what is predicted.
        models: the candidates, the simplest first.
        key: where the randomness comes from.
        most_steps: of each chain, if there is a limit.

    Returns:
        The choice, with a record of all.
    """
    if len(models) == 1:
        return Chosen(models[0], "as asked for" if models[0].hidden else "the only one")
    if len(data.x) < LEAST_ROWS:
        reason = f"the simplest, as {len(data.x)} rows are too few to choose by ({LEAST_ROWS} are needed)"
        return Chosen(models[0], reason)
    split_key, try_key = jax.random.split(key)
    order = np.asarray(jax.random.permutation(split_key, len(data.x)))[:MOST_ROWS]
    cut = int(ASIDE * len(order))
    aside, rest = (Data(np.asarray(data.x)[rows], np.asarray(data.y)[rows]) for rows in (order[:cut], order[cut:]))  # pyright: ignore[reportArgumentType]
    scores = [_tried(rest, aside, target, model, try_key, min(most_steps or STEPS, STEPS)) for model in models]
    means = np.asarray([-np.inf if score is None else score.mean() for score in scores])
    best = int(means.argmax())
    if scores[best] is None:
        raise Divergence("no network could be sampled: standardise the inputs, or look for values that are far off")
    gaps = [None if score is None else scores[best] - score for score in scores]
    errors = [None if gap is None else (standard_error(gap) or 0.0) for gap in gaps]
    equal = [gap is not None and gap.mean() <= EQUAL * (error or 0.0) for gap, error in zip(gaps, errors, strict=True)]
    winner = equal.index(True)
    tried = tuple(
        model._asdict() | {"log_likelihood": None if score is None else float(score.mean()), "gap_se": error}
        for model, score, error in zip(models, scores, errors, strict=True)
    )
    lost = [str(model) for model, score in zip(models, scores, strict=True) if score is None]
    reason = f"the best of {len(models)} on {cut:,} training rows set aside" + (
        "" if winner == best else ", within its error, and the simplest of those"
    )
    return Chosen(models[winner], reason + "".join(f"; diverged: {name}" for name in lost), tried)


def _tried(rest: Data, aside: Data, target: Target, model: Model, key: Key, steps: int) -> np.ndarray | None:
    """The log likelihood of each row kept aside; None if the chains diverge."""
    start_key, chain_key = jax.random.split(key)
    posterior = make_posterior(rest, target, model)
    try:
        start = sharing.optimised(posterior, rest, start_key, CHAINS, min(START_STEPS, steps))
        half = max(steps // 2, 1)
        chain = sharing.whole_chain(posterior, rest, start, burn_in=half, thin=max(half // DRAWS, 1))
        draws = sample(chain, chain_key, num_chains=CHAINS, num_draws=DRAWS)
    except Divergence:
        return None
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws)
    scores = predict_draws(posterior, flat, aside.x).log_prob(np.asarray(aside.y))
    return np.where(np.isfinite(scores), scores, -1e3)
