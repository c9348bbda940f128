"""Geodesic Monte Carlo (GMC) transitions, vectorized over independent chains.

Algorithm 1 of Byrne and Girolami (2013), which is Hamiltonian Monte Carlo on Euclidean variables:

===============================================  ================================================
Algorithm 1                                      Implementation
===============================================  ================================================
draw v ~ N(0, I) on the tangent space            `pymc_geodesic.integrators.refresh_velocity`
compute H = −log π(x) + v·v/2                    ``current`` and `add_kinetic_energy`
leapfrog steps: half a kick, geodesic,           `leapfrog_steps`, with `kick` and `drift` of
half a kick                                      `pymc_geodesic.integrators`
accept with probability min(1, exp(−ΔH))         `accept_or_reject`
===============================================  ================================================

In whitened coordinates, where the posterior of Euclidean coordinates is nearly N(0, I), the
Hamiltonian can be split: the flow of N(0, I), a rotation of (x, v), replaces the geodesic, and
kicks use only the residual ∇log π(x) + x (`drift`). Since the residual is small, the error
to first order is that of a quadrature of the kicks along the exact flow. Their times and weights
are those of Gauss-Lobatto quadrature, instead of the trapezoidal rule of leapfrog steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.integrators import (
    NOT_HARMONIC,
    State,
    cancel_harmonic_force,
    drift,
    kick,
    refresh_velocity,
)
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.runtime.gradient_functions import Callback, evaluate
from pymc_geodesic.runtime.jit import (
    Flags,
    Matrix,
    Stream,
    Vector,
    borrow,
    copy_numbers,
    kernel,
    part,
)
from pymc_geodesic.runtime.streams import uniform

MAX_STAGES = 8
"""Maximum number of kicks of a Gauss-Lobatto quadrature, after the first."""


def _gauss_lobatto() -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals between the nodes of each rule on [0, 1], and the weights."""
    intervals, weights = (np.zeros((MAX_STAGES + 1, MAX_STAGES + 1)) for _ in range(2))
    for stages in range(1, MAX_STAGES + 1):
        legendre = np.polynomial.Legendre.basis(stages)
        nodes = np.concatenate([[-1.0], np.sort(legendre.deriv().roots().real), [1.0]])
        intervals[stages, :stages] = 0.5 * np.diff(nodes)
        weights[stages, : stages + 1] = 1.0 / (stages * (stages + 1) * legendre(nodes) ** 2)
    return intervals, weights


_INTERVALS, _WEIGHTS = _gauss_lobatto()


class Chains(NamedTuple):
    """Independent chains in one vector, changed in place.

    Parameters
    ----------
    number : int
        Number of chains; the points of each block are divided evenly over them.
    x : ndarray, shape (size,)
        Positions.
    current : ndarray, shape (size + number,)
        Output of ``logp_grad`` at ``x``, updated by the kernel, so that the next call does not
        evaluate it again. If the log-density of the first chain is not finite, all chains are
        evaluated.
    """

    number: int
    x: Vector
    current: Vector


class Leapfrog(NamedTuple):
    """Step size and number of leapfrog steps of a trajectory.

    Parameters
    ----------
    step_size : float
        ε, a time.
    n_steps : int
        Number of leapfrog steps of a transition.
    jitter : float
        Relative range of the random step size ε(1 + jitter·U(−1, 1)) of a transition.
    is_harmonic : ndarray of bool, shape (size,) or (0,)
        Euclidean coordinates that follow the flow of N(0, I) exactly and are kicked by the residual
        ∇log π(x) + x; empty if there are none.
    stages : int
        Number of steps with the times and weights of one Gauss-Lobatto quadrature, a divisor of
        ``n_steps``; ε is their mean length. 1 for leapfrog steps.
    """

    step_size: float
    n_steps: int
    jitter: float
    is_harmonic: Flags = NOT_HARMONIC
    stages: int = 1


class Record(NamedTuple):
    """Results of the transitions, written by the kernel.

    Parameters
    ----------
    discarded : int
        Number of transitions before the first one that is stored.
    positions : ndarray, shape (n_kept, size)
        Receives the positions after each of the following transitions.
    acceptance : ndarray, shape (chains,)
        Receives the mean acceptance probability of each chain.
    energies : ndarray, shape (2, chains) or (2, 0)
        Receives the final log-density of each chain, and the Hamiltonian H of the final state: of
        the last proposal if it was accepted, otherwise of the state before it. Empty if they are
        not needed.
    """

    discarded: int
    positions: Matrix
    acceptance: Vector
    energies: Matrix


