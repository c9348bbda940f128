"""Drivers that run a kernel on many independent chains."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types

from pymc_geodesic.integrators import (
    EXACT,
    NOT_HARMONIC,
    FrictionAndNoise,
    Scratch,
    State,
    Thermostat,
    refresh_velocity,
)
from pymc_geodesic.kernels import gmc, gsgnht, sggmc, sgld, ssgnht
from pymc_geodesic.kernels.gmc import Chains, Leapfrog, Record
from pymc_geodesic.manifolds.product import Space
from pymc_geodesic.runtime.gradient_functions import Callback, GradientFunction, array_at
from pymc_geodesic.runtime.streams import fill_normal, new_stream, split_stream
from tests.native_functions import native_function
from tests.targets import Target

NO_SQUARES = np.empty(0)

TIME = 2.0
"""Run time of stochastic kernels: three times the time constant of friction."""


def called(logp_grad: GradientFunction, context: np.ndarray | None = None) -> Callback:
    """Gradient function with the signature that kernels call."""
    return Callback(logp_grad.address, np.zeros(1, dtype=np.int64) if context is None else context)


def compile_logp_grad(target: Target) -> GradientFunction:
    """Gradient of a target, with the signature that kernels of one chain call."""
    log_density = target.log_density

    @njit
    def function(position, argument, context, output):
        return log_density(position, output)

    return native_function(function, target.product.size)


def side_by_side(target: Target, n: int) -> tuple[np.ndarray, GradientFunction]:
    """Block table and gradient function of ``n`` chains in one vector, followed by densities."""
    log_density, size = target.log_density, target.product.size
    blocks = target.product.blocks.copy()
    blocks[:, 1] *= n
    blocks[:, 2] *= n
    starts = target.product.blocks[:, 1].copy()
    widths = target.product.blocks[:, 2] * target.product.blocks[:, 3]

    @njit
    def function(position, argument, context, output):
        point, gradient = np.empty(size), np.empty(size)
        total = 0.0
        for chain in range(n):
            for b in range(starts.size):
                start = n * starts[b] + chain * widths[b]
                point[starts[b] : starts[b] + widths[b]] = position[start : start + widths[b]]
            value = log_density(point, gradient)
            for b in range(starts.size):
                start = n * starts[b] + chain * widths[b]
                output[start : start + widths[b]] = gradient[starts[b] : starts[b] + widths[b]]
            output[n * size + chain] = value
            total += value
        return total

    return blocks, native_function(function, n * size, n * size + n)


def packed(target: Target, x: np.ndarray) -> np.ndarray:
    """Chains of shape (n, size) in one vector, variable by variable."""
    return np.concatenate([x[:, part].ravel() for part in target.product.slices.values()])


def unpacked(target: Target, vector: np.ndarray, n: int) -> np.ndarray:
    """Inverse of `packed`."""
    parts = []
    start = 0
    for part in target.product.slices.values():
        width = part.stop - part.start
        parts.append(vector[start : start + n * width].reshape(n, width))
        start += n * width
    return np.concatenate(parts, axis=1)


def friction_of(
    size: int, friction: float | np.ndarray, noise: float | np.ndarray, splitting: int = EXACT
) -> FrictionAndNoise:
    """Friction and known noise of every coordinate."""
    frictions, noises = (np.array(np.broadcast_to(each, size), float) for each in (friction, noise))
    return FrictionAndNoise(frictions, noises, splitting)


def start(target: Target, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exact draws of positions and velocities, and one stream per chain."""
    rng = np.random.default_rng(1)
    x = target.draw(rng, n)
    streams = split_stream(new_stream(rng), n)
    v = np.empty_like(x)
    for chain in range(n):
        refresh_velocity(target.product.blocks, x[chain], v[chain], streams[chain])
    return x, v, streams


class Ends(NamedTuple):
    """Final states of chains.

    Attributes
    ----------
    x, v : ndarray, shape (n, size)
    thermostats : ndarray, shape (n, n_blocks)
        Friction that thermostats add.
    temperatures : ndarray, shape (n, n_blocks)
        Temperatures of the positions that the kernel reports, means over its steps.
    """

    x: np.ndarray
    v: np.ndarray
    thermostats: np.ndarray
    temperatures: np.ndarray


def run_langevin(
    target: Target,
    logp_grad: GradientFunction,
    n: int,
    *,
    inertia: float | None = None,
    balance: float = 0.0,
    friction: float | np.ndarray = 1.5,
    known_noise: float | np.ndarray = 0.0,
    scales: np.ndarray | None = None,
    step_size: float | None = None,
    n_steps: int | None = None,
    context: np.ndarray | None = None,
    splitting: int = EXACT,
    is_harmonic: bool = False,
    kernel: Callable[..., Any] | None = None,
) -> Ends:
    """Run one call of SGGMC, or with an inertia of gSGNHT, on each of ``n`` chains.

    The thermostats start from their stationary distribution N(balance, 1/(mQ)).
    """
    product = target.product
    n_blocks = len(product.dims)
    x, v, streams = start(target, n)
    callback = called(logp_grad, context)
    step_size = target.step_size if step_size is None else step_size
    arguments = np.zeros(round(TIME / step_size) if n_steps is None else n_steps, dtype=np.int64)
    space = Space(product.blocks, product.dims, np.ones(n_blocks) if scales is None else scales)
    harmonic = np.full(product.size, True) if is_harmonic else NOT_HARMONIC
    frictions = friction_of(product.size, friction, known_noise, splitting)
    scratch = Scratch(np.empty(product.size), np.empty(product.size))
    temperatures, thermostats = np.empty((n, n_blocks)), np.zeros((n, n_blocks))
    if inertia is not None:
        sd = 1.0 / np.sqrt(product.dims * inertia)
        normal = np.random.default_rng(4).standard_normal((n, n_blocks))
        thermostats = balance + sd * normal
        inertias = np.full(n_blocks, inertia)
    kernel = kernel or (sggmc if inertia is None else gsgnht)
    for chain in range(n):
        thermostat = ()
        if inertia is not None:
            thermostat = (
                Thermostat(thermostats[chain], inertias, np.ones(n_blocks)),
                np.zeros((n_blocks, 2)),
            )
        kernel(
            callback, arguments, space, State(x[chain], v[chain]), *thermostat, step_size,
            harmonic, frictions, streams[chain], scratch, temperatures[chain],
        )  # fmt: skip
    return Ends(x, v, thermostats, temperatures)


