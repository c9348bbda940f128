r"""Exact random draws of orthonormal frames from matrix Bingham distributions, in NumPy.

The density is proportional to :math:`\exp \sum_j b_j\, x_j^\top A\, x_j`. Proposals are matrix
angular central Gaussian with :math:`\Sigma^{-1} = t I - A`, t above the eigenvalues of A. With
:math:`M = X^\top A X`, whose eigenvalues are :math:`m_1 \ge \dots \ge m_p`, and b in decreasing
order,

.. math:: \sum_j b_j M_{jj} \le \sum_j b_j m_j, \qquad |X^\top \Sigma^{-1} X| = \prod_j (t - m_j) ,

so that the logarithm of density over proposal is at most the sum over j of the largest value of
:math:`b_j m + \tfrac n2 \log(t - m)` for m between :math:`a_{n-p+j}` and :math:`a_j`, where the
eigenvalues of M have to be. t makes that bound, with the constant of the proposal, as small as it
can be. (A, b) and (−A, −b) are the same distribution; the one with the smaller bound is taken.

References
----------
Kent, Ganeiber and Mardia (2013), A new method to simulate the Bingham and related distributions in
directional data analysis with applications, arXiv:1310.8110, for p = 1 and for equal b.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from pymc_geodesic.distributions.matrix_angular_central_gaussian import (
    draw_matrix_angular_central_gaussian,
)
from pymc_geodesic.distributions.quadratic_draws import SYMMETRY_TOLERANCE

Array = NDArray[np.float64]

MOST_PROPOSALS = 1_000_000
"""Proposals for one draw before the sampler gives up."""

FEWEST_AT_ONCE, PROPOSALS_AT_ONCE = 32, 4096
"""How many proposals are made together, the more the more were rejected."""


class Envelope(NamedTuple):
    """Proposals for eigenvalues a of A, the largest first, and b, the largest first."""

    distance: float
    """t less the largest eigenvalue."""
    bound: float
    """Of the logarithm of density over proposal, both without constants."""
    cost: float
    """Logarithm of the expected number of proposals, but for a constant of the density."""


def largest_ratio(a: Array, b: Array, t: float) -> float:
    """Return the bound of the module's text."""
    n, p = a.size, b.size
    low, high = a[n - p :], a[:p]
    best = np.where(b > 0.0, t - 0.5 * n / np.where(b > 0.0, b, 1.0), low)
    m = np.clip(best, low, high)
    return float(np.sum(b * m + 0.5 * n * np.log(t - m)))


def envelope(a: Array, b: Array) -> Envelope:
    """Choose t, on a logarithmic scale of its distance to the largest eigenvalue."""
    n, p = a.size, b.size

    def at(log_distance: float) -> Envelope:
        distance = float(np.exp(log_distance))
        bound = largest_ratio(a, b, a[0] + distance)
        return Envelope(distance, bound, bound - 0.5 * p * np.sum(np.log(distance + a[0] - a)))

    width = max(a[0] - a[-1], 1e-12)
    steepest = max(np.max(np.abs(b)), 1e-300)
    ends = np.log(1e-3 / (steepest + n / width)), np.log(10.0 * (width + n / steepest))
    # The cost has one valley for p = 1; a grid finds the best where there are more.
    grid = np.linspace(*ends, 60)
    nearest = int(np.argmin([at(each).cost for each in grid]))
    bracket = grid[max(nearest - 1, 0)], grid[min(nearest + 1, grid.size - 1)]
    found = optimize.minimize_scalar(lambda x: at(x).cost, bounds=bracket, method="bounded")
    return min(at(float(found.x)), at(float(grid[nearest])), key=lambda each: each.cost)


def _draw_in_axes(rng: np.random.Generator, a: Array, b: Array, size: int) -> Array:
    """Draw frames for a diagonal A; a and b decrease."""
    turned = envelope(-a[::-1], -b[::-1])
    chosen = envelope(a, b)
    if turned.cost < chosen.cost:
        return _draw_by_rejection(rng, -a[::-1], -b[::-1], turned, size)[:, ::-1, ::-1]
    return _draw_by_rejection(rng, a, b, chosen, size)


