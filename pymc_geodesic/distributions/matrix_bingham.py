r"""Matrix Bingham and matrix angular central Gaussian distributions on frames, with exact draws.

The density of the matrix Bingham distribution is proportional to
:math:`\exp \sum_j b_j\, x_j^\top A\, x_j`. Proposals are matrix angular central Gaussian with
:math:`\Sigma^{-1} = t I - A`, t above the eigenvalues of A. With :math:`M = X^\top A X`, whose
eigenvalues are :math:`m_1 \ge \dots \ge m_p`, and b in decreasing order,

.. math:: \sum_j b_j M_{jj} \le \sum_j b_j m_j, \qquad
          |X^\top \Sigma^{-1} X| = \prod_j (t - m_j) ,

so that the logarithm of density over proposal is at most the sum over j of the largest value of
:math:`b_j m + \tfrac n2 \log(t - m)` for m between :math:`a_{n-p+j}` and :math:`a_j`, the bounds of
the eigenvalues of M. t minimizes that bound, with the constant of the proposal included. (A, b) and
(−A, −b) are the same distribution; the one with the smaller bound is taken.

References
----------
Kent, Ganeiber and Mardia (2013), A new method to simulate the Bingham and related distributions in
directional data analysis with applications, arXiv:1310.8110, for p = 1 and for equal b.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import convert_shape, rv_size_is_none
from pymc.pytensorf import floatX, normalize_rng_param
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorVariable
from scipy import optimize

from pymc_geodesic.distributions.fisher_bingham_draws import SYMMETRY_TOLERANCE
from pymc_geodesic.distributions.frames import Frame, log_stiefel_volume, minus_infinity_off_stiefel
from pymc_geodesic.distributions.validation import (
    is_symmetric,
    length_of_last_axis,
    require_square,
)
from pymc_geodesic.ops.fisher_bingham_ops import matrix_integral
from pymc_geodesic.ops.matrix_hypergeometric import MAX_ROWS, log_hyp0f0
from pymc_geodesic.ops.numba_backend import LoopRandomVariable

Array = NDArray[np.float64]

MAX_PROPOSALS = 1_000_000
"""Maximum number of proposals for one draw."""

MIN_BATCH, MAX_BATCH = 32, 4096
"""Bounds on the number of proposals that are generated together."""


class MatrixAngularCentralGaussianRV(SymbolicRandomVariable):
    """Random variable Op of `MatrixAngularCentralGaussian`: polar factors of normal matrices."""

    name = "matrix_angular_central_gaussian"
    extended_signature = "[rng],[size],(n,n),()->[rng],(n,p)"
    _print_name = (
        "MatrixAngularCentralGaussian",
        "\\operatorname{MatrixAngularCentralGaussian}",
    )

    def update(self, node: Apply) -> dict[Variable, Variable]:
        """Return the state that the generator has after a draw."""
        return {node.inputs[0]: node.outputs[0]}

    @classmethod
    def rv_op(cls, cov: Any, p: Any, *, size: Any = None, rng: Any = None) -> TensorVariable:
        """Build the graph of a draw."""
        cov = pt.as_tensor(cov)
        p = pt.as_tensor(p, ndim=0, dtype=int)
        rng = normalize_rng_param(rng)
        size = normalize_size_param(size)
        batch = tuple(cov.shape[:-2]) if rv_size_is_none(size) else tuple(size)

        next_rng, gaussian = pt.random.normal(
            size=(*batch, cov.shape[-1], p), rng=rng, return_next_rng=True
        )
        left, _, right = pt.linalg.svd(pt.linalg.cholesky(cov) @ gaussian, full_matrices=False)
        columns = p.data.item() if isinstance(p, Constant) else None
        static = (*(None,) * len(batch), cov.type.shape[-1], columns)
        frames = pt.specify_shape(left @ right, static)
        return cls(inputs=[rng, size, cov, p], outputs=[next_rng, frames])(rng, size, cov, p)


class MatrixAngularCentralGaussian(Frame):
    r"""Matrix angular central Gaussian distribution of orthonormal frames.

    It is the distribution of :math:`X = Z (Z^\top Z)^{-1/2}` with columns
    :math:`z_j \sim N(0, \Sigma)`. The density with respect to surface measure in R^{n×p} is

    .. math:: p(X \mid \Sigma) = \frac{1}{\operatorname{vol}}\, |\Sigma|^{-p/2}\,
              |X^\top \Sigma^{-1} X|^{-n/2}, \qquad X^\top X = I_p .

    It is a distribution of subspaces: X and XR have the same density for every orthogonal R. Σ and
    c Σ define the same distribution. For p = 1 it is
    `AngularCentralGaussian`. The constant is in closed form; draws are exact.

    Parameters
    ----------
    name : str
        Name of the variable.
    cov : tensor_like of float, shape (..., n, n)
        Σ, symmetric and positive definite.
    shape : tuple of int, shape (..., n, p)
        The last two entries are the shape of a frame, p at most n. In a model,
        ``dims`` or ``observed`` may define it.
    **kwargs
        Arguments of every PyMC distribution.

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``cov`` that is not symmetric and positive definite.
    TypeError
        If there is no shape.
    ValueError
        If the shape does not fit ``cov``, or observed data are known and not orthonormal.

    References
    ----------
    Chikuse (1990), The matrix angular central Gaussian distribution, Journal of Multivariate
    Analysis 33, 265–274; Chikuse (2003), *Statistics on special manifolds*, section 2.4.2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import MatrixAngularCentralGaussian
    >>> flat = np.diag([1e8, 1e8, 1.0])
    >>> frame = MatrixAngularCentralGaussian.dist(flat, shape=(3, 2))
    >>> X = pm.draw(frame, random_seed=1, mode="FAST_COMPILE")
    >>> abs(X[2]).round(2)
    array([0., 0.])
    """

    rv_type = MatrixAngularCentralGaussianRV
    rv_op = MatrixAngularCentralGaussianRV.rv_op

    @classmethod
    def dist(cls, cov: Any, shape: Any = None, **kwargs: Any) -> TensorVariable:
        """Create the variable outside of a model."""
        cov = pt.as_tensor_variable(floatX(cov))
        require_square(cov, "cov", cls.__name__)
        if shape is None:
            raise TypeError(
                f"{cls.__name__} needs the shape of its matrices: pass shape=(n, p), dims, or "
                "observed data"
            )
        shape = convert_shape(shape)
        if len(shape) < 2:
            raise ValueError(
                f"{cls.__name__}: the shape must end in the rows and columns of a matrix, (n, p), "
                f"but has only {len(shape)} entries"
            )
        n, p = (int(each) if isinstance(each, int | np.integer) else None for each in shape[-2:])
        rows = cov.type.shape[-1]
        if None not in (n, rows) and n != rows:
            raise ValueError(f"{cls.__name__}: frames have {n} rows, but cov has {rows}")
        if None not in (n, p) and p > n:  # type: ignore[operator]
            raise ValueError(
                f"{cls.__name__}: {p} columns in {n} dimensions cannot be orthonormal; "
                "shape=(n, p) needs p at most n"
            )
        return super().dist([cov, shape[-1]], shape=shape, **kwargs)

    @staticmethod
    def support_point(rv: TensorVariable, *args: Variable) -> TensorVariable:
        """Return the leading eigenvectors of Σ, which span the modal subspace."""
        cov = args[-2]
        axes = pt.linalg.eigh(cov)[1][..., :, ::-1][..., :, : rv.shape[-1]]
        return pt.broadcast_to(axes, rv.shape)

    @staticmethod
    def logp(value: TensorVariable, cov: TensorVariable, p: Variable) -> TensorVariable:
        """Return the log-density of frames, shape (...), for values of shape (..., n, p)."""
        n, p = length_of_last_axis(cov), p.squeeze()
        factor = pt.linalg.cholesky(cov)
        form = value.mT @ pt.linalg.inv(cov) @ value
        density = (
            -0.5 * p * pt.linalg.slogdet(cov)[1]
            - 0.5 * n * pt.linalg.slogdet(form)[1]
            - log_stiefel_volume(n, p).astype(value.dtype)
        )
        return check_parameters(
            minus_infinity_off_stiefel(value, density),
            is_symmetric(cov),
            pt.all(pt.diagonal(factor, axis1=-2, axis2=-1) > 0, axis=-1),
            msg="cov is symmetric and positive definite",
        )


def draw_matrix_angular_central_gaussian(
    rng: np.random.Generator, scales: NDArray[np.float64], size: int, p: int
) -> NDArray[np.float64]:
    """Draw frames for a diagonal Σ with square roots ``scales``, shape (size, n, p)."""
    normal = scales[:, None] * rng.standard_normal((size, scales.size, p))
    left, _, right = np.linalg.svd(normal, full_matrices=False)
    return left @ right


class Envelope(NamedTuple):
    """Proposals for eigenvalues a of A, the largest first, and b, the largest first."""

    distance: float
    """t minus the largest eigenvalue."""
    bound: float
    """Upper bound on the logarithm of density over proposal, both without constants."""
    cost: float
    """Logarithm of the expected number of proposals, up to the constant of the density."""


def largest_ratio(a: Array, b: Array, t: float) -> float:
    """Return the bound of the module docstring."""
    n, p = a.size, b.size
    low, high = a[n - p :], a[:p]
    best = np.where(b > 0.0, t - 0.5 * n / np.where(b > 0.0, b, 1.0), low)
    m = np.clip(best, low, high)
    return float(np.sum(b * m + 0.5 * n * np.log(t - m)))


def envelope(a: Array, b: Array) -> Envelope:
    """Choose t by a search over the logarithm of its distance to the largest eigenvalue."""
    n, p = a.size, b.size

    def at(log_distance: float) -> Envelope:
        distance = float(np.exp(log_distance))
        bound = largest_ratio(a, b, a[0] + distance)
        return Envelope(distance, bound, bound - 0.5 * p * np.sum(np.log(distance + a[0] - a)))

    width = max(a[0] - a[-1], 1e-12)
    steepest = max(np.max(np.abs(b)), 1e-300)
    ends = np.log(1e-3 / (steepest + n / width)), np.log(10.0 * (width + n / steepest))
    # The cost is unimodal for p = 1; a grid finds the global minimum otherwise.
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
        if proposed >= MAX_PROPOSALS * max(done, 1):
            raise RuntimeError(
                f"no draw of MatrixBingham was accepted in {MAX_PROPOSALS} proposals: rejection "
                f"is not feasible for this A and b with {p} columns. Draw by MCMC instead, with "
                "pm.sample on a model that holds this variable alone"
            )
        at_once = min(max(4 * (size - done), MIN_BATCH, proposed), MAX_BATCH)
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
        Shape of the result without its last two axes; default that of the parameters.

    Returns
    -------
    ndarray of float, shape (*size, n, p)

    Raises
    ------
    ValueError
        If a parameter is not finite, ``A`` not symmetric, or ``b`` too long.
    RuntimeError
        If a million proposals for one draw are rejected.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.matrix_bingham import draw_matrix_bingham
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
        return _draw_equal(
            rng, matrices.reshape(n, n), weights.reshape(p), int(np.prod(size, dtype=int))
        ).reshape(*size, n, p)
    draws = np.empty((*size, n, p))
    matrices = np.broadcast_to(matrices, (*size, n, n))
    weights = np.broadcast_to(weights, (*size, p))
    for index in np.ndindex(size):
        draws[index] = _draw_equal(rng, matrices[index], weights[index], 1)[0]
    return draws


def _draw_equal(rng: np.random.Generator, A: Array, b: Array, size: int) -> Array:
    """Draw from the distribution of one A and b, shape (size, n, p)."""
    values, axes = np.linalg.eigh(0.5 * (A + A.T))
    order = np.argsort(-b, kind="stable")
    # (A, b) and (A / s, b s) are the same distribution: scale b to one.
    unit = float(np.max(np.abs(b))) or 1.0
    x = _draw_in_axes(rng, unit * values[::-1], b[order] / unit, size)
    frames = np.empty_like(x)
    frames[..., order] = axes[:, ::-1] @ x
    return frames


def constant_by_columns(
    known: int | None, p: TensorVariable, of_one: Callable[[], TensorVariable], several: Any
) -> TensorVariable:
    """Return the constant of frames of one column, or of several.

    Parameters
    ----------
    known : int or None
        Number of columns, if it is static.
    p : TensorVariable
        Number of columns at evaluation.
    of_one : callable
        Function that builds the constant of frames of one column.
    several : TensorVariable
        Constant of frames of several columns.

    Returns
    -------
    TensorVariable

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.distributions.matrix_bingham import constant_by_columns
    >>> columns = pt.lscalar()
    >>> constant = constant_by_columns(None, columns, lambda: pt.as_tensor(3.0), pt.as_tensor(5.0))
    >>> [constant.eval({columns: p}, mode="FAST_COMPILE").item() for p in (1, 2)]
    [3.0, 5.0]
    """
    if known is None:  # data whose shape may change
        return pt.where(pt.eq(p, 1), of_one(), several)
    return of_one() if known == 1 else several


class MatrixBinghamRV(LoopRandomVariable):
    """Random variable Op of `MatrixBingham`."""

    name = "matrix_bingham"
    signature = "(n,n),(p)->(n,p)"
    dtype = "floatX"
    _print_name = ("MatrixBingham", "\\operatorname{MatrixBingham}")
    machine_code_is_kept = False

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        A: NDArray[np.floating],
        b: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_matrix_bingham`."""
        return draw_matrix_bingham(rng, A, b, size)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one frame, by NumPy in object mode."""
        dtype = np.dtype(self.dtype)
        matrix = numba.from_dtype(dtype)[:, ::1]

        def draw_in_numpy(rng: np.random.Generator, A: np.ndarray, b: np.ndarray) -> np.ndarray:
            return np.ascontiguousarray(draw_matrix_bingham(rng, A, b), dtype=dtype)

        @njit
        def draw(rng, A, b):  # type: ignore[no-untyped-def]  # typed by Numba
            with numba.objmode(frame=matrix):
                frame = draw_in_numpy(rng, A, b)
            return frame  # noqa: RET504  # object mode hands its results over by name

        return draw


matrix_bingham = MatrixBinghamRV()


class MatrixBingham(Frame):
    r"""Matrix Bingham distribution of orthonormal frames, whose columns are axes.

    The density with respect to surface measure in R^{n×p} is, with B = diag(b),

    .. math:: p(X \mid A, b) = \frac{\exp \operatorname{tr}(B X^\top A X)}{C(A, b)}
              = \frac{1}{C(A, b)} \exp \sum_j b_j\, x_j^\top A\, x_j, \qquad X^\top X = I_p .

    The density does not depend on the signs of the columns. If all b are equal, X and XR have the
    same density for every orthogonal R, and it is a distribution of subspaces. A + c I defines the
    same distribution as A, and (A / s, s b) the same as (A, b): both are identified only by priors.
    A free variable has the default transform ``stiefel``.

    Parameters
    ----------
    name : str
        Name of the variable.
    A : tensor_like of float, shape (..., n, n)
        Symmetric matrix.
    b : tensor_like of float, shape (..., p)
        Weights of the columns, p at most n.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with an ``A`` that is not symmetric.
    ValueError
        If ``A`` is not square or has fewer rows than ``b`` has weights, or if observed data are
        known and not orthonormal.
    RuntimeError
        At a random draw, if rejection sampling is infeasible.

    Warns
    -----
    UserWarning
        If the constant is omitted and depends on a free variable of the model.

    Notes
    -----
    The constant is exact, with an error below 1e-11 (relative where its logarithm is large), for
    p = 1, where the density is that of `Bingham` with A b₁, and for n = 2 and n = 3 with any
    number of columns. Eigenvalues and weights may have any sign and ties. With its
    gradient it takes some 0.7 ms for n = 3.

    .. warning::

       For p ≥ 2 and n ≥ 4, or shapes that are not static, the constant C(A, b), a hypergeometric
       function of two matrices, is **omitted** from the log-density. That is correct if b and the
       eigenvalues of A do not depend on a free variable (the eigenvectors of A may). Otherwise
       posteriors and model comparisons are wrong.

    Draws are exact, by rejection from `MatrixAngularCentralGaussian`. The number of proposals is
    small if all b are equal (2 for a draw with n = 3, p = 2 and A = diag(100, 0, 0)); if they
    differ, it grows with the concentration (230 with A = diag(100, 0, −50) and b = (2, 1),
    2,300 with ten times that A). The mode, eigenvectors of A in the order of b, is the support
    point.

    References
    ----------
    Hoff (2009), Simulation of the matrix Bingham–von Mises–Fisher distribution, with applications
    to multivariate and relational data, section 1, without the linear part; draws: Kent, Ganeiber
    and Mardia (2013), arXiv:1310.8110, extended to columns with different weights; constant:
    `pymc_geodesic.ops.matrix_hypergeometric`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import MatrixBingham
    >>> with pm.Model() as model:
    ...     X = MatrixBingham("X", np.diag([1.0, 5.0, 3.0]), [2.0, 1.0])
    >>> abs(model.initial_point()["X_stiefel__"])
    array([[0., 0.],
           [1., 0.],
           [0., 1.]])
    """

    rv_op = matrix_bingham

    @classmethod
    def dist(cls, A: Any, b: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        A, b = pt.as_tensor_variable(floatX(A)), pt.as_tensor_variable(floatX(b))
        require_square(A, "A", "MatrixBingham")
        if b.type.ndim == 0:
            raise ValueError(
                "b of MatrixBingham must hold one weight for each column (last axis), not a "
                "number; for a single axis use Bingham"
            )
        n, p = A.type.shape[-1], b.type.shape[-1]
        if n is not None and p is not None and p > n:
            raise ValueError(
                f"b of MatrixBingham has {p} weights, but {n} dimensions hold no more than {n} "
                "orthonormal columns"
            )
        return super().dist([A, b], **kwargs)

    @staticmethod
    def missing_constant_arguments(*parameters: Variable) -> TensorVariable | None:
        """Return the eigenvalues of A and the weights, if the constant is omitted."""
        A, b = parameters
        if b.type.shape[-1] == 1 or has_known_constant(A, b):
            return None
        return pt.concatenate([pt.linalg.eigh(A)[0].ravel(), pt.sort(b, axis=-1).ravel()])

    def support_point(
        rv: TensorVariable, size: TensorVariable, A: TensorVariable, b: TensorVariable
    ) -> TensorVariable:
        """Return a mode."""
        mode = compute_mode(A, b)
        if not rv_size_is_none(size):
            mode = pt.full(pt.concatenate([size, mode.shape[-2:]]), mode)
        return mode

    def logp(value: TensorVariable, A: TensorVariable, b: TensorVariable) -> TensorVariable:
        """Return the log-density of frames, shape (...), for values of shape (..., n, p)."""
        n, p = A.type.shape[-1], b.type.shape[-1]
        several = -log_stiefel_volume(value.shape[-2], value.shape[-1])
        if has_known_constant(A, b) and p > 1:
            several = several - log_hyp0f0(A, b, n, p)
        constant = constant_by_columns(
            p,
            b.shape[-1],
            lambda: -matrix_integral(b[..., 0, None, None] * A, pt.zeros(A.shape[-1:]))[0],
            several,
        )
        density = pt.sum(b * pt.sum(value * (A @ value), axis=-2), axis=-1)
        return check_parameters(
            minus_infinity_off_stiefel(value, density + constant.astype(value.dtype)),
            is_symmetric(A),
            msg="A of MatrixBingham is symmetric",
        )


def has_known_constant(A: Variable, b: Variable) -> bool:
    """Return whether the constant of several columns is computed, which needs static shapes."""
    n, p = A.type.shape[-1], b.type.shape[-1]
    return n is not None and p is not None and n <= MAX_ROWS


def compute_mode(A: TensorVariable, b: TensorVariable) -> TensorVariable:
    """Return eigenvectors of A that maximize the exponent, shape (..., n, p).

    Positive weights are paired with the largest eigenvalues in decreasing order, negative ones with
    the smallest.
    """
    n, p = A.shape[-1], b.shape[-1]
    axes = pt.linalg.eigh(A)[1]
    rank = pt.argsort(pt.argsort(-b, axis=-1), axis=-1)
    position = pt.switch(b >= 0.0, n - 1 - rank, p - 1 - rank)
    chosen = pt.eq(pt.arange(n)[:, None], position[..., None, :]).astype(axes.dtype)
    return axes @ chosen
