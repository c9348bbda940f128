"""Fisher–Bingham integrals and moments for JAX, by the contour of `fisher_bingham_integral`.

The trapezoidal rule has a fixed number of nodes. First derivatives of the logarithm of the integral
are moments, and those of moments are covariances; higher derivatives are those of the quadrature.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pymc_geodesic.ops.fisher_bingham_integral import (
    ANGLE,
    MAX_NODES,
    STEP,
    TOLERANCE,
    VERTEX_IN_WIDTHS,
    Contour,
)

N_NODES = 112
"""Number of nodes.

Every distance s is at least 1/2, since the shares of an eigenvalue, at least 1/(2s), are at most
one. The size of the hyperbola is therefore at least 1/2, and the integrand at the last node below
:math:`e^{-100}` of that at the vertex.
"""


class JaxIntegrals(NamedTuple):
    """The functions of `fisher_bingham_integral` with the same names, for JAX."""

    spectral_moments: Callable[..., Any]
    spectral_covariances: Callable[..., Any]
    matrix_moments: Callable[..., Any]
    matrix_covariances: Callable[..., Any]


@cache
def jax_integrals() -> JaxIntegrals:
    """Return the functions; this imports JAX.

    Returns
    -------
    JaxIntegrals
    """
    import jax
    import jax.numpy as jnp

    u = STEP * np.arange(N_NODES)
    across, along = np.sin(ANGLE), np.cos(ANGLE)
    unit_shifts = across * (1.0 - np.cosh(u)) + 1j * along * np.sinh(u)
    unit_tangents = -across * np.sinh(u) + 1j * along * np.cosh(u)
    unit_tangents[0] *= 0.5

    def saddle_distances(values: Any, counts: Any, squares: Any) -> Any:
        gaps = jnp.max(values) - values
        alone = 0.25 * (counts + jnp.sqrt(counts * counts + 4.0 * squares)) - gaps

        def newton(state: Any) -> Any:
            nearest, _, n = state
            distances = nearest + gaps
            gaussian = 0.5 * counts / distances
            pulled = 0.25 * squares / (distances * distances)
            slope = jnp.sum((gaussian + 2.0 * pulled) / distances)
            step = (jnp.sum(gaussian + pulled) - 1.0) / slope
            return nearest + step, step, n + 1

        def is_moving(state: Any) -> Any:
            nearest, step, n = state
            return (jnp.abs(step) > TOLERANCE * nearest) & (n < MAX_NODES)

        start = jnp.maximum(jnp.max(alone), 0.0)
        return jax.lax.while_loop(is_moving, newton, newton((start, start, 0)))[0] + gaps

    def contour(values: Any, counts: Any, slopes: Any) -> Contour:
        squares = slopes * slopes
        distances = saddle_distances(values, counts, squares)
        shares = 0.25 * squares / (distances * distances)
        gaussian = 0.5 * counts / distances
        rest = 1.0 - jnp.sum(shares) - jnp.sum(gaussian)
        width = 1.0 / jnp.sqrt(jnp.sum((gaussian + 2.0 * shares) / distances))
        size = jnp.minimum(VERTEX_IN_WIDTHS * width, jnp.min(distances)) / along
        shifts = size * unit_shifts
        eta = shifts / distances[:, None]
        modulus = 0.5 * jnp.log1p(eta.real * (2.0 + eta.real) + eta.imag * eta.imag)
        logarithm = modulus + 1j * jnp.arctan2(eta.imag, 1.0 + eta.real)
        each = 0.5 * counts[:, None] * (eta - logarithm)
        each = each + shares[:, None] * shifts * eta / (1.0 + eta)
        terms = jnp.exp(rest * shifts + jnp.sum(each, axis=0)) * (size * unit_tangents)
        total = jnp.sum(terms.imag)
        top = (
            jnp.max(values)
            + jnp.min(distances)
            + jnp.sum(shares * distances)
            - 0.5 * jnp.sum(counts * jnp.log(distances))
        )
        constant = np.log(2.0) + 0.5 * jnp.sum(counts) * np.log(np.pi)
        log_integral: Any = constant + top + jnp.log(total * (STEP / np.pi))
        is_finite = jnp.all(jnp.isfinite(values)) & jnp.all(jnp.isfinite(squares))
        log_integral = jnp.where(is_finite, log_integral, jnp.nan)
        return Contour(log_integral, shifts, -1j * terms / total, distances)

    @jax.custom_jvp
    def spectral_moments(values: Any, counts: Any, slopes: Any) -> tuple[Any, Any, Any]:
        rule = contour(values, counts, slopes)
        variance = 0.5 / (rule.distances[:, None] + rule.shifts)
        mean = slopes[:, None] * variance
        first = (mean @ rule.weights).real
        second = ((counts[:, None] * variance + mean * mean) @ rule.weights).real
        return rule.log_integral, first, second

    def spectral_covariances(
        values: Any, counts: Any, slopes: Any, linear: Any, quadratic: Any
    ) -> tuple[Any, Any]:
        rule = contour(values, counts, slopes)
        weights = rule.weights
        variance = 0.5 / (rule.distances[:, None] + rule.shifts)
        mean = slopes[:, None] * variance
        square = counts[:, None] * variance + mean * mean
        first, second = (mean @ weights).real, (square @ weights).real
        expected = jnp.sum(linear * first) + jnp.sum(quadratic * second)
        away = linear @ mean + quadratic @ square - expected
        moved = variance * (linear[:, None] + 2.0 * quadratic[:, None] * mean)
        within = 2.0 * moved * mean
        within = within + 2.0 * (quadratic * counts)[:, None] * variance * variance
        with_first = ((away * (mean - first[:, None]) + moved) @ weights).real
        return with_first, ((away * (square - second[:, None]) + within) @ weights).real

    @spectral_moments.defjvp
    def spectral_derivatives(primals: Any, tangents: Any) -> tuple[Any, Any]:
        moments = spectral_moments(*primals)
        values, counts, slopes = primals
        along_values, _, along_slopes = tangents
        change = jnp.sum(moments[1] * along_slopes) + jnp.sum(moments[2] * along_values)
        moved = spectral_covariances(values, counts, slopes, along_slopes, along_values)
        return moments, (change, *moved)

    def eigenbasis(matrix: Any, vector: Any) -> tuple[Any, Any, Any]:
        values, axes = jnp.linalg.eigh(0.5 * (matrix + matrix.T))
        return values, axes, axes.T @ vector

    @jax.custom_jvp
    def matrix_moments(matrix: Any, vector: Any) -> tuple[Any, Any, Any]:
        values, axes, slopes = eigenbasis(matrix, vector)
        rule = contour(values, jnp.ones_like(values), slopes)
        variance = 0.5 / (rule.distances[:, None] + rule.shifts)
        center = slopes[:, None] * variance
        variances = (variance @ rule.weights).real
        second = jnp.diag(variances) + ((center * rule.weights) @ center.T).real
        return rule.log_integral, axes @ (slopes * variances), axes @ second @ axes.T

    def matrix_covariances(
        matrix: Any, vector: Any, linear: Any, quadratic: Any
    ) -> tuple[Any, Any]:
        values, axes, slopes = eigenbasis(matrix, vector)
        rule = contour(values, jnp.ones_like(values), slopes)
        weights = rule.weights
        line = axes.T @ linear
        form = axes.T @ (0.5 * (quadratic + quadratic.T)) @ axes
        variance = 0.5 / (rule.distances[:, None] + rule.shifts)
        center = slopes[:, None] * variance
        turned = form @ center
        statistic = line @ center + jnp.diagonal(form) @ variance
        statistic = statistic + jnp.sum(center * turned, axis=0)
        away = statistic - (statistic @ weights).real
        mean = (center @ weights).real
        second = jnp.diag((variance @ weights).real) + ((center * weights) @ center.T).real
        moved = variance * (line[:, None] + 2.0 * turned)
        with_mean = ((away * (center - mean[:, None]) + moved) @ weights).real
        heavy = away * weights
        between = jnp.diag(variance @ heavy) + (center * heavy) @ center.T
        between = between - jnp.sum(heavy) * second
        within = (moved * weights) @ center.T
        within = within + within.T + 2.0 * form * ((variance * weights) @ variance.T)
        return axes @ with_mean, axes @ (between + within).real @ axes.T

    @matrix_moments.defjvp
    def matrix_derivatives(primals: Any, tangents: Any) -> tuple[Any, Any]:
        moments = matrix_moments(*primals)
        matrix, vector = primals
        along_matrix, along_vector = tangents
        change = jnp.sum(moments[1] * along_vector) + jnp.sum(moments[2] * along_matrix)
        moved = matrix_covariances(matrix, vector, along_vector, along_matrix)
        return moments, (change, *moved)

    return JaxIntegrals(spectral_moments, spectral_covariances, matrix_moments, matrix_covariances)
