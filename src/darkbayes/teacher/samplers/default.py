"""The sampler to begin with."""

import equinox as eqx

from darkbayes.model import Posterior
from darkbayes.teacher.samplers.auto import AutoStep
from darkbayes.teacher.samplers.fisher import fisher_sgld

FRICTION = 0.1


def default_sampler(posterior: Posterior, batch_size: int | None) -> AutoStep:
    """The sampler to begin with: `fisher_sgld` with momentum, which waits for its step size.

    Args:
        posterior: what it will explore.
        batch_size: examples of a step; None for all of them.

    Returns:
        The sampler.

    >>> import darkbayes as db
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> default_sampler(posterior, batch_size=None).tuned
    False
    """
    share = None if batch_size is None else batch_size / posterior.num_data
    if not eqx.is_array(share):
        share = None if share is None else min(1.0, share)
    precision = getattr(posterior.prior, "precision", 1.0)
    return fisher_sgld("auto", prior_precision=precision, batch_share=share, friction=FRICTION)
