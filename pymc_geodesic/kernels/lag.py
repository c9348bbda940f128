"""By how much v·v along geodesics exceeds the temperature of the positions."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.integrators import langevin_coefficients
from pymc_geodesic.runtime.jit import compiled

__all__ = ["held_along_geodesics", "learn_curvature"]

LARGEST_LAG = 0.9
"""Bound of ε²λ/4, which reaches 1 where a step is no longer stable."""

STRAY = 10.0
"""Factor by which v·v may miss its target and still tell the curvature."""


@compiled
def held_along_geodesics(
    targets: np.ndarray,
    curvature_sums: np.ndarray,
    thermostat: np.ndarray,
    diffusion: np.ndarray,
    step_size: float,
    splitting: int,
    held: np.ndarray,
) -> None:
    r"""Mean of v·v/m along geodesics at which the positions have a temperature.

    T r / (1 − r ε²λ/4), where λ is the mean curvature along the velocities and r is 1 in the exact
    splitting, 1 / cosh(ρ/2) in that of the paper.

    Parameters
    ----------
    targets : ndarray, shape (n_blocks,)
        T.
    curvature_sums : ndarray, shape (n_blocks, 2)
        From `learn_curvature`; zero where nothing was learned, for λ = 0.
    thermostat, diffusion : ndarray, shape (n_blocks,)
        ξ and C, per unit of time.
    step_size : float
        ε, a time.
    splitting : int
        `pymc_geodesic.integrators.EXACT` or ``PAPER``.
    held : ndarray, shape (n_blocks,)
        Receives the result.
    """
    for block in range(targets.size):
        decay, push, _ = langevin_coefficients(
            thermostat[block], diffusion[block], step_size, splitting
        )
        ratio = 2.0 * push / ((1.0 + decay) * step_size)
        lag = 0.0
        if curvature_sums[block, 0] > 0.0:
            curvature = curvature_sums[block, 1] / curvature_sums[block, 0]
            lag = min(max(0.25 * ratio * step_size**2 * curvature, 0.0), LARGEST_LAG)
        held[block] = targets[block] * ratio / (1.0 - lag)


@compiled
def learn_curvature(
    curvature_sums: np.ndarray,
    work: np.ndarray,
    largest: np.ndarray,
    step_size: float,
    memory: float,
) -> None:
    r"""Add what the velocities of some steps met to fading sums, in place.

    After half a geodesic from where a kick left it, a velocity climbs: in the mean over a
    stationary law v·∇log π = −(ε/2) λ v·v before a kick, λ being the curvature of −log π along v.

    Parameters
    ----------
    curvature_sums : ndarray, shape (n_blocks, 2)
        Sums of v·v and of λ v·v.
    work : ndarray, shape (n_blocks, 2)
        Sums of v·v and of v·∇log π over the steps, as `pymc_geodesic.kernels.gsgnht` gives them.
    largest : ndarray, shape (n_blocks,)
        v·v as it should be in these steps. Nothing is learned where it is `STRAY` times as large.
    step_size : float
        ε, a time.
    memory : float
        Part of the sums that is kept.
    """
    for block in range(largest.size):
        square, power = work[block, 0], work[block, 1]
        if not (square < STRAY * largest[block] and math.isfinite(power)):
            return
    for block in range(largest.size):
        curvature_sums[block, 0] = memory * curvature_sums[block, 0] + work[block, 0]
        curvature_sums[block, 1] = (
            memory * curvature_sums[block, 1] - 2.0 / step_size * work[block, 1]
        )
