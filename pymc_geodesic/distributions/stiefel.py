r"""The uniform distribution on orthonormal frames.

The Stiefel manifold holds the n × p matrices with :math:`X^\top X = I`. Densities on it are with
respect to its surface measure as a subset of R^{n×p}, the Hausdorff measure of the Frobenius
distance. There, a rotation of two columns into each other by an angle a has length
:math:`\sqrt 2\,a`; texts that count it as a have a volume that is smaller by the factor
:math:`2^{p(p-1)/4}`.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters, multigammaln
from pymc.distributions.distribution import Continuous, SymbolicRandomVariable
from pymc.distributions.transforms import _default_transform
from pymc.pytensorf import normalize_rng_param
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.transforms import stiefel
from pymc_geodesic.transforms.stiefel import StiefelTransform

ORTHONORMALITY_TOLERANCE = 1e-6
"""How far an entry of the Gram matrix of a frame may be from the identity."""


def log_stiefel_volume(rows: Any, columns: Any) -> TensorVariable:
    r"""Symbolic logarithm of the surface measure of the Stiefel manifold.

    .. math:: \operatorname{vol} = 2^{p(p-1)/4}\, \frac{2^p\, \pi^{np/2}}{\Gamma_p(n/2)}

    For p = 1 it is the area of the sphere in R^n.

    Parameters
    ----------
    rows, columns : int or scalar tensor_like of int
        n and p, with p at most n.

    Returns
    -------
    TensorVariable of float64, scalar

    References
    ----------
    Muirhead, R. J. (1982). Aspects of multivariate statistical theory, theorem 2.1.15, without
    the power of √2 that the Frobenius distance brings.

    Examples
    --------
    Two circles of radius √2 are the orthogonal 2 × 2 matrices:

    >>> import numpy as np
    >>> from pymc_geodesic.distributions.stiefel import log_stiefel_volume
    >>> float(np.exp(log_stiefel_volume(2, 2).eval()) / (4 * np.pi * np.sqrt(2)))
    1.0
    """
    n = pt.as_tensor(rows).astype("float64")
    p = pt.as_tensor(columns).astype("float64")
    return (
        p * (p + 3) / 4 * np.log(2.0)
        + n * p / 2 * np.log(np.pi)
        - multigammaln(n / 2, pt.as_tensor(columns))
    )


def is_frame(value: TensorVariable) -> TensorVariable:
    """Return symbolically whether the columns of each matrix are orthonormal.

    Parameters
    ----------
    value : TensorVariable, shape (..., n, p)
        Matrices.

    Returns
    -------
    TensorVariable of bool, shape (...)

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.distributions.stiefel import is_frame
    >>> is_frame(pt.as_tensor(np.array([[0.0, 1.0], [1.0, 0.0]]))).eval().item()
    True
    """
    deviation = pt.abs(value.mT @ value - pt.eye(value.shape[-1]))
    return pt.all(deviation < ORTHONORMALITY_TOLERANCE, axis=(-2, -1))


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
        batch = () if isinstance(size.type, type(pt.NoneConst.type)) else tuple(size)

        next_rng, gaussian = pt.random.normal(size=(*batch, n, p), rng=rng, return_next_rng=True)
        orthogonal, triangular = pt.linalg.qr(gaussian, mode="economic")
        pivots = pt.diagonal(triangular, axis1=-2, axis2=-1)
        # QR fixes the columns up to sign; a positive diagonal makes the factor that of
        # Gram–Schmidt, which rotates with the matrix and is therefore uniform.
        frame = orthogonal * pt.where(pivots < 0, -1.0, 1.0)[..., None, :]
        return cls(inputs=[rng, size, n, p], outputs=[next_rng, frame])(rng, size, n, p)


class UniformStiefel(Continuous):
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
                "UniformStiefel needs the shape of its matrices: shape=(n, p), or dims in a model"
            )
        entries = tuple(shape) if isinstance(shape, list | tuple | TensorVariable) else (shape,)
        if len(entries) < 2:
            raise ValueError(
                f"UniformStiefel: shape must end in the rows and columns of a matrix, shape=(n, p),"
                f" but is {entries}"
            )
        n, p = entries[-2:]
        if isinstance(n, int | np.integer) and isinstance(p, int | np.integer) and p > n:
            raise ValueError(
                f"UniformStiefel: {p} columns in {n} dimensions cannot be orthonormal; "
                f"shape=(n, p) needs p at most n"
            )
        return super().dist([n, p], shape=entries, **kwargs)

    @staticmethod
    def support_point(rv: TensorVariable, *args: Variable) -> TensorVariable:
        """Return the first p columns of the identity."""
        return pt.broadcast_to(pt.eye(rv.shape[-2], rv.shape[-1]), rv.shape)

    @staticmethod
    def logp(value: TensorVariable, n: Variable, p: Variable) -> TensorVariable:
        """Return minus the logarithm of the volume; minus infinity off the manifold."""
        density = pt.where(is_frame(value), -log_stiefel_volume(n, p), -np.inf)
        return check_parameters(
            density, pt.le(p, n), msg="UniformStiefel: shape=(n, p) needs p at most n"
        )


@_default_transform.register(UniformStiefel)
def _uniform_stiefel_transform(op: SymbolicRandomVariable, rv: TensorVariable) -> StiefelTransform:
    return stiefel
