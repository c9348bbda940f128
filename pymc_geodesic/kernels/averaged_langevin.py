"""Langevin dynamics without a momentum, driven by means of consecutive noises."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.runtime.fields import Callback, evaluate
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.kernel import Integers, Stream, Vector, kernel
from pymc_geodesic.runtime.streams import fill_normal

__all__ = ["averaged_langevin"]


@compiled
def noise_that_is_left(step_size: float, known_noise: np.ndarray, spread: np.ndarray) -> int:
    """Part of the standard deviation of the noise to inject, direction by direction.

    With a = h²/2 and gradients −x + N(0, b) the variance of the positions is c² + ab/(2 − a), so
    that c² = 1 − ab/(2 − a) leaves it at 1.

    Returns
    -------
    int
        How many directions receive more noise from the gradient than there may be.
    """
    pull = 0.5 * step_size * step_size
    clips = 0
    for j in range(known_noise.size):
        left = 1.0 - pull * known_noise[j] / (2.0 - pull)
        clips += left < 0.0
        spread[j] = math.sqrt(max(left, 0.0))
    return clips


@kernel
def averaged_langevin(
    field: Callback,
    arguments: Integers,
    x: Vector,
    last_noise: Vector,
    step_size: float,
    known_noise: Vector,
    stream: Stream,
    gradient: Vector,
) -> tuple[float, int]:
    r"""Run the inner steps of one draw, in place.

    x ← x + (h²/2) ∇log π(x) + h c_j (ν + ν′)/2, where ν′ ~ N(0, I) is the ν of the next step: the
    step of Langevin dynamics as in `sgld`, whose noise is the mean of two. As the friction grows
    the splitting B A O A B turns into it; its positions are right to the second order, and those
    of a normal law are right at every step that is stable, h²λ < 4.

    Parameters
    ----------
    field : Callback
        Gradient field (`pymc_geodesic.runtime.fields`).
    arguments : ndarray of int64, shape (n_steps,)
        One argument per inner step, usually the first row of its minibatch.
    x : ndarray, shape (size,)
        Position in coordinates in which the posterior has covariance I.
    last_noise : ndarray, shape (size,)
        ν, replaced.
    step_size : float
        h, in posterior standard deviations; less than 2.
    known_noise : ndarray, shape (size,)
        Variance b_j of the gradient estimate, which is taken off the noise.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    gradient : ndarray, shape (size,) or longer
        Scratch space.

    Returns
    -------
    temperature : float
        Mean of −x·∇log π/m over the inner steps: 1 where the positions have their law, because no
        minibatch depends on the position it is drawn for.
    clips : int
        Directions in which nothing is left to inject.

    References
    ----------
    Leimkuhler, Matthews (2013), Rational Construction of Stochastic Numerical Methods for Molecular
    Sampling, eq. 1.5; Ahn, Korattikara, Welling (2012), Stochastic Gradient Fisher Scoring, eq. 15.
    """
    x, last_noise = borrow(x), borrow(last_noise)
    gradient, stream = borrow(gradient), borrow(stream)
    size = x.size
    noise, spread = np.empty(size), np.empty(size)
    clips = noise_that_is_left(step_size, known_noise, spread)
    pull, half = 0.5 * step_size * step_size, 0.5 * step_size
    total = 0.0
    for argument in arguments:
        evaluate(field.address, x, argument, field.context, gradient)
        fill_normal(stream, noise)
        for j in range(size):
            total -= x[j] * gradient[j]
            x[j] += pull * gradient[j] + half * spread[j] * (last_noise[j] + noise[j])
            last_noise[j] = noise[j]
    return total / (arguments.size * size), clips
