"""The exponential of small matrices, for compiled code."""

import numpy as np

from pymc_geodesic.manifolds.manifold import Floats
from pymc_geodesic.runtime.jit import compiled

INVERSE_FACTORIALS = 1.0 / np.cumprod(np.maximum(np.arange(13.0), 1.0))
MAX_SQUARINGS = 60


@compiled
def multiply(a: Floats, b: Floats, out: Floats) -> None:
    """Matrix product ``out = a @ b`` without a library call; `out` must be another array.

    Parameters
    ----------
    a : array of float64, shape (n, m)
    b : array of float64, shape (m, p)
    out : array of float64, shape (n, p)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds.matrix_exponential import multiply
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
def exponential(matrix: Floats, out: Floats, square: Floats, cube: Floats, work: Floats) -> None:
    """Matrix exponential, ``out = exp(matrix)``, to about 1e-15 relative to its norm.

    Scaling and squaring [1]_: the matrix is halved until its 1-norm is at most ¼, where the
    Taylor polynomial of degree 12 is exact to 2e-18, and the result is squared as often. The
    polynomial takes five products: I + M + M²/2 + M³(I/3! + … + M³(… )).

    Parameters
    ----------
    matrix : array of float64, shape (n, n)
        Overwritten.
    out, square, cube, work : arrays of float64, shape (n, n)
        The result, and room for intermediate results.

    References
    ----------
    .. [1] C. Moler and C. Van Loan, "Nineteen dubious ways to compute the exponential of a
       matrix, twenty-five years later", SIAM Review 45(1), 2003, method 3.

    Examples
    --------
    A rotation by a quarter turn.

    >>> import numpy as np
    >>> from pymc_geodesic.manifolds.matrix_exponential import exponential
    >>> out, *room = np.empty((4, 2, 2))
    >>> exponential(np.pi / 2 * np.array([[0.0, -1.0], [1.0, 0.0]]), out, *room)
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
