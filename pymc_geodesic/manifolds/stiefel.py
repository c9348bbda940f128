"""Stiefel manifold of orthonormal frames."""

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from pymc_geodesic.manifolds.manifold import Floats, Manifold, Shape, batch_shape, require_positive
from pymc_geodesic.runtime.jit import compiled

INVERSE_FACTORIALS = 1.0 / np.cumprod(np.maximum(np.arange(13.0), 1.0))
"""1/k! for k = 0, ..., 12."""
MAX_SQUARINGS = 60
"""Maximum number of squarings of the matrix exponential."""


@compiled
def multiply(a: Floats, b: Floats, out: Floats) -> None:
    """Compute the matrix product ``out = a @ b`` without a library call; `out` is another array.

    Parameters
    ----------
    a : array of float64, shape (n, m)
    b : array of float64, shape (m, p)
    out : array of float64, shape (n, p)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds.stiefel import multiply
    >>> out = np.empty((1, 1))
    >>> multiply(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), out)
    >>> out
    array([[11.]])
    """
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            out[i, j] = 0.0
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                out[i, j] += a[i, k] * b[k, j]


@compiled
def matrix_exponential(
    matrix: Floats, out: Floats, square: Floats, cube: Floats, work: Floats
) -> None:
    """Compute the matrix exponential, ``out = exp(matrix)``, to about 1e-15 relative to its norm.

    Scaling and squaring [1]_: the matrix is halved until its 1-norm is at most ¼, where the error
    of the Taylor polynomial of degree 12 is below 2e-18, and the result is squared as many times.
    The polynomial takes five products: I + M + M²/2 + M³(I/3! + … + M³(… )).

    Parameters
    ----------
    matrix : array of float64, shape (n, n)
        Overwritten.
    out, square, cube, work : arrays of float64, shape (n, n)
        Result, and buffers for intermediate results.

    References
    ----------
    .. [1] C. Moler and C. Van Loan, "Nineteen dubious ways to compute the exponential of a
       matrix, twenty-five years later", SIAM Review 45(1), 2003, method 3.

    Examples
    --------
    A rotation by a quarter turn.

    >>> import numpy as np
    >>> from pymc_geodesic.manifolds.stiefel import matrix_exponential
    >>> out, *buffers = np.empty((4, 2, 2))
    >>> matrix_exponential(np.pi / 2 * np.array([[0.0, -1.0], [1.0, 0.0]]), out, *buffers)
    >>> np.abs(out).round(12)
    array([[0., 1.], [1., 0.]])
    """
    n = matrix.shape[0]
    norm = 0.0
    for j in range(n):
        column = 0.0
        for i in range(n):
            column += abs(matrix[i, j])
        norm = max(norm, column)
    squarings = 0
    scale = 1.0
    while norm * scale > 0.25 and squarings < MAX_SQUARINGS:
        scale *= 0.5
        squarings += 1
    for i in range(n):
        for j in range(n):
            matrix[i, j] *= scale
    multiply(matrix, matrix, square)
    multiply(square, matrix, cube)
    for i in range(n):
        for j in range(n):
            out[i, j] = INVERSE_FACTORIALS[12] * cube[i, j]
    for order in (9, 6, 3, 0):
        if order < 9:
            multiply(cube, out, work)
            for i in range(n):
                for j in range(n):
                    out[i, j] = work[i, j]
        for i in range(n):
            out[i, i] += INVERSE_FACTORIALS[order]
            for j in range(n):
                out[i, j] += (
                    INVERSE_FACTORIALS[order + 1] * matrix[i, j]
                    + INVERSE_FACTORIALS[order + 2] * square[i, j]
                )
    for _ in range(squarings):
        multiply(out, out, work)
        for i in range(n):
            for j in range(n):
                out[i, j] = work[i, j]


@compiled
def _inner(x: Floats, v: Floats, row: int, n: int, p: int, out: Floats) -> None:
    """Compute the inner products of the columns, ``out = XᵀV``, for one row of `x` and `v`."""
    for j in range(p):
        for k in range(p):
            out[j, k] = 0.0
    for i in range(n):
        for j in range(p):
            for k in range(p):
                out[j, k] += x[row, i * p + j] * v[row, i * p + k]


