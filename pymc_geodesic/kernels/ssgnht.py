"""Stochastic (sub)gradient Nosé-Hoover thermostats, integrated by Euler's method."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.integrators import kinetic_temperature, langevin_kick
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.jit import borrow, compiled

__all__ = ["ssgnht"]


@compiled
def ssgnht(
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
    stream: np.ndarray,
    gradient: np.ndarray,
    noise: np.ndarray,
) -> float:
    r"""Run the inner steps of one SSGNHT draw on Euclidean coordinates, in place.

    v′ = v − hξv + h∇log π(x) + sqrt(2Ah) n, x′ = x + hv′, ξ′ = ξ + h(v·v/m − T)/Q, with one
    thermostat ξ for each block, held at T = 1.

    Friction takes the part ξh of a velocity, and noise of variance s² per step leaves the
    temperature s² / (1 − (1 − ξh)²), the least of which is s², at ξh = 1. Where that exceeds T,
    a free thermostat would grow on, heat beyond ξh = 1 and diverge at 2: ξ is bounded by 1/h.

    The scheme is of first order. Where the kinetic temperature is 1, the positions of a normal law
    have 1 − ξh/2 times its variance, whatever its curvature.

    Parameters
    ----------
    field : int
        Address of a gradient field (`pymc_geodesic.runtime.fields`).
    context : ndarray of int64
        Passed on to the field.
    arguments : ndarray of int64, shape (n_steps,)
        One argument per inner step, usually the first row of its minibatch.
    blocks : ndarray of int64, shape (n_blocks, 6)
        The variables, all Euclidean.
    dims : ndarray, shape (n_blocks,)
        Dimension m of each block.
    x, v : ndarray, shape (size,)
        Position and velocity.
    thermostat : ndarray, shape (n_blocks,)
        ξ of each block, per unit of time, changed in place.
    inertia : ndarray, shape (n_blocks,)
        Q of each block, a time squared; 1 in the paper.
    targets : ndarray, shape (n_blocks,)
        T, the kinetic temperature each thermostat holds: 1 for the posterior, more to anneal.
    step_size : float
        h, a time.
    diffusion : ndarray, shape (n_blocks,)
        A of each block, per unit of time.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    gradient, noise : ndarray
        Scratch space, ``gradient`` of shape (size,).

    Returns
    -------
    float
        v·v / m averaged over inner steps and blocks.

    References
    ----------
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-Margin Models, eq. 30;
    Ding et al. (2014), Bayesian Sampling Using Stochastic Gradient Thermostats, algorithm 2.
    """
    blocks, x, v = borrow(blocks), borrow(x), borrow(v)
    gradient, stream, noise = borrow(gradient), borrow(stream), borrow(noise)
    exactly_known = gradient[:0]
    temperatures = np.empty(blocks.shape[0])
    for block in range(blocks.shape[0]):
        part = slice(blocks[block, 1], blocks[block, 1] + blocks[block, 2] * blocks[block, 3])
        temperatures[block] = kinetic_temperature(v[part], dims[block])
    total = 0.0
    for argument in arguments:
        evaluate(field, x, argument, context, gradient)
        for block in range(blocks.shape[0]):
            part = slice(blocks[block, 1], blocks[block, 1] + blocks[block, 2] * blocks[block, 3])
            decay = 1.0 - thermostat[block] * step_size
            variance = 2.0 * diffusion[block] * step_size
            langevin_kick(
                v[part], gradient[part], decay, step_size, variance, exactly_known, stream, noise
            )
            before, after = temperatures[block], kinetic_temperature(v[part], dims[block])
            thermostat[block] += step_size * (before - targets[block]) / inertia[block]
            thermostat[block] = min(thermostat[block], 1.0 / step_size)
            temperatures[block] = after
            total += after
        for i in range(x.size):
            x[i] += step_size * v[i]
    return total / (arguments.size * blocks.shape[0])
