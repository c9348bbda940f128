"""Stochastic Cox–Ingersoll–Ross process (SCIR): exact transitions, and the inner steps of a draw.

Algorithm 1 of Baker, Fearnhead, Fox and Nemeth (2018):

=========================================  ========================================
Algorithm 1                                Implementation
=========================================  ========================================
sample a minibatch S                       ``minibatches`` of `scir`
set ω = θ / Σθ                             `values_from_logs`
compute N/n Σ z over the minibatch         `estimate_counts`
set â = α + N/n Σ z                        `add_prior`
sample θ at the next step by eq. 2.3       `exact_transition` and `cir_transition`
=========================================  ========================================
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.kernels.counts import (
    LOG_NORMAL,
    SIMPLEX,
    SMALLEST_VALUE,
    CountsAt,
    Prior,
    apply_control_variates,
    clip_small_values,
    estimate_counts,
    values_from_logs,
)
from pymc_geodesic.runtime.gradient_functions import Callback
from pymc_geodesic.runtime.jit import (
    Integers,
    Stream,
    Table,
    Vector,
    borrow,
    compiled,
    kernel,
    part,
)
from pymc_geodesic.runtime.numerics import exponential
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.runtime.variates import fill_log_gamma, fill_poisson

CHUNK = 1024
"""Coordinates per call of the Poisson and gamma samplers, so that their arrays fit in the cache."""

MAX_TIME = 100.0
"""Upper bound on bτ, dimensionless: the old state has the weight e⁻¹⁰⁰, and exp(bτ) is finite."""


class Process(NamedTuple):
    """Parameters of the process of each coordinate in one inner step; working memory.

    Parameters
    ----------
    shape, rate, log_rate : ndarray, shape (size,)
        â, b̂ and log b̂; for LogNormal variables Â and B̂.
    time : ndarray, shape (size,)
        b̂τ for a step of duration τ, dimensionless.
    noise : ndarray, shape (size,)
        Standard normal variates.
    """

    shape: Vector
    rate: Vector
    log_rate: Vector
    time: Vector
    noise: Vector


# --- exact transitions --------------------------------------------------------------------------


@kernel
def cir_transition(
    log_state: Vector,
    shape: Vector,
    log_rate: Vector,
    time: Vector,
    stream: Stream,
) -> None:
    r"""Draw from the exact transition of the Cox–Ingersoll–Ross process, in place.

    The process dθ = (a − bθ) dt + √(2θ) dW has the stationary distribution Gamma(a, rate b). With
    y = bθ and t = bτ for a step of duration τ,

    .. math::

        y' = \tfrac{1 - e^{-t}}{2} W, \qquad
        W \sim \chi^2\Bigl(2a, \tfrac{2 y e^{-t}}{1 - e^{-t}}\Bigr),

    which for b = 1 is eq. 2.2 of the paper. The non-central χ² variate W is drawn as twice a
    Gamma(a + K, 1) variate with K ~ Poisson(y / (eᵗ − 1)). Computations use log θ, so that states
    below the smallest floating-point number are kept.

    Parameters
    ----------
    log_state : ndarray, shape (n,)
        log θ.
    shape : ndarray, shape (n,)
        a > 0.
    log_rate : ndarray, shape (n,) or (1,)
        log b.
    time : ndarray, shape (n,) or (1,)
        t = bτ > 0, dimensionless.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, eq. 2.2.
    """
    log_state, shape, stream = borrow(log_state), borrow(shape), borrow(stream)
    log_rate, time = borrow(log_rate), borrow(time)
    size = log_state.size
    length = min(CHUNK, size)
    shapes, draws = np.empty(length), np.empty(length)
    shifts, scales = np.empty(length), np.empty(length)
    own_rate = 1 if log_rate.size > 1 else 0
    own_time = 1 if time.size > 1 else 0
    shift = scale = 0.0
    for start in range(0, size, CHUNK):
        n = min(CHUNK, size - start)
        for i in range(n):
            if i == 0 or own_rate or own_time:
                log_b, t = log_rate[own_rate * (start + i)], time[own_time * (start + i)]
                shift = log_b - math.log(math.expm1(t))
                scale = math.log(-math.expm1(-t)) - log_b
            shifts[i], scales[i] = shift, scale
        for i in range(n):
            draws[i] = exponential(log_state[start + i] + shifts[i])
        fill_poisson(stream, draws[:n], shapes[:n])
        for i in range(n):
            shapes[i] += shape[start + i]
        fill_log_gamma(stream, shapes[:n], draws[:n])
        for i in range(n):
            log_state[start + i] = draws[i] + scales[i]


@kernel
def log_normal_transition(
    log_state: Vector,
    linear: Vector,
    precision: Vector,
    time: Vector,
    noise: Vector,
) -> None:
    r"""Apply the exact transition of mean-reverting geometric Brownian motion, in place.

    With y = log θ the process dy = (A − By) dt + √2 dW has the stationary distribution
    N(A/B, 1/B), so that θ is log-normal. After the duration τ, with t = Bτ,

    .. math:: y' = A/B + e^{-t} (y - A/B) + \sqrt{(1 - e^{-2t}) / B}\;\eta, \quad \eta \sim N(0, 1).

    Parameters
    ----------
    log_state : ndarray, shape (n,)
        y.
    linear, precision : ndarray, shape (n,)
        A and B > 0.
    time : ndarray, shape (n,)
        t, dimensionless.
    noise : ndarray, shape (n,)
        η, standard normal.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, section 2.3.
    """
    for i in range(log_state.size):
        decay = math.exp(-time[i])
        mean = linear[i] / precision[i]
        sd = math.sqrt(-math.expm1(-2.0 * time[i]) / precision[i])
        log_state[i] = mean + decay * (log_state[i] - mean) + sd * noise[i]


# --- parameters of the process ------------------------------------------------------------------


@part
def has_constant_total(count_totals: Vector, start: int) -> bool:
    """Whether Σn of the Dirichlet variable that starts at an index is independent of ω."""
    return count_totals.size == 0 or math.isnan(count_totals[start])


@part
def fix_count_total(
    variable: Integers,
    log_state: Vector,
    estimate: CountsAt,
    step_size: float,
    count_totals: Vector,
    process: Process,
) -> None:
    """Add ω (M − Σn̂) to the drift of each row of a Dirichlet variable; see `scir`.

    A positive difference is added to the shape â, a negative one to the rate b̂, so that neither
    becomes negative.
    """
    start, rows, width = variable[1], variable[2], variable[3]
    for row in range(rows):
        first = start + row * width
        stop = first + width
        total, state = 0.0, 0.0
        for i in range(first, stop):
            total += estimate.counts[i]
            state += math.exp(log_state[i])
        missing = count_totals[first] - total
        rate = 1.0 + max(-missing, 0.0) / max(state, SMALLEST_VALUE)
        for i in range(first, stop):
            process.shape[i] += estimate.values[i] * max(missing, 0.0)
            process.log_rate[i] = math.log(rate)
            process.time[i] = min(step_size * rate, MAX_TIME)


@part
def add_prior(
    layout: Table,
    log_state: Vector,
    prior: Prior,
    estimate: CountsAt,
    step_size: float,
    reference_rate: Vector,
    count_totals: Vector,
    process: Process,
) -> None:
    """Compute â = α + n̂ and b̂ = β + ĉ.

    For a Dirichlet variable with constant Σn, b̂ is 1 and the duration is the same in all
    coordinates; they are stored in the first coordinate only.
    """
    prior, estimate, process = borrow(prior), borrow(estimate), borrow(process)
    for variable in range(layout.shape[0]):
        start = layout[variable, 1]
        stop = start + layout[variable, 2] * layout[variable, 3]
        for i in range(start, stop):
            process.shape[i] = prior.shape[i] + estimate.counts[i]
        if layout[variable, 0] == SIMPLEX:
            if has_constant_total(count_totals, start):
                process.log_rate[start], process.time[start] = 0.0, step_size
            else:
                fix_count_total(
                    layout[variable], log_state, estimate, step_size, count_totals, process
                )
            continue
        for i in range(start, stop):
            process.rate[i] = prior.rate[i] + estimate.exposures[i]
            process.log_rate[i] = math.log(process.rate[i])
            process.time[i] = step_size * process.rate[i] / reference_rate[i]


# --- algorithm 1 --------------------------------------------------------------------------------


@compiled(inline="always")  # otherwise the transitions, which are long, are compiled twice
def exact_transition(
    layout: Table, log_state: Vector, count_totals: Vector, process: Process, stream: Stream
) -> None:
    """Draw the state after one inner step, eq. 2.3 for each coordinate, in place."""
    for variable in range(layout.shape[0]):
        kind, start = layout[variable, 0], layout[variable, 1]
        stop = start + layout[variable, 2] * layout[variable, 3]
        own = slice(start, stop)
        if kind == LOG_NORMAL:
            fill_normal(stream, process.noise[own])
            log_normal_transition(
                log_state[own],
                process.shape[own],
                process.rate[own],
                process.time[own],
                process.noise[own],
            )
            continue
        has_one_rate = kind == SIMPLEX and has_constant_total(count_totals, start)
        rates = slice(start, start + 1 if has_one_rate else stop)
        cir_transition(
            log_state[own], process.shape[own], process.log_rate[rates], process.time[rates], stream
        )


@kernel
def scir(
    logp_grad: Callback,
    minibatches: Integers,
    layout: Table,
    log_state: Vector,
    prior: Prior,
    step_size: float,
    reference_rate: Vector,
    count_totals: Vector,
    center: CountsAt,
    stream: Stream,
    estimate: CountsAt,
) -> tuple[int, int]:
    r"""Run the inner steps of one SCIR draw, in place.

    Each step estimates â = α + n̂ and b̂ = β + ĉ from the next minibatch and simulates
    dθ = (â − b̂θ) dt + √(2θ) dW exactly for the duration h / b̄; for log-normal variables it
    simulates d log θ = (Â − B̂ log θ) dt + √2 dW in the same way.

    **If Σn depends on ω.** Let L be the likelihood of ω, n = ω ⊙ ∂ log L / ∂ω and S = Σθ. As a
    function of θ, L(θ/S) is constant along rays, so that its derivative is

    .. math::

        \theta_j \frac{\partial}{\partial\theta_j} \log L(\theta/S) = n_j - \omega_j \sum_i n_i,

    and not n. With a constant M, the density

    .. math::

        \pi(\theta) \propto \prod_j \theta_j^{\alpha_j - 1} e^{-\theta_j} \; L(\theta/S) \, S^M

    factorizes in polar coordinates, dθ = S^{d−1} dS dω, into Π ω^{α−1} L(ω), the posterior, and
    S^{Σα+M−1} e^{−S}. Since ∂ log S^M / ∂ log θⱼ = M ωⱼ, the diffusion with noise √(2θ) dW that
    leaves π invariant is

    .. math::

        d\theta_j = \Bigl(\alpha_j + n_j + \omega_j \bigl(M - \textstyle\sum_i n_i\bigr)
        - \theta_j\Bigr) dt + \sqrt{2\theta_j}\,dW_j .

    The sum then follows dS = (Σα + M − S) dt + √(2S) dW, independently of ω, and ω changes at the
    rate 1/S, which no longer depends on ω. With the drift α + n − θ, S reverts to Σα + Σn(ω), and
    the stationary distribution of ω is close to the posterior times Σα + Σn(ω), at every step
    size. If Σn is constant, the two drifts are the same for M = Σn.

    During a step ω and S of the correction are fixed: d = M − Σn̂ is added as ω max(d, 0) to â and
    as max(−d, 0) / S to b̂ = 1, since ω = θ/S. Neither becomes negative for any M, and the drift
    tends to the one above as h → 0.

    Parameters
    ----------
    logp_grad : Callback
        Gradient of the log-likelihood of a minibatch in ω, times N/n, without the prior.
    minibatches : ndarray of int64, shape (n_steps,)
        Argument of the callback for each inner step, the first row of the minibatch.
    layout : ndarray of int64, shape (n_variables, 4)
        Kind, first coordinate, rows and coordinates per row of each variable; see
        `pymc_geodesic.kernels.counts.values_from_logs`.
    log_state : ndarray, shape (size,)
        log θ, where ω = θ / Σθ for Dirichlet variables.
    prior : Prior
        α and β.
    step_size : float
        h, a duration in units of 1 / b̄.
    reference_rate : ndarray, shape (size,)
        b̄, a fixed rate near b, whose inverse is the unit of time; 1 for Dirichlet variables.
    count_totals : ndarray, shape (size,) or (0,)
        M of the simplex row of each coordinate, near the mean of Σn; NaN for other variables and if
        Σn does not depend on ω. Empty if all are NaN.
    center : CountsAt
        Centering point of the control variates, with n and c of all data; empty without them.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    estimate : CountsAt
        Receives ω before the last step and the estimates of that step, or of the step that failed.

    Returns
    -------
    failed : int
        Index of a coordinate with a negative or undefined estimate, or −1. In case of failure the
        state is the one before the failed step.
    clips : int
        Number of negative estimates with control variates, which are set to zero.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, algorithm 1 and eq. 2.3.
    """
    log_state, reference_rate, stream = borrow(log_state), borrow(reference_rate), borrow(stream)
    count_totals = borrow(count_totals)
    prior, estimate = borrow(prior), borrow(estimate)
    size, n_center = log_state.size, center.values.size
    process = Process(
        np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    )
    at_center = CountsAt(center.values, np.empty(n_center), np.empty(n_center))
    clips = 0
    for minibatch in minibatches:
        values_from_logs(layout, log_state, estimate.values)
        clip_small_values(layout, prior.rate, estimate.values)
        failed = estimate_counts(logp_grad, minibatch, layout, estimate)
        if failed < 0 and n_center:
            failed = estimate_counts(logp_grad, minibatch, layout, at_center)
        if failed >= 0:
            return failed, clips
        if n_center:
            clips += apply_control_variates(layout, center, at_center, estimate)
        add_prior(
            layout, log_state, prior, estimate, step_size, reference_rate, count_totals, process
        )
        exact_transition(layout, log_state, count_totals, process, stream)
    return -1, clips
