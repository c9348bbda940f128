"""Geodesic stochastic gradient Nosé-Hoover thermostats."""

from __future__ import annotations

from pymc_geodesic.integrators import (
    Scratch,
    State,
    Thermostat,
    kinetic_temperature,
    langevin_coefficients,
    langevin_kick,
    temperature_within,
)
from pymc_geodesic.kernels.sggmc import HeatBath
from pymc_geodesic.manifolds.blocks import geodesic, project
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.runtime.fields import Callback, evaluate
from pymc_geodesic.runtime.jit import borrow
from pymc_geodesic.runtime.kernel import Integers, Matrix, Stream, kernel, part

__all__ = ["gsgnht"]


@part
def drift_with_thermostat(space: Space, state: State, thermostat: Thermostat, time: float) -> None:
    """Move along geodesics, and ξ ← ξ + time · (v·v/m − T)/Q, both exact: v·v stays as it is."""
    blocks = space.blocks
    for block in range(blocks.shape[0]):
        part = slice(blocks[block, 1], blocks[block, 1] + blocks[block, 2] * blocks[block, 3])
        excess = kinetic_temperature(state.v[part], space.dims[block]) - thermostat.targets[block]
        thermostat.friction[block] += time * excess / thermostat.inertia[block]
    geodesic(blocks, state.x, state.v, time)


@part
def kick_and_rub(
    space: Space,
    state: State,
    thermostat: Thermostat,
    step_size: float,
    bath: HeatBath,
    stream: Stream,
    scratch: Scratch,
    work: Matrix,
) -> tuple[float, int]:
    """Half a kick, friction ξ and noise, half a kick, and the projection: the part B O B.

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
        decay, push, variance = langevin_coefficients(
            thermostat.friction[block], bath.friction[block], step_size, bath.splitting
        )
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
        work[block, 0] += square
        work[block, 1] += power
        gradient_time = 2.0 * push / (1.0 + decay)
        within = temperature_within(square, power, decay, push, space.dims[block])
        temperature += within * step_size / gradient_time
        clips += clipped
    project(blocks, state.x, state.v)
    return temperature, clips


@kernel
def gsgnht(
    field: Callback,
    arguments: Integers,
    space: Space,
    state: State,
    thermostat: Thermostat,
    step_size: float,
    bath: HeatBath,
    stream: Stream,
    scratch: Scratch,
    work: Matrix,
) -> tuple[float, int]:
    r"""Run the inner steps of one gSGNHT draw, in place.

    SGGMC whose friction is a thermostat ξ, one per block, driven towards v·v/m = T:
    dv = Λ(x)(∇log π dt − ξ v dt + N(0, 2C dt)), dξ = (v·v/m − T)/Q dt. The thermostat moves with
    the geodesics, along which v·v is constant, so that ξ is exact there too.

    Along geodesics the mean of v·v/m is not the temperature of the positions but exceeds it by a
    factor 1 / (1 − ε²λ/4), λ being the mean curvature; ``work`` says how large it is.

    Parameters
    ----------
    thermostat : Thermostat
        Its targets are the means of v·v/m along geodesics.
    bath : HeatBath
        Its friction is C, of which the injected noise is.
    work : ndarray, shape (n_blocks, 2)
        Receives the sums over inner steps of v·v and of v·∇log π before each kick.
    field, arguments, space, state, step_size, stream, scratch
        See `pymc_geodesic.kernels.sggmc`.

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
    space, state, thermostat = borrow(space), borrow(state), borrow(thermostat)
    bath, stream, scratch, work = borrow(bath), borrow(stream), borrow(scratch), borrow(work)
    n_steps = arguments.size
    temperature, clips = 0.0, 0
    work[:] = 0.0
    drift_with_thermostat(space, state, thermostat, 0.5 * step_size)
    for step in range(n_steps):
        evaluate(field.address, state.x, arguments[step], field.context, scratch.gradient)
        warmth, clipped = kick_and_rub(
            space, state, thermostat, step_size, bath, stream, scratch, work
        )
        temperature += warmth
        clips += clipped
        time = step_size if step < n_steps - 1 else 0.5 * step_size
        drift_with_thermostat(space, state, thermostat, time)
    return temperature / (n_steps * len(space.dims)), clips
