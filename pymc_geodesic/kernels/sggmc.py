"""Stochastic gradient geodesic Monte Carlo (SGGMC) transitions."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.integrators import (
    FrictionAndNoise,
    Scratch,
    State,
    block_slice,
    cancel_harmonic_force,
    drift,
    friction_coefficients,
    kick_with_friction,
    position_temperature,
)
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.manifolds.product_flows import project
from pymc_geodesic.runtime.gradient_functions import Callback, evaluate
from pymc_geodesic.runtime.jit import Flags, Integers, Stream, Vector, borrow, kernel
from pymc_geodesic.runtime.streams import fill_normal


@kernel
def sggmc(
    logp_grad: Callback,
    minibatches: Integers,
    space: Space,
    state: State,
    step_size: float,
    is_harmonic: Flags,
    friction: FrictionAndNoise,
    stream: Stream,
    scratch: Scratch,
    temperatures: Vector,
) -> int:
    r"""Run the inner steps of one SGGMC draw, in place: the loop over l of algorithm 1.

    The dynamics dx = v dt, Λ(x) dv = Λ(x)(∇log π dt − C v dt + N(0, 2C dt)) on a product of
    manifolds, Λ(x) the projection onto the tangent space at x, in the pattern A B O B A. With
    U = −log π, π the density with respect to the surface measure (U_H in the paper):

    - A, (x, v) along the geodesic for ε/2, is `drift`;
    - B O B is `kick_with_friction`, whose docstring has the table of both splittings: ``EXACT``,
      the default, and ``PAPER``, as in algorithm 1, where O is called C;
    - Λ(x), `project`, is applied after B O B. It commutes with these parts: v is tangent before,
      and C is the same on all coordinates of a point.

    Half geodesics of successive steps are merged. The algorithm uses one minibatch for all steps of
    a draw and V(x) at each step; the kernel uses one minibatch for each step, and the V of its
    argument.

    With a split Hamiltonian, harmonic coordinates follow the exact flow of N(0, I) in A, and B
    kicks them by the residual ∇log π̃(x) + x. For the posterior N(0, I) and normal gradient noise of
    the variance V this is exact, as long as no noise is clipped (`friction_coefficients`).

    Parameters
    ----------
    logp_grad : Callback
        Gradient of the log-density, −∇Ũ (`pymc_geodesic.runtime.gradient_functions`).
    minibatches : ndarray of int64, shape (n_steps,)
        One for each inner step, usually its first row.
    space : Space
        The product manifold. The step size of block b is ``scales[b]`` ε, and its gradient is
        multiplied by ``scales[b]``.
    state : State
        Position x and velocity v.
    step_size : float
        ε, a time; in units of posterior standard deviations in whitened coordinates.
    is_harmonic : ndarray of bool, shape (size,) or (0,)
        Harmonic coordinates of a split Hamiltonian (`pymc_geodesic.integrators.drift`).
    friction : FrictionAndNoise
        C and V of each coordinate.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    scratch : Scratch
    temperatures : ndarray, shape (n_blocks,)
        Receives the temperature of each block (`position_temperature`), averaged over inner steps.

    Returns
    -------
    int
        Number of coordinates whose injected noise is clipped at zero, since the known noise is
        larger.

    References
    ----------
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, eq. 5 and 8, algorithm 1;
    known noise by coordinate after Ahn, Korattikara, Welling (2012), Bayesian Posterior Sampling
    via Stochastic Gradient Fisher Scoring, eq. 15.
    """
    space, state, scratch = borrow(space), borrow(state), borrow(scratch)
    stream, temperatures = borrow(stream), borrow(temperatures)
    blocks, x, v = space.blocks, state.x, state.v
    gradient, noise, splitting = scratch.gradient, scratch.noise, friction.splitting
    n_steps = minibatches.size
    decay, noise_sd = np.empty(x.size), np.empty(x.size)
    clips = friction_coefficients(
        step_size, friction.friction, friction.known_noise, splitting, decay, noise_sd
    )
    temperatures[:] = 0.0
    drift(space, state, 0.5 * step_size, is_harmonic)  # A
    for step in range(n_steps):
        evaluate(logp_grad.address, x, minibatches[step], logp_grad.context, gradient)
        cancel_harmonic_force(space, x, gradient, 1.0, is_harmonic)
        fill_normal(stream, noise)
        for block in range(blocks.shape[0]):
            own = block_slice(blocks, block)
            square, power = kick_with_friction(  # B O B
                v[own], gradient[own], noise[own], decay[own], noise_sd[own], 1.0, step_size,
                splitting,
            )  # fmt: skip
            temperatures[block] += position_temperature(
                square, power, decay[own.start], step_size, splitting, space.dims[block]
            )
        project(blocks, x, v)  # Λ(x)
        time = step_size if step < n_steps - 1 else 0.5 * step_size
        drift(space, state, time, is_harmonic)  # A, and next A
    for block in range(blocks.shape[0]):
        temperatures[block] /= n_steps
    return clips
