r"""Exact draws of Fisher–Bingham, Kent and Watson distributions.

The density is proportional to :math:`e^{x^\top A x + b^\top x}`. Proposals are angular central
Gaussian, as in Kent, Ganeiber and Mardia. The densities at x and −x are added:
with :math:`l = b^\top x`, :math:`\log\cosh l` is concave in :math:`l^2`, so that its tangent at any
:math:`l_0^2`,

.. math:: \cosh l \le \cosh l_0\; e^{w (l^2 - l_0^2)}, \qquad w = \tanh(l_0) / 2 l_0 ,

bounds the density of an axis by that of a Bingham distribution of :math:`A + w\,b b^\top`. For
every t above the eigenvalues of that matrix, with :math:`v = x^\top (t I - A - w\,b b^\top) x`,

.. math:: e^{t - v} \le e^{t - d/2} (d / 2)^{d/2}\, v^{-d/2} ,

which is the density of a normal vector of precision :math:`t I - A - w\,b b^\top`, divided by its
length. The expected number of proposals is convex in t if :math:`l_0` is optimal for each t. Watson
distributions need proposals of the squared cosine only.

References
----------
Kent, Ganeiber and Mardia (2013), A new method to simulate the Bingham and related distributions in
directional data analysis with applications, arXiv:1310.8110; there w = 1/2 for the sign that is
nearer to b.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.distributions.von_mises_fisher_draws import LENGTH_TOLERANCE, Array
from pymc_geodesic.ops.fisher_bingham_integral import eigenbasis, from_eigenbasis
from pymc_geodesic.ops.numba_backend import draw_batch
from pymc_geodesic.runtime.jit import compiled

SYMMETRY_TOLERANCE = 1e-6
"""Tolerance of the symmetry of A, relative to its largest entry."""

BISECTIONS = 60

T_TOLERANCE = 0.02
"""Tolerance of t, relative to the width of the saddle; draws are exact for any value, and the
number of proposals is near its minimum."""


@compiled
def tangent_point(form: float) -> float:
    """Return the best l₀ for bᵀ (t − A)⁻¹ b: the root of 2 l² = form (1 + l tanh l).

    Newton's method from above, on a convex function.
    """
    point = 0.25 * (form + math.sqrt(form * form + 8.0 * form))
    for _ in range(BISECTIONS):
        hyperbolic = math.tanh(point)
        value = 2.0 * point * point - form * (1.0 + point * hyperbolic)
        slope = 4.0 * point - form * (hyperbolic + point * (1.0 - hyperbolic * hyperbolic))
        if not slope > 0.0:
            break
        step = value / slope
        point -= step
        if not abs(step) > 1e-9 * point:
            break
    return max(point, 0.0)


@compiled
def tangent_slope(point: float) -> float:
    """Return w = tanh(l₀) / 2 l₀."""
    return 0.5 * math.tanh(point) / point if point > 1e-8 else 0.5


@compiled
def envelope(values: Array, slopes: Array) -> tuple[float, float]:
    """Choose t and l₀ of the angular central Gaussian proposals.

    Parameters
    ----------
    values : ndarray, shape (d,)
        Eigenvalues of A.
    slopes : ndarray, shape (d,)
        Coordinates of b in the eigenvectors.

    Returns
    -------
    distance : float
        t minus the largest eigenvalue of A.
    point : float
        l₀.
    """
    gaps = np.max(values) - values
    length = math.sqrt(np.sum(slopes * slopes))
    low, high = 0.0, 0.5 * values.size + length
    distance, point = high, 0.0
    for _ in range(BISECTIONS):
        distance = 0.5 * (low + high)
        form, steepness, trace = 0.0, 0.0, 0.0
        for i in range(values.size):
            inverse = 1.0 / (distance + gaps[i])
            form += slopes[i] * slopes[i] * inverse
            steepness += slopes[i] * slopes[i] * inverse * inverse
            trace += inverse
        point = tangent_point(form)
        weight = tangent_slope(point)
        if 1.0 - 0.5 * trace - 0.5 * weight * steepness / (1.0 - weight * form) < 0.0:
            low = distance
        else:
            high = distance
        if high - low < T_TOLERANCE * min(high, math.sqrt(high)):
            break
    return distance, point


@compiled
def fill_from_envelope(
    rng: np.random.Generator,
    values: Array,
    slopes: Array,
    distance: float,
    point: float,
    out: Array,
) -> int:
    """Fill ``out`` with a direction in the eigenbasis of A; return the number of proposals.

    Parameters
    ----------
    rng : numpy.random.Generator
    values, slopes : ndarray, shape (d,)
    distance, point : float
        Results of `envelope`.
    out : ndarray, shape (d,)
    """
    d = values.size
    largest = np.max(values)
    weight = tangent_slope(point)
    form = 0.0
    for i in range(d):
        form += slopes[i] * slopes[i] / (distance + largest - values[i])
    stretch = math.sqrt(weight / (1.0 - weight * form))
    half = 0.5 * d
    top = point + math.log1p(math.exp(-2.0 * point)) - weight * point * point
    proposals = 0
    while True:
        proposals += 1
        common = stretch * rng.standard_normal()
        squared = 0.0
        for i in range(d):
            gap = distance + largest - values[i]
            out[i] = rng.standard_normal() / math.sqrt(gap) + common * slopes[i] / gap
            squared += out[i] * out[i]
        scale = 1.0 / math.sqrt(squared)
        precision, along = 0.0, 0.0
        for i in range(d):
            out[i] *= scale
            precision += (distance + largest - values[i]) * out[i] * out[i]
            along += slopes[i] * out[i]
        precision -= weight * along * along
        size = abs(along)
        slack = size + math.log1p(math.exp(-2.0 * size)) - weight * size * size - top
        log_acceptance = half - precision + half * math.log(precision / half) + slack
        if rng.standard_exponential() >= -log_acceptance:
            if (rng.random() * (1.0 + math.exp(-2.0 * size)) > 1.0) == (along > 0.0):
                for i in range(d):
                    out[i] = -out[i]
            return proposals


@compiled
def require_symmetric(matrix: Array) -> None:
    """Raise ValueError if A is not finite or not symmetric."""
    largest = 0.0
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            largest = max(largest, abs(matrix[i, j]))
            if not np.isfinite(matrix[i, j]):
                raise ValueError("A must be finite")
    for i in range(matrix.shape[0]):
        for j in range(i):
            if abs(matrix[i, j] - matrix[j, i]) > SYMMETRY_TOLERANCE * largest:
                raise ValueError("A must be symmetric; use (A + A.T) / 2")


@compiled
def require_direction(mu: Array) -> None:
    """Raise ValueError if a vector is not of unit length."""
    if not abs(np.sum(mu * mu) - 1.0) <= 2.0 * LENGTH_TOLERANCE:
        raise ValueError("mu must contain unit vectors. Divide each by its length.")


@compiled
def fill_fisher_bingham(rng: np.random.Generator, matrix: Array, vector: Array, out: Array) -> int:
    """Fill the rows of ``out``, shape (n, d), with directions of one distribution.

    Parameters
    ----------
    rng : numpy.random.Generator
    matrix : ndarray, shape (d, d)
        A.
    vector : ndarray, shape (d,)
        b.
    out : ndarray, shape (n, d)

    Returns
    -------
    int
        The number of proposals.
    """
    require_symmetric(matrix)
    if not np.all(np.isfinite(vector)):
        raise ValueError("mu and kappa must be finite")
    values, axes, slopes = eigenbasis(matrix, vector)
    distance, point = envelope(values, slopes)
    coordinates = np.empty(values.size)
    proposals = 0
    for row in range(out.shape[0]):
        proposals += fill_from_envelope(rng, values, slopes, distance, point, coordinates)
        out[row] = from_eigenbasis(axes, coordinates)
    return proposals


@compiled
def fill_kent(
    rng: np.random.Generator, mu: Array, major: Array, kappa: float, beta: float, out: Array
) -> int:
    """Fill the rows of ``out``, shape (n, 3), with directions of one Kent distribution."""
    require_direction(mu)
    if not abs(np.sum(major * major) - 1.0) <= 2.0 * LENGTH_TOLERANCE:
        raise ValueError("major must contain unit vectors. Divide each by its length.")
    if not abs(np.sum(major * mu)) <= 2.0 * LENGTH_TOLERANCE:
        raise ValueError("major must be orthogonal to mu")
    if not (beta >= 0.0 and 2.0 * beta < kappa and kappa < np.inf):
        raise ValueError("beta must be at least 0 and below kappa / 2, kappa finite")
    values, slopes = np.array([0.0, beta, -beta]), np.array([kappa, 0.0, 0.0])
    distance, point = envelope(values, slopes)
    coordinates = np.empty(3)
    proposals = 0
    for row in range(out.shape[0]):
        proposals += fill_from_envelope(rng, values, slopes, distance, point, coordinates)
        x, y, z = coordinates
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            minor = mu[j] * major[k] - mu[k] * major[j]
            out[row, i] = x * mu[i] + y * major[i] + z * minor
    return proposals


def draw_fisher_bingham(
    rng: np.random.Generator,
    matrix: ArrayLike,
    vector: ArrayLike,
    size: tuple[int, ...] | None = None,
) -> Array:
    r"""Draw exactly from the density proportional to :math:`e^{x^\top A x + b^\top x}`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    matrix : array_like of float, shape (..., d, d)
        A, symmetric.
    vector : array_like of float, shape (..., d)
        b.
    size : tuple of int, optional
        Shape of the result without its last axis; default that of the parameters.

    Returns
    -------
    ndarray of float, shape (*size, d)

    Raises
    ------
    ValueError
        If ``matrix`` is not symmetric or a parameter not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.fisher_bingham_draws import draw_fisher_bingham
    >>> A = np.diag([0.0, 0.0, -1e8])
    >>> x = draw_fisher_bingham(np.random.default_rng(1), A, [1e8, 0.0, 0.0], (2,))
    >>> x.round(2) + 0.0
    array([[1., 0., 0.],
           [1., 0., 0.]])
    """
    A, b = np.asarray(matrix, dtype=float), np.asarray(vector, dtype=float)
    d = b.shape[-1]
    leading = np.broadcast_shapes(A.shape[:-2], b.shape[:-1])
    size = leading if size is None else size
    return draw_batch(fill_fisher_bingham, rng, (A, b), (A.shape[:-2], b.shape[:-1]), size, (d,))


@compiled
def fill_watson(rng: np.random.Generator, mu: Array, kappa: float, out: Array) -> int:
    """Fill the rows of ``out``, shape (n, d), with directions of one Watson distribution.

    Rejection is on the squared cosine only; one tangent is drawn for each direction.
    """
    require_direction(mu)
    if not np.isfinite(kappa):
        raise ValueError("kappa must be finite")
    d = mu.size
    half = 0.5 * d
    # t of the envelope: the root of 2 t (t - kappa) = t + (d - 1) (t - kappa) above kappa and zero.
    sum_of_roots = kappa + half
    root = 0.5 * (sum_of_roots + math.sqrt((kappa - half) * (kappa - half) + 2.0 * kappa))
    level = max(root, max(kappa, 0.0) + 1e-12 * (1.0 + abs(kappa)))
    proposals = 0
    for row in range(out.shape[0]):
        while True:
            proposals += 1
            normal = rng.standard_normal()
            near = normal * normal / (level - kappa)
            far = 2.0 * rng.standard_gamma(0.5 * (d - 1.0)) / level
            square = near / (near + far)
            precision = (level - kappa) * square + level * (far / (near + far))
            log_acceptance = half - precision + half * math.log(precision / half)
            if rng.standard_exponential() >= -log_acceptance:
                break
        cosine = math.copysign(math.sqrt(square), normal)
        fill_at_angle(rng, mu, cosine, math.sqrt(far / (near + far)), out[row])
    return proposals


@compiled
def fill_at_angle(
    rng: np.random.Generator, mu: Array, cosine: float, sine: float, out: Array
) -> None:
    """Fill ``out``, shape (d,), with cosine · mu + sine · a uniform direction orthogonal to mu."""
    d = mu.size
    along = 0.0
    for i in range(d):
        out[i] = rng.standard_normal()
        along += out[i] * mu[i]
    # The second projection removes rounding errors where the first leaves little.
    again, squared = 0.0, 0.0
    for i in range(d):
        out[i] -= along * mu[i]
        again += out[i] * mu[i]
    for i in range(d):
        out[i] -= again * mu[i]
        squared += out[i] * out[i]
    scale = sine / math.sqrt(squared)
    for i in range(d):
        out[i] = cosine * mu[i] + scale * out[i]
