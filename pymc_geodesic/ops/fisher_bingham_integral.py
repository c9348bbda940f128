r"""Integral and moments of :math:`e^{x^\top A x + b^\top x}` on the sphere.

In the axes of A, with eigenvalues :math:`a_i` that occur :math:`m_i` times and :math:`g_i` the
length of b along each, Kume and Wood's Laplace inversion gives

.. math::

    C = \int_{S^{d-1}} e^{x^\top A x + b^\top x}\, dx
      = \frac{2 \pi^{d/2}}{2 \pi i} \int e^{\varphi(t)}\, dt, \qquad
    \varphi(t) = t - \sum_i \frac{m_i}{2} \log(t - a_i) + \sum_i \frac{g_i^2}{4 (t - a_i)} ,

along a contour to the right of all :math:`a_i`. It is computed by the trapezoidal rule on the
hyperbola through the saddle point :math:`t_0`

.. math::

    t = t_0 + \zeta(u), \qquad
    \zeta = r \{(1 - \cosh u) \sin\alpha + i \sinh u \cos\alpha\} .

With :math:`s_i = t_0 - a_i`, the shares :math:`w_i = g_i^2 / 4 s_i^2` and
:math:`p_i = m_i / 2 s_i` sum to one at the saddle point, and

.. math::

    \varphi(t) - \varphi(t_0) = \sum_i w_i \frac{\zeta^2}{s_i + \zeta}
      + \sum_i \frac{m_i}{2} \{\eta_i - \log(1 + \eta_i)\}, \qquad \eta_i = \zeta / s_i .

The real part of every term is negative for :math:`|\operatorname{Im} \zeta| >
-\operatorname{Re} \zeta`, for any :math:`s_i`: there is no cancellation on a hyperbola with
asymptotes in that region, and the rule of step h converges as :math:`e^{-2 \pi v / h}` with v the
angle to the boundary of the region of analyticity. The angle, the vertex and the step below give
rounding error for all parameters.

Given t on the contour, x is formally Gaussian with covariance :math:`R = \tfrac12 (t I - A)^{-1}`
and mean R b: moments of x are averages over the contour of those of a Gaussian, and covariances are
sums of the averages within and between.

References
----------
Kume and Wood (2005), Saddlepoint approximations for the Bingham and Fisher–Bingham normalising
constants, Biometrika 92(2), section 2. Weideman and Trefethen (2007), Parabolic and hyperbolic
contours for computing the Bromwich integral, Mathematics of Computation 76.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_geodesic.runtime.jit import compiled

Array = NDArray[np.float64]

ANGLE = math.radians(25.0)
"""Angle of the asymptotes to the vertical."""

STEP = 0.065
"""Step of the trapezoidal rule in u."""

VERTEX_IN_WIDTHS = 5.0
"""Maximum size of the hyperbola, relative to the width of the saddle."""

NEGLIGIBLE = 1e-18
"""Size of the last term, relative to the sum."""

MAX_NODES = 1000

TOLERANCE = 1e-9
"""Relative error of the saddle point, which moves the contour only."""


class Contour(NamedTuple):
    """Nodes of the trapezoidal rule.

    Attributes
    ----------
    log_integral : float
        Logarithm of C.
    shifts : ndarray of complex, shape (nodes,)
        ζ at the nodes.
    weights : ndarray of complex, shape (nodes,)
        The average of a function h over the contour is the sum of Re(weight · h(t)).
    distances : ndarray, shape (k,)
        s, from the saddle point to each eigenvalue.
    """

    log_integral: float
    shifts: Any
    weights: Any
    distances: Any


@compiled
def saddle_distances(values: Array, counts: Array, squares: Array) -> Array:
    """Return the distances from the saddle point to the eigenvalues.

    Newton's method on a decreasing convex function, from below, where it does not overshoot.

    Parameters
    ----------
    values : ndarray, shape (k,)
        Eigenvalues a.
    counts : ndarray, shape (k,)
        Multiplicity m of each.
    squares : ndarray, shape (k,)
        g².

    Returns
    -------
    ndarray, shape (k,)
    """
    gaps = np.max(values) - values
    nearest = 0.0
    for i in range(values.size):
        alone = 0.25 * (counts[i] + np.sqrt(counts[i] * counts[i] + 4.0 * squares[i])) - gaps[i]
        nearest = max(nearest, alone)
    for _ in range(MAX_NODES):
        total, slope = 0.0, 0.0
        for i in range(values.size):
            distance = nearest + gaps[i]
            gaussian = 0.5 * counts[i] / distance
            pulled = 0.25 * squares[i] / (distance * distance)
            total += gaussian + pulled
            slope += (gaussian + 2.0 * pulled) / distance
        step = (total - 1.0) / slope
        nearest += step
        if not abs(step) > TOLERANCE * nearest:
            break
    return nearest + gaps


@compiled
def exponent(zeta: complex, counts: Array, shares: Array, distances: Array, rest: float) -> complex:
    """Return φ(t₀ + ζ) − φ(t₀); ``rest`` is the remaining slope at t₀.

    The logarithm uses log1p, since log(1 + ζ/s) is inaccurate for small ζ/s.
    """
    result = rest * zeta
    for i in range(counts.size):
        eta = zeta / distances[i]
        modulus = 0.5 * np.log1p(eta.real * (2.0 + eta.real) + eta.imag * eta.imag)
        logarithm = complex(modulus, math.atan2(eta.imag, 1.0 + eta.real))
        result += 0.5 * counts[i] * (eta - logarithm)
        result += shares[i] * zeta * eta / (1.0 + eta)
    return result


@compiled
def contour(values: Array, counts: Array, slopes: Array) -> Contour:
    """Return nodes, weights and the integral.

    Parameters
    ----------
    values, counts : ndarray, shape (k,)
        Eigenvalues of A and their multiplicities.
    slopes : ndarray, shape (k,)
        g, the length of b along each of them.

    Returns
    -------
    Contour
        NaN if a parameter is not finite.
    """
    squares = slopes * slopes
    if not (np.all(np.isfinite(values)) and np.all(np.isfinite(squares))):
        nothing = np.full(1, complex(np.nan, np.nan))
        return Contour(np.nan, nothing, nothing, np.full(values.size, np.nan))
    distances = saddle_distances(values, counts, squares)
    shares = 0.25 * squares / (distances * distances)
    gaussian = 0.5 * counts / distances
    rest = 1.0 - np.sum(shares) - np.sum(gaussian)
    width = 1.0 / np.sqrt(np.sum((gaussian + 2.0 * shares) / distances))
    size = min(VERTEX_IN_WIDTHS * width, np.min(distances)) / math.cos(ANGLE)
    shifts = np.empty(MAX_NODES, dtype=np.complex128)
    terms = np.empty(MAX_NODES, dtype=np.complex128)
    total, nodes = 0.0, 0
    while nodes < MAX_NODES:
        u = nodes * STEP
        across, along = math.sin(ANGLE) * size, math.cos(ANGLE) * size
        zeta = complex(across * (1.0 - math.cosh(u)), along * math.sinh(u))
        tangent = complex(-across * math.sinh(u), along * math.cosh(u))
        term = np.exp(exponent(zeta, counts, shares, distances, rest)) * tangent
        if nodes == 0:
            term *= 0.5
        shifts[nodes], terms[nodes] = zeta, term
        total += term.imag
        nodes += 1
        if abs(term) < NEGLIGIBLE * abs(total):
            break
    top = (
        np.max(values)
        + np.min(distances)
        + np.sum(shares * distances)
        - 0.5 * np.sum(counts * np.log(distances))
    )
    dimension = np.sum(counts)
    constant = math.log(2.0) + 0.5 * dimension * math.log(math.pi)
    log_integral = constant + top + np.log(total * STEP / math.pi)
    return Contour(log_integral, shifts[:nodes], -1j * terms[:nodes] / total, distances)


@compiled
def spectral_moments(values: Array, counts: Array, slopes: Array) -> tuple[float, Array, Array]:
    """Return log C and the moments along each eigenvalue.

    Parameters
    ----------
    values, counts, slopes : ndarray, shape (k,)
        See `contour`.

    Returns
    -------
    log_integral : float
    first : ndarray, shape (k,)
        Mean of x along b within each space of eigenvectors: the derivative of log C in g.
    second : ndarray, shape (k,)
        Mean squared length of x within each: the derivative of log C in a.
    """
    rule = contour(values, counts, slopes)
    first, second = np.zeros(values.size), np.zeros(values.size)
    for node in range(rule.shifts.size):
        for i in range(values.size):
            variance = 0.5 / (rule.distances[i] + rule.shifts[node])
            mean = slopes[i] * variance
            first[i] += (rule.weights[node] * mean).real
            second[i] += (rule.weights[node] * (counts[i] * variance + mean * mean)).real
    return rule.log_integral, first, second


@compiled
def spectral_covariances(
    values: Array, counts: Array, slopes: Array, linear: Array, quadratic: Array
) -> tuple[Array, Array]:
    """Return the covariances of q = Σ (linear xᵢ + quadratic xᵢ²) with all xᵢ and xᵢ².

    Parameters
    ----------
    values, counts, slopes : ndarray, shape (k,)
        See `contour`.
    linear, quadratic : ndarray, shape (k,)

    Returns
    -------
    with_first, with_second : ndarray, shape (k,)
    """
    rule = contour(values, counts, slopes)
    _, first, second = spectral_moments(values, counts, slopes)
    expected = np.sum(linear * first) + np.sum(quadratic * second)
    with_first, with_second = np.zeros(values.size), np.zeros(values.size)
    for node in range(rule.shifts.size):
        weight = rule.weights[node]
        variance = 0.5 / (rule.distances + rule.shifts[node])
        mean = slopes * variance
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
    values, axes, slopes = eigenbasis(matrix, vector)
    size = values.size
    rule = contour(values, np.ones(size), slopes)
    mean, second = np.zeros(size), np.zeros((size, size))
    variance = np.empty(size, dtype=np.complex128)
    for node in range(rule.shifts.size):
        weight = rule.weights[node]
        for i in range(size):
            variance[i] = 0.5 / (rule.distances[i] + rule.shifts[node])
            mean[i] += (weight * variance[i]).real * slopes[i]
            second[i, i] += (weight * variance[i]).real
            for j in range(i + 1):
                product = (weight * variance[i] * variance[j]).real * slopes[i] * slopes[j]
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
    values, axes, slopes = eigenbasis(matrix, vector)
    size = values.size
    rule = contour(values, np.ones(size), slopes)
    line = from_eigenbasis(axes.T, linear)
    form = conjugated(axes.T, 0.5 * (quadratic + quadratic.T))
    mean, expected = np.zeros(size), 0.0
    second = np.zeros((size, size))
    variances = np.empty((rule.shifts.size, size), dtype=np.complex128)
    aways = np.empty(rule.shifts.size, dtype=np.complex128)
    for node in range(rule.shifts.size):
        weight = rule.weights[node]
        variance = 0.5 / (rule.distances + rule.shifts[node])
        center = slopes * variance
        statistic = complex(0.0, 0.0)
        for i in range(size):
            mean[i] += (weight * center[i]).real
            second[i, i] += (weight * variance[i]).real
            statistic += line[i] * center[i] + form[i, i] * variance[i]
            for j in range(size):
                second[i, j] += (weight * center[i] * center[j]).real
                statistic += center[i] * form[i, j] * center[j]
        variances[node], aways[node] = variance, statistic
        expected += (weight * statistic).real
    with_mean, with_second = np.zeros(size), np.zeros((size, size))
    for node in range(rule.shifts.size):
        weight, variance = rule.weights[node], variances[node]
        center = slopes * variance
        away = aways[node] - expected
        moved = np.empty(size, dtype=np.complex128)
        for i in range(size):
            slope = complex(line[i], 0.0)
            for j in range(size):
                slope += 2.0 * form[i, j] * center[j]
            moved[i] = variance[i] * slope
            with_mean[i] += (weight * (away * (center[i] - mean[i]) + moved[i])).real
        for i in range(size):
            for j in range(size):
                square = center[i] * center[j]
                if i == j:
                    square += variance[i]
                within = moved[i] * center[j] + center[i] * moved[j]
                within += 2.0 * variance[i] * form[i, j] * variance[j]
                with_second[i, j] += (weight * (away * (square - second[i, j]) + within)).real
    return from_eigenbasis(axes, with_mean), conjugated(axes, with_second)
