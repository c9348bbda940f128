"""The uniform distribution on orthonormal frames."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import convert_shape, rv_size_is_none
from pymc.pytensorf import normalize_rng_param
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.frames import (
    Frames,
    log_stiefel_volume,
    minus_infinity_off_stiefel,
)


class UniformStiefelRV(SymbolicRandomVariable):
    """Orthogonal factors of Gaussian matrices."""

    name = "uniform_stiefel"
    extended_signature = "[rng],[size],(),()->[rng],(n,p)"
    _print_name = ("UniformStiefel", "\\operatorname{UniformStiefel}")

    def update(self, node: Apply) -> dict[Variable, Variable]:
        """Return the state that the generator has after a draw."""
        return {node.inputs[0]: node.outputs[0]}

    @classmethod
    def rv_op(cls, n: Any, p: Any, *, size: Any = None, rng: Any = None) -> TensorVariable:
        """Build the graph of a draw."""
        n = pt.as_tensor(n, ndim=0, dtype=int)
        p = pt.as_tensor(p, ndim=0, dtype=int)
        rng = normalize_rng_param(rng)
        size = normalize_size_param(size)
        batch = () if rv_size_is_none(size) else tuple(size)

        next_rng, gaussian = pt.random.normal(size=(*batch, n, p), rng=rng, return_next_rng=True)
        orthogonal, triangular = pt.linalg.qr(gaussian, mode="economic")
        pivots = pt.diagonal(triangular, axis1=-2, axis2=-1)
        # QR fixes the columns up to sign; a positive diagonal makes the factor that of
        # Gram–Schmidt, which rotates with the matrix and is therefore uniform.
        frame = orthogonal * pt.where(pivots < 0, -1.0, 1.0)[..., None, :]
        return cls(inputs=[rng, size, n, p], outputs=[next_rng, frame])(rng, size, n, p)


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

    rv_type = UniformStiefelRV
    rv_op = UniformStiefelRV.rv_op

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
        density = pt.full(value.shape[:-2], -log_stiefel_volume(n, p).astype(value.dtype))
        return check_parameters(
            minus_infinity_off_stiefel(value, density),
            pt.le(p, n),
            msg="UniformStiefel: shape=(n, p) needs p at most n",
        )