@part
def add_kinetic_energy(
    blocks: np.ndarray, v: np.ndarray, chains: int, sign: float, energy: np.ndarray
) -> None:
    """Add sign · v·v / 2 of each chain to its energy."""
    for block in range(blocks.shape[0]):
        width = blocks[block, 2] * blocks[block, 3] // chains
        for chain in range(chains):
            start = blocks[block, 1] + chain * width
            total = 0.0
            for i in range(start, start + width):
                total += v[i] * v[i]
            energy[chain] += 0.5 * sign * total


@part
def copy_chain(
    blocks: np.ndarray, source: np.ndarray, target: np.ndarray, chain: int, chains: int
) -> None:
    """Copy the coordinates of one chain from one packed vector to another."""
    for block in range(blocks.shape[0]):
        width = blocks[block, 2] * blocks[block, 3] // chains
        start = blocks[block, 1] + chain * width
        copy_numbers(source[start : start + width], target[start : start + width])


@part
def kick_by_gradient(
    space: Space, state: State, gradient: Vector, time: float, is_harmonic: np.ndarray
) -> None:
    """Kick by the gradient, or by the residual on harmonic coordinates."""
    cancel_harmonic_force(space, state.x, state.v, time, is_harmonic)
    kick(space.blocks, state.x, state.v, gradient, time)


@part
def leapfrog_steps(
    logp_grad: Callback,
    minibatch: int,
    space: Space,
    state: State,
    epsilon: float,
    leapfrog: Leapfrog,
    output: Vector,
) -> None:
    r"""Take ``n_steps`` steps: a kick, and alternating drifts and kicks.

    The times between kicks :math:`c_k τ` and their weights :math:`d_k τ` are those of Gauss-Lobatto
    quadrature on an interval of the length τ = ``stages`` ε. With one stage these are leapfrog
    steps, :math:`c_1 = 1` and :math:`d_0 = d_1 = 1/2`. For the split Hamiltonian on Euclidean
    variables, with the residual r(x) = ∇log π(x) + x,

    .. math::

        v \leftarrow v + d_k τ\, r(x), \quad
        (x, v) \leftarrow (x \cos t + v \sin t,\; v \cos t - x \sin t), \quad t = c_{k+1} τ .

    It is reversible, preserves volume and is exact for N(0, I). With s stages the error in ΔH is of
    the order τ^{2s} in the residual and τ² in its square.

    Parameters
    ----------
    epsilon : float
        Step size of this transition; that of ``leapfrog`` is not used.
    leapfrog : Leapfrog
    output : ndarray, shape (size + chains,)
        Output of ``logp_grad`` at the start of the trajectory; receives the output at its end.

    References
    ----------
    Shahbaba, Lan, Johnson, Neal (2014), Split Hamiltonian Monte Carlo, section 3.1. Casas,
    Sanz-Serna, Shaw (2022), Split Hamiltonian Monte Carlo revisited: with preconditioning.
    Laskar, Robutel (2001), High order symplectic integrators for perturbed Hamiltonian systems, the
    integrators SBAB.
    """
    gradient = output[: state.x.size]
    n_steps, stages, is_harmonic = leapfrog.n_steps, leapfrog.stages, leapfrog.is_harmonic
    intervals, weights, tau = _INTERVALS[stages], _WEIGHTS[stages], stages * epsilon
    kick_by_gradient(space, state, gradient, weights[0] * tau, is_harmonic)
    for step in range(n_steps):
        stage = step % stages
        drift(space, state, intervals[stage] * tau, is_harmonic)
        evaluate(logp_grad.address, state.x, minibatch, logp_grad.context, output)
        weight = weights[stage + 1]
        if stage == stages - 1 and step < n_steps - 1:  # of this quadrature and the next
            weight *= 2.0
        kick_by_gradient(space, state, gradient, weight * tau, is_harmonic)


