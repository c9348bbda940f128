"""Stochastic (sub)gradient Nosé-Hoover thermostats, integrated by Euler's method."""

from __future__ import annotations

import math

from pymc_geodesic.integrators import (
    Scratch,
    State,
    Thermostat,
    block_slice,
    kinetic_temperature,
)
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.runtime.gradient_functions import Callback, evaluate
from pymc_geodesic.runtime.jit import Integers, Stream, Vector, borrow, kernel, part
from pymc_geodesic.runtime.streams import fill_normal


@part
def euler_kick(
    v: Vector,
    gradient: Vector,
    noise: Vector,
    step_size: float,
    friction: float,
    diffusion: float,
) -> None:
    """Kick the velocities of one variable: v ← (1 − hξ) v + h ∇log π + sqrt(2Ah) n."""
    decay, sd = 1.0 - friction * step_size, math.sqrt(2.0 * diffusion * step_size)
    for j in range(v.size):
        v[j] = decay * v[j] + step_size * gradient[j] + sd * noise[j]


@kernel
def ssgnht(
    logp_grad: Callback,
    minibatches: Integers,
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

    Friction removes the fraction ξh of a velocity, and with noise of variance s² per step the
    temperature is s² / (1 − (1 − ξh)²), with its minimum s² at ξh = 1. If s² exceeds T, an
    unbounded thermostat would exceed ξh = 1 and diverge at 2; therefore ξ is bounded by 1/h.

    The scheme is of first order. For a normal distribution and a kinetic temperature of 1, the
    variance of the positions is 1 − ξh/2 times the exact one, for any curvature.

    Parameters
    ----------
    logp_grad : Callback
        Gradient of the log-density (`pymc_geodesic.runtime.gradient_functions`).
    minibatches : ndarray of int64, shape (n_steps,)
        One for each inner step, usually its first row.
    space : Space
        The variables, all Euclidean.
    state : State
        Position and velocity.
    thermostat : Thermostat
        ξ (including A), Q and T of each block.
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
    blocks, x, v, xi = space.blocks, state.x, state.v, thermostat.xi
    gradient, noise = scratch.gradient, scratch.noise
    total = 0.0
    for minibatch in minibatches:
        evaluate(logp_grad.address, x, minibatch, logp_grad.context, gradient)
        fill_normal(stream, noise)
        for block in range(blocks.shape[0]):
            own, dim = block_slice(blocks, block), space.dims[block]
            before = kinetic_temperature(v[own], dim)
            euler_kick(v[own], gradient[own], noise[own], step_size, xi[block], diffusion[block])
            deviation = before - thermostat.temperatures[block]
            xi[block] += step_size * deviation / thermostat.inertia[block]
            xi[block] = min(xi[block], 1.0 / step_size)
            total += kinetic_temperature(v[own], dim)
        for i in range(x.size):
            x[i] += step_size * v[i]
    return total / (minibatches.size * blocks.shape[0])
