"""Stored draws, for posteriors small enough to keep them; a student needs none of this."""

import equinox as eqx
import jax
import jax.numpy as jnp

from darkbayes.errors import require_count
from darkbayes.progress import progress_bar
from darkbayes.teacher.chain import Chains, in_chunks, raise_on_failure, start_chains, step_chains
from darkbayes.types import Array, Chain, Key, PyTree


def sample(chain: Chain, key: Key, *, num_chains: int, num_draws: int, label: str | None = None) -> PyTree:
    """Run the chains through their burn-in, then keep every `chain.thin`-th draw.

    Args:
        chain: what to sample with.
        key: where the randomness comes from.
        num_chains: how many chains to run side by side.
        num_draws: how many draws of each to keep.
        label: what to call the progress bar; None for no bar.

    Returns:
        The draws, with leading axes ``[num_chains, num_draws]``.

    >>> import darkbayes as db
    >>> data = db.data.toy2d(jax.random.key(0))
    >>> posterior = db.Posterior(db.mlp([10], 2), db.outcomes.Softmax(2), db.priors.GaussianPrior(1.0), num_data=20)
    >>> chain = db.minibatch_chain(posterior, db.sgld(1e-3), data.x, data.y, batch_size=None, burn_in=10, thin=5)
    >>> draws = sample(chain, jax.random.key(1), num_chains=2, num_draws=3)
    >>> draws.network[0].weight.shape
    (2, 3, 10, 2)
    """
    num_draws, num_chains = require_count("num_draws", num_draws), require_count("num_chains", num_chains)
    chains = start_chains(chain, key, num_chains)
    kept = jax.tree.map(lambda leaf: jnp.zeros((leaf.shape[0], num_draws, *leaf.shape[1:]), leaf.dtype), chains.draws)
    steps = int(chain.burn_in) + int(chain.thin) * num_draws
    state = chains, kept
    with progress_bar(label or "", steps, quiet=label is None) as show:
        for state, done in in_chunks(lambda state, n: _collect(chain, state, n), state, steps):
            raise_on_failure(chain, state[0])
            show(done)
    return state[1]


@eqx.filter_jit(donate="all-except-first")
def _collect(chain: Chain, state: tuple[Chains, PyTree], steps: Array) -> tuple[Chains, PyTree]:
    def one(_: Array, state: tuple[Chains, PyTree]) -> tuple[Chains, PyTree]:
        chains, kept = step_chains(chain, state[0]), state[1]
        # One loop for burn-in and sampling, as compiling NUTS twice takes longer than most runs of it: each step's draw
        # is put where the next kept one belongs, and the last to come there stays; during burn-in, nowhere.
        place = (chains.step - chain.burn_in - 1) // chain.thin
        outside = len(jax.tree.leaves(kept)[0][0])
        place = jnp.where(chains.step > chain.burn_in, place, outside)
        return chains, jax.tree.map(lambda all_, now: all_.at[:, place].set(now, mode="drop"), kept, chains.draws)

    return jax.lax.fori_loop(0, steps, one, state)
