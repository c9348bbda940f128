"""Stochastic gradient geodesic Monte Carlo."""

from __future__ import annotations

from typing import NamedTuple

from pymc_geodesic.integrators import (
    Scratch,
    State,
    drift,
    langevin_coefficients,
    langevin_kick,
    temperature_within,
)
from pymc_geodesic.manifolds.blocks import project
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.runtime.fields import Callback, evaluate
from pymc_geodesic.runtime.jit import borrow
from pymc_geodesic.runtime.kernel import Integers, Stream, Vector, kernel, part

__all__ = ["HeatBath", "sggmc"]


class HeatBath(NamedTuple):
    """Friction, and the noise that belongs to it.

    Parameters
    ----------
    friction : ndarray, shape (n_blocks,)
        C of each block, per unit of time.
    gradient_noise : ndarray, shape (size,) or (0,)
        V, known variance of the gradient estimate; empty for zero.
    splitting : int
        `pymc_geodesic.integrators.EXACT` or ``PAPER``.
    """

    friction: Vector
    gradient_noise: Vector
    splitting: int


@part
def kick_and_rub(
    space: Space, state: State, step_size: float, bath: HeatBath, stream: Stream, scratch: Scratch
) -> tuple[float, int]:
    """Half a kick, friction and noise, half a kick, and the projection: the part B O B.

    Returns
    -------
    temperature : float
        Summed over blocks.
    clips : int
    """
    blocks, noises = space.blocks, bath.gradient_noise
    temperature, clips = 0.0, 0
    for block in range(blocks.shape[0]):
        part = slice(blocks[block, 1], blocks[block, 1] + blocks[block, 2] * blocks[block, 3])
        friction = bath.friction[block]
        decay, push, variance = langevin_coefficients(friction, friction, step_size, bath.splitting)
        clipped, square, power = langevin_kick(
            state.v[part],
            scratch.gradient[part],
            decay,
            push,
            variance,
            noises[part] if noises.size else noises,
            stream,
            scratch.noise,
        )
        temperature += temperature_within(square, power, decay, push, space.dims[block])
        clips += clipped
    project(blocks, state.x, state.v)
    return temperature, clips


@kernel
def sggmc(
    field: Callback,
    arguments: Integers,
    space: Space,
    state: State,
    step_size: float,
    bath: HeatBath,
    stream: Stream,
    scratch: Scratch,
) -> tuple[float, int]:
    r"""Run the inner steps of one SGGMC draw, in place.

    The dynamics dx = v dt, dv = Λ(x)(∇log π dt − C v dt + N(0, 2C dt)) on a product of manifolds,
    integrated in the pattern A B O B A: half a geodesic, friction, stochastic gradient and noise,
    friction, half a geodesic. The half geodesics of neighbouring steps are merged.

    Parameters
    ----------
    field : Callback
        Gradient field (`pymc_geodesic.runtime.fields`).
    arguments : ndarray of int64, shape (n_steps,)
        One argument per inner step, usually the first row of its minibatch.
    space : Space
        The product manifold.
    state : State
        Position and velocity.
    step_size : float
        ε, a time.
    bath : HeatBath
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    scratch : Scratch

    Returns
    -------
    temperature : float
        `pymc_geodesic.integrators.temperature_within` averaged over inner steps and blocks.
    clips : int
        Components whose injected noise was clipped at zero because ε² V exceeded it.

    References
    ----------
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, eq. 5 and 8, algorithm 1.
    """
    space, state, bath = borrow(space), borrow(state), borrow(bath)
    stream, scratch = borrow(stream), borrow(scratch)
    n_steps = arguments.size
    temperature, clips = 0.0, 0
    drift(space, state, 0.5 * step_size)
    for step in range(n_steps):
        evaluate(field.address, state.x, arguments[step], field.context, scratch.gradient)
        warmth, clipped = kick_and_rub(space, state, step_size, bath, stream, scratch)
        temperature += warmth
        clips += clipped
        drift(space, state, step_size if step < n_steps - 1 else 0.5 * step_size)
    return temperature / (n_steps * len(space.dims)), clips
