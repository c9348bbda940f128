r"""Moments of directions with density proportional to :math:`e^{x^\top A x + b^\top x}`.

On the contour of `pymc_geodesic.ops.quadratic_contour`, given t, x is formally Gaussian with
covariance :math:`R = \tfrac12 (t I - A)^{-1}` and mean R b: moments of x are averages over the
contour of those of a Gaussian, covariances are those averages within and between.
"""

import numpy as np
from numpy.typing import NDArray

from pymc_geodesic.ops.quadratic_contour import contour
from pymc_geodesic.runtime.jit import compiled

Array = NDArray[np.float64]


@compiled
def spectral_moments(values: Array, counts: Array, pulls: Array) -> tuple[float, Array, Array]:
    """Return log C and the moments along each eigenvalue.

    Parameters
    ----------
    values, counts, pulls : ndarray, shape (k,)
        See `contour`.

    Returns
    -------
    log_integral : float
    first : ndarray, shape (k,)
        Mean of x along b within each space of eigenvectors: the derivative of log C in g.
    second : ndarray, shape (k,)
        Mean squared length of x within each: the derivative of log C in a.
    """
    rule = contour(values, counts, pulls)
    first, second = np.zeros(values.size), np.zeros(values.size)
    for node in range(rule.shifts.size):
        for i in range(values.size):
            variance = 0.5 / (rule.distances[i] + rule.shifts[node])
            mean = pulls[i] * variance
            first[i] += (rule.weights[node] * mean).real
            second[i] += (rule.weights[node] * (counts[i] * variance + mean * mean)).real
    return rule.log_integral, first, second


@compiled
def spectral_covariances(
    values: Array, counts: Array, pulls: Array, linear: Array, quadratic: Array
) -> tuple[Array, Array]:
    """Return the covariances of q = Σ (linear xᵢ + quadratic xᵢ²) with all xᵢ and xᵢ².

    Parameters
    ----------
    values, counts, pulls : ndarray, shape (k,)
        See `contour`.
    linear, quadratic : ndarray, shape (k,)

    Returns
    -------
    with_first, with_second : ndarray, shape (k,)
    """
    rule = contour(values, counts, pulls)
    _, first, second = spectral_moments(values, counts, pulls)
    expected = np.sum(linear * first) + np.sum(quadratic * second)
    with_first, with_second = np.zeros(values.size), np.zeros(values.size)
    for node in range(rule.shifts.size):
        weight = rule.weights[node]
        variance = 0.5 / (rule.distances + rule.shifts[node])
        mean = pulls * variance
        square = counts * variance + mean * mean
        away = np.sum(linear * mean + quadratic * square) - expected
        moved = variance * (linear + 2.0 * quadratic * mean)
        with_first += (weight * (away * (mean - first) + moved)).real
        within = 2.0 * moved * mean + 2.0 * quadratic * counts * variance * variance
        with_second += (weight * (away * (square - second) + within)).real
    return with_first, with_second


@compiled
def from_eigenbasis(axes: Array, coordinates: Array) -> Array:
    """Return axes · coordinates."""
    result = np.zeros(axes.shape[0])
    for i in range(axes.shape[0]):
        for j in range(axes.shape[1]):
            result[i] += axes[i, j] * coordinates[j]
    return result


@compiled
def conjugated(axes: Array, middle: Array) -> Array:
    """Return axes · middle · axesᵀ."""
    size = middle.shape[0]
    half = np.zeros((size, size))
    for i in range(size):
        for k in range(size):
            for j in range(size):
                half[i, j] += axes[i, k] * middle[k, j]
    result = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            for k in range(size):
                result[i, j] += half[i, k] * axes[j, k]
    return result


@compiled
def eigenbasis(matrix: Array, vector: Array) -> tuple[Array, Array, Array]:
    """Return eigenvalues, eigenvectors in columns, and the vector in their coordinates."""
    symmetric = 0.5 * (matrix + matrix.T)
    if not np.all(np.isfinite(symmetric)):  # LAPACK would raise
        size = vector.size
        return np.full(size, np.nan), np.full((size, size), np.nan), np.full(size, np.nan)
    values, axes = np.linalg.eigh(symmetric)
    return values, axes, from_eigenbasis(axes.T, vector)


