"""What each sampler's law is on a Gaussian posterior, exactly, at any step size: written down from the papers.

On a posterior N(0, H^-1) the gradient of the log posterior is g = -H theta + n, where n ~ N(0, C) is the noise of
minibatches. A sampler whose update is linear then moves its state z (theta, and below it the velocity v if it has one)
by

    z <- A z + noise of covariance Q,

and its stationary covariance is the solution of S = A S A^T + Q. Nothing here looks at the samplers' code, and
everything is in the velocities of the papers. Step sizes follow the package: drift eta/2 g, noise of variance eta T.

Scales of preconditioners are arrays ``[..., d]``, one row for each chain; laws then carry the same leading axes.
"""

from typing import NamedTuple

import numpy as np

from darkbayes.errors import InvalidInput
from darkbayes.types import ArrayLike


class Law(NamedTuple):
    """One step of a linear sampler: ``z <- transition z + noise``, with the covariance of that noise."""

    transition: np.ndarray
    noise: np.ndarray


def slowest(law: Law) -> float:
    """The share of a deviation that one step leaves, in the slowest direction; 1 or more never settles."""
    return float(np.abs(np.linalg.eigvals(law.transition)).max())


def stationary(law: Law) -> np.ndarray:
    """The stationary covariance of the state, theta first.

    >>> stationary(sgld(0.5, np.eye(1)))  # 1 / (1 - eta / 4)
    array([[1.14285714]])
    """
    if slowest(law) >= 1.0:
        raise InvalidInput("the sampler does not settle: use a smaller step size")
    power, covariance = law
    # S = Q + A Q A^T + A^2 Q A^2^T + ...; each round doubles how many terms there are.
    for _ in range(64):
        term = power @ covariance @ np.swapaxes(power, -1, -2)
        covariance = covariance + term
        if np.abs(term).max() <= 1e-15 * np.abs(covariance).max():
            break
        power = power @ power
    return covariance


def _diagonal(values: ArrayLike, dim: int) -> np.ndarray:
    """Diagonal matrices from the last axis of `values`; a number stands for `dim` equal ones."""
    values = np.asarray(values, np.float64)
    return (np.full(dim, values) if values.ndim == 0 else values)[..., None] * np.eye(dim)


def _noise_of(gradient_noise: np.ndarray | None, hessian: np.ndarray) -> np.ndarray:
    return np.zeros_like(hessian, np.float64) if gradient_noise is None else gradient_noise


def _blocks(rows: list[list[np.ndarray]]) -> np.ndarray:
    return np.block([list(np.broadcast_arrays(*row)) for row in rows])


def sgld(
    step_size: float,
    hessian: np.ndarray,
    gradient_noise: np.ndarray | None = None,
    temperature: float = 1.0,
    *,
    scale: ArrayLike = 1.0,
    brought: ArrayLike = 0.0,
) -> Law:
    """SGLD (Welling and Teh, 2011): theta + eta/2 P g + N(0, eta T P - brought).

    With `scale` P = 1 it is the plain one; with G = 1 / (damping + sqrt V) that of Li et al. (2016) once G is frozen;
    `brought` is what a sampler takes off its noise because it expects it from the minibatch.
    """
    dim = len(hessian)
    drift = 0.5 * step_size * _diagonal(scale, dim)
    noise = step_size * temperature * _diagonal(scale, dim) - _diagonal(brought, dim)
    return Law(np.eye(dim) - drift @ hessian, noise + drift @ _noise_of(gradient_noise, hessian) @ drift)


