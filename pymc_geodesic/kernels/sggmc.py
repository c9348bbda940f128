"""Stochastic gradient geodesic Monte Carlo."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.integrators import (
    FrictionAndNoise,
    Scratch,
    State,
    drift,
    friction_coefficients,
    gradient_times,
    kick_with_friction,
    position_temperature,
)
from pymc_geodesic.manifolds.blocks import project
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.runtime.fields import Callback, evaluate
from pymc_geodesic.runtime.jit import borrow
from pymc_geodesic.runtime.kernel import Integers, Stream, Vector, kernel


@kernel
def sggmc(
    logp_grad: Callback,
    minibatches: Integers,
    space: Space,
    state: State,
    step_size: float,
    friction: FrictionAndNoise,
    stream: Stream,
    scratch: Scratch,
    temperatures: Vector,
) -> int:
    r"""Run the inner steps of one SGGMC draw, in place.

    The dynamics dx = v dt, dv = Λ(x)(∇log π dt − γ v dt + N(0, 2γ dt)) on a product of manifolds,
    in the pattern A B O B A: half a geodesic, gradient, friction and noise, half a geodesic. The
    half geodesics of neighboring steps are merged. The splitting of algorithm 1 and the exact one
    differ in the order within B O B; see `pymc_geodesic.integrators.friction_coefficients`.

    Parameters
    ----------
    logp_grad : Callback
        Gradient of the log-density (`pymc_geodesic.runtime.fields`).
    minibatches : ndarray of int64, shape (n_steps,)
        One for each inner step, usually its first row.
    space : Space
        The product manifold. Block b moves for ``scales[b]`` times ε, and its gradient comes
        multiplied by as much.
    state : State
        Position and velocity.
    step_size : float
        ε, a time; in whitened coordinates in posterior standard deviations.
    friction : FrictionAndNoise
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    scratch : Scratch
    temperatures : ndarray, shape (n_blocks,)
        Receives the temperature of the positions of each block, averaged over inner steps.

    Returns
    -------
    int
        Coordinates whose injected noise is clipped at zero because the known noise exceeds it.

    References
    ----------
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, eq. 5 and 8, algorithm 1;
    known noise by coordinate after Ahn, Korattikara, Welling (2012), Bayesian Posterior Sampling
    via Stochastic Gradient Fisher Scoring, eq. 15.
    """
    space, state, scratch = borrow(space), borrow(state), borrow(scratch)
    stream, temperatures = borrow(stream), borrow(temperatures)
    blocks, x, v, gradient = space.blocks, state.x, state.v, scratch.gradient
    n_steps = minibatches.size
    decay, spread = np.empty(x.size), np.empty(x.size)
    clips = friction_coefficients(
        step_size, friction.friction, friction.known_noise, friction.splitting, decay, spread
    )
    temperatures[:] = 0.0
    drift(space, state, 0.5 * step_size)
    for step in range(n_steps):
        evaluate(logp_grad.address, x, minibatches[step], logp_grad.context, gradient)
        for block in range(blocks.shape[0]):
            start = blocks[block, 1]
            part = slice(start, start + blocks[block, 2] * blocks[block, 3])
            half, middle = gradient_times(step_size, decay[start], friction.splitting)
            square, power = kick_with_friction(
                v[part], gradient[part], half, middle, 1.0, decay[part], spread[part],
                stream, scratch.noise,
            )  # fmt: skip
            temperatures[block] += (
                position_temperature(
                    square, power, decay[start], step_size, friction.splitting, space.dims[block]
                )
                / n_steps
            )
        project(blocks, x, v)
        drift(space, state, step_size if step < n_steps - 1 else 0.5 * step_size)
    return clips