@compiled
def _project_row(x: Floats, v: Floats, row: int, n: int, p: int, inner: Floats) -> None:
    """Project one row of `v`: V ← V − X sym(XᵀV); `inner` is a p×p buffer."""
    _inner(x, v, row, n, p, inner)
    for i in range(n):
        for j in range(p):
            normal = 0.0
            for k in range(p):
                normal += x[row, i * p + k] * (inner[k, j] + inner[j, k])
            v[row, i * p + j] -= 0.5 * normal


@compiled
def project(x: Floats, v: Floats, n: int, p: int) -> None:
    """Project the rows of `v`, each an n×p matrix in C order: V ← V − X sym(XᵀV)."""
    inner = np.empty((p, p))
    for row in range(x.shape[0]):
        _project_row(x, v, row, n, p, inner)


@compiled
def _norm(v: Floats, row: int) -> float:
    """Compute the Euclidean norm of one row."""
    total = 0.0
    for i in range(v.shape[1]):
        total += v[row, i] * v[row, i]
    return math.sqrt(total)


@compiled
def geodesic(x: Floats, v: Floats, time: float, n: int, p: int) -> None:
    """Move the rows of `x` and `v`, each an n×p matrix in C order, along geodesics.

    In the metric of the ambient space [1]_ [2]_, with A = XᵀV and S = VᵀV,

    [X V] ← [X V] exp(t [[A, −S], [I, A]]) [[exp(−tA), 0], [0, exp(−tA)]].

    To correct rounding errors, X then takes one Newton–Schulz step towards orthonormality,
    X ← X(3I − XᵀX)/2, and V is projected and rescaled to its norm.

    References
    ----------
    .. [1] A. Edelman, T. A. Arias and S. T. Smith, "The geometry of algorithms with orthogonality
       constraints", SIAM Journal on Matrix Analysis and Applications 20(2), 1998, section 2.2.2.
    .. [2] S. Byrne and M. Girolami, "Geodesic Monte Carlo on embedded manifolds", Scandinavian
       Journal of Statistics 40(4), 2013, section 4.2.
    """
    small = np.empty((7, p, p))
    inner, gram, spin, turn = small[0], small[1], small[2], small[3]
    large = np.zeros((7, 2 * p, 2 * p))
    flow, motion, turns, step = large[0], large[1], large[2], large[3]
    pair = np.empty(2 * p)
    for row in range(x.shape[0]):
        speed = _norm(v, row)
        if speed == 0.0:
            continue
        # The generator is balanced if the columns have unit speed on average.
        angle = time * speed / math.sqrt(p)
        for i in range(n * p):
            v[row, i] *= math.sqrt(p) / speed
        _inner(x, v, row, n, p, inner)
        _inner(v, v, row, n, p, gram)
        for j in range(p):
            for k in range(p):
                skew = 0.5 * angle * (inner[j, k] - inner[k, j])
                spin[j, k] = -skew
                flow[j, k] = skew
                flow[p + j, p + k] = skew
                flow[j, p + k] = -angle * gram[j, k]
                flow[p + j, k] = angle if j == k else 0.0
        matrix_exponential(spin, turn, small[4], small[5], small[6])
        matrix_exponential(flow, motion, large[4], large[5], large[6])
        for j in range(p):
            for k in range(p):
                turns[j, k] = turn[j, k]
                turns[p + j, p + k] = turn[j, k]
        multiply(motion, turns, step)
        for i in range(n):
            for j in range(p):
                pair[j] = x[row, i * p + j]
                pair[p + j] = v[row, i * p + j]
            for k in range(p):
                position = 0.0
                velocity = 0.0
                for j in range(2 * p):
                    position += pair[j] * step[j, k]
                    velocity += pair[j] * step[j, p + k]
                x[row, i * p + k] = position
                v[row, i * p + k] = velocity
        _inner(x, x, row, n, p, gram)
        for i in range(n):
            for j in range(p):
                pair[j] = x[row, i * p + j]
            for k in range(p):
                stretched = 0.0
                for j in range(p):
                    stretched += pair[j] * gram[j, k]
                x[row, i * p + k] = 1.5 * pair[k] - 0.5 * stretched
        _project_row(x, v, row, n, p, inner)
        scale = speed / _norm(v, row)
        for i in range(n * p):
            v[row, i] *= scale


