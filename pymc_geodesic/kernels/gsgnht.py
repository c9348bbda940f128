"""Geodesic stochastic gradient Nosé–Hoover thermostats."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.integrators import (
    FrictionAndNoise,
    Scratch,
    State,
    Thermostat,
    block_slice,
    drift,
    friction_coefficients,
    kick_with_friction,
    kinetic_temperature,
    position_temperature,
    velocity_ratio,
)
from pymc_geodesic.manifolds.blocks import project
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.runtime.fields import Callback, evaluate
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.kernel import Integers, Matrix, Stream, Vector, kernel, part
from pymc_geodesic.runtime.streams import fill_normal

LARGEST_LAG = 0.9
"""Bound of ε²λ/4, which reaches 1 where a step is no longer stable."""

OUTLIER = 10.0
"""Ratio of v·v to its target beyond which nothing is learned about the curvature."""


@part
def drift_with_thermostat(space: Space, state: State, thermostat: Thermostat, time: float) -> None:
    """Step A: move along geodesics, and ξ ← ξ + time · (v·v/m − T)/Q, where v·v stays as it is."""
    blocks = space.blocks
    for block in range(blocks.shape[0]):
        v = state.v[block_slice(blocks, block)]
        deviation = kinetic_temperature(v, space.dims[block]) - thermostat.targets[block]
        thermostat.friction[block] += time * deviation / thermostat.inertia[block]
    drift(space, state, time)


@kernel
def gsgnht(
    logp_grad: Callback,
    minibatches: Integers,
    space: Space,
    state: State,
    thermostat: Thermostat,
    step_size: float,
    friction: FrictionAndNoise,
    stream: Stream,
    scratch: Scratch,
    temperatures: Vector,
    work: Matrix,
) -> int:
    r"""Run the inner steps of one gSGNHT draw, in place: the loop over l of algorithm 2.

    SGGMC whose friction adapts, with one thermostat for each variable, driven towards v·v/m = T:
    dv = Λ(x)(∇log π dt − (C + ξ) v dt + N(0, 2C dt)), dξ = (v·v/m − T)/Q dt. The ξ of the paper,
    which starts at C, is C + ξ here: ξ starts at 0, and its mean is the friction that balances
    unknown gradient noise. The paper has T = Q = 1. In the pattern A B O B A:

    ===== ============================================================== ========================
    step  algorithm 2 with C + ξ for its ξ, U = −log π                   here
    ===== ============================================================== ========================
    A     (x, v) along the geodesic for ε/2, ξ ← ξ + (v·v/m − 1) ε/2     `drift_with_thermostat`
    B     v ← exp(−(C + ξ) ε/2) v                                        `kick_with_friction`
    O     v ← v + Λ(x)(−ε ∇Ũ(x) + N(0, (2C − εV) ε))                     and, for Λ(x),
    B     v ← exp(−(C + ξ) ε/2) v                                        `project`
    A     (x, v) along the geodesic for ε/2, ξ ← ξ + (v·v/m − 1) ε/2     `drift_with_thermostat`
    ===== ============================================================== ========================

    Merged steps, minibatches and the splitting ``EXACT`` are as in `pymc_geodesic.kernels.sggmc`.

    Along geodesics the mean of v·v/m is not the temperature of the positions but exceeds it by a
    factor 1 / (1 − ε²λ/4), λ being the mean curvature, which `update_curvature` estimates from
    ``work``; `thermostat_targets` has the T that leaves the positions at temperature 1.

    Parameters
    ----------
    thermostat : Thermostat
        ξ, Q and T of each block.
    work : ndarray, shape (n_blocks, 2)
        Receives the sums over inner steps of v·v and of v·∇log π before each kick.
    logp_grad, minibatches, space, state, step_size, friction, stream, scratch, temperatures
        See `pymc_geodesic.kernels.sggmc`.

    Returns
    -------
    int
        Coordinates whose injected noise is clipped at zero because the known noise exceeds it.

    References
    ----------
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, eq. 6 and 8, algorithm 2.
    """
    space, state, thermostat = borrow(space), borrow(state), borrow(thermostat)
    stream, scratch, work = borrow(stream), borrow(scratch), borrow(work)
    temperatures = borrow(temperatures)
    blocks, x, v = space.blocks, state.x, state.v
    gradient, noise, splitting = scratch.gradient, scratch.noise, friction.splitting
    n_steps = minibatches.size
    decay, spread = np.empty(x.size), np.empty(x.size)
    clips = friction_coefficients(
        step_size, friction.friction, friction.known_noise, splitting, decay, spread
    )
    temperatures[:], work[:] = 0.0, 0.0
    drift_with_thermostat(space, state, thermostat, 0.5 * step_size)  # A
    for step in range(n_steps):
        evaluate(logp_grad.address, x, minibatches[step], logp_grad.context, gradient)
        fill_normal(stream, noise)
        for block in range(blocks.shape[0]):
            own = block_slice(blocks, block)
            drag = math.exp(-thermostat.friction[block] * step_size)
            square, power = kick_with_friction(  # B O B
                v[own], gradient[own], noise[own], decay[own], spread[own], drag, step_size,
                splitting,
            )  # fmt: skip
            work[block, 0] += square
            work[block, 1] += power
            temperatures[block] += position_temperature(
                square, power, drag * decay[own.start], step_size, splitting, space.dims[block]
            )
        project(blocks, x, v)  # Λ(x)
        time = step_size if step < n_steps - 1 else 0.5 * step_size
        drift_with_thermostat(space, state, thermostat, time)  # A, and the next A
    for block in range(blocks.shape[0]):
        temperatures[block] /= n_steps
    return clips


@compiled
def thermostat_targets(
    temperatures: Vector,
    curvature_sums: Matrix,
    friction: Vector,
    step_size: float,
    splitting: int,
    targets: Vector,
) -> None:
    r"""Mean of v·v/m along geodesics at which the positions have a given temperature.

    T r / (1 − r ε²λ/4), where λ is the mean curvature along the velocities and r is 1 in the exact
    splitting, 1 / cosh(ρ/2) in that of the paper (`pymc_geodesic.integrators.velocity_ratio`).

    Parameters
    ----------
    temperatures : ndarray, shape (n_blocks,)
        T of the positions; 1 for the posterior, more to anneal.
    curvature_sums : ndarray, shape (n_blocks, 2)
        From `update_curvature`; zero where nothing was learned, for λ = 0.
    friction : ndarray, shape (n_blocks,)
        ρ/ε, all friction of a block, per unit of time.
    step_size : float
        ε, a time.
    splitting : {EXACT, PAPER}
    targets : ndarray, shape (n_blocks,)
        Receives the result.
    """
    for block in range(temperatures.size):
        ratio = velocity_ratio(math.exp(-friction[block] * step_size), splitting)
        lag = 0.0
        if curvature_sums[block, 0] > 0.0:
            curvature = curvature_sums[block, 1] / curvature_sums[block, 0]
            lag = min(max(0.25 * ratio * step_size**2 * curvature, 0.0), LARGEST_LAG)
        targets[block] = temperatures[block] * ratio / (1.0 - lag)


@compiled
def update_curvature(
    curvature_sums: Matrix,
    work: Matrix,
    expected: Vector,
    step_size: float,
    memory: float,
) -> None:
    r"""Add the curvature that the velocities of some steps met to fading sums, in place.

    Half a geodesic after a kick, the mean over the stationary distribution of v·∇log π is
    −(ε/2) λ v·v, λ being the curvature of −log π along v.

    Parameters
    ----------
    curvature_sums : ndarray, shape (n_blocks, 2)
        Sums of v·v and of λ v·v.
    work : ndarray, shape (n_blocks, 2)
        From `gsgnht`.
    expected : ndarray, shape (n_blocks,)
        The target of the sum of v·v. Nothing is learned where the sum is `OUTLIER` times as large.
    step_size : float
        ε, a time.
    memory : float
        Fraction of the sums that is kept.
    """
    for block in range(expected.size):
        square, power = work[block, 0], work[block, 1]
        if not (square < OUTLIER * expected[block] and math.isfinite(power)):
            return
    for block in range(expected.size):
        curvature_sums[block, 0] = memory * curvature_sums[block, 0] + work[block, 0]
        curvature_sums[block, 1] = (
            memory * curvature_sums[block, 1] - 2.0 / step_size * work[block, 1]
        )
