"""The matrix von Mises–Fisher (matrix Langevin) distribution on orthonormal frames."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.compiled_frames import compiled_frame
from pymc_geodesic.distributions.frame_draws import draw_matrix_von_mises_fisher
from pymc_geodesic.distributions.frames import (
    Frames,
    log_stiefel_volume,
    minus_infinity_off_stiefel,
)
from pymc_geodesic.ops.frame_constant import log_frame_integral
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


class MatrixVonMisesFisherRV(LoopRandomVariable):
    """Random variable Op of `MatrixVonMisesFisher`."""

    name = "matrix_von_mises_fisher"
    signature = "(n,p)->(n,p)"
    dtype = "floatX"
    _print_name = ("MatrixVonMisesFisher", "\\operatorname{MatrixVonMisesFisher}")

    @classmethod
    def rng_fn(
        cls, rng: np.random.Generator, F: NDArray[np.floating], size: tuple[int, ...] | None
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_matrix_von_mises_fisher`."""
        return draw_matrix_von_mises_fisher(rng, F, size)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one frame."""
        dtype = self.dtype
        draw_frame = compiled_frame(njit)

        @njit
        def draw(rng, F, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            if out is None:
                out = np.empty(F.shape, dtype=dtype)
            draw_frame(rng, F, out)
            return out

        draw.handles_out = True
        return draw


matrix_von_mises_fisher = MatrixVonMisesFisherRV()

MOST_COLUMNS = 10
"""Columns up to which the constant is computed."""


class MatrixVonMisesFisher(Frames):
    r"""Orthonormal frames scattered around a mean frame.

    The density with respect to surface measure in R^{n×p} is

    .. math:: p(X \mid F) = \frac{\exp \operatorname{tr}(F^\top X)}
              {\operatorname{vol}\; {}_0F_1(\tfrac n2; \tfrac14 F^\top F)},
              \qquad X^\top X = I_p .

    With the singular values of :math:`F = U D V^\top`, the mode is :math:`U V^\top` and D holds
    the concentrations. A free variable has the default transform ``stiefel``.

    Parameters
    ----------
    name : str
        Name of the variable.
    F : tensor_like of float, shape (..., n, p)
        Mean frame times concentration; p at most n. At F = 0 the distribution is uniform.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ValueError
        If ``F`` has fewer than two axes or more columns than rows, or if observed data are known
        and not orthonormal.
    RuntimeError
        At a random draw, if rejection sampling is not feasible: more than about ten columns with
        high concentrations.

    Warns
    -----
    UserWarning
        If a free variable of the model changes the constant that is left out for more than ten
        columns.

    Notes
    -----
    The constant is exact for up to three columns: absolute error below 1e-12 for one and two, 1e-6
    for three, relative where its logarithm is large. For four to ten it is an approximation, right
    at F = 0 and for large concentrations, and best where n is well above p. Its logarithm was off
    by at most

    ===== ===== ===== ===== ===== =====
    n     4     5     6     8     12
    ===== ===== ===== ===== ===== =====
    p = 4 0.07  0.03  0.01  0.005 0.003
    p = 5       0.20  0.08  0.03  0.02
    p = 6             0.35        0.03
    ===== ===== ===== ===== ===== =====

    for equal concentrations from 2 to 100, against importance sampling (standard error up to
    0.008); for p = 8 by 0.7 with n = 8, 0.04 with 16 and 0.01 with 30. Concentrations near n are
    the worst, and unequal ones are better. A value with its gradient takes some 40 µs for two
    columns, 3 ms for three, and that for every three of more.
    The function of more than ten is **left out**, which is correct as long as the singular values
    of F do not depend on a free variable.

    For p = n the frames are all orthogonal matrices, of both determinants.

    Draws are exact (Hoff's rejection sampler, see
    `pymc_geodesic.distributions.frame_draws.draw_matrix_von_mises_fisher`). The mode is the
    support point.

    References
    ----------
    Khatri and Mardia (1977), The von Mises–Fisher matrix distribution in orientation statistics;
    Hoff (2009), Simulation of the matrix Bingham–von Mises–Fisher distribution. Constant:
    `pymc_geodesic.ops.frame_constant`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions.matrix_von_mises_fisher import MatrixVonMisesFisher
    >>> F = np.array([[0.0, 5.0], [3.0, 0.0], [0.0, 0.0]])
    >>> with pm.Model() as model:
    ...     X = MatrixVonMisesFisher("X", F)
    >>> abs(model.initial_point()["X_stiefel__"])
    array([[0., 1.],
           [1., 0.],
           [0., 0.]])
    """

    rv_op = matrix_von_mises_fisher

    @classmethod
    def dist(cls, F: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        F = pt.as_tensor_variable(floatX(F))
        if F.type.ndim < 2:
            raise ValueError(
                "F of MatrixVonMisesFisher must be a matrix (last two axes), but has "
                f"{F.type.ndim} axes; for a single direction use VonMisesFisher"
            )
        n, p = F.type.shape[-2:]
        if n is not None and p is not None and p > n:
            raise ValueError(
                f"F of MatrixVonMisesFisher has {p} columns in {n} dimensions, which cannot be "
                "orthonormal: F must have at least as many rows as columns"
            )
        return super().dist([F], **kwargs)

    @staticmethod
    def left_out(*parameters: Variable) -> TensorVariable | None:
        """Return the singular values of F, of which ₀F₁ is a function, of many columns."""
        (F,) = parameters
        known = F.type.shape[-1]
        many = known is not None and known > MOST_COLUMNS
        return pt.linalg.svd(F, compute_uv=False) if many else None

    def support_point(
        rv: TensorVariable, size: TensorVariable, F: TensorVariable
    ) -> TensorVariable:
        """Return the mode, the polar factor of F."""
        left, _, right = pt.linalg.svd(F, full_matrices=False)
        mode = left @ right
        if not rv_size_is_none(size):
            mode = pt.full(pt.concatenate([size, F.shape[-2:]]), mode)
        return mode

    def logp(value: TensorVariable, F: TensorVariable) -> TensorVariable:
        """Return the log-density of frames, shape (...), for values of shape (..., n, p)."""
        known = F.type.shape[-1] if F.type.shape[-1] is not None else value.type.shape[-1]
        n, p = F.shape[-2] if F.type.shape[-2] is None else F.type.shape[-2], F.shape[-1]
        constant = -log_stiefel_volume(n, p) - log_mean_exponential(F, n, known)
        density = constant.astype(value.dtype) + pt.sum(F * value, axis=(-2, -1))
        return minus_infinity_off_stiefel(value, density)


def log_mean_exponential(F: TensorVariable, n: Any, p: int | None) -> TensorVariable:
    """Return log ₀F₁, the mean of the exponential over uniform frames; zero for many columns.

    Parameters
    ----------
    F : TensorVariable, shape (..., n, p)
    n : int or scalar TensorVariable of int
    p : int or None
        Columns, where their number is known when the graph is built.

    Returns
    -------
    TensorVariable of float64, shape (...)
    """
    if p is not None and p > MOST_COLUMNS:
        return pt.zeros(F.shape[:-2])
    F = F.astype("float64")
    if p == 1:  # without a decomposition
        squared = pt.sum(pt.sqr(F), axis=(-2, -1))
        positive = squared > 0
        length = pt.where(positive, pt.sqrt(pt.where(positive, squared, 1.0)), 0.0)
        return log_frame_integral(n, length[..., None], p)
    return log_frame_integral(n, pt.linalg.svd(F, compute_uv=False), p)
