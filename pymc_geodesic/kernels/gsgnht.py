"""Geodesic stochastic gradient Nosé–Hoover thermostat (gSGNHT) transitions."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.integrators import (
    FrictionAndNoise,
    Scratch,
    State,
    Thermostat,
    block_slice,
    cancel_harmonic_force,
    drift,
    friction_coefficients,
    kick_with_friction,
    kinetic_temperature,
    position_temperature,
    velocity_ratio,
)
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.manifolds.product_flows import project
from pymc_geodesic.runtime.gradient_functions import Callback, evaluate
from pymc_geodesic.runtime.jit import Flags, Integers, Matrix, Stream, Vector, borrow, kernel, part
from pymc_geodesic.runtime.streams import fill_normal

MAX_STEP_ERROR = 0.9
"""Upper bound on r ε²λ/4 in `target_along_geodesics`; the step is stable below 1."""

CURVATURE_MEMORY = 0.98
"""Factor by which the sums for the mean curvature decay from draw to draw."""

OUTLIER_RATIO = 10.0
"""Ratio of v·v to its target above which a draw does not update the curvature."""


@part
def update_thermostat(
    space: Space, state: State, thermostat: Thermostat, targets: Vector, time: float
) -> None:
    """Change ξ by time · (v·v/m − τ)/Q, half of step A, before or after a kick.

    ``targets`` contains τ of each block; it is 1 in algorithm 2. On geodesics v·v is constant.
    """
    for block in range(space.blocks.shape[0]):
        v = state.v[block_slice(space.blocks, block)]
        deviation = kinetic_temperature(v, space.dims[block]) - targets[block]
        thermostat.xi[block] += time * deviation / thermostat.inertia[block]


@kernel
def gsgnht(
    logp_grad: Callback,
    minibatches: Integers,
    space: Space,
    state: State,
    thermostat: Thermostat,
    curvature_sums: Matrix,
    step_size: float,
    is_harmonic: Flags,
    friction: FrictionAndNoise,
    stream: Stream,
    scratch: Scratch,
    temperatures: Vector,
) -> int:
    r"""Run the inner steps of one gSGNHT draw, in place: the loop over l of algorithm 2.

    The dynamics of SGGMC with a friction that adapts until v·v/m = T, by one thermostat ξ for each
    variable: Λ(x) dv = Λ(x)(∇log π dt − (C + ξ) v dt + N(0, 2C dt)), Q dξ = (v·v/m − T) dt. The ξ
    of the paper, which starts at C, is C + ξ here: ξ starts at 0, and its mean is the friction that
    balances unknown gradient noise. The paper has T = Q = 1. In the pattern A B O B A:

    ===== ========================================================= ===============================
    step  algorithm 2 with C + ξ for its ξ, U = −log π              here
    ===== ========================================================= ===============================
    A     (x, v) on the geodesic for ε/2, ξ ← ξ + (v·v/m − 1) ε/2   `drift`, `update_thermostat`
    B     v ← exp(−(C + ξ) ε/2) v                                   `kick_with_friction`
    O     v ← v + Λ(x)(−ε ∇Ũ(x) + N(0, (2C − εV) ε))                `kick_with_friction`, `project`
    B     v ← exp(−(C + ξ) ε/2) v                                   `kick_with_friction`
    A     (x, v) on the geodesic for ε/2, ξ ← ξ + (v·v/m − 1) ε/2   `drift`, `update_thermostat`
    ===== ========================================================= ===============================

    The order of Λ(x), merged steps, minibatches, V, the splitting ``EXACT`` and the split
    Hamiltonian are as in `pymc_geodesic.kernels.sggmc`.

    Along geodesics the mean of v·v/m differs from the temperature of the positions by a factor that
    tends to 1 as ε → 0: `target_along_geodesics` replaces the 1 of the algorithm.

    Parameters
    ----------
    thermostat : Thermostat
        ξ, Q and the temperature T of the positions; ξ is changed in place.
    curvature_sums : ndarray, shape (n_blocks, 2)
        Sums of v·v and of λ v·v, where λ is the curvature of −log π along v, which
        `update_curvature` updates at each draw; initially zeros, which means λ = 0.
    logp_grad, minibatches, space, state, step_size, is_harmonic, friction, stream
    scratch, temperatures
        See `pymc_geodesic.kernels.sggmc`.

    Returns
    -------
    int
        Number of coordinates whose injected noise is clipped at zero, since the known noise is
        larger.

    References
    ----------
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, eq. 6 and 8, algorithm 2.
    """
    space, state, thermostat = borrow(space), borrow(state), borrow(thermostat)
    stream, scratch, temperatures = borrow(stream), borrow(scratch), borrow(temperatures)
    blocks, x, v, xi = space.blocks, state.x, state.v, thermostat.xi
    gradient, noise, splitting = scratch.gradient, scratch.noise, friction.splitting
    n_steps, n_blocks = minibatches.size, blocks.shape[0]
    decay, noise_sd = np.empty(x.size), np.empty(x.size)
    clips = friction_coefficients(
        step_size, friction.friction, friction.known_noise, splitting, decay, noise_sd
    )
    work, targets = np.zeros((n_blocks, 2)), np.empty(n_blocks)
    for block in range(n_blocks):
        temperatures[block] = 0.0
        whole_decay = math.exp(-xi[block] * step_size) * decay[blocks[block, 1]]
        targets[block] = target_along_geodesics(
            thermostat.temperatures[block], curvature_sums[block], whole_decay, step_size, splitting
        )
    drift(space, state, 0.5 * step_size, is_harmonic)  # A
    for step in range(n_steps):
        evaluate(logp_grad.address, x, minibatches[step], logp_grad.context, gradient)
        cancel_harmonic_force(space, x, gradient, 1.0, is_harmonic)
        fill_normal(stream, noise)
        update_thermostat(space, state, thermostat, targets, 0.5 * step_size)
        for block in range(n_blocks):
            own = block_slice(blocks, block)
            drag = math.exp(-xi[block] * step_size)
            square, power = kick_with_friction(  # B O B
                v[own], gradient[own], noise[own], decay[own], noise_sd[own], drag, step_size,
                splitting,
            )  # fmt: skip
            work[block, 0] += square
            work[block, 1] += power
            temperatures[block] += position_temperature(
                square, power, drag * decay[own.start], step_size, splitting, space.dims[block]
            )
        project(blocks, x, v)  # Λ(x)
        update_thermostat(space, state, thermostat, targets, 0.5 * step_size)
        time = step_size if step < n_steps - 1 else 0.5 * step_size
        drift(space, state, time, is_harmonic)  # A, and next A
    for block in range(n_blocks):
        temperatures[block] /= n_steps
        targets[block] *= n_steps * space.dims[block]
    update_curvature(curvature_sums, work, targets, step_size)
    return clips


@part
def target_along_geodesics(
    temperature: float, curvature_sums: Vector, decay: float, step_size: float, splitting: int
) -> float:
    r"""Compute the target of v·v/m along geodesics for which the positions have temperature T.

    It is T r / (1 − r ε²λ/4), where λ is the mean curvature along the velocities and r is 1 in the
    exact splitting, 1 / cosh(ρ/2) in that of the paper
    (`pymc_geodesic.integrators.velocity_ratio`).

    Parameters
    ----------
    temperature : float
        T of the positions.
    curvature_sums : ndarray, shape (2,)
        From `update_curvature`; zeros for λ = 0.
    decay : float
        exp(−ρ), the factor by which friction and thermostat reduce a velocity in a step.
    step_size : float
        ε, a time.
    splitting : {EXACT, PAPER}
    """
    ratio, error = velocity_ratio(decay, splitting), 0.0
    if curvature_sums[0] > 0.0:
        curvature = curvature_sums[1] / curvature_sums[0]
        error = min(max(0.25 * ratio * step_size**2 * curvature, 0.0), MAX_STEP_ERROR)
    return temperature * ratio / (1.0 - error)


@part
def update_curvature(
    curvature_sums: Matrix, work: Matrix, expected: Vector, step_size: float
) -> None:
    r"""Update the exponentially weighted sums for the mean curvature, in place.

    Before a kick, at the end of a geodesic of length ε, the mean of v·∇log π over the stationary
    distribution is −(ε/2) λ v·v, where λ is the curvature of −log π along v. With a split
    Hamiltonian see `position_temperature`.

    Parameters
    ----------
    curvature_sums : ndarray, shape (n_blocks, 2)
        Sums of v·v and of λ v·v.
    work : ndarray, shape (n_blocks, 2)
        Sums over inner steps of v·v and of v·∇log π before each kick.
    expected : ndarray, shape (n_blocks,)
        Target of the sum of v·v. The sums are not updated if v·v is `OUTLIER_RATIO` times as large.
    step_size : float
        ε, a time.
    """
    for block in range(expected.size):
        square, power = work[block, 0], work[block, 1]
        if not (square < OUTLIER_RATIO * expected[block] and math.isfinite(power)):
            return
    for block in range(expected.size):
        square, power = work[block, 0], work[block, 1]
        old_square, old_product = curvature_sums[block, 0], curvature_sums[block, 1]
        curvature_sums[block, 0] = CURVATURE_MEMORY * old_square + square
        curvature_sums[block, 1] = CURVATURE_MEMORY * old_product - 2.0 / step_size * power
