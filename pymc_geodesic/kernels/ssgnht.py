"""Stochastic (sub)gradient Nosé-Hoover thermostats, integrated by Euler's method."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.integrators import (
    Scratch,
    State,
    Thermostat,
    kinetic_temperature,
    langevin_kick,
)
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.runtime.fields import Callback, evaluate
from pymc_geodesic.runtime.jit import borrow
from pymc_geodesic.runtime.kernel import Integers, Stream, Vector, kernel, part

__all__ = ["ssgnht"]


@part
def kick_and_rub(
    space: Space,
    state: State,
    thermostat: Thermostat,
    temperatures: Vector,
    step_size: float,
    diffusion: Vector,
    stream: Stream,
    scratch: Scratch,
) -> float:
    """Move v and ξ, and replace v·v/m of all blocks; return the sum of the new ones."""
    blocks, v, gradient, xi = space.blocks, state.v, scratch.gradient, thermostat.friction
    exactly_known = gradient[:0]
    total = 0.0
    for block in range(blocks.shape[0]):
        part = slice(blocks[block, 1], blocks[block, 1] + blocks[block, 2] * blocks[block, 3])
        decay = 1.0 - xi[block] * step_size
        variance = 2.0 * diffusion[block] * step_size
        langevin_kick(
            v[part], gradient[part], decay, step_size, variance, exactly_known, stream,
            scratch.noise,
        )  # fmt: skip
        before, after = temperatures[block], kinetic_temperature(v[part], space.dims[block])
        xi[block] += step_size * (before - thermostat.targets[block]) / thermostat.inertia[block]
        xi[block] = min(xi[block], 1.0 / step_size)
        temperatures[block] = after
        total += after
    return total


@kernel
def ssgnht(
    field: Callback,
    arguments: Integers,
    space: Space,
    state: State,
    thermostat: Thermostat,
    step_size: float,
    diffusion: Vector,
    stream: Stream,
    scratch: Scratch,
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
    field : Callback
        Gradient field (`pymc_geodesic.runtime.fields`).
    arguments : ndarray of int64, shape (n_steps,)
        One argument per inner step, usually the first row of its minibatch.
    space : Space
        The variables, all Euclidean.
    state : State
        Position and velocity.
    thermostat : Thermostat
        Its targets are 1 for the posterior, more to anneal.
    step_size : float
        h, a time.
    diffusion : ndarray, shape (n_blocks,)
        A of each block, per unit of time.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    scratch : Scratch

    Returns
    -------
    float
        v·v / m averaged over inner steps and blocks.

    References
    ----------
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-Margin Models, eq. 30;
    Ding et al. (2014), Bayesian Sampling Using Stochastic Gradient Thermostats, algorithm 2.
    """
    space, state, thermostat = borrow(space), borrow(state), borrow(thermostat)
    stream, scratch = borrow(stream), borrow(scratch)
    blocks, x, v = space.blocks, state.x, state.v
    temperatures = np.empty(blocks.shape[0])
    for block in range(blocks.shape[0]):
        part = slice(blocks[block, 1], blocks[block, 1] + blocks[block, 2] * blocks[block, 3])
        temperatures[block] = kinetic_temperature(v[part], space.dims[block])
    total = 0.0
    for argument in arguments:
        evaluate(field.address, x, argument, field.context, scratch.gradient)
        total += kick_and_rub(
            space, state, thermostat, temperatures, step_size, diffusion, stream, scratch
        )
        for i in range(x.size):
            x[i] += step_size * v[i]
    return total / (arguments.size * blocks.shape[0])