@part
def accept_or_reject(
    space: Space,
    chains: Chains,
    proposal: State,
    output: Vector,
    energy: Vector,
    stream: Stream,
    record: Record,
) -> int:
    """Metropolis correction of each chain: accept its proposal with probability min(1, exp(−ΔH)).

    Parameters
    ----------
    output : ndarray, shape (size + chains,)
        Output of ``logp_grad`` at the proposals.
    energy : ndarray, shape (chains,)
        H before the trajectory, minus the kinetic energy of the proposal.

    Returns
    -------
    int
        Number of chains that diverged, ΔH > 1000 or NaN; ΔH = −∞ is accepted.
    """
    blocks, n_chains, current = space.blocks, chains.number, chains.current
    size = chains.x.size
    divergences = 0
    for chain in range(n_chains):
        log_ratio = energy[chain] + output[size + chain]
        if not log_ratio > -1000.0:
            divergences += 1
            continue
        record.acceptance[chain] += min(1.0, math.exp(min(log_ratio, 0.0)))
        if log_ratio >= 0.0 or math.log(uniform(stream)) < log_ratio:
            copy_chain(blocks, proposal.x, chains.x, chain, n_chains)
            copy_chain(blocks, output, current, chain, n_chains)
            current[size + chain] = output[size + chain]
            if record.energies.size:
                record.energies[1, chain] -= log_ratio
    return divergences


@kernel
def gmc(
    logp_grad: Callback,
    minibatch: int,
    space: Space,
    chains: Chains,
    leapfrog: Leapfrog,
    stream: Stream,
    record: Record,
) -> tuple[int, int]:
    r"""Run ``discarded + len(positions)`` GMC transitions, in place.

    Each transition draws v ~ N(0, I) on the tangent space, follows ``n_steps`` geodesic leapfrog
    steps (half a kick, a geodesic, half a kick; see `leapfrog_steps`) and accepts with probability
    min(1, exp(−ΔH)), H = −log π(x) + v·v/2. Chains are independent: they move in one vector and
    accept or reject separately.

    Parameters
    ----------
    logp_grad : Callback
        Its output has shape (size + chains,): the gradient of the summed log-density, then the
        log-density of each chain.
    minibatch : int
        Argument of the callback: the first row of the minibatch, 0 for all rows, or the number of
        rows for transitions of local variables.
    space : Space
        The product manifold. Block b moves for the time ``scales[b]`` ε, and its gradient contains
        the same factor.
    chains : Chains
    leapfrog : Leapfrog
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    record : Record

    Returns
    -------
    divergences, evaluations : int
        Proposals with ΔH > 1000 or NaN, and gradient evaluations.

    References
    ----------
    Byrne, Girolami (2013), Geodesic Monte Carlo on Embedded Manifolds, algorithm 1.
    """
    space, chains, record, stream = borrow(space), borrow(chains), borrow(record), borrow(stream)
    blocks, n_chains, x, current = space.blocks, chains.number, chains.x, chains.current
    size = x.size
    transitions = record.discarded + record.positions.shape[0]
    divergences = 0
    record.acceptance[:] = 0.0
    proposal = State(np.empty(size), np.empty(size))
    output, energy = np.empty(size + n_chains), np.empty(n_chains)

    evaluations = transitions * leapfrog.n_steps
    if not math.isfinite(current[size]):
        evaluate(logp_grad.address, x, minibatch, logp_grad.context, current)
        evaluations += 1
    for transition in range(transitions):
        epsilon = leapfrog.step_size * (1.0 + leapfrog.jitter * (2.0 * uniform(stream) - 1.0))
        copy_numbers(x, proposal.x)
        copy_numbers(current, output)
        refresh_velocity(blocks, proposal.x, proposal.v, stream)
        for chain in range(n_chains):
            energy[chain] = -current[size + chain]
        add_kinetic_energy(blocks, proposal.v, n_chains, 1.0, energy)
        if record.energies.size:
            copy_numbers(energy, record.energies[1])
        leapfrog_steps(logp_grad, minibatch, space, proposal, epsilon, leapfrog, output)
        add_kinetic_energy(blocks, proposal.v, n_chains, -1.0, energy)
        divergences += accept_or_reject(space, chains, proposal, output, energy, stream, record)
        if transition >= record.discarded:
            copy_numbers(x, record.positions[transition - record.discarded])
    for chain in range(n_chains):
        record.acceptance[chain] /= transitions
    if record.energies.size:
        copy_numbers(current[size:], record.energies[0])
    return divergences, evaluations
