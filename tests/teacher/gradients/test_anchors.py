"""Gradients corrected by those at an anchor: the noise is what theory says, and so is what it does to SGLD."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import darkbayes as db
from darkbayes.teacher.chain import burn, start_chains
from teacher.gradients.helpers import estimates, primitives

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def test_there_is_no_noise_at_the_anchor(posterior: db.Posterior, data: db.Data, draws: list[db.model.Draw]) -> None:
    for gradients in (db.teacher.gradients.control_variates(draws[0]), db.teacher.gradients.svrg(5)):
        estimated = estimates(gradients, posterior, data, draws[0], draws[0])
        for leaf in jax.tree.leaves((estimated.value, estimated.grads)):
            assert float(jnp.max(jnp.std(leaf, axis=0))) < 1e-5


def test_the_noise_on_a_linear_model_is_that_of_the_formula(conjugate: Any, batch_noise: Any) -> None:
    """N^2/M times the variance over examples of lambda_n x x^T (theta - anchor), residuals or not."""
    network, offset = conjugate.mean[:, None], np.array([[0.3], [-0.7]])
    anchor, here = (db.model.Draw(jnp.asarray(w, jnp.float32), ()) for w in (network, network + offset))
    estimated = estimates(
        db.teacher.gradients.control_variates(anchor), conjugate.posterior, conjugate.data, anchor, here
    )
    noise = np.cov(np.asarray(estimated.grads.network)[..., 0].T, ddof=0)
    np.testing.assert_allclose(noise, batch_noise(1, offset @ offset.T, residuals=False), rtol=1e-4)


def test_an_anchor_of_another_posterior_is_refused(conjugate: Any, draws: list[db.model.Draw]) -> None:
    chain = db.minibatch_chain(
        conjugate.posterior,
        db.sgld(0.1),
        *conjugate.data,
        batch_size=2,
        gradients=db.teacher.gradients.control_variates(draws[0]),
    )
    with pytest.raises(db.InvalidInput, match="anchor holds weights of other shapes"):
        chain.init(jax.random.key(0))


def svrg_chain(posterior: db.Posterior, data: db.Data) -> Any:
    return db.minibatch_chain(
        posterior, db.sgld(1e-2), *data, batch_size=2, gradients=db.teacher.gradients.svrg(3, chunk_size=4)
    )


def test_chains_side_by_side_take_new_anchors_together_and_pay_only_then(
    posterior: db.Posterior, data: db.Data, compilations: Counter[str], trees_equal: Any
) -> None:
    chain = svrg_chain(posterior, data)
    chains = start_chains(chain, jax.random.key(0), 2)
    jaxpr = jax.make_jaxpr(jax.vmap(chain.step))(jax.random.split(jax.random.key(0), 2), chains.states)
    assert "cond" in list(primitives(jaxpr.jaxpr))

    anchors, before = [], []
    for count in range(5):
        before.append(jax.tree.map(np.asarray, chains.draws))
        chains = burn(chain, chains, np.int32(1 if count < 4 else 2))
        anchors.append(jax.tree.map(np.asarray, chains.states.gradients.anchor))
    for count, last in enumerate((0, 0, 0, 3)):
        assert trees_equal(anchors[count], before[last])
    assert compilations["burn"] == 1


@pytest.fixture(scope="module")
def sgld_law(conjugate: Any, batch_noise: Any) -> Any:
    """The covariance of SGLD on `conjugate` with plain, anchored and SVRG gradients, averaged over a cycle of SVRG.

    Within a cycle that begins at theta_0, with covariance S_0 about the mean and A = I - eta/2 H, theta_t has the
    covariance S_t with S_{t+1} = A S_t A^T + eta I + eta^2/4 C(D_t), where C(D) is the noise at the mean square
    distance D_t = S_t - A^t S_0 - S_0 A^t + S_0 from the anchor; and S_m = S_0.
    """
    hessian = np.linalg.inv(conjugate.covariance)

    def law(kind: str, step_size: float, size: int, offset: np.ndarray, cycle: int = 1) -> np.ndarray:
        decay, start, mean = np.eye(2) - step_size / 2 * hessian, np.zeros((2, 2)), np.zeros((2, 2))
        for _ in range(500):
            now, power, mean = start, np.eye(2), np.zeros((2, 2))
            for _ in range(cycle):
                if kind == "plain":
                    noise = batch_noise(size, now)
                elif kind == "anchor":
                    noise = batch_noise(size, now + np.outer(offset, offset), residuals=False)
                else:
                    apart = now - power @ start - (power @ start).T + start
                    noise = batch_noise(size, apart, residuals=False)
                now, power = decay @ now @ decay.T + step_size * np.eye(2) + step_size**2 / 4 * noise, decay @ power
                mean = mean + now / cycle
            start = now
        return mean

    return law


@pytest.mark.parametrize("kind", ["anchor", "svrg"])
def test_anchors_lower_the_excess_variance_of_sgld_as_the_law_says(
    kind: str, conjugate: Any, sgld_law: Any, regression_moments: Any, z_scores: Any
) -> None:
    """Batches of one of six examples. Five entries at |z| < 4: fails by chance with probability 3e-4 a case."""
    step_size, offset = 0.03, np.array([0.4, -0.3])
    anchor = db.model.Draw(jnp.asarray((conjugate.mean + offset)[:, None], jnp.float32), ())
    gradients = db.teacher.gradients.control_variates(anchor) if kind == "anchor" else db.teacher.gradients.svrg(4)
    chain = db.minibatch_chain(
        conjugate.posterior, db.sgld(step_size), *conjugate.data, batch_size=1, gradients=gradients
    )

    @jax.jit
    def run(keys: jax.Array) -> Any:
        return regression_moments(chain, jax.vmap(chain.init)(keys), burn_in=80, steps=400)

    mean, square = run(jax.random.split(jax.random.key(4), 3000))
    law, plain = sgld_law(kind, step_size, 1, offset, cycle=4), sgld_law("plain", step_size, 1, offset)
    entries = np.triu_indices(2)
    assert np.abs(z_scores(mean, conjugate.mean)).max() < 4
    assert np.abs(z_scores(square, law)[entries]).max() < 4
    # Far from the plain law, and with less excess over that of exact gradients.
    assert np.abs(z_scores(square, plain)[entries]).max() > 10
    hessian = np.linalg.inv(conjugate.covariance)
    exact = np.linalg.inv(hessian @ (np.eye(2) - step_size / 4 * hessian))
    assert np.trace(law - exact) < 0.8 * np.trace(plain - exact)