def sghmc(
    step_size: float,
    hessian: np.ndarray,
    gradient_noise: np.ndarray | None = None,
    temperature: float = 1.0,
    *,
    friction: float,
    noise_estimate: float = 0.0,
    scale: ArrayLike = 1.0,
    brought: ArrayLike = 0.0,
) -> Law:
    """SGHMC (Chen et al., 2014): v' = (1 - alpha) v + eta/2 P g + N(0, eta (alpha T - beta) P - brought); theta + v'.

    P = 1 is the plain one; P = 1 / sqrt V with brought = eta^2/4 that of Springenberg et al. (2016) once V is frozen.
    """
    dim = len(hessian)
    drift = 0.5 * step_size * _diagonal(scale, dim)
    added = step_size * (friction * temperature - noise_estimate) * _diagonal(scale, dim) - _diagonal(brought, dim)
    noise = added + drift @ _noise_of(gradient_noise, hessian) @ drift
    pull, keep = -drift @ hessian, (1.0 - friction) * np.eye(dim)
    return Law(_blocks([[np.eye(dim) + pull, keep], [pull, keep]]), _blocks([[noise, noise], [noise, noise]]))


def baoa(
    step_size: float,
    hessian: np.ndarray,
    gradient_noise: np.ndarray | None = None,
    temperature: float = 1.0,
    *,
    friction: float,
) -> Law:
    """The symmetric splitting, part by part, with v = h p: kick, half a drift, friction and noise, half a drift.

    >>> hessian = np.array([[2.0, 1.0], [1.0, 3.0]])  # Theta has the target's covariance, at any step size.
    >>> covariance = stationary(baoa(1.5, hessian, friction=0.3))[:2, :2]
    >>> np.allclose(covariance, np.linalg.inv(hessian))
    True
    """
    dim, half = len(hessian), 0.5 * step_size
    one, zero, keep = np.eye(dim), np.zeros((dim, dim)), 1.0 - friction
    kick = np.block([[one, zero], [-half * hessian, one]])
    drift = np.block([[one, 0.5 * one], [zero, one]])
    rub = np.block([[one, zero], [zero, keep * one]])
    after_kick = drift @ rub @ drift
    gradient = np.block([[zero, zero], [zero, half**2 * _noise_of(gradient_noise, hessian)]])
    bath = np.block([[zero, zero], [zero, half * temperature * (1.0 - keep**2) * one]])
    return Law(after_kick @ kick, after_kick @ gradient @ after_kick.T + drift @ bath @ drift.T)


class Thermostat(NamedTuple):
    """The law of each direction, theta and v, at the friction where the thermostat rests."""

    laws: Law
    friction: float


def sgnht(
    step_size: float,
    stiffness: np.ndarray,
    gradient_variance: ArrayLike = 0.0,
    temperature: float = 1.0,
    *,
    friction: float,
) -> Thermostat:
    """SG-NHT (Ding et al., 2014) with so many weights that the thermostat stands still.

    v' = (1 - zeta) v + eta/2 g + N(0, eta alpha T), theta + v', where zeta is such that the mean of v'^2 over all
    weights is eta T / (2 - zeta), the energy of such steps on a flat posterior (the paper's eta T / 2 for small zeta).
    `stiffness` holds the eigenvalues of H, one a weight, and `gradient_variance` those of C.
    """
    stiffness = np.asarray(stiffness, np.float64)
    half = 0.5 * step_size
    noise = step_size * friction * temperature + half**2 * np.broadcast_to(gradient_variance, stiffness.shape)

    def at(zeta: float) -> Law:
        pull, keep = -half * stiffness, np.full_like(stiffness, 1.0 - zeta)
        transition = np.stack([np.stack([1.0 + pull, keep], -1), np.stack([pull, keep], -1)], -2)
        return Law(transition, noise[:, None, None] * np.ones((2, 2)))

    # More friction leaves less energy, and asks for more: bisection finds where the two meet.
    low, high = 0.0, 1.0
    for _ in range(50):
        zeta = 0.5 * (low + high)
        law = at(zeta)
        hot = slowest(law) >= 1.0 or stationary(law)[:, 1, 1].mean() > step_size * temperature / (2.0 - zeta)
        low, high = (zeta, high) if hot else (low, zeta)
    if high == 1.0:
        raise InvalidInput("the thermostat finds no friction below 1: use a smaller step size")
    return Thermostat(at(high), high)
