"""Geodesic stochastic gradient Nosé-Hoover thermostats."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.integrators import (
    kinetic_temperature,
    langevin_coefficients,
    langevin_kick,
    temperature_within,
)
from pymc_geodesic.manifolds.product import geodesic, project
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.jit import borrow, compiled

__all__ = ["gsgnht"]


@compiled
def gsgnht(
    field: int,
    context: np.ndarray,
    arguments: np.ndarray,
    blocks: np.ndarray,
    dims: np.ndarray,
    x: np.ndarray,
    v: np.ndarray,
    thermostat: np.ndarray,
    inertia: np.ndarray,
    targets: np.ndarray,
    step_size: float,
    diffusion: np.ndarray,
    gradient_noise: np.ndarray,
    splitting: int,
    stream: np.ndarray,
    gradient: np.ndarray,
    noise: np.ndarray,
    work: np.ndarray,
) -> tuple[float, int]:
    r"""Run the inner steps of one gSGNHT draw, in place.

    SGGMC whose friction is a thermostat ξ, one per block, driven towards v·v/m = T:
    dv = Λ(x)(∇log π dt − ξ v dt + N(0, 2C dt)), dξ = (v·v/m − T)/Q dt. The thermostat moves with
    the geodesics, along which v·v is constant, so that ξ is exact there too.

    Along geodesics the mean of v·v/m is not the temperature of the positions but exceeds it by a
    factor 1 / (1 − ε²λ/4), λ being the mean curvature; ``work`` says how large it is.

    Parameters
    ----------
    thermostat : ndarray, shape (n_blocks,)
        ξ of each block, per unit of time, changed in place.
    inertia : ndarray, shape (n_blocks,)
        Q of each block, a time squared; 1 in the paper. The stationary law of ξ has variance
        1/(mQ).
    targets : ndarray, shape (n_blocks,)
        T, the mean of v·v/m along geodesics that each thermostat holds.
    diffusion : ndarray, shape (n_blocks,)
        C of each block.
    work : ndarray, shape (n_blocks, 2)
        Receives the sums over inner steps of v·v and of v·∇log π before each kick.
    field, context, arguments, blocks, dims, x, v, step_size
        See `pymc_geodesic.kernels.sggmc`, as for the remaining arguments.

    Returns
    -------
    temperature : float
        That of the positions, averaged over inner steps and blocks: that of
        `pymc_geodesic.integrators.temperature_within`, for the paper's splitting times cosh(ρ/2).
    clips : int
        Components whose injected noise was clipped at zero because ε² V exceeded it.

    References
    ----------
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, eq. 6 and 8, algorithm 2.
    """
    blocks, x, v = borrow(blocks), borrow(x), borrow(v)
    gradient, gradient_noise = borrow(gradient), borrow(gradient_noise)
    stream, noise, work = borrow(stream), borrow(noise), borrow(work)
    n_steps = arguments.size
    temperature = 0.0
    clips = 0
    work[:] = 0.0
    for block in range(blocks.shape[0]):
        part = slice(blocks[block, 1], blocks[block, 1] + blocks[block, 2] * blocks[block, 3])
        excess = kinetic_temperature(v[part], dims[block]) - targets[block]
        thermostat[block] += 0.5 * step_size * excess / inertia[block]
    geodesic(blocks, x, v, 0.5 * step_size)
    for step in range(n_steps):
        evaluate(field, x, arguments[step], context, gradient)
        for block in range(blocks.shape[0]):
            part = slice(blocks[block, 1], blocks[block, 1] + blocks[block, 2] * blocks[block, 3])
            decay, push, variance = langevin_coefficients(
                thermostat[block], diffusion[block], step_size, splitting
            )
            known = gradient_noise[part] if gradient_noise.size else gradient_noise
            clipped, square, power = langevin_kick(
                v[part], gradient[part], decay, push, variance, known, stream, noise
            )
            clips += clipped
            work[block, 0] += square
            work[block, 1] += power
            gradient_time = 2.0 * push / (1.0 + decay)
            temperature += (
                temperature_within(square, power, decay, push, dims[block])
                * step_size
                / gradient_time
            )
        project(blocks, x, v)
        time = step_size if step < n_steps - 1 else 0.5 * step_size
        for block in range(blocks.shape[0]):
            part = slice(blocks[block, 1], blocks[block, 1] + blocks[block, 2] * blocks[block, 3])
            excess = kinetic_temperature(v[part], dims[block]) - targets[block]
            thermostat[block] += time * excess / inertia[block]
        geodesic(blocks, x, v, time)
    return temperature / (n_steps * blocks.shape[0]), clips
