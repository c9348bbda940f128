"""Underdamped Langevin dynamics with friction and known gradient noise by direction."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.manifolds.product import project, scaled_geodesic
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.streams import fill_normal

__all__ = ["geodesic_langevin"]

_WEAKEST = 0.5
"""A thermostat takes off at most this part of the weakest friction."""


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


@compiled
def geodesic_langevin(
    field: int,
    context: np.ndarray,
    arguments: np.ndarray,
    blocks: np.ndarray,
    dims: np.ndarray,
    scales: np.ndarray,
    x: np.ndarray,
    v: np.ndarray,
    step_size: float,
    friction: np.ndarray,
    known_noise: np.ndarray,
    thermostat: np.ndarray,
    inertia: float,
    stream: np.ndarray,
    gradient: np.ndarray,
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
    field : int
        Address of a gradient field (`pymc_geodesic.runtime.fields`).
    context : ndarray of int64
        Passed on to the field.
    arguments : ndarray of int64, shape (n_steps,)
        One argument per inner step, usually the first row of its minibatch.
    blocks, dims : ndarray
        The product manifold.
    scales : ndarray, shape (n_blocks,)
        Block b moves for ``scales[b]`` times h, and its gradient is multiplied by as much.
    x, v : ndarray, shape (size,)
        Position and velocity.
    step_size : float
        h, a time; in the coordinates of a metric, in posterior standard deviations.
    friction, known_noise : ndarray, shape (size,)
        γ_j, per unit of time, and b_j. On a manifold both are the same for all numbers of a
        variable.
    thermostat : ndarray, shape (1,)
        ξ, changed in place unless the inertia is infinite.
    inertia : float
        Q, a time squared; infinity for dynamics without a thermostat.
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
    blocks, x, v = borrow(blocks), borrow(x), borrow(v)
    gradient, stream = borrow(gradient), borrow(stream)
    size, n_steps = x.size, arguments.size
    dim = np.sum(dims)
    decay, spread, noise = np.empty(size), np.empty(size), np.empty(size)
    clips = friction_coefficients(step_size, friction, known_noise, decay, spread)
    least = -_WEAKEST * np.min(friction)
    half = 0.5 * step_size
    total = 0.0
    scaled_geodesic(blocks, scales, x, v, half)
    for step in range(n_steps):
        evaluate(field, x, arguments[step], context, gradient)
        fill_normal(stream, noise)
        drag = math.exp(-thermostat[0] * step_size)
        square = 0.0
        for j in range(size):
            kicked = v[j] + half * gradient[j]
            square += v[j] * kicked
            v[j] = drag * decay[j] * kicked + spread[j] * noise[j] + half * gradient[j]
        project(blocks, x, v)
        temperature = square / dim
        total += temperature
        thermostat[0] = max(thermostat[0] + step_size * (temperature - 1.0) / inertia, least)
        scaled_geodesic(blocks, scales, x, v, step_size if step < n_steps - 1 else half)
    return total / n_steps, clips
