"""Splitting integrators: flows and kicks on a product of manifolds, no densities.

Every function moves the packed position ``x`` and velocity ``v``, both of shape ``(size,)``, in
place. ``blocks`` is the table of a `pymc_geodesic.manifolds.Product`: one row per variable, the
second and third and fourth columns of which are its first index, its number of points and the
ambient size of a point. Step sizes are times; gradients are those of the log-density (ascent).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.manifolds.blocks import project, scaled_geodesic
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.kernel import Stream, Vector, part
from pymc_geodesic.runtime.streams import fill_normal

__all__ = [
    "EXACT",
    "PAPER",
    "FrictionAndNoise",
    "Scratch",
    "State",
    "Thermostat",
    "drift",
    "friction_coefficients",
    "gradient_times",
    "kick",
    "kick_with_friction",
    "kinetic_temperature",
    "position_temperature",
    "refresh_velocity",
]

EXACT = 0
PAPER = 1


class State(NamedTuple):
    """Position and velocity, which kernels change in place.

    Parameters
    ----------
    x, v : ndarray, shape (size,)
    """

    x: Vector
    v: Vector


class Scratch(NamedTuple):
    """Memory that kernels write to.

    Parameters
    ----------
    gradient : ndarray, shape (size,) or longer
    noise : ndarray
        As many normal numbers as are drawn at once.
    """

    gradient: Vector
    noise: Vector


class FrictionAndNoise(NamedTuple):
    """Friction of each coordinate, and the gradient noise that is known there.

    Parameters
    ----------
    friction : ndarray, shape (size,)
        γ (C in the paper), per unit of time; equal on all coordinates of a point on a manifold.
    known_noise : ndarray, shape (size,)
        V, variance of the gradient estimate that is subtracted from the injected noise; zero where
        it is unknown.
    splitting : {EXACT, PAPER}
        With ``PAPER`` the friction must be equal on all coordinates of a block.
    """

    friction: Vector
    known_noise: Vector
    splitting: int


class Thermostat(NamedTuple):
    """Thermostats, one for each block.

    Parameters
    ----------
    friction : ndarray, shape (n_blocks,)
        ξ, per unit of time, which kernels change in place.
    inertia : ndarray, shape (n_blocks,)
        Q, a time squared; 1 in the papers. The stationary distribution of ξ has variance 1/(mQ).
    targets : ndarray, shape (n_blocks,)
        T, the mean of v·v/m that each thermostat holds.
    """

    friction: Vector
    inertia: Vector
    targets: Vector


@part
def drift(space: Space, state: State, time: float) -> None:
    """Move along geodesics, block b for ``scales[b] * time``."""
    scaled_geodesic(space.blocks, space.scales, state.x, state.v, time)


@compiled
def refresh_velocity(blocks: np.ndarray, x: np.ndarray, v: np.ndarray, stream: np.ndarray) -> None:
    """Draw v ~ N(0, I) on the tangent space at ``x``."""
    fill_normal(stream, v)
    project(blocks, x, v)


@compiled
def friction_coefficients(
    step_size: float,
    friction: np.ndarray,
    known_noise: np.ndarray,
    splitting: int,
    decay: np.ndarray,
    spread: np.ndarray,
) -> int:
    r"""Coefficients of `kick_with_friction` for each coordinate.

    With e = exp(−γε) and V the known variance of the gradient estimate:

    ========= ========================================
    splitting spread s
    ========= ========================================
    ``EXACT`` sqrt(1 − e² − (ε/2)² (1 + e)² V)
    ``PAPER`` sqrt(e (2γ − εV) ε)
    ========= ========================================

    Both are of second order. With ρ = γε, ``PAPER`` leaves a free particle at the kinetic
    temperature ρ / sinh ρ, ``EXACT`` at 1 for every ρ.

    Parameters
    ----------
    step_size : float
        ε, a time.
    friction, known_noise : ndarray, shape (size,)
        γ, per unit of time, and V.
    splitting : {EXACT, PAPER}
    decay, spread : ndarray, shape (size,)
        Receive e and s.

    Returns
    -------
    int
        Coordinates whose gradient noise exceeds the noise of the dynamics: s is clipped at 0.
    """
    clips, clipped = 0, False
    for j in range(friction.size):
        same = j > 0 and friction[j] == friction[j - 1] and known_noise[j] == known_noise[j - 1]
        if same:  # one exponential for each variable where friction does not differ within it
            decay[j], spread[j] = decay[j - 1], spread[j - 1]
        else:
            e = math.exp(-friction[j] * step_size)
            if splitting == PAPER:
                variance = e * (2.0 * friction[j] - step_size * known_noise[j]) * step_size
            else:
                gradient_time = 0.5 * step_size * (1.0 + e)
                variance = 1.0 - e * e - gradient_time * gradient_time * known_noise[j]
            clipped = variance < 0.0
            decay[j], spread[j] = e, math.sqrt(max(variance, 0.0))
        clips += clipped
    return clips


@part
def kick_with_friction(
    v: Vector,
    gradient: Vector,
    half: float,
    middle: float,
    drag: float,
    decay: Vector,
    spread: Vector,
    stream: Stream,
    noise: Vector,
) -> tuple[float, float]:
    r"""Kick, friction and noise on the velocities of one variable: the part B O B.

    v ← d e (v + h ∇log π) + √d (p ∇log π + s n) + h ∇log π, n ~ N(0, I), with e and s from
    `friction_coefficients`, and h = ε/2, p = 0 in the exact splitting, h = 0, p = ε√e in that of
    the paper (`gradient_times`). d is the part exp(−ξε) of a velocity that a thermostat leaves:
    half of its friction is applied before, half after the rest.

    Parameters
    ----------
    v : ndarray, shape (size,)
        Velocities, changed in place; the projection is left to the caller.
    gradient : ndarray, shape (size,)
        ∇log π, of a minibatch.
    half, middle, drag : float
        h and p, times, and d.
    decay, spread : ndarray, shape (size,)
        e and s.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    noise : ndarray
        Scratch space: as many normal variates as are drawn at once.

    Returns
    -------
    square, power : float
        v·v and v·∇log π before, for `position_temperature`.
    """
    square = power = 0.0
    root = math.sqrt(drag)
    for start in range(0, v.size, noise.size):
        n = min(noise.size, v.size - start)
        fill_normal(stream, noise[:n])
        for i in range(n):
            j = start + i
            old, force = v[j], gradient[j]
            square += old * old
            power += old * force
            kicked = drag * decay[j] * (old + half * force)
            v[j] = kicked + root * (middle * force + spread[j] * noise[i]) + half * force
    return square, power


@part
def gradient_times(step_size: float, decay: float, splitting: int) -> tuple[float, float]:
    """Return the times h and p for which the gradient acts outside of friction and within it."""
    if splitting == PAPER:
        return 0.0, step_size * math.sqrt(decay)
    return 0.5 * step_size, 0.0


@part
def position_temperature(
    square: float, power: float, decay: float, step_size: float, splitting: int, dim: float
) -> float:
    r"""Temperature of the positions, from the velocities before a kick.

    T = (v·v + (ε/2) v·∇log π) / m in the exact splitting: v·v/m between the halves of a kick, less
    the gradient noise that both halves share. Before and after a kick the mean of v·v/m is
    T / (1 − ε²λ/4) along a direction of curvature λ. In the paper's splitting ε is replaced by
    τ = ε / cosh(ρ/2), and T multiplied by ε/τ.

    Parameters
    ----------
    square, power : float
        v·v and v·∇log π, from `kick_with_friction`.
    decay : float
        exp(−ρ): the part of a velocity that friction leaves.
    step_size : float
        ε, a time.
    splitting : {EXACT, PAPER}
    dim : float
        m, the dimension of the variable.
    """
    if splitting == EXACT:
        return (square + 0.5 * step_size * power) / dim
    ratio = 2.0 * math.sqrt(decay) / (1.0 + decay)
    return (square + 0.5 * step_size * ratio * power) / (ratio * dim)


@compiled
def kinetic_temperature(v: np.ndarray, dim: float) -> float:
    """v·v / dim of one block."""
    total = 0.0
    for i in range(v.size):
        total += v[i] * v[i]
    return total / dim


@compiled
def kick(
    blocks: np.ndarray, x: np.ndarray, v: np.ndarray, gradient: np.ndarray, time: float
) -> None:
    """V ← Λ(x)(v + time · ∇log π(x)), Λ the projection onto the tangent space at x."""
    for i in range(x.size):
        v[i] += time * gradient[i]
    project(blocks, x, v)
