"""The uniform distribution on orthonormal frames."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import convert_shape
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.frames import (
    Frames,
    log_stiefel_volume,
    minus_infinity_off_stiefel,
)
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


class UniformStiefelRV(LoopRandomVariable):
    """Random variable Op of `UniformStiefel`; its parameters are rows and columns."""

    name = "uniform_stiefel"
    signature = "(),()->(n,p)"
    dtype = "floatX"
    _print_name = ("UniformStiefel", "\\operatorname{UniformStiefel}")

    def _supp_shape_from_params(
        self, dist_params: Sequence[Variable], param_shapes: Any = None
    ) -> list[Variable]:
        """Return rows and columns as the shape of one draw."""
        return [parameter.squeeze() for parameter in dist_params]

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        n: NDArray[np.integer],
        p: NDArray[np.integer],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution: orthogonal factors of Gaussian matrices."""
        gaussian = rng.standard_normal((*(size or ()), int(np.squeeze(n)), int(np.squeeze(p))))
        orthogonal, triangular = np.linalg.qr(gaussian)
        pivots = np.diagonal(triangular, axis1=-2, axis2=-1)
        # QR fixes the columns up to sign; a positive diagonal makes the factor that of
        # Gram–Schmidt, which rotates with the matrix and is therefore uniform.
        return orthogonal * np.where(pivots < 0, -1.0, 1.0)[..., None, :]

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one frame, by Gram–Schmidt: a QR of LAPACK takes long to compile."""
        dtype = self.dtype

        @njit
        def draw(rng, n, p, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            if out is None:
                out = np.empty((n, p), dtype=dtype)
            for i in range(n):
                for r in range(p):
                    out[i, r] = rng.standard_normal()
            for r in range(p):
                for twice in range(2 * r):  # against rounding where little of a column is left
                    before = twice % r
                    along = 0.0
                    for i in range(n):
                        along += out[i, before] * out[i, r]
                    for i in range(n):
                        out[i, r] -= along * out[i, before]
                squared = 0.0
                for i in range(n):
                    squared += out[i, r] * out[i, r]
                length = np.sqrt(squared)
                for i in range(n):
                    out[i, r] /= length
            return out

        draw.handles_out = True
        return draw


uniform_stiefel = UniformStiefelRV()


class UniformStiefel(Frames):
    r"""Uniform distribution on n × p matrices with orthonormal columns.

    .. math:: f(X) = \frac{\Gamma_p(n/2)}{2^{p(p-1)/4}\, 2^p\, \pi^{np/2}},
              \qquad X^\top X = I_p

    with respect to surface measure in R^{n×p}. For p = 1 it is the uniform distribution on the
    sphere, for p = n Haar measure on the orthogonal matrices, of both determinants. A free
    variable has the default transform ``stiefel``.

    ========  ==============================================================
    Support   n × p matrices with orthonormal columns
    Mean      0; :math:`\mathrm E[x_{ij}^2] = 1/n`
    ========  ==============================================================

    Parameters
    ----------
    name : str
        Name of the variable.
    shape : tuple of int, shape (..., n, p)
        The last two entries are the shape of a frame, p at most n; those before are a batch of
        independent frames. It may come from ``dims`` or from ``observed`` instead.
    **kwargs
        As in every PyMC distribution.

    Raises
    ------
    TypeError
        If there is no shape.
    ValueError
        If the shape has fewer than two entries or p is larger than n.

    Notes
    -----
    Draws are the orthogonal factors of Gaussian matrices, with a positive diagonal in the
    triangular factor.

    References
    ----------
    Chikuse, Y. (2003). Statistics on special manifolds, section 2.2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions.stiefel import UniformStiefel
    >>> X = pm.draw(UniformStiefel.dist(shape=(5, 2)), random_seed=1)
    >>> np.allclose(X.T @ X, np.eye(2), atol=1e-14)
    True
    """

    rv_op = uniform_stiefel

    @classmethod
    def dist(cls, shape: Any = None, **kwargs: Any) -> TensorVariable:
        """Create the variable outside of a model."""
        if shape is None:
            raise TypeError(
                "UniformStiefel needs the shape of its matrices: pass shape=(n, p), dims, or "
                "observed data"
            )
        shape = convert_shape(shape)
        if len(shape) < 2:
            raise ValueError(
                "UniformStiefel: the shape must end in the rows and columns of a matrix, (n, p), "
                f"but has only {len(shape)} entries"
            )
        n, p = shape[-2:]
        if isinstance(n, int | np.integer) and isinstance(p, int | np.integer) and p > n:
            raise ValueError(
                f"UniformStiefel: {p} columns in {n} dimensions cannot be orthonormal; "
                "shape=(n, p) needs p at most n"
            )
        return super().dist([n, p], shape=shape, **kwargs)

    @staticmethod
    def support_point(rv: TensorVariable, *args: Variable) -> TensorVariable:
        """Return the first p columns of the identity."""
        return pt.broadcast_to(pt.eye(rv.shape[-2], rv.shape[-1]), rv.shape)

    @staticmethod
    def logp(value: TensorVariable, n: Variable, p: Variable) -> TensorVariable:
        """Return minus the logarithm of the volume; minus infinity off the manifold."""
        n, p = n.squeeze(), p.squeeze()
        density = pt.full(value.shape[:-2], -log_stiefel_volume(n, p).astype(value.dtype))
        return check_parameters(
            minus_infinity_off_stiefel(value, density),
            pt.le(p, n),
            msg="UniformStiefel: shape=(n, p) needs p at most n",
        )
