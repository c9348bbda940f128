"""Stochastic gradient geodesic Monte Carlo."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.integrators import langevin_coefficients, langevin_kick, temperature_within
from pymc_geodesic.manifolds.product import geodesic, project
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.jit import borrow, compiled

__all__ = ["sggmc"]


@compiled
def sggmc(
    field: int,
    context: np.ndarray,
    arguments: np.ndarray,
    blocks: np.ndarray,
    dims: np.ndarray,
    x: np.ndarray,
    v: np.ndarray,
    step_size: float,
    friction: np.ndarray,
    gradient_noise: np.ndarray,
    splitting: int,
    stream: np.ndarray,
    gradient: np.ndarray,
    noise: np.ndarray,
) -> tuple[float, int]:
    r"""Run the inner steps of one SGGMC draw, in place.

    The dynamics dx = v dt, dv = Λ(x)(∇log π dt − C v dt + N(0, 2C dt)) on a product of manifolds,
    integrated in the pattern A B O B A: half a geodesic, friction, stochastic gradient and noise,
    friction, half a geodesic. The half geodesics of neighbouring steps are merged.

    Parameters
    ----------
    field : int
        Address of a gradient field (`pymc_geodesic.runtime.fields`).
    context : ndarray of int64
        Passed on to the field.
    arguments : ndarray of int64, shape (n_steps,)
        One argument per inner step, usually the first row of its minibatch.
    blocks : ndarray of int64, shape (n_blocks, 6)
        The product manifold.
    dims : ndarray, shape (n_blocks,)
        Intrinsic dimension of each block.
    x, v : ndarray, shape (size,)
        Position and velocity.
    step_size : float
        ε, a time.
    friction : ndarray, shape (n_blocks,)
        C of each block, per unit of time.
    gradient_noise : ndarray, shape (size,) or (0,)
        V, known variance of the gradient estimate; empty for zero.
    splitting : int
        `pymc_geodesic.integrators.EXACT` or ``PAPER``.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    gradient, noise : ndarray
        Scratch space, ``gradient`` of shape (size,).

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
    blocks, x, v = borrow(blocks), borrow(x), borrow(v)
    gradient, gradient_noise = borrow(gradient), borrow(gradient_noise)
    stream, noise = borrow(stream), borrow(noise)
    n_steps = arguments.size
    temperature = 0.0
    clips = 0
    geodesic(blocks, x, v, 0.5 * step_size)
    for step in range(n_steps):
        evaluate(field, x, arguments[step], context, gradient)
        for block in range(blocks.shape[0]):
            part = slice(blocks[block, 1], blocks[block, 1] + blocks[block, 2] * blocks[block, 3])
            decay, push, variance = langevin_coefficients(
                friction[block], friction[block], step_size, splitting
            )
            known = gradient_noise[part] if gradient_noise.size else gradient_noise
            clipped, square, power = langevin_kick(
                v[part], gradient[part], decay, push, variance, known, stream, noise
            )
            clips += clipped
            temperature += temperature_within(square, power, decay, push, dims[block])
        project(blocks, x, v)
        geodesic(blocks, x, v, step_size if step < n_steps - 1 else 0.5 * step_size)
    return temperature / (n_steps * blocks.shape[0]), clips
