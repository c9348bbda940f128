r"""Count estimates for Dirichlet, Gamma and LogNormal variables, from the likelihood gradient.

The likelihood of a probability vector ω with counts n is Π ωⱼ^{nⱼ}, so that

.. math:: n = \omega \odot \nabla_\omega \log p(\text{data} \mid \omega) .

If the data depend on ω through latent categories z, the same expression is the expected count,
E[n(z) | data, ω], by Fisher's identity. A positive variable θ with the likelihood θⁿ exp(−cθ) has
a count n and an exposure c.

The variables of a step form one vector, which kernels store as log θ. Its layout is a table with
one row per variable: kind of the variable, index of its first coordinate, number of simplex rows,
and number of coordinates per row. A Gamma or LogNormal variable has one row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.runtime.gradient_functions import Callback, evaluate
from pymc_geodesic.runtime.jit import Integers, Table, Vector, borrow, kernel, part
from pymc_geodesic.runtime.numerics import exponential

SIMPLEX, POSITIVE, LOG_NORMAL = 0, 1, 2
"""Kinds of variables: Dirichlet, Gamma and LogNormal."""

SMALLEST_VALUE = 1e-290
"""Smallest component at which gradients are evaluated: a count of 10¹⁸ divided by it is finite."""

SMALLEST_RELATIVE_VALUE = 1e-8
"""Smallest Gamma variable at which exposures are estimated, in units of the prior scale 1/β."""

ROUNDING_TOLERANCE = 1e-9
"""Size of a negative count, relative to the largest count, that is attributed to rounding."""


class Prior(NamedTuple):
    """Parameters of the priors of all coordinates.

    Parameters
    ----------
    shape, rate : ndarray, shape (size,)
        α and β of the gamma distributions of θ. β = 1 for Dirichlet variables; for LogNormal
        variables μ/σ² and 1/σ².
    """

    shape: Vector
    rate: Vector


class CountsAt(NamedTuple):
    """Counts and exposures of the likelihood at a point.

    Parameters
    ----------
    values : ndarray, shape (size,)
        The point: ω for Dirichlet variables, θ for others.
    counts, exposures : ndarray, shape (size,)
        n and c of all data, or estimates of them from one minibatch. For LogNormal variables the
        coefficients A and B of the log-likelihood A log θ − B (log θ)²/2.
    """

    values: Vector
    counts: Vector
    exposures: Vector


@kernel
def values_from_logs(layout: Table, log_state: Vector, values: Vector) -> None:
    """Compute ω = θ / Σθ for each row of a Dirichlet variable, and θ for other variables.

    Parameters
    ----------
    layout : ndarray of int64, shape (n_variables, 4)
        Kind, first coordinate, rows and coordinates per row of each variable.
    log_state : ndarray, shape (size,)
        log θ.
    values : ndarray, shape (size,)
        Receives the values, none below 10⁻²⁹⁰.
    """
    for variable in range(layout.shape[0]):
        kind, first, rows, width = layout[variable]
        for row in range(rows):
            start = first + row * width
            if kind != SIMPLEX:
                for i in range(start, start + width):
                    values[i] = max(exponential(log_state[i]), SMALLEST_VALUE)
                continue
            largest = log_state[start]
            for i in range(start + 1, start + width):
                largest = max(largest, log_state[i])
            total = 0.0
            for i in range(start, start + width):
                values[i] = exponential(log_state[i] - largest)
                total += values[i]
            scale = 1.0 / total
            for i in range(start, start + width):
                values[i] = max(values[i] * scale, SMALLEST_VALUE)


@kernel
def clip_small_values(layout: Table, prior_rate: Vector, values: Vector) -> None:
    """Set Gamma variables below 10⁻⁸ of their prior scale 1/β to that bound, in place.

    The exposure c is the difference of two values of n − cθ, divided by θ; for a tiny θ it would be
    dominated by the rounding error of n. Neither n nor c depends on θ, so that the bound does not
    change them.

    Parameters
    ----------
    layout : ndarray of int64, shape (n_variables, 4)
        See `values_from_logs`.
    prior_rate : ndarray, shape (size,)
        β.
    values : ndarray, shape (size,)
        Values of the variables.
    """
    for variable in range(layout.shape[0]):
        if layout[variable, 0] != POSITIVE:
            continue
        start = layout[variable, 1]
        for i in range(start, start + layout[variable, 2] * layout[variable, 3]):
            values[i] = max(values[i], SMALLEST_RELATIVE_VALUE / prior_rate[i])


@part
def separate_exposures(
    logp_grad: Callback, minibatch: int, variable: Integers, estimate: CountsAt
) -> None:
    """Separate counts from exposures of one variable, by a second gradient.

    θ ∂ log p / ∂θ is n − cθ for a Gamma variable and A − B log θ for a LogNormal variable. The
    second gradient is evaluated at θ/2 or θ/e.

    Parameters
    ----------
    logp_grad, minibatch
        See `estimate_counts`.
    variable : ndarray of int64, shape (4,)
        Row of the variable in the layout.
    estimate : CountsAt
        On entry ``counts`` contains θ ∂ log p / ∂θ.
    """
    values, counts, exposures = estimate
    start, width = variable[1], variable[2] * variable[3]
    is_log_normal = variable[0] == LOG_NORMAL
    own, gradient = np.empty(width), np.empty(values.size)
    for i in range(width):
        own[i] = values[start + i]
        values[start + i] = own[i] / math.e if is_log_normal else 0.5 * own[i]
    evaluate(logp_grad.address, values, minibatch, logp_grad.context, gradient)
    for i in range(start, start + width):
        if is_log_normal:
            exposures[i] = values[i] * gradient[i] - counts[i]
            counts[i] += exposures[i] * math.log(own[i - start])
        else:
            linear = 2.0 * (values[i] * gradient[i] - counts[i])
            exposures[i] = linear / own[i - start]
            counts[i] += linear
    for i in range(width):
        values[start + i] = own[i]


@part
def first_invalid(layout: Table, estimate: CountsAt) -> int:
    """Find a negative or undefined count or exposure, and set negative rounding errors to zero.

    Returns
    -------
    int
        Index of the first invalid coordinate, or −1.
    """
    values, counts, exposures = estimate
    for variable in range(layout.shape[0]):
        start = layout[variable, 1]
        stop = start + layout[variable, 2] * layout[variable, 3]
        any_sign = layout[variable, 0] == LOG_NORMAL
        largest = 1.0
        for i in range(start, stop):
            scale = 1.0 if any_sign else values[i]
            largest = max(largest, counts[i], exposures[i] * scale)
        for i in range(start, stop):
            scale = 1.0 if any_sign else values[i]
            if (
                not (any_sign or counts[i] >= -ROUNDING_TOLERANCE * largest)
                or counts[i] != counts[i]
            ):
                return i
            if not exposures[i] * scale >= -ROUNDING_TOLERANCE * largest:
                return i
            if not any_sign:
                counts[i] = max(counts[i], 0.0)
            exposures[i] = max(exposures[i], 0.0)
    return -1


@kernel
def estimate_counts(logp_grad: Callback, minibatch: int, layout: Table, estimate: CountsAt) -> int:
    r"""Estimate counts and exposures from the gradient of the likelihood of a minibatch.

    With the gradient scaled by N/n,

    .. math::

        \hat n = \frac{N}{n}\, \omega \odot
            \nabla_\omega \log p(\text{minibatch} \mid \omega) ,

    which is N/n Σᵢ zᵢ of algorithm 1 for categorical data zᵢ, and its conditional expectation
    where the zᵢ are latent. Gamma and LogNormal variables take a second gradient each; see
    `separate_exposures`.

    Parameters
    ----------
    logp_grad : Callback
        Gradient of the log-likelihood in ω, of the minibatch, times N/n.
    minibatch : int
        Argument of the callback, the first row of the minibatch.
    layout : ndarray of int64, shape (n_variables, 4)
        See `values_from_logs`.
    estimate : CountsAt
        Contains the values; receives counts and exposures. Values are modified temporarily.

    Returns
    -------
    int
        Index of a negative or undefined count or exposure, or −1. Negative rounding errors are set
        to zero.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, algorithm 1.
    """
    estimate = borrow(estimate)
    values, counts, exposures = estimate
    evaluate(logp_grad.address, values, minibatch, logp_grad.context, counts)
    for i in range(values.size):
        counts[i] *= values[i]
        exposures[i] = 0.0
    for variable in range(layout.shape[0]):
        if layout[variable, 0] != SIMPLEX:
            separate_exposures(logp_grad, minibatch, layout[variable], estimate)
    return first_invalid(layout, estimate)


@part
def apply_control_variates(
    layout: Table, center: CountsAt, at_center: CountsAt, estimate: CountsAt
) -> int:
    """Replace estimates n̂(ω) by n(ω*) + n̂(ω) − n̂(ω*), in place; negative ones by zero.

    Parameters
    ----------
    layout : ndarray of int64, shape (n_variables, 4)
        See `values_from_logs`.
    center : CountsAt
        Centering point ω*, with counts and exposures of all data.
    at_center : CountsAt
        The same point, with estimates from the minibatch.
    estimate : CountsAt
        Estimates from the minibatch at ω.

    Returns
    -------
    int
        Number of estimates that were negative.
    """
    counts, exposures = estimate.counts, estimate.exposures
    clips = 0
    for variable in range(layout.shape[0]):
        start = layout[variable, 1]
        for i in range(start, start + layout[variable, 2] * layout[variable, 3]):
            counts[i] += center.counts[i] - at_center.counts[i]
            exposures[i] += center.exposures[i] - at_center.exposures[i]
            if counts[i] < 0.0 and layout[variable, 0] != LOG_NORMAL:
                clips += counts[i] < -ROUNDING_TOLERANCE * max(1.0, center.counts[i])
                counts[i] = 0.0
            if exposures[i] < 0.0:
                clips += exposures[i] < -ROUNDING_TOLERANCE * max(1.0, center.exposures[i])
                exposures[i] = 0.0
    return clips