@compiled
def matrix_moments(matrix: Array, vector: Array) -> tuple[float, Array, Array]:
    """Return log C, the mean of x and that of x xᵀ, its derivatives in b and in A.

    Parameters
    ----------
    matrix : ndarray, shape (d, d)
        A; its symmetric part counts.
    vector : ndarray, shape (d,)
        b.

    Returns
    -------
    log_integral : float
    mean : ndarray, shape (d,)
    second : ndarray, shape (d, d)
    """
    values, axes, pulls = eigenbasis(matrix, vector)
    size = values.size
    rule = contour(values, np.ones(size), pulls)
    mean, second = np.zeros(size), np.zeros((size, size))
    variance = np.empty(size, dtype=np.complex128)
    for node in range(rule.shifts.size):
        weight = rule.weights[node]
        for i in range(size):
            variance[i] = 0.5 / (rule.distances[i] + rule.shifts[node])
            mean[i] += (weight * variance[i]).real * pulls[i]
            second[i, i] += (weight * variance[i]).real
            for j in range(i + 1):
                product = (weight * variance[i] * variance[j]).real * pulls[i] * pulls[j]
                second[i, j] += product
                if j < i:
                    second[j, i] += product
    return rule.log_integral, from_eigenbasis(axes, mean), conjugated(axes, second)


@compiled
def matrix_covariances(
    matrix: Array, vector: Array, linear: Array, quadratic: Array
) -> tuple[Array, Array]:
    """Return the covariances of q = linear · x + xᵀ quadratic x with x and with x xᵀ.

    Parameters
    ----------
    matrix, quadratic : ndarray, shape (d, d)
    vector, linear : ndarray, shape (d,)

    Returns
    -------
    with_mean : ndarray, shape (d,)
    with_second : ndarray, shape (d, d)
    """
    values, axes, pulls = eigenbasis(matrix, vector)
    size = values.size
    rule = contour(values, np.ones(size), pulls)
    line = from_eigenbasis(axes.T, linear)
    form = conjugated(axes.T, 0.5 * (quadratic + quadratic.T))
    mean, expected = np.zeros(size), 0.0
    second = np.zeros((size, size))
    variances = np.empty((rule.shifts.size, size), dtype=np.complex128)
    aways = np.empty(rule.shifts.size, dtype=np.complex128)
    for node in range(rule.shifts.size):
        weight = rule.weights[node]
        variance = 0.5 / (rule.distances + rule.shifts[node])
        centre = pulls * variance
        statistic = complex(0.0, 0.0)
        for i in range(size):
            mean[i] += (weight * centre[i]).real
            second[i, i] += (weight * variance[i]).real
            statistic += line[i] * centre[i] + form[i, i] * variance[i]
            for j in range(size):
                second[i, j] += (weight * centre[i] * centre[j]).real
                statistic += centre[i] * form[i, j] * centre[j]
        variances[node], aways[node] = variance, statistic
        expected += (weight * statistic).real
    with_mean, with_second = np.zeros(size), np.zeros((size, size))
    for node in range(rule.shifts.size):
        weight, variance = rule.weights[node], variances[node]
        centre = pulls * variance
        away = aways[node] - expected
        moved = np.empty(size, dtype=np.complex128)
        for i in range(size):
            slope = complex(line[i], 0.0)
            for j in range(size):
                slope += 2.0 * form[i, j] * centre[j]
            moved[i] = variance[i] * slope
            with_mean[i] += (weight * (away * (centre[i] - mean[i]) + moved[i])).real
        for i in range(size):
            for j in range(size):
                square = centre[i] * centre[j]
                if i == j:
                    square += variance[i]
                within = moved[i] * centre[j] + centre[i] * moved[j]
                within += 2.0 * variance[i] * form[i, j] * variance[j]
                with_second[i, j] += (weight * (away * (square - second[i, j]) + within)).real
    return from_eigenbasis(axes, with_mean), conjugated(axes, with_second)
