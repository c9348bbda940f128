r"""Exact draws of uniform and von Mises–Fisher directions, in NumPy and for Numba.

A draw around a mean direction is :math:`x = (1 - t)\,\mu + \sqrt{t (2 - t)}\,\xi`, with
:math:`\xi` uniform on the unit sphere of the tangent space at :math:`\mu` and the scalar
:math:`t = 1 - \mu \cdot x`. All formulas use t instead of the cosine, so that no digit is lost for
high concentrations (t is of the order :math:`10^{-8}` at :math:`\kappa = 10^8`).

The functions of `compiled_draws` return one draw, those of NumPy many.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

LENGTH_TOLERANCE = 1e-6
"""Tolerance of the length of a unit vector, satisfied in single precision."""

NUMPY_VON_MISES_LIMIT = 1e6
"""Concentration above which `numpy.random.Generator.vonmises` uses a normal approximation."""

BLOCK_ENTRIES = 2**15
"""Entries drawn at a time, which fit in the cache."""

MIN_BLOCK_ROWS = 256


def are_unit_vectors(vectors: ArrayLike) -> NDArray[np.bool_]:
    """Return whether each vector has length one.

    Parameters
    ----------
    vectors : array_like of float, shape (..., d)
        Vectors on the last axis.

    Returns
    -------
    ndarray of bool, shape (...)
        False for a vector that holds a NaN.

    Examples
    --------
    >>> from pymc_geodesic.distributions.von_mises_fisher_draws import are_unit_vectors
    >>> are_unit_vectors([[0.6, 0.8], [1.0, 1.0]])
    array([ True, False])
    """
    array = np.asarray(vectors, dtype=float)
    squared = np.einsum("...i,...i->...", array, array)
    return np.abs(squared - 1.0) <= 2.0 * LENGTH_TOLERANCE


def draw_uniform_directions(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw from the uniform distribution on the sphere.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    shape : tuple of int
        Shape of the result; the last entry is the dimension d of the space.

    Returns
    -------
    ndarray of float, shape ``shape``

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.von_mises_fisher_draws import draw_uniform_directions
    >>> x = draw_uniform_directions(np.random.default_rng(1), (5, 3))
    >>> np.linalg.norm(x, axis=-1)
    array([1., 1., 1., 1., 1.])
    """
    directions = rng.standard_normal(shape)
    squared = np.einsum("...i,...i->...", directions, directions)
    directions /= np.sqrt(squared)[..., None]
    return directions


def _one_minus_cosine_on_two_sphere(rng: np.random.Generator, kappa: Array, n: int) -> Array:
    r"""Draw t by the inverse of its distribution function for d = 3.

    :math:`t = -\log(1 - u (1 - e^{-2 \kappa})) / \kappa`, u uniform; 2 u at kappa = 0.
    """
    uniform = rng.random(n)
    positive = kappa > 0
    scale = np.where(positive, kappa, 1.0)
    curved = np.log1p(uniform * np.expm1(-2.0 * scale)) / -scale
    return curved if np.all(positive) else np.where(positive, curved, 2.0 * uniform)


def _one_minus_cosine_by_rejection(rng: np.random.Generator, kappa: Array, n: int, d: int) -> Array:
    r"""Draw t by Ulrich's envelope as corrected by Wood.

    With b of Wood's algorithm, Z symmetric Beta, the proposal is
    :math:`t = 2 b Z / (1 - Z + b Z)`, the mode :math:`e = 2 b / (1 + b)`, and the acceptance
    probability :math:`\{(1 + z) e^{-z}\}^{d-1}` with :math:`z = \kappa (t - e) / (d - 1)`.
    """
    freedom = d - 1.0
    slope = freedom / (2.0 * kappa + np.sqrt(4.0 * kappa**2 + freedom**2))
    mode = 2.0 * slope / (1.0 + slope)

    def propose(slope: Array, mode: Array, kappa: Array, n: int) -> tuple[Array, NDArray[np.intp]]:
        gamma_a = slope * rng.standard_gamma(freedom / 2.0, n)
        proposal = 2.0 * gamma_a / (gamma_a + rng.standard_gamma(freedom / 2.0, n))
        z = kappa / freedom * (proposal - mode)
        rejected = rng.standard_exponential(n) < freedom * (z - np.log1p(z))
        return proposal, np.flatnonzero(rejected)

    t, rows = propose(slope, mode, kappa, n)
    shared = kappa.size == 1
    while rows.size:
        own = ... if shared else rows
        t[rows], again = propose(slope[own], mode[own], kappa[own], rows.size)
        rows = rows[again]
    return t


