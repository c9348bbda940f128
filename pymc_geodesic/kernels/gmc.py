"""Geodesic Monte Carlo with Metropolis correction, for many independent chains at once."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.integrators import kick, refresh_velocity
from pymc_geodesic.manifolds.product import scaled_geodesic
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.streams import uniform

__all__ = ["gmc"]


@compiled
def add_kinetic_energy(
    blocks: np.ndarray, v: np.ndarray, chains: int, sign: float, energy: np.ndarray
) -> None:
    """energy[c] += sign · v_c·v_c / 2, the blocks divided evenly over the chains."""
    for block in range(blocks.shape[0]):
        width = blocks[block, 2] * blocks[block, 3] // chains
        for chain in range(chains):
            start = blocks[block, 1] + chain * width
            total = 0.0
            for i in range(start, start + width):
                total += v[i] * v[i]
            energy[chain] += 0.5 * sign * total


@compiled
def copy_numbers(source: np.ndarray, target: np.ndarray, start: int, stop: int) -> None:
    """target[start:stop] = source[start:stop], without Numba's message about shapes that differ.

    That message takes longer to compile than a sampler.
    """
    for i in range(start, stop):
        target[i] = source[i]


@compiled
def copy_chain(
    blocks: np.ndarray, source: np.ndarray, target: np.ndarray, chain: int, chains: int
) -> None:
    """Copy what belongs to one chain from one packed vector to another."""
    for block in range(blocks.shape[0]):
        width = blocks[block, 2] * blocks[block, 3] // chains
        start = blocks[block, 1] + chain * width
        copy_numbers(source, target, start, start + width)


@compiled
def gmc(
    field: int,
    context: np.ndarray,
    argument: int,
    blocks: np.ndarray,
    scales: np.ndarray,
    chains: int,
    x: np.ndarray,
    discarded: int,
    kept: np.ndarray,
    step_size: float,
    n_steps: int,
    jitter: float,
    stream: np.ndarray,
    acceptance: np.ndarray,
    energies: np.ndarray,
    current: np.ndarray,
) -> tuple[int, int]:
    r"""Run ``discarded + len(kept)`` GMC transitions, in place.

    Each transition draws v ~ N(0, I) on the tangent space, follows ``n_steps`` geodesic leapfrog
    steps (half a kick, a geodesic, half a kick) and accepts with probability
    min(1, exp(−ΔH)), H = −log π(x) + v·v/2. Chains are independent: all move in one vector
    and each accepts or rejects by itself.

    Parameters
    ----------
    field : int
        Address of a field whose output has shape (size + chains,): the gradient of the summed
        log-density, then the log-density of each chain.
    context, argument
        Passed on to the field.
    blocks : ndarray of int64, shape (n_blocks, 6)
        The product manifold; the points of each block are divided evenly over the chains.
    scales : ndarray, shape (n_blocks,)
        Block b moves for ``scales[b]`` times ε, and its gradient is multiplied by as much.
    chains : int
        Number of independent chains in ``x``.
    x : ndarray, shape (size,)
        Positions.
    discarded : int
        Transitions before the first kept one.
    kept : ndarray, shape (n_kept, size)
        Receives the positions after each of the following transitions.
    step_size : float
        ε, a time.
    n_steps : int
        Leapfrog steps of a transition.
    jitter : float
        Each transition uses ε(1 + jitter·U(−1, 1)).
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    acceptance : ndarray, shape (chains,)
        Receives the mean acceptance probability of each chain.
    energies : ndarray, shape (2, chains) or (2, 0)
        Receives the log-density of each chain at its end, and the H of the state it ended in: that
        of the last proposal if it was accepted, of the state before it if not. Empty where nobody
        wants to know.

    current : ndarray, shape (size + chains,)
        What the field writes at ``x``, if its first value is finite, and at the end what it writes
        there: a call that goes on from the last one evaluates the field once less.

    Returns
    -------
    divergences, evaluations : int
        Proposals with ΔH > 1000 or not finite, and gradient evaluations.

    References
    ----------
    Byrne, Girolami (2013), Geodesic Monte Carlo on Embedded Manifolds, algorithm 1.
    """
    size = x.size
    transitions = discarded + kept.shape[0]
    divergences = 0
    acceptance[:] = 0.0
    v = np.empty(size)
    proposal = np.empty(size)
    output = np.empty(size + chains)
    energy = np.empty(chains)

    evaluations = transitions * n_steps
    if not math.isfinite(current[size]):
        evaluate(field, x, argument, context, current)
        evaluations += 1
    for transition in range(transitions):
        epsilon = step_size * (1.0 + jitter * (2.0 * uniform(stream) - 1.0))
        copy_numbers(x, proposal, 0, size)
        copy_numbers(current, output, 0, size + chains)
        refresh_velocity(blocks, proposal, v, stream)
        for chain in range(chains):
            energy[chain] = -current[size + chain]
        add_kinetic_energy(blocks, v, chains, 1.0, energy)
        if energies.size:
            copy_numbers(energy, energies[1], 0, chains)
        kick(blocks, proposal, v, output[:size], 0.5 * epsilon)
        for step in range(n_steps):
            scaled_geodesic(blocks, scales, proposal, v, epsilon)
            evaluate(field, proposal, argument, context, output)
            time = epsilon if step < n_steps - 1 else 0.5 * epsilon
            kick(blocks, proposal, v, output[:size], time)
        add_kinetic_energy(blocks, v, chains, -1.0, energy)
        for chain in range(chains):
            log_ratio = energy[chain] + output[size + chain]
            if not log_ratio > -1000.0:
                divergences += 1
                continue
            acceptance[chain] += min(1.0, math.exp(min(log_ratio, 0.0)))
            if log_ratio >= 0.0 or math.log(uniform(stream)) < log_ratio:
                copy_chain(blocks, proposal, x, chain, chains)
                copy_chain(blocks, output, current, chain, chains)
                current[size + chain] = output[size + chain]
                if energies.size:
                    energies[1, chain] -= log_ratio
        if transition >= discarded:
            copy_numbers(x, kept[transition - discarded], 0, size)
    acceptance /= transitions
    if energies.size:
        copy_numbers(current[size:], energies[0], 0, chains)
    return divergences, evaluations