@dataclass(frozen=True)
class Stiefel(Manifold):
    """Orthonormal p-frames of ℝⁿ: n×p matrices X with XᵀX = I.

    The metric is that of the ambient space, ⟨U, V⟩ = tr(UᵀV). Tangent vectors at X are matrices V
    with skew-symmetric XᵀV. ``Stiefel(n, 1)`` is the sphere, ``Stiefel(n, n)`` the orthogonal
    group.

    Parameters
    ----------
    n : int
        Dimension of the space, at least 2.
    p : int
        Number of columns, from 1 to n.

    Raises
    ------
    ValueError
        If `n` or `p` is out of range.

    Examples
    --------
    The two axes of a frame in the plane rotate together.

    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Stiefel
    >>> spin = np.array([[0.0, -1.0], [1.0, 0.0]])
    >>> x, v = Stiefel(2, 2).geodesic(np.eye(2), spin, np.pi / 6)
    >>> x.round(3)
    array([[ 0.866, -0.5  ],
           [ 0.5  ,  0.866]])
    """

    n: int
    p: int

    code: ClassVar[int] = 5
    has_edge: ClassVar[bool] = False
    remedy: ClassVar[str] = "Orthonormalize its columns, for example with numpy.linalg.qr."

    def __post_init__(self) -> None:
        require_positive("n", self.n)
        require_positive("p", self.p)
        if self.n < 2 or self.p > self.n:
            raise ValueError(
                f"p orthonormal columns of length n need n ≥ 2 and p ≤ n, got n = {self.n}, "
                f"p = {self.p}."
            )

    @property
    def shape(self) -> Shape:
        """Shape of one point, ``(n, p)``."""
        return (self.n, self.p)

    @property
    def is_connected(self) -> bool:
        """Whether p < n: orthogonal matrices have determinant +1 or −1."""
        return self.n != self.p

    @property
    def dim(self) -> int:
        """Dimension, np − p(p + 1)/2."""
        return self.n * self.p - self.p * (self.p + 1) // 2

    def random_point(self, rng: np.random.Generator, size: int | Shape = ()) -> Floats:
        """Draw values from the uniform (Haar) distribution; see `Manifold.random_point`."""
        frame, triangle = np.linalg.qr(rng.standard_normal(batch_shape(size) + self.shape))
        # With a positive diagonal the factors are unique and the frame is uniform.
        signs = np.sign(np.diagonal(triangle, axis1=-2, axis2=-1))
        return frame * signs[..., np.newaxis, :]

    def contains(self, x: Floats, atol: float = 1e-8) -> np.ndarray:
        """Test which values have orthonormal columns; see `Manifold.contains`."""
        gram = np.swapaxes(x, -1, -2) @ x
        return (np.abs(gram - np.eye(self.p)) <= atol).all(axis=(-2, -1))

    def projected(self, x: Any, v: Any, xp: ModuleType) -> Any:
        """Subtract X sym(XᵀV); see `Manifold.projected`."""
        inner = xp.swapaxes(x, -1, -2) @ v
        return v - x @ (0.5 * (inner + xp.swapaxes(inner, -1, -2)))

    def normal_diagonal(self, x: Any, xp: ModuleType = np) -> Any:
        """Half of Σ_k x_ik² + x_ij², for row i and column j; see `Manifold.normal_diagonal`."""
        return 0.5 * (xp.sum(x**2, axis=-1, keepdims=True) + x**2)

    def mean_gradient(self, x: Floats) -> Floats:
        """Return (n − (p + 1)/2) X; see `Manifold.mean_gradient`."""
        return (self.n - 0.5 * (self.p + 1.0)) * x

    def project_rows(self, x: Floats, v: Floats) -> None:
        """Project the rows of `v` in place; see `Manifold.project_rows`."""
        project(x, v, self.n, self.p)

    def geodesic_rows(self, x: Floats, v: Floats, time: float) -> None:
        """Move the rows of `x` and `v` in place; see `Manifold.geodesic_rows`."""
        geodesic(x, v, time, self.n, self.p)