def _draw_on_circle(rng: np.random.Generator, means: Array, kappa: Array, draws: Array) -> None:
    """Fill ``draws`` for d = 2: with NumPy's generator where it is exact, else by rejection."""
    n = len(draws)
    mean_angles = np.arctan2(means[:, 1], means[:, 0])
    bounded = np.minimum(kappa, NUMPY_VON_MISES_LIMIT)
    # The generator is faster for scalars.
    angles = np.asarray(
        rng.vonmises(
            mean_angles[0] if len(means) == 1 else mean_angles,
            bounded[0] if kappa.size == 1 else bounded,
            n,
        )
    )
    beyond = kappa > NUMPY_VON_MISES_LIMIT
    if beyond.any():
        (rows,) = np.nonzero(np.broadcast_to(beyond, n))
        shared = kappa if kappa.size == 1 else kappa[rows]
        t = _one_minus_cosine_by_rejection(rng, shared, rows.size, 2)
        signs = np.where(rng.random(rows.size) < 0.5, -1.0, 1.0)
        angles[rows] = signs * 2.0 * np.arcsin(np.sqrt(t / 2.0))
        angles[rows] += np.broadcast_to(mean_angles, n)[rows]
    np.cos(angles, out=draws[:, 0])
    np.sin(angles, out=draws[:, 1])


def _draw_from_pole(rng: np.random.Generator, kappa: Array, draws: Array) -> None:
    """Fill ``draws`` around the last axis of the coordinates, d at least 3."""
    n, d = draws.shape
    if d == 3:
        t = _one_minus_cosine_on_two_sphere(rng, kappa, n)
    else:
        t = _one_minus_cosine_by_rejection(rng, kappa, n, d)
    tangents = rng.standard_normal((n, d - 1))
    squared = np.einsum("ij,ij->i", tangents, tangents)
    scale = np.sqrt(t * (2.0 - t) / squared)
    np.multiply(tangents, scale[:, None], out=draws[:, :-1])
    draws[:, -1] = 1.0 - t


def _reflect_pole(draws: Array, means: Array) -> None:
    """Map the last axis of the coordinates to the means by a Householder reflection, in place.

    The sign of the reflected pole is chosen to avoid cancellation.

    Parameters
    ----------
    draws : ndarray, shape (n, d)
        Changed in place.
    means : ndarray, shape (n, d) or (1, d)
        Unit vectors.
    """
    sign = np.where(means[:, -1] >= 0.0, 1.0, -1.0)
    normal = sign[:, None] * means
    normal[:, -1] += 1.0
    if len(means) == 1:
        along = draws @ normal[0]
    else:
        along = np.einsum("ij,ij->i", draws, normal)
    # I - normal normalᵀ / (1 + |mean_d|) takes the pole to -sign * mean.
    along *= sign / normal[:, -1]
    draws *= -sign[:, None]
    draws += along[:, None] * normal


