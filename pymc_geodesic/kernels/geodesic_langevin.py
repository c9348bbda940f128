"""Underdamped Langevin dynamics with friction and known gradient noise by direction."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.integrators import State, scaled_drift
from pymc_geodesic.manifolds.blocks import project
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.runtime.fields import Callback, evaluate
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.kernel import Integers, Stream, Vector, kernel, part
from pymc_geodesic.runtime.streams import fill_normal

__all__ = ["BathByDirection", "SharedThermostat", "geodesic_langevin"]

_WEAKEST = 0.5
"""A thermostat takes off at most this part of the weakest friction."""


class BathByDirection(NamedTuple):
    """Friction, and the noise that belongs to it, direction by direction.

    On a manifold both are the same for all numbers of a variable.

    Parameters
    ----------
    friction : ndarray, shape (size,)
        γ_j, per unit of time.
    known_noise : ndarray, shape (size,)
        b_j, variance of the gradient estimate.
    """

    friction: Vector
    known_noise: Vector


class SharedThermostat(NamedTuple):
    """A thermostat for all directions together.

    Parameters
    ----------
    friction : ndarray, shape (1,)
        ξ, which the kernel changes in place unless the inertia is infinite.
    inertia : float
        Q, a time squared; infinity for dynamics without a thermostat.
    """

    friction: Vector
    inertia: float


@compiled
def friction_coefficients(
    step_size: float, friction: np.ndarray, known_noise: np.ndarray, decay: np.ndarray,
    spread: np.ndarray,
) -> int:  # fmt: skip
    """Decay of a velocity and standard deviation of the injected noise, direction by direction.

    e_j = exp(−γ_j h), and (1 − e_j²) − p_j² b_j with p_j = h (1 + e_j) / 2: what keeps the
    temperature at 1, less what the gradient noise b_j already injects.

    Returns
    -------
    int
        How many directions receive more noise than friction takes away.
    """
    clips = 0
    for j in range(friction.size):
        decay[j] = math.exp(-friction[j] * step_size)
        push = 0.5 * step_size * (1.0 + decay[j])
        variance = 1.0 - decay[j] * decay[j] - push * push * known_noise[j]
        clips += variance < 0.0
        spread[j] = math.sqrt(max(variance, 0.0))
    return clips


@part
def kick_and_rub(
    state: State,
    gradient: Vector,
    half: float,
    drag: float,
    decay: Vector,
    spread: Vector,
    noise: Vector,
) -> float:
    """Half a kick, friction and noise, half a kick: the part B O B.

    Returns
    -------
    float
        v·(v + (h/2)∇log π) with the velocity before.
    """
    v = state.v
    square = 0.0
    for j in range(v.size):
        kicked = v[j] + half * gradient[j]
        square += v[j] * kicked
        v[j] = drag * decay[j] * kicked + spread[j] * noise[j] + half * gradient[j]
    return square


@kernel
def geodesic_langevin(
    field: Callback,
    arguments: Integers,
    space: Space,
    state: State,
    step_size: float,
    bath: BathByDirection,
    thermostat: SharedThermostat,
    stream: Stream,
    gradient: Vector,
) -> tuple[float, int]:
    r"""Run the inner steps of one draw, in place.

    The dynamics dx = v dt, dv = Λ(x)(∇log π dt − (γ_j + ξ) v dt + noise) in the pattern A B O B A:
    half a geodesic, half a kick, friction and noise, half a kick, half a geodesic. The noise is
    that of the friction γ_j, less the known noise of the gradient estimate; ξ is a thermostat for
    all directions together, dξ = (T − 1)/Q dt, that takes up what was known only roughly.

    Its temperature is v·(v + (h/2)∇log π)/m with the velocity before a kick: that of the positions,
    1 in a normal posterior whatever the step.

    Parameters
    ----------
    field : Callback
        Gradient field (`pymc_geodesic.runtime.fields`).
    arguments : ndarray of int64, shape (n_steps,)
        One argument per inner step, usually the first row of its minibatch.
    space : Space
        The product manifold. Block b moves for ``scales[b]`` times h, and its gradient is
        multiplied by as much.
    state : State
        Position and velocity.
    step_size : float
        h, a time; in the coordinates of a metric, in posterior standard deviations.
    bath : BathByDirection
    thermostat : SharedThermostat
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    gradient : ndarray, shape (size,) or longer
        Scratch space.

    Returns
    -------
    temperature : float
        Averaged over inner steps and dimensions.
    clips : int
        Directions whose injected noise was clipped at zero.

    References
    ----------
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, algorithms 1 and 2; noise by
    direction after Ahn, Korattikara, Welling (2012), Stochastic Gradient Fisher Scoring, eq. 15.
    """
    space, state, gradient = borrow(space), borrow(state), borrow(gradient)
    stream, extra = borrow(stream), thermostat.friction
    size, n_steps = state.x.size, arguments.size
    # sums and minima by hand: those of NumPy take longer to compile than they save
    dim, weakest = 0.0, math.inf
    for of_block in space.dims:
        dim += of_block
    for friction in bath.friction:
        weakest = min(weakest, friction)
    decay, spread, noise = np.empty(size), np.empty(size), np.empty(size)
    clips = friction_coefficients(step_size, bath.friction, bath.known_noise, decay, spread)
    least = -_WEAKEST * weakest
    half = 0.5 * step_size
    total = 0.0
    scaled_drift(space, state, half)
    for step in range(n_steps):
        evaluate(field.address, state.x, arguments[step], field.context, gradient)
        fill_normal(stream, noise)
        drag = math.exp(-extra[0] * step_size)
        temperature = kick_and_rub(state, gradient, half, drag, decay, spread, noise) / dim
        project(space.blocks, state.x, state.v)
        total += temperature
        extra[0] = max(extra[0] + step_size * (temperature - 1.0) / thermostat.inertia, least)
        scaled_drift(space, state, step_size if step < n_steps - 1 else half)
    return total / n_steps, clips
