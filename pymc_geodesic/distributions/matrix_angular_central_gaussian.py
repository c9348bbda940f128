"""The matrix angular central Gaussian distribution on orthonormal frames."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import convert_shape, rv_size_is_none
from pymc.pytensorf import floatX, normalize_rng_param
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.frames import (
    Frames,
    log_stiefel_volume,
    minus_infinity_off_stiefel,
)
from pymc_geodesic.distributions.quadratic import is_symmetric, require_square


class MatrixAngularCentralGaussianRV(SymbolicRandomVariable):
    """Polar factors of matrices with normal columns."""

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
        return cls(inputs=[rng, size, cov, p], outputs=[next_rng, left @ right])(rng, size, cov, p)


class MatrixAngularCentralGaussian(Frames):
    r"""Frames of the subspaces that normal vectors span.

    They are :math:`X = Z (Z^\top Z)^{-1/2}` with columns :math:`z_j \sim N(0, \Sigma)`. The
    density with respect to surface measure in R^{n×p} is

    .. math:: p(X \mid \Sigma) = \frac{1}{\operatorname{vol}}\, |\Sigma|^{-p/2}\,
              |X^\top \Sigma^{-1} X|^{-n/2}, \qquad X^\top X = I_p .

    It says which subspace is likely, and nothing about the frame within: X and XR have the same
    density for every orthogonal R. Σ and c Σ are the same distribution. For p = 1 it is
    `AngularCentralGaussian`. The constant is known and draws are exact.

    Parameters
    ----------
    name : str
        Name of the variable.
    cov : tensor_like of float, shape (..., n, n)
        Σ, symmetric and positive definite.
    shape : tuple of int, shape (..., n, p)
        The last two entries are the shape of a frame, p at most n. It may come from ``dims`` or
        from ``observed`` instead.
    **kwargs
        What every PyMC distribution takes.

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
        """Return leading eigenvectors of Σ, which span the likeliest subspace."""
        cov = args[-2]
        axes = pt.linalg.eigh(cov)[1][..., :, ::-1][..., :, : rv.shape[-1]]
        return pt.broadcast_to(axes, rv.shape)

    @staticmethod
    def logp(value: TensorVariable, cov: TensorVariable, p: Variable) -> TensorVariable:
        """Return the log-density of frames, shape (...), for values of shape (..., n, p)."""
        n = value.shape[-2]
        factor = pt.linalg.cholesky(cov)
        form = value.mT @ pt.linalg.inv(cov) @ value
        density = (
            -0.5 * value.shape[-1] * pt.linalg.slogdet(cov)[1]
            - 0.5 * n * pt.linalg.slogdet(form)[1]
            - log_stiefel_volume(n, value.shape[-1]).astype(value.dtype)
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
    """Draw frames for a diagonal Σ with these square roots, shape (size, n, p)."""
    normal = scales[:, None] * rng.standard_normal((size, scales.size, p))
    left, _, right = np.linalg.svd(normal, full_matrices=False)
    return left @ right