def thermostat_errors(ends: Ends, target: Target, inertia: float, balance: float = 0.0) -> float:
    """Largest deviation of means and variances from N(balance, 1/(mQ)), in standard errors."""
    scaled = (ends.thermostats - balance) * np.sqrt(target.product.dims * inertia)
    n = len(scaled)
    means = np.abs(scaled.mean(axis=0)) * np.sqrt(n)
    variances = np.abs(scaled.var(axis=0) - 1.0) * np.sqrt(n / 2.0)
    return float(np.maximum(means, variances).max())


def run_gmc(
    target: Target,
    blocks: np.ndarray,
    logp_grad: GradientFunction,
    n: int,
    *,
    step_size: float | None = None,
    n_steps: int = 4,
    transitions: int = 5,
    jitter: float = 0.2,
    is_harmonic: bool = False,
    stages: int = 1,
    kernel: Callable[..., Any] = gmc,
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of ``n`` chains after some transitions of GMC in one call, and acceptance rates."""
    step_size = 6.0 * target.step_size if step_size is None else step_size
    x = packed(target, start(target, n)[0])
    acceptance = np.empty(n)
    space = Space(blocks, target.product.dims, np.ones(len(blocks)))
    kernel(
        called(logp_grad), 0, space, Chains(n, x, np.full(x.size + n, np.nan)),
        Leapfrog(step_size, n_steps, jitter, np.full(x.size if is_harmonic else 0, True), stages),
        new_stream(np.random.default_rng(1)),
        Record(transitions, np.empty((0, x.size)), acceptance, np.empty((2, 0))),
    )  # fmt: skip
    return unpacked(target, x, n), acceptance


def run_sgld(
    target: Target,
    logp_grad: GradientFunction,
    n: int,
    *,
    step_size: float,
    n_steps: int,
    squares: np.ndarray = NO_SQUARES,
    kernel: Callable[..., Any] = sgld,
) -> np.ndarray:
    """Positions of ``n`` chains after one call of SGLD each, all with the same first squares."""
    x, _, streams = start(target, n)
    callback = called(logp_grad)
    arguments = np.zeros(n_steps, dtype=np.int64)
    scratch = Scratch(np.empty(x.shape[1]), np.empty(x.shape[1]))
    for chain in range(n):
        kernel(
            callback, arguments, x[chain], step_size, squares.copy(), np.empty(0), np.empty(0),
            streams[chain], scratch,
        )  # fmt: skip
    return x


def run_ssgnht(
    target: Target,
    logp_grad: GradientFunction,
    n: int,
    *,
    step_size: float,
    n_steps: int,
    diffusion: float = 1.5,
    inertia: float = 2.0,
    kernel: Callable[..., Any] = ssgnht,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, velocities and thermostats of ``n`` chains after one call of SSGNHT each.

    The thermostats start from their stationary distribution N(A, 1/(mQ)).
    """
    product = target.product
    x, v, streams = start(target, n)
    callback = called(logp_grad)
    arguments = np.zeros(n_steps, dtype=np.int64)
    diffusions = np.full(len(product.dims), diffusion)
    inertias, targets = np.full(len(product.dims), inertia), np.ones(len(product.dims))
    rng = np.random.default_rng(4)
    sd = 1.0 / np.sqrt(product.dims * inertia)
    thermostats = diffusion + sd * rng.standard_normal((n, len(product.dims)))
    scratch = Scratch(np.empty(product.size), np.empty(product.size))
    for chain in range(n):
        kernel(
            callback, arguments, product.space, State(x[chain], v[chain]),
            Thermostat(thermostats[chain], inertias, targets), step_size, diffusions,
            streams[chain], scratch,
        )  # fmt: skip
    return x, v, thermostats


def scaled_noisy_logp_grad(
    target: Target, scales: np.ndarray, noise: np.ndarray
) -> GradientFunction:
    """The gradient of a target times the scale of each block, with noise of variances ``noise``.

    The context holds the address of the stream of the noise.
    """
    log_density, size = target.log_density, target.product.size
    widths = target.product.blocks[:, 2] * target.product.blocks[:, 3]
    factor, sd = np.repeat(scales, widths), np.sqrt(noise)

    @njit
    def function(position, argument, context, output):
        value = log_density(position, output)
        normal = np.empty(size)
        fill_normal(array_at(context[0], (2,), types.uint64), normal)
        for i in range(size):
            output[i] = factor[i] * output[i] + sd[i] * normal[i]
        return value

    return native_function(function, size, n_context=1)
