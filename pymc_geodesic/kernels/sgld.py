"""Stochastic gradient Langevin dynamics, with or without AdaGrad."""

from __future__ import annotations

import math

from pymc_geodesic.integrators import Scratch
from pymc_geodesic.runtime.fields import Callback, evaluate
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.kernel import Integers, Stream, Vector, kernel
from pymc_geodesic.runtime.streams import fill_normal

__all__ = ["adagrad_metric", "sgld"]

DAMPING = 1.0
"""What AdaGrad adds to the root of the summed squares, in units of the gradient.

A coordinate whose gradient was zero so far would otherwise take a step without bound, and so would
the noise: no preconditioner is larger than 1.
"""


@compiled(inline="always")
def adagrad_metric(square: float) -> float:
    """P of a coordinate whose squared gradients sum to ``square``."""
    return 1.0 / (DAMPING + math.sqrt(square))


@kernel
def sgld(
    field: Callback,
    arguments: Integers,
    x: Vector,
    step_size: float,
    squares: Vector,
    stream: Stream,
    scratch: Scratch,
) -> None:
    r"""Run the inner steps of one SGLD draw on Euclidean coordinates, in place.

    x ← x + (h²/2) P ∇log π(x) + h √P n, n ~ N(0, I): the Euler scheme of dx = ½ P ∇log π dt + √P dW
    with steps of h². P is the identity, or the diagonal matrix of AdaGrad,
    Pᵢ = 1 / (1 + sqrt(Gᵢ)), where Gᵢ is the sum of the squares of all gradients so far,
    the present one included; drift and noise are scaled alike.

    Parameters
    ----------
    field : Callback
        Gradient field (`pymc_geodesic.runtime.fields`).
    arguments : ndarray of int64, shape (n_steps,)
        One argument per inner step, usually the first row of its minibatch.
    x : ndarray, shape (size,)
        Position.
    step_size : float
        h, a time: the standard deviation of the noise of one step where P = 1.
    squares : ndarray, shape (size,) or (0,)
        G, changed in place; empty for P = 1.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    scratch : Scratch

    References
    ----------
    Welling, Teh (2011), Bayesian Learning via Stochastic Gradient Langevin Dynamics, eq. 4;
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-Margin Models, eq. 26;
    Duchi, Hazan, Singer (2011), Adaptive Subgradient Methods, figure 1.
    """
    x, squares = borrow(x), borrow(squares)
    stream, scratch = borrow(stream), borrow(scratch)
    gradient, noise = scratch.gradient, scratch.noise
    drift = 0.5 * step_size * step_size
    for argument in arguments:
        evaluate(field.address, x, argument, field.context, gradient)
        for start in range(0, x.size, noise.size):
            n = min(noise.size, x.size - start)
            fill_normal(stream, noise[:n])
            if squares.size == 0:
                for i in range(n):
                    x[start + i] += drift * gradient[start + i] + step_size * noise[i]
            else:
                for i in range(n):
                    squares[start + i] += gradient[start + i] * gradient[start + i]
                    metric = adagrad_metric(squares[start + i])
                    spread = step_size * math.sqrt(metric)
                    x[start + i] += drift * metric * gradient[start + i] + spread * noise[i]