def _draw_by_rejection(
    rng: np.random.Generator, a: Array, b: Array, proposal: Envelope, size: int
) -> Array:
    n, p = a.size, b.size
    precisions = proposal.distance + a[0] - a
    frames = np.empty((size, n, p))
    done = proposed = 0
    while done < size:
        if proposed >= MOST_PROPOSALS * max(done, 1):
            raise RuntimeError(
                f"no draw of MatrixBingham was accepted in {MOST_PROPOSALS} proposals: rejection "
                f"is not feasible for this A and b with {p} columns. Draw by MCMC instead, with "
                "pm.sample on a model that holds this variable alone"
            )
        at_once = min(max(4 * (size - done), FEWEST_AT_ONCE, proposed), PROPOSALS_AT_ONCE)
        x = draw_matrix_angular_central_gaussian(rng, precisions**-0.5, at_once, p)
        weighted = a[:, None] * x
        exponent = np.einsum("kij,kij,j->k", x, weighted, b)
        form = np.swapaxes(x, -1, -2) @ (precisions[:, None] * x)
        log_ratio = exponent + 0.5 * n * np.linalg.slogdet(form)[1]
        accepted = -rng.standard_exponential(len(x)) <= log_ratio - proposal.bound
        kept = x[accepted][: size - done]
        frames[done : done + len(kept)] = kept
        done += len(kept)
        proposed += at_once
    return frames


def draw_matrix_bingham(
    rng: np.random.Generator, A: ArrayLike, b: ArrayLike, size: tuple[int, ...] | None = None
) -> Array:
    r"""Draw exactly from matrix Bingham distributions by rejection.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    A : array_like of float, shape (..., n, n)
        Symmetric matrices.
    b : array_like of float, shape (..., p)
        Weights of the columns, p at most n.
    size : tuple of int, optional
        Shape of the result without its last two axes; that of the parameters if left out.

    Returns
    -------
    ndarray of float, shape (*size, n, p)

    Raises
    ------
    ValueError
        If a parameter is not finite, ``A`` not symmetric, or ``b`` too long.
    RuntimeError
        If a million proposals for one draw are all rejected.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.matrix_bingham_draws import draw_matrix_bingham
    >>> A = np.diag([1e6, 0.0, -1e6])
    >>> X = draw_matrix_bingham(np.random.default_rng(1), A, [2.0, 1.0])
    >>> np.abs(X).round(2)
    array([[1., 0.],
           [0., 1.],
           [0., 0.]])
    """
    matrices, weights = np.asarray(A, dtype=float), np.asarray(b, dtype=float)
    n, p = matrices.shape[-1], weights.shape[-1]
    if p > n:
        raise ValueError(f"b has {p} weights, but there are at most {n} orthonormal columns")
    if not (np.all(np.isfinite(matrices)) and np.all(np.isfinite(weights))):
        raise ValueError("A and b must be finite")
    scale = np.abs(matrices).max(axis=(-2, -1), keepdims=True)
    if np.any(np.abs(matrices - np.swapaxes(matrices, -1, -2)) > SYMMETRY_TOLERANCE * scale):
        raise ValueError("A must be symmetric; use (A + A.T) / 2")
    leading = np.broadcast_shapes(matrices.shape[:-2], weights.shape[:-1])
    size = leading if size is None else size
    if not any(length > 1 for length in leading):
        return _of_one_law(
            rng, matrices.reshape(n, n), weights.reshape(p), int(np.prod(size, dtype=int))
        ).reshape(*size, n, p)
    draws = np.empty((*size, n, p))
    matrices = np.broadcast_to(matrices, (*size, n, n))
    weights = np.broadcast_to(weights, (*size, p))
    for index in np.ndindex(size):
        draws[index] = _of_one_law(rng, matrices[index], weights[index], 1)[0]
    return draws


def _of_one_law(rng: np.random.Generator, A: Array, b: Array, size: int) -> Array:
    """Draw from one distribution, shape (size, n, p)."""
    values, axes = np.linalg.eigh(0.5 * (A + A.T))
    order = np.argsort(-b, kind="stable")
    # (A, b) and (A / s, b s) are the same: bring b to the scale of one.
    unit = float(np.max(np.abs(b))) or 1.0
    x = _draw_in_axes(rng, unit * values[::-1], b[order] / unit, size)
    frames = np.empty_like(x)
    frames[..., order] = axes[:, ::-1] @ x
    return frames
