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

from pymc_geodesic.manifolds.blocks import geodesic, project, scaled_geodesic
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.kernel import Vector, part
from pymc_geodesic.runtime.streams import fill_normal

__all__ = [
    "EXACT",
    "PAPER",
    "Scratch",
    "State",
    "Thermostat",
    "drift",
    "kick",
    "kinetic_temperature",
    "langevin_coefficients",
    "langevin_kick",
    "refresh_velocity",
    "scaled_drift",
    "temperature_within",
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


class Thermostat(NamedTuple):
    """Frictions that are driven towards a kinetic temperature, one for each block.

    Parameters
    ----------
    friction : ndarray, shape (n_blocks,)
        ξ, per unit of time, which kernels change in place.
    inertia : ndarray, shape (n_blocks,)
        Q, a time squared; 1 in the papers. The stationary law of ξ has variance 1/(mQ).
    targets : ndarray, shape (n_blocks,)
        T, the mean of v·v/m that each thermostat holds.
    """

    friction: Vector
    inertia: Vector
    targets: Vector


@part
def drift(space: Space, state: State, time: float) -> None:
    """Move along geodesics."""
    geodesic(space.blocks, state.x, state.v, time)


@part
def scaled_drift(space: Space, state: State, time: float) -> None:
    """Move along geodesics, each block for ``scales[b] * time``."""
    scaled_geodesic(space.blocks, space.scales, state.x, state.v, time)


@compiled
def refresh_velocity(blocks: np.ndarray, x: np.ndarray, v: np.ndarray, stream: np.ndarray) -> None:
    """Draw v ~ N(0, I) on the tangent space at ``x``."""
    fill_normal(stream, v)
    project(blocks, x, v)


@compiled
def langevin_coefficients(
    friction: float, diffusion: float, step_size: float, splitting: int
) -> tuple[float, float, float]:
    r"""Coefficients of the kick v ← decay·v + push·∇log π + sqrt(variance)·n.

    Parameters
    ----------
    friction : float
        ξ, per unit of time; may be negative for a thermostat.
    diffusion : float
        C, the injected noise has intensity 2C; equals ``friction`` without a thermostat.
    step_size : float
        ε, a time.
    splitting : {EXACT, PAPER}
        ``PAPER`` is B/2 O B/2 of the geodesic papers: half a friction step, the gradient and the
        noise N(0, 2Cε), half a friction step. ``EXACT`` is half a gradient kick, the exact
        Ornstein-Uhlenbeck flow, half a gradient kick. Both are of second order; with ρ = Cε the
        first leaves a free particle at the kinetic temperature ρ / sinh ρ, the second at 1, and
        the second also keeps the temperature of slow positions at 1 for every ρ (fixing only the
        noise of the first would leave it at cosh(ρ/2)).

    Returns
    -------
    decay, push, variance : float
        The gradient enters with ``push``, so that gradient noise of variance V adds
        ``push² V``, which is what a known V takes off ``variance``.
    """
    angle = friction * step_size
    decay = math.exp(-angle)
    if splitting == PAPER:
        return decay, step_size * math.exp(-0.5 * angle), decay * 2.0 * diffusion * step_size
    push = 0.5 * step_size * (1.0 + decay)
    if abs(angle) < 1e-8:
        variance = 2.0 * diffusion * step_size
    else:
        variance = -diffusion * math.expm1(-2.0 * angle) / friction
    return decay, push, variance


@compiled
def langevin_kick(
    v: np.ndarray,
    gradient: np.ndarray,
    decay: float,
    push: float,
    variance: float,
    gradient_noise: np.ndarray,
    stream: np.ndarray,
    noise: np.ndarray,
) -> tuple[int, float, float]:
    """Friction, gradient and noise on one block of velocities, before projection.

    Parameters
    ----------
    v, gradient : ndarray, shape (size,)
        Velocity (changed in place) and gradient of the log-density of the block.
    decay, push, variance : float
        From `langevin_coefficients`.
    gradient_noise : ndarray, shape (size,) or (0,)
        V, the variance of the gradient estimate; empty where it is taken as zero.
    noise : ndarray
        Scratch space.

    Returns
    -------
    clips : int
        How many components had ``variance < push² V`` and were clipped at zero.
    square, power : float
        v·v and v·∇log π before the kick, for `temperature_within`.
    """
    clips = 0
    square = 0.0
    power = 0.0
    scale = math.sqrt(variance)
    for start in range(0, v.size, noise.size):
        n = min(noise.size, v.size - start)
        fill_normal(stream, noise[:n])
        if gradient_noise.size == 0:
            for i in range(n):
                old, force = v[start + i], gradient[start + i]
                square += old * old
                power += old * force
                v[start + i] = decay * old + push * force + scale * noise[i]
        else:
            for i in range(n):
                left = variance - push * push * gradient_noise[start + i]
                clips += left < 0.0
                old, force = v[start + i], gradient[start + i]
                square += old * old
                power += old * force
                v[start + i] = decay * old + push * force + math.sqrt(max(left, 0.0)) * noise[i]
    return clips, square, power


@compiled
def temperature_within(square: float, power: float, decay: float, push: float, dim: float) -> float:
    r"""Kinetic temperature within a kick, between the halves of the gradient.

    v·(v + h∇log π) / dim, where v is the velocity before the kick and h = push / (1 + decay) is the
    time of half of its gradient, ε/2 in the exact splitting.

    Before and after a kick the mean of v·v is T / (1 − ε²λ/4) along a direction of curvature λ,
    while the positions have the temperature T: there v·v is the larger, the longer the step. T is
    the mean of v·v between the halves, and that of the product here, which is not heated by the
    noise that both halves share, and which needs no projection, since v is a tangent. Of the
    positions T is the temperature in the exact splitting; in the paper's it is that times
    1 / cosh(ρ/2).

    Parameters
    ----------
    square, power : float
        v·v and v·∇log π before the kick.
    decay, push : float
        From `langevin_coefficients`.
    dim : float
        Dimension of the block.
    """
    return (square + push / (1.0 + decay) * power) / dim


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
