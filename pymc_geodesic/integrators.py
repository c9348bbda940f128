"""Splitting integrators: flows and kicks on a product of manifolds, independent of densities.

Functions update the packed position ``x`` and velocity ``v``, both of shape ``(size,)``, in place.
``blocks`` is the table of a `pymc_geodesic.manifolds.Product`, with one row per variable: its
second, third and fourth columns are the first index of the variable, its number of points and the
ambient size of a point. Step sizes are times; gradients are those of the log-density.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.manifolds.product_flows import EUCLIDEAN, geodesic, project, scaled_geodesic
from pymc_geodesic.runtime.jit import Flags, Table, Vector, compiled, part
from pymc_geodesic.runtime.numerics import exponential
from pymc_geodesic.runtime.streams import fill_normal

EXACT = 0
PAPER = 1

NOT_HARMONIC = np.zeros(0, dtype=bool)
"""``is_harmonic`` of `drift` if the Hamiltonian is not split."""


class State(NamedTuple):
    """Position and velocity, which kernels update in place.

    Parameters
    ----------
    x, v : ndarray, shape (size,)
    """

    x: Vector
    v: Vector


class Scratch(NamedTuple):
    """Working memory of kernels.

    Parameters
    ----------
    gradient : ndarray, shape (size,) or longer
    noise : ndarray, shape (size,)
        Normal variates of one inner step.
    """

    gradient: Vector
    noise: Vector


class FrictionAndNoise(NamedTuple):
    """Friction and known gradient noise of each coordinate.

    Parameters
    ----------
    friction : ndarray, shape (size,)
        C of Liu et al. (2016), per unit of time; equal on all coordinates of a point on a manifold.
    known_noise : ndarray, shape (size,)
        V, variance of the gradient estimate that is subtracted from the injected noise; zero if it
        is unknown.
    splitting : {EXACT, PAPER}
        Composition of the part B O B (`kick_with_friction`). With ``PAPER`` the friction must be
        equal on all coordinates of a block.
    """

    friction: Vector
    known_noise: Vector
    splitting: int


class Thermostat(NamedTuple):
    """Thermostats, one for each block.

    Parameters
    ----------
    xi : ndarray, shape (n_blocks,)
        ξ, a friction, per unit of time, which kernels update in place; it does not include C in
        `pymc_geodesic.kernels.gsgnht`, and includes A in `pymc_geodesic.kernels.ssgnht`.
    inertia : ndarray, shape (n_blocks,)
        Q, a time squared; 1 in the papers. The stationary distribution of ξ has variance 1/(mQ).
    temperatures : ndarray, shape (n_blocks,)
        T, target temperature of the positions; 1 for the posterior, above 1 during annealing.
    """

    xi: Vector
    inertia: Vector
    temperatures: Vector


@part
def drift(space: Space, state: State, time: float, is_harmonic: Flags) -> None:
    r"""Move along geodesics, and apply the flow of x·x/2 + v·v/2 to harmonic coordinates.

    This is the exact Hamiltonian flow of N(0, I):

    .. math:: x \leftarrow x \cos t + v \sin t, \quad v \leftarrow v \cos t - x \sin t

    Block b moves for t = ``scales[b] * time``.

    Parameters
    ----------
    is_harmonic : ndarray of bool, shape (size,) or (0,)
        Euclidean coordinates of a split Hamiltonian that follow this flow; empty if there are none.
    """
    blocks, x, v = space.blocks, state.x, state.v
    if not is_harmonic.size:
        scaled_geodesic(blocks, space.scales, x, v, time)
        return
    for block in range(blocks.shape[0]):
        angle = space.scales[block] * time
        if blocks[block, 0] != EUCLIDEAN:
            geodesic(blocks[block : block + 1], x, v, angle)
            continue
        cosine, sine = math.cos(angle), math.sin(angle)
        start = blocks[block, 1]
        for i in range(start, start + blocks[block, 2] * blocks[block, 3]):
            position, velocity = x[i], v[i]
            if is_harmonic[i]:
                x[i] = cosine * position + sine * velocity
                v[i] = cosine * velocity - sine * position
            else:
                x[i] = position + angle * velocity


@part
def cancel_harmonic_force(
    space: Space, x: Vector, force: Vector, time: float, is_harmonic: Flags
) -> None:
    """Add x times ``scales[b] * time`` to a force or velocity on harmonic coordinates.

    This leaves the residual ∇log π(x) + x of a gradient, the part that `drift` does not contain.
    """
    blocks = space.blocks
    for block in range(blocks.shape[0] if is_harmonic.size else 0):
        if blocks[block, 0] == EUCLIDEAN:
            factor = space.scales[block] * time
            start = blocks[block, 1]
            for i in range(start, start + blocks[block, 2] * blocks[block, 3]):
                if is_harmonic[i]:
                    force[i] += factor * x[i]


@compiled
def refresh_velocity(blocks: np.ndarray, x: np.ndarray, v: np.ndarray, stream: np.ndarray) -> None:
    """Draw v ~ N(0, I) on the tangent space at ``x``."""
    fill_normal(stream, v)
    project(blocks, x, v)


@part
def block_slice(blocks: Table, block: int) -> slice:
    """Coordinates of a variable in the packed vector."""
    start = blocks[block, 1]
    return slice(start, start + blocks[block, 2] * blocks[block, 3])


@compiled
def friction_coefficients(
    step_size: float,
    friction: np.ndarray,
    known_noise: np.ndarray,
    splitting: int,
    decay: np.ndarray,
    noise_sd: np.ndarray,
) -> int:
    r"""Compute the coefficients e and s of `kick_with_friction` for each coordinate.

    With friction C and the known variance V of the gradient estimate:

    ========= ========== ========================================
    splitting decay e    noise s
    ========= ========== ========================================
    ``PAPER`` exp(−Cε)   sqrt(e (2C − εV) ε)
    ``EXACT`` exp(−Cε)   sqrt(1 − e² − (ε/2)² (1 + e)² V)
    ========= ========== ========================================

    Parameters
    ----------
    step_size : float
        ε, a time.
    friction, known_noise : ndarray, shape (size,)
        C, per unit of time, and V.
    splitting : {EXACT, PAPER}
    decay, noise_sd : ndarray, shape (size,)
        Receive e and s.

    Returns
    -------
    int
        Number of coordinates whose known noise exceeds the noise of the dynamics, so that s is
        clipped at 0.
    """
    clips = 0
    for j in range(friction.size):
        e = exponential(-friction[j] * step_size)
        if splitting == PAPER:
            variance = e * (2.0 * friction[j] - step_size * known_noise[j]) * step_size
        else:
            gradient_time = 0.5 * step_size * (1.0 + e)
            variance = 1.0 - e * e - gradient_time * gradient_time * known_noise[j]
        clips += variance < 0.0
        decay[j], noise_sd[j] = e, math.sqrt(max(variance, 0.0))
    return clips


@part
def kick_with_friction(
    v: Vector,
    gradient: Vector,
    noise: Vector,
    decay: Vector,
    noise_sd: Vector,
    drag: float,
    step_size: float,
    splitting: int,
) -> tuple[float, float]:
    r"""Apply gradient, friction and noise to the velocities of one variable: the part B O B.

    With e = exp(−Cε) and normal variates n:

    ==== ========================================== ========================
    part ``PAPER``, as in algorithm 1               ``EXACT``
    ==== ========================================== ========================
    B    v ← √e v                                   v ← v + (ε/2) ∇log π
    O    v ← v + ε ∇log π + sqrt((2C − εV) ε) n     v ← e v + s n
    B    v ← √e v                                   v ← v + (ε/2) ∇log π
    ==== ========================================== ========================

    Combined, v ← e (v + h ∇log π) + p ∇log π + s n + h ∇log π, where h = 0 and p = ε√e in the first
    column, h = ε/2 and p = 0 in the second, and `friction_coefficients` computes s. Both are of
    second order. Without a gradient the stationary variance of a velocity is Cε / sinh Cε in the
    first and 1 for every ε in the second, which solves friction and noise together.

    A thermostat with the friction ξ in addition to C multiplies velocities by √d before and after
    O, d = exp(−ξε): e becomes d e, p and s become √d p and √d s.

    Parameters
    ----------
    v : ndarray, shape (size,)
        Velocities, updated in place. The caller applies the projection Λ(x), which is part of O:
        the friction of a point on a manifold is a scalar, so that Λ(x) commutes with it and can be
        applied last.
    gradient : ndarray, shape (size,)
        ∇log π, estimated from a minibatch.
    noise : ndarray, shape (size,)
        n.
    decay, noise_sd : ndarray, shape (size,)
        e and s.
    drag : float
        d; 1 without a thermostat.
    step_size : float
        ε, a time.
    splitting : {EXACT, PAPER}

    Returns
    -------
    square, power : float
        v·v and v·∇log π before the kick, for `position_temperature`.
    """
    half, middle = 0.5 * step_size, 0.0
    if splitting == PAPER:
        half, middle = 0.0, step_size * math.sqrt(decay[0])
    root = math.sqrt(drag)
    square = power = 0.0
    for j in range(v.size):
        old, force = v[j], gradient[j]
        square += old * old
        power += old * force
        kicked = drag * decay[j] * (old + half * force)
        v[j] = kicked + root * (middle * force + noise_sd[j] * noise[j]) + half * force
    return square, power


@part
def velocity_ratio(decay: float, splitting: int) -> float:
    """Ratio of v·v/m to the temperature of the positions for small ε: 1, or 1 / cosh(ρ/2).

    ``decay`` is exp(−ρ), the factor by which friction and thermostat reduce a velocity in a step.
    """
    return 1.0 if splitting == EXACT else 2.0 * math.sqrt(decay) / (1.0 + decay)


@part
def position_temperature(
    square: float, power: float, decay: float, step_size: float, splitting: int, dim: float
) -> float:
    r"""Estimate the temperature of the positions from the velocities before a kick.

    T = (v·v + (ε/2) v·∇log π) / m in the exact splitting: v·v/m between the halves of a kick, minus
    the gradient noise that both halves share. Before and after a kick the mean of v·v/m is
    T / (1 − ε²λ/4) along a direction of curvature λ. In the paper's splitting cosh(ρ/2) v·v
    replaces v·v in T. With a split Hamiltonian the residual replaces ∇log π, and δ² approximately
    replaces λ for the curvature 1 + δ.

    Parameters
    ----------
    square, power : float
        v·v and v·∇log π, from `kick_with_friction`.
    decay : float
        exp(−ρ), the factor by which friction and thermostat reduce a velocity in a step.
    step_size : float
        ε, a time.
    splitting : {EXACT, PAPER}
    dim : float
        m, the dimension of the variable.
    """
    return (square / velocity_ratio(decay, splitting) + 0.5 * step_size * power) / dim


@compiled
def kinetic_temperature(v: np.ndarray, dim: float) -> float:
    """Compute v·v / dim of one block."""
    total = 0.0
    for i in range(v.size):
        total += v[i] * v[i]
    return total / dim


@compiled
def kick(
    blocks: np.ndarray, x: np.ndarray, v: np.ndarray, gradient: np.ndarray, time: float
) -> None:
    """Kick: v ← Λ(x)(v + time · ∇log π(x)), Λ the projection onto the tangent space at x."""
    for i in range(x.size):
        v[i] += time * gradient[i]
    project(blocks, x, v)
