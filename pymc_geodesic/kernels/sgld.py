"""Stochastic gradient Langevin dynamics (SGLD) transitions."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.integrators import Scratch
from pymc_geodesic.runtime.gradient_functions import Callback, evaluate
from pymc_geodesic.runtime.jit import Integers, Stream, Vector, borrow, compiled, kernel, part
from pymc_geodesic.runtime.streams import fill_normal

DAMPING = 1.0
"""Constant added to the square root of AdaGrad's sums of squares, in units of the gradient.

It bounds the preconditioner by 1: otherwise the step of a coordinate whose gradient has been zero
so far, and its noise, would be unbounded.
"""


@compiled(inline="always")
def adagrad_preconditioner(square: float) -> float:
    """Compute P of a coordinate from the sum of its squared gradients."""
    return 1.0 / (DAMPING + math.sqrt(square))


@compiled
def remaining_noise(step_size: float, known: np.ndarray, sd: np.ndarray) -> int:
    """Compute c, the sd of the injected noise relative to that for an exact gradient.

    With a = h²/2 and gradients −x + N(0, b) the variance of the positions is c² + ab/(2 − a), which
    is 1 for c² = 1 − ab/(2 − a).

    Returns
    -------
    int
        Number of coordinates whose gradient noise exceeds the noise of the dynamics, so that c is
        clipped at 0.
    """
    clips = 0
    half_square = 0.5 * step_size * step_size
    sd[:] = 1.0
    for j in range(known.size):
        left = 1.0 - half_square * known[j] / (2.0 - half_square)
        clips += left < 0.0
        sd[j] = math.sqrt(max(left, 0.0))
    return clips


@part
def average_with_last(noise: Vector, last: Vector) -> None:
    """Replace the noise ν′ of a step by (ν + ν′)/2, and the last noise ν by ν′."""
    for j in range(last.size):
        mean = 0.5 * (last[j] + noise[j])
        last[j] = noise[j]
        noise[j] = mean


@part
def langevin_step(
    x: Vector, gradient: Vector, noise: Vector, step_size: float, sd: Vector
) -> tuple[float, float]:
    """Add Δ = (h²/2) ∇log π + h c n to x; return −x·∇log π before the step, and Δ·Δ."""
    drift = 0.5 * step_size * step_size
    total = square = 0.0
    for j in range(x.size):
        total -= x[j] * gradient[j]
        change = drift * gradient[j] + step_size * sd[j] * noise[j]
        x[j] += change
        square += change * change
    return total, square


@part
def adagrad_step(
    x: Vector, gradient: Vector, noise: Vector, step_size: float, sd: Vector, squares: Vector
) -> float:
    """Update G, take the step x ← x + (h²/2) P ∇log π + h c √P n; return −x·∇log π before."""
    drift = 0.5 * step_size * step_size
    total = 0.0
    for j in range(x.size):
        total -= x[j] * gradient[j]
        squares[j] += gradient[j] * gradient[j]
        metric = adagrad_preconditioner(squares[j])
        x[j] += drift * metric * gradient[j] + step_size * sd[j] * math.sqrt(metric) * noise[j]
    return total


@kernel
def sgld(
    logp_grad: Callback,
    minibatches: Integers,
    x: Vector,
    step_size: float,
    squares: Vector,
    last_noise: Vector,
    known_noise: Vector,
    stream: Stream,
    scratch: Scratch,
) -> tuple[float, float, int]:
    r"""Run the inner steps of one SGLD draw on Euclidean coordinates, in place.

    x ← x + (h²/2) P ∇log π(x) + h c √P n: the Euler scheme of dx = ½ P ∇log π dt + √P dW with
    steps of h². P is the identity, or the diagonal matrix of AdaGrad, Pᵢ = 1 / (1 + sqrt(Gᵢ)),
    where Gᵢ is the sum of the squares of all gradients so far, including the current one.

    With n = ν′ ~ N(0, I) this is the published scheme, of first order. With n = (ν + ν′)/2, where
    ν is the ν′ of the previous step, it is the limit of the splitting B A O A B for large friction:
    its stationary distribution is accurate to second order, and exact for a normal distribution at
    every stable step size, h²λ < 4.

    Parameters
    ----------
    logp_grad : Callback
        Gradient of the log-density (`pymc_geodesic.runtime.gradient_functions`).
    minibatches : ndarray of int64, shape (n_steps,)
        One for each inner step, usually its first row.
    x : ndarray, shape (size,)
        Position.
    step_size : float
        h, a time: the standard deviation of the noise of one step where P = c = 1.
    squares : ndarray, shape (size,) or (0,)
        G, changed in place; empty for P = 1.
    last_noise : ndarray, shape (size,) or (0,)
        ν, replaced; empty for Euler's method.
    known_noise : ndarray, shape (size,) or (0,)
        Variance b of the gradient estimate in whitened coordinates, which is subtracted from the
        injected noise and gives c; empty where it is unknown, for c = 1.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    scratch : Scratch

    Returns
    -------
    temperature : float
        Mean of −x·∇log π/m over the inner steps; its expectation is 1 in whitened coordinates,
        since minibatches are independent of the position.
    mean_square : float
        Mean of Δ·Δ/m over the inner steps, where Δ is the change of x in a step; 0 with AdaGrad.
        For a normal distribution of covariance I, exact gradients and averaged noise, its
        expectation is h²/2.
    clips : int
        Number of coordinates whose injected noise is clipped at zero, since the known noise is
        larger.

    References
    ----------
    Welling, Teh (2011), Bayesian Learning via Stochastic Gradient Langevin Dynamics, eq. 4;
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-Margin Models, eq. 26;
    Duchi, Hazan, Singer (2011), Adaptive Subgradient Methods, figure 1;
    Leimkuhler, Matthews (2013), Rational Construction of Stochastic Numerical Methods for Molecular
    Sampling, eq. 1.5; Ahn, Korattikara, Welling (2012), Bayesian Posterior Sampling via Stochastic
    Gradient Fisher Scoring, eq. 15.
    """
    x, squares, last_noise = borrow(x), borrow(squares), borrow(last_noise)
    stream, scratch = borrow(stream), borrow(scratch)
    gradient, noise = scratch.gradient, scratch.noise
    sd = np.empty(x.size)
    clips = remaining_noise(step_size, known_noise, sd)
    total = total_square = 0.0
    for minibatch in minibatches:
        evaluate(logp_grad.address, x, minibatch, logp_grad.context, gradient)
        fill_normal(stream, noise)
        if last_noise.size:
            average_with_last(noise, last_noise)
        if squares.size:
            total += adagrad_step(x, gradient, noise, step_size, sd, squares)
        else:
            product, square = langevin_step(x, gradient, noise, step_size, sd)
            total += product
            total_square += square
    n = minibatches.size * x.size
    return total / n, total_square / n, clips