def draw_von_mises_fisher(
    rng: np.random.Generator,
    mu: ArrayLike,
    kappa: ArrayLike,
    size: tuple[int, ...] | None = None,
) -> Array:
    r"""Draw exactly from von Mises–Fisher distributions.

    For d = 2 the angle is drawn by NumPy's von Mises generator, or by rejection for kappa above
    1e6. Otherwise the cosine is drawn by the inverse distribution function for d = 3 and by Wood's
    rejection sampler for d above 3; a Householder reflection maps the pole to the mean.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    mu : array_like of float, shape (..., d)
        Mean directions, unit vectors, d at least 2.
    kappa : array_like of float, shape (...)
        Concentrations, at least 0; broadcast against the leading axes of ``mu``.
    size : tuple of int, optional
        Shape of the result without its last axis; default the broadcast shape of the parameters.

    Returns
    -------
    ndarray of float, shape (*size, d)

    Raises
    ------
    ValueError
        If ``mu`` is not of unit length or ``kappa`` is negative or not finite.

    References
    ----------
    Wood (1994), Simulation of the von Mises Fisher distribution, algorithm VM*;
    Ulrich (1984), Computer generation of distributions on the m-sphere.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.von_mises_fisher_draws import draw_von_mises_fisher
    >>> x = draw_von_mises_fisher(np.random.default_rng(1), [0.0, 0.6, 0.8], 1e8, (4,))
    >>> np.round(x @ [0.0, 0.6, 0.8], 6)
    array([1., 1., 1., 1.])
    """
    means = np.asarray(mu, dtype=float)
    concentrations = np.asarray(kappa, dtype=float)
    if not np.all(are_unit_vectors(means)):
        raise ValueError("mu must contain unit vectors. Divide each by its length.")
    if not np.all((concentrations >= 0) & np.isfinite(concentrations)):
        raise ValueError("kappa must be finite and at least 0")
    d = means.shape[-1]
    if d < 2:
        raise ValueError(f"mu must have at least 2 coordinates, but has {d}")
    if size is None:
        size = np.broadcast_shapes(means.shape[:-1], concentrations.shape)
    n = math.prod(size)
    # Parameters that all draws share stay a single row.
    if means.size > d:
        means = np.broadcast_to(means, (*size, d))
    if concentrations.size > 1:
        concentrations = np.broadcast_to(concentrations, size)
    flat_means, flat_kappa = means.reshape(-1, d), concentrations.reshape(-1)
    draws = np.empty((n, d))
    step = max(MIN_BLOCK_ROWS, BLOCK_ENTRIES // d)
    for start in range(0, n, step):
        block = slice(start, start + step)
        block_means = flat_means if len(flat_means) == 1 else flat_means[block]
        block_kappa = flat_kappa if len(flat_kappa) == 1 else flat_kappa[block]
        if d == 2:
            _draw_on_circle(rng, block_means, block_kappa, draws[block])
        else:
            _draw_from_pole(rng, block_kappa, draws[block])
            _reflect_pole(draws[block], block_means)
    return draws.reshape(*size, d)


def draw_around_mean(
    rng: np.random.Generator,
    mu: ArrayLike,
    kappa: ArrayLike,
    size: tuple[int, ...] | None,
    draw_one_minus_cosine: Callable[[Array, int], Array],
) -> Array:
    """Draw directions from rotationally symmetric distributions.

    Parameters
    ----------
    rng : numpy.random.Generator
    mu : array_like of float, shape (..., d)
    kappa : array_like of float, shape (...)
        Concentrations.
    size : tuple of int or None
    draw_one_minus_cosine : callable
        Function that draws t = 1 − μ·x, shape (n,), from the concentrations of n draws and n.

    Returns
    -------
    ndarray, shape (*size, d)

    Raises
    ------
    ValueError
        If ``mu`` is not of unit length.
    """
    means, concentrations = np.asarray(mu, dtype=float), np.asarray(kappa, dtype=float)
    if not np.all(are_unit_vectors(means)):
        raise ValueError("mu must contain unit vectors. Divide each by its length.")
    d = means.shape[-1]
    if size is None:
        size = np.broadcast_shapes(means.shape[:-1], concentrations.shape)
    means = np.broadcast_to(means, (*size, d)).reshape(-1, d)
    t = draw_one_minus_cosine(np.broadcast_to(concentrations, size).reshape(-1), len(means))
    draws = np.empty((len(means), d))
    tangents = rng.standard_normal((len(means), d - 1))
    scale = np.sqrt(t * (2.0 - t) / np.einsum("ij,ij->i", tangents, tangents))
    draws[:, :-1] = scale[:, None] * tangents
    draws[:, -1] = 1.0 - t
    if len(draws):
        _reflect_pole(draws, means)
    return draws.reshape(*size, d)


class CompiledDraws(NamedTuple):
    """Functions that draw one direction; see `compiled_draws`."""

    fill_uniform: Callable[..., None]
    fill_around_mean: Callable[..., None]
    fill_von_mises_fisher: Callable[..., None]


@cache
def compiled_draws(njit: Any) -> CompiledDraws:
    """Return the functions, compiled by Numba, that fill an array with one direction.

    Parameters
    ----------
    njit : callable
        Decorator, the argument of `WithLoop.numba_loop`.

    Returns
    -------
    CompiledDraws
        Functions of the generator, the parameters and the array to fill.
    """

    @njit
    def fill_uniform(rng: np.random.Generator, out: Array) -> None:
        """Fill ``out``, shape (d,), with a uniform direction."""
        squared = 0.0
        for i in range(out.size):
            normal = rng.standard_normal()
            out[i] = normal
            squared += normal * normal
        out /= np.sqrt(squared)

    @njit
    def one_minus_cosine_and_sine(rng: np.random.Generator, kappa: float) -> tuple[float, float]:
        """Draw t, one minus the cosine to the mean direction, and the sine, for d = 2.

        The odds Z / (1 − Z) of Beta(1/2, 1/2) are the square of a Cauchy variable, a ratio of two
        normal variables, whose sign is the side of the mean direction. The logarithm of the
        acceptance probability is above the parabola −x² / (2 (1 + min(x, 0))), a bound that accepts
        most proposals without a logarithm.
        """
        slope = 1.0 / (2.0 * kappa + np.sqrt(4.0 * kappa * kappa + 1.0))
        mode = 2.0 * slope / (1.0 + slope)
        width = np.sqrt(slope)
        while True:
            half_tangent = width * (rng.standard_normal() / rng.standard_normal())
            odds = half_tangent * half_tangent
            t = 2.0 * odds / (1.0 + odds)
            z = kappa * (t - mode)
            limit = rng.standard_exponential()
            # Infinite odds make these comparisons false, and the proposal is drawn again.
            if limit >= 0.5 * z * z / (1.0 + min(z, 0.0)) or (limit >= z - np.log1p(z)):
                return t, 2.0 * half_tangent / (1.0 + odds)

    @njit
    def one_minus_cosine(rng: np.random.Generator, kappa: float, d: int) -> float:
        """Draw t, one minus the cosine to the mean direction, for d at least 3."""
        if d == 3:
            uniform = rng.random()
            if kappa == 0.0:
                return 2.0 * uniform
            return -np.log1p(uniform * np.expm1(-2.0 * kappa)) / kappa
        freedom = d - 1.0
        slope = freedom / (2.0 * kappa + np.sqrt(4.0 * kappa * kappa + freedom * freedom))
        mode = 2.0 * slope / (1.0 + slope)
        while True:
            odds = slope * rng.standard_gamma(freedom / 2.0) / rng.standard_gamma(freedom / 2.0)
            proposal = 2.0 * odds / (1.0 + odds)
            z = kappa / freedom * (proposal - mode)
            if rng.standard_exponential() >= freedom * (z - np.log1p(z)):
                return proposal

    @njit
    def require_unit_vector(mu: Array) -> None:
        length = 0.0
        for i in range(mu.shape[0]):
            length += mu[i] * mu[i]
        if not np.abs(length - 1.0) <= 2.0 * LENGTH_TOLERANCE:
            raise ValueError("mu must contain unit vectors. Divide each by its length.")

    @njit
    def fill_around_mean(rng: np.random.Generator, mu: Array, t: float, out: Array) -> None:
        """Fill ``out``, shape (d,), with a direction x with 1 − mu · x = t."""
        require_unit_vector(mu)
        d = mu.shape[0]
        sign = 1.0 if mu[d - 1] >= 0.0 else -1.0
        squared = 0.0
        along = 0.0
        for i in range(d - 1):
            normal = rng.standard_normal()
            out[i] = normal
            squared += normal * normal
            along += normal * mu[i]
        scale = np.sqrt(t * (2.0 - t) / squared)
        # Householder reflection along normal = sign * mu + pole, without cancellation.
        projection = sign * scale * along / (1.0 + np.abs(mu[d - 1])) + 1.0 - t
        for i in range(d - 1):
            out[i] = projection * mu[i] - sign * scale * out[i]
        out[d - 1] = projection * (mu[d - 1] + sign) - sign * (1.0 - t)

    @njit
    def fill_von_mises_fisher(
        rng: np.random.Generator, mu: Array, kappa: float, out: Array
    ) -> None:
        """Fill ``out``, shape (d,), with a draw around the unit vector ``mu``, shape (d,)."""
        if not (kappa >= 0.0 and kappa < np.inf):
            raise ValueError("kappa must be finite and at least 0")
        d = mu.shape[0]
        if d == 2:
            require_unit_vector(mu)
            t, sine = one_minus_cosine_and_sine(rng, kappa)
            out[0] = (1.0 - t) * mu[0] - sine * mu[1]
            out[1] = (1.0 - t) * mu[1] + sine * mu[0]
            return
        fill_around_mean(rng, mu, one_minus_cosine(rng, kappa, d), out)

    return CompiledDraws(fill_uniform, fill_around_mean, fill_von_mises_fisher)
