"""Stored draws, for posteriors small enough to keep them; a student needs none of this."""

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import require_count
from darkbayes.teacher.parallel import Chains, burn, in_chunks, raise_on_failure, start_chains, step_chains
from darkbayes.types import Array, Chain, Key, PyTree


def sample(chain: Chain, key: Key, *, num_chains: int, num_draws: int) -> PyTree:
    """Run the chains through their burn-in, then keep every `chain.thin`-th draw.

    Returns:
        The draws, with leading axes ``[num_chains, num_draws]``.

    >>> import darkbayes as db
    >>> data = db.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.Softmax(2), db.GaussianPrior(1.0), num_data=20)
    >>> chain = db.minibatch_chain(posterior, db.sgld(1e-3), data.x, data.y, batch_size=None, burn_in=10, thin=5)
    >>> draws = sample(chain, jax.random.key(1), num_chains=2, num_draws=3)
    >>> draws.network[0].weight.shape
    (2, 3, 10, 2)
    """
    require_count("num_draws", num_draws)
    chains = start_chains(chain, key, num_chains)
    for chains, _ in in_chunks(lambda state, n: burn(chain, state, n), chains, chain.burn_in):
        raise_on_failure(chain, chains)
    kept = jax.tree.map(lambda leaf: jnp.zeros((leaf.shape[0], num_draws, *leaf.shape[1:]), leaf.dtype), chains.draws)
    state = (chains, kept, jnp.zeros((), jnp.int32))
    for state, _ in in_chunks(lambda state, n: _collect(chain, state, n), state, num_draws):
        raise_on_failure(chain, state[0])
    return state[1]


@eqx.filter_jit(donate="all-except-first")
def _collect(chain: Chain, state: tuple[Chains, PyTree, Array], draws: Array) -> tuple[Chains, PyTree, Array]:
    def one(_: Array, state: tuple[Chains, PyTree, Array]) -> tuple[Chains, PyTree, Array]:
        chains, kept, number = state
        chains = jax.lax.fori_loop(0, chain.thin, lambda _, now: step_chains(chain, now), chains)
        kept = jax.tree.map(lambda all_, now: all_.at[:, number].set(now), kept, chains.draws)
        return chains, kept, number + 1

    return jax.lax.fori_loop(0, draws, one, state)
