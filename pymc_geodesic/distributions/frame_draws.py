r"""Exact random draws of orthonormal frames from matrix von Mises–Fisher distributions, in NumPy.

The density is proportional to :math:`\exp \operatorname{tr}(F^\top X)`. With the singular values
of F in :math:`F = U D V^\top` and :math:`H = U D`, the frame :math:`Z = X V` has density
proportional to :math:`\exp \sum_r h_r \cdot z_r`. Its columns are proposed one after another,
each from the von Mises–Fisher distribution on the sphere orthogonal to those before it.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_geodesic.distributions.draws import draw_von_mises_fisher
from pymc_geodesic.distributions.special import log_vmf_normalizer

Array = NDArray[np.float64]

MOST_PROPOSALS = 100_000
"""Proposals for one draw before the sampler gives up."""

PROPOSALS_AT_ONCE = 4096
"""How many proposals are worth making together for the few draws that still wait."""


def _log_normalizer(dim: int, kappa: Array) -> Array:
    """Return log c of the von Mises–Fisher density, also on the two points of the line."""
    if dim == 1:
        return -np.logaddexp(kappa, -kappa)
    return log_vmf_normalizer(dim, kappa)


def _pole_draws(rng: np.random.Generator, dim: int, kappa: Array) -> tuple[Array, Array]:
    """Draw cosine and sine of the angle to the mean direction on the sphere of R^dim."""
    if dim == 1:
        upward = rng.random(kappa.shape) * (1.0 + np.exp(-2.0 * kappa)) < 1.0
        return np.where(upward, 1.0, -1.0), np.zeros(kappa.shape)
    pole = np.eye(dim)[-1]
    draws = draw_von_mises_fisher(rng, pole, kappa)
    return draws[..., -1], np.sqrt(np.einsum("...i,...i->...", draws[..., :-1], draws[..., :-1]))


def _orthogonal_part(vectors: Array, columns: Array) -> Array:
    """Take from each vector its part along the orthonormal columns; twice, against rounding."""
    for _ in range(2):
        along = np.einsum("bni,bn->bi", columns, vectors)
        vectors = vectors - np.einsum("bni,bi->bn", columns, along)
    return vectors


def _directions(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def _propose(rng: np.random.Generator, concentration: Array) -> tuple[Array, Array]:
    """Propose frames column by column.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    concentration : ndarray, shape (b, n, p)
        H, with orthogonal columns in the order of decreasing length.

    Returns
    -------
    frames : ndarray, shape (b, n, p)
    log_acceptance : ndarray, shape (b,)
        Logarithm of the acceptance probability, at most 0 up to rounding.
    """
    n_frames, rows, n_columns = concentration.shape
    frames = np.empty((n_frames, rows, n_columns))
    log_acceptance = np.zeros(n_frames)
    for r in range(n_columns):
        chosen, dim = frames[..., :r], rows - r
        pull = _orthogonal_part(concentration[..., r], chosen)
        kappa = np.linalg.norm(pull, axis=-1)
        random_direction = _directions(
            _orthogonal_part(rng.standard_normal((n_frames, rows)), chosen)
        )
        mean = np.where(kappa[:, None] > 0, _directions(pull), random_direction)
        cosine, sine = _pole_draws(rng, dim, kappa)
        column = cosine[:, None] * mean
        if dim > 1:
            taken = np.concatenate([chosen, mean[..., None]], axis=-1)
            tangent = _orthogonal_part(rng.standard_normal((n_frames, rows)), taken)
            column += sine[:, None] * _directions(tangent)
        frames[..., r] = _directions(_orthogonal_part(column, chosen))
        if r > 0:
            largest = np.linalg.norm(concentration[..., r], axis=-1)
            log_acceptance += _log_normalizer(dim, largest) - _log_normalizer(dim, kappa)
    return frames, log_acceptance


def draw_matrix_von_mises_fisher(
    rng: np.random.Generator, F: ArrayLike, size: tuple[int, ...] | None = None
) -> Array:
    r"""Draw exactly from matrix von Mises–Fisher distributions by rejection.

    A proposal is accepted with probability
    :math:`\prod_{r>1} c_{n-r+1}(\|h_r\|) / c_{n-r+1}(\|P_r h_r\|)`, where :math:`P_r` projects on
    the complement of the columns before r and :math:`c_m` is the constant of the von
    Mises–Fisher density on the sphere of R^m. The average acceptance does not vanish with growing
    concentration (about one half for p = 2), but falls with p as :math:`2^{-p(p-1)/4}` at worst.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    F : array_like of float, shape (..., n, p)
        Parameters, p at most n.
    size : tuple of int, optional
        Shape of the result without its last two axes; the leading shape of ``F`` if left out.

    Returns
    -------
    ndarray of float, shape (*size, n, p)
        Matrices with orthonormal columns.

    Raises
    ------
    ValueError
        If ``F`` is not finite or has more columns than rows.
    RuntimeError
        If 100,000 or more proposals for one draw are all rejected.

    References
    ----------
    Hoff, P. D. (2009). Simulation of the matrix Bingham–von Mises–Fisher distribution, with
    applications to multivariate and relational data. Journal of Computational and Graphical
    Statistics 18(2), section 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.frame_draws import draw_matrix_von_mises_fisher
    >>> F = np.array([[1e8, 0.0], [0.0, 1e8], [0.0, 0.0]])
    >>> np.abs(draw_matrix_von_mises_fisher(np.random.default_rng(1), F).round(2))
    array([[1., 0.], [0., 1.], [0., 0.]])
    """
    parameters = np.asarray(F, dtype=float)
    rows, columns = parameters.shape[-2:]
    if columns > rows:
        raise ValueError(f"F must have at least as many rows as columns, but is {rows} × {columns}")
    if not np.all(np.isfinite(parameters)):
        raise ValueError("F must be finite")
    if size is None:
        size = parameters.shape[:-2]
    left, lengths, right = np.linalg.svd(parameters, full_matrices=False)
    concentration = np.broadcast_to(left * lengths[..., None, :], (*size, rows, columns))
    concentration = concentration.reshape(-1, rows, columns)

    frames = np.empty(concentration.shape)
    waiting = np.arange(len(frames))
    proposed, copies = 0, 1
    while waiting.size:
        if proposed >= MOST_PROPOSALS:
            raise RuntimeError(
                f"no draw of MatrixVonMisesFisher was accepted in {proposed} proposals: rejection "
                f"is not feasible for this F of {columns} columns. Draw by MCMC instead, with "
                "pm.sample on a model that holds this variable alone"
            )
        proposals, log_acceptance = _propose(rng, np.repeat(concentration[waiting], copies, axis=0))
        accepted = -rng.standard_exponential(log_acceptance.size) <= log_acceptance
        first = np.argmax(accepted.reshape(-1, copies), axis=1) + copies * np.arange(waiting.size)
        done = accepted[first]
        frames[waiting[done]] = proposals[first[done]]
        waiting = waiting[~done]
        proposed += copies
        copies = min(2 * copies, max(1, PROPOSALS_AT_ONCE // max(1, waiting.size)))
    return frames.reshape(*size, rows, columns) @ right
