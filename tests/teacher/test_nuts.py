"""NUTS is the truth that other teachers are measured by, and a teacher itself.

No strict promotion here: NumPyro does not survive it.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import darkbayes as db


def test_nuts_has_the_posterior_of_a_conjugate_model(conjugate: Any, z_scores: Any) -> None:
    """Mean and covariance, five entries at |z| < 4.6; fails by chance with probability 2e-5 for another seed."""
    chain = db.teacher.nuts_chain(conjugate.posterior, *conjugate.data, burn_in=150)
    draws = db.sample(chain, jax.random.key(0), num_chains=100, num_draws=100).network[..., 0]
    assert np.abs(z_scores(draws.mean(axis=1), conjugate.mean)).max() < 4.6
    centred = np.asarray(draws, np.float64) - conjugate.mean
    outer = np.einsum("cti,ctj->cij", centred, centred) / draws.shape[1]
    assert np.abs(z_scores(outer, conjugate.covariance)[np.triu_indices(2)]).max() < 4.6


def test_nuts_freezes_its_step_size_after_the_burn_in(conjugate: Any) -> None:
    chain = db.teacher.nuts_chain(conjugate.posterior, *conjugate.data, burn_in=5)
    state, step = chain.init(jax.random.key(0)), eqx.filter_jit(chain.step)
    sizes = []
    for t in range(10):
        state, _ = step(jax.random.key(t), state)
        sizes.append(float(state.kernel.adapt_state.step_size))
    assert len(set(sizes[:5])) > 1
    assert len(set(sizes[5:])) == 1


def test_a_student_learns_from_nuts(classes: db.Data, logistic: db.Network) -> None:
    posterior = db.Posterior(logistic, db.outcomes.Softmax(2), db.priors.GaussianPrior(), num_data=20)
    done = db.distil(
        db.teacher.nuts_chain(posterior, *classes, burn_in=50),
        db.Student(db.mlp([8], 2, jnp.tanh), db.outcomes.SoftmaxHead(2), optax.adam(3e-2)),
        db.queries.uniform_box(-5.0, 5.0),
        jax.random.key(1),
        steps=450,
        monitor=classes.x,
        quiet=True,
    )
    assert int(done.average.count) == 400
    teacher, student = db.predict_average(done.average), db.predict_student(done.student, done.params, classes.x)
    assert db.metrics.kl(teacher, student) < 0.02
    untrained = done.student.init(jax.random.key(0), classes.x)
    assert db.metrics.kl(teacher, db.predict_student(done.student, untrained, classes.x)) > 0.1


def test_the_predictive_of_sgld_tends_to_that_of_nuts_as_the_step_size_falls(logistic: db.Network) -> None:
    """One posterior object for both; the bias is of first order in the step size, so the KL is of second."""
    data = db.data.toy2d(jax.random.key(2), per_class=5)
    posterior = db.Posterior(logistic, db.outcomes.Softmax(2), db.priors.GaussianPrior(0.5), num_data=10)
    grid = jnp.stack(jnp.meshgrid(jnp.linspace(-6, 6, 7), jnp.linspace(-6, 6, 7)), axis=-1).reshape(-1, 2)

    def predictive(chain: db.types.Chain, num_chains: int, num_draws: int) -> db.outcomes.Prediction:
        draws = db.sample(chain, jax.random.key(0), num_chains=num_chains, num_draws=num_draws)
        return db.predict_draws(posterior, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws), grid)

    truth = predictive(db.teacher.nuts_chain(posterior, *data, burn_in=150), 100, 200)
    divergences = []
    for step_size in (0.5, 0.1):
        chain = db.minibatch_chain(
            posterior, db.sgld(step_size), *data, batch_size=None, burn_in=int(40 / step_size), thin=int(2 / step_size)
        )
        divergences.append(db.metrics.kl(truth, predictive(chain, 200, 200)))
    assert divergences[0] > 10 * divergences[1]
    assert divergences[1] < 2e-4


@pytest.mark.parametrize(("name", "value"), [("burn_in", 0), ("thin", 0)])
def test_nuts_refuses_counts_below_one(name: str, value: int, conjugate: Any) -> None:
    with pytest.raises(db.InvalidInput, match=f"{name} must be a whole number of at least 1, not 0"):
        db.teacher.nuts_chain(conjugate.posterior, *conjugate.data, **{name: value})


@pytest.mark.parametrize(("name", "value"), [("target_accept", 1.5), ("max_tree_depth", 0)])
def test_nuts_refuses_settings_that_make_no_sense(name: str, value: float, conjugate: Any) -> None:
    with pytest.raises(db.InvalidInput, match=name):
        db.teacher.nuts_chain(conjugate.posterior, *conjugate.data, **{name: value})
