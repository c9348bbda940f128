"""The matrix Bingham distribution on orthonormal frames."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.frames import (
    Frames,
    constant_by_columns,
    log_stiefel_volume,
    minus_infinity_off_stiefel,
)
from pymc_geodesic.distributions.matrix_bingham_draws import draw_matrix_bingham
from pymc_geodesic.distributions.quadratic import is_symmetric, require_square
from pymc_geodesic.ops.axes_constant import MOST_ROWS, log_axes_integral
from pymc_geodesic.ops.numba_backend import LoopRandomVariable
from pymc_geodesic.ops.quadratic_ops import matrix_integral


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
        """Return the draw of one frame, which leaves compiled code for NumPy."""
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


class MatrixBingham(Frames):
    r"""Orthonormal frames whose columns are axes, each scattered in its own way.

    The density with respect to surface measure in R^{n×p} is, with B = diag(b),

    .. math:: p(X \mid A, b) = \frac{\exp \operatorname{tr}(B X^\top A X)}{C(A, b)}
              = \frac{1}{C(A, b)} \exp \sum_j b_j\, x_j^\top A\, x_j, \qquad X^\top X = I_p .

    Each column may change its sign. Where all b are equal, X and XR have the same density for
    every orthogonal R, and the distribution is one of subspaces. A + c I is the same distribution
    as A, and (A / s, s b) the same as (A, b): a prior has to settle both. A free variable has the
    default transform ``stiefel``.

    Parameters
    ----------
    name : str
        Name of the variable.
    A : tensor_like of float, shape (..., n, n)
        Symmetric matrix.
    b : tensor_like of float, shape (..., p)
        Weights of the columns, p at most n.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with an ``A`` that is not symmetric.
    ValueError
        If ``A`` is not square or has fewer rows than ``b`` has weights, or if observed data are
        known and not orthonormal.
    RuntimeError
        At a random draw, if rejection sampling is not feasible.

    Warns
    -----
    UserWarning
        If a free variable of the model changes the constant that is left out.

    Notes
    -----
    The constant is exact, with an error below 1e-11 (relative where its logarithm is large), for
    p = 1, where the density is that of `Bingham` with A b₁, and for n = 2 and n = 3 with any
    number of columns. It holds for any signs and ties of eigenvalues and weights. With its gradient
    it takes some 0.7 ms for n = 3.

    .. warning::

       For p ≥ 2 and n ≥ 4, or shapes that are not known when the model is built, the hypergeometric
       function of two matrices that makes C(A, b) is **left out** of the log-density. That is
       correct as long as A and b do not depend on a free variable; the posterior of an unknown A or
       b would be wrong, and so is a model comparison between values of them. Only b and the
       eigenvalues of A matter: its axes may be free.

    Draws are exact, by rejection from `MatrixAngularCentralGaussian`. The number of proposals stays
    small where all b are equal (2 for a draw with n = 3, p = 2 and A = diag(100, 0, 0)); where
    columns differ it grows with the concentration (230 with A = diag(100, 0, −50) and b = (2, 1),
    2,300 with ten times that A). The mode, eigenvectors of A in the order of b, is the support
    point.

    References
    ----------
    Hoff (2009), Simulation of the matrix Bingham–von Mises–Fisher distribution, with applications
    to multivariate and relational data, section 1, without the linear part; draws: Kent, Ganeiber
    and Mardia (2013), arXiv:1310.8110, extended to columns with different weights; constant:
    `pymc_geodesic.ops.axes_constant`.

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
    def left_out(*parameters: Variable) -> TensorVariable | None:
        """Return the eigenvalues of A and the weights, if the constant is not known."""
        A, b = parameters
        if b.type.shape[-1] == 1 or has_known_constant(A, b):
            return None
        return pt.concatenate([pt.linalg.eigh(A)[0].ravel(), pt.sort(b, axis=-1).ravel()])

    def support_point(
        rv: TensorVariable, size: TensorVariable, A: TensorVariable, b: TensorVariable
    ) -> TensorVariable:
        """Return a mode."""
        mode = mode_of(A, b)
        if not rv_size_is_none(size):
            mode = pt.full(pt.concatenate([size, mode.shape[-2:]]), mode)
        return mode

    def logp(value: TensorVariable, A: TensorVariable, b: TensorVariable) -> TensorVariable:
        """Return the log-density of frames, shape (...), for values of shape (..., n, p)."""
        n, p = A.type.shape[-1], b.type.shape[-1]
        several = -log_stiefel_volume(value.shape[-2], value.shape[-1])
        if has_known_constant(A, b) and p > 1:
            several = several - log_axes_integral(A, b, n, p)
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
    """Return whether the constant for several columns is computed, which needs static shapes."""
    n, p = A.type.shape[-1], b.type.shape[-1]
    return n is not None and p is not None and n <= MOST_ROWS


def mode_of(A: TensorVariable, b: TensorVariable) -> TensorVariable:
    """Return eigenvectors of A that make the exponent largest, shape (..., n, p).

    Positive weights take the largest eigenvalues, the largest first, negative ones the smallest.
    """
    n, p = A.shape[-1], b.shape[-1]
    axes = pt.linalg.eigh(A)[1]
    rank = pt.argsort(pt.argsort(-b, axis=-1), axis=-1)
    place = pt.switch(b >= 0.0, n - 1 - rank, p - 1 - rank)
    chosen = pt.eq(pt.arange(n)[:, None], place[..., None, :]).astype(axes.dtype)
    return axes @ chosen
