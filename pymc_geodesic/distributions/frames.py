r"""Orthonormal frames: base class of distributions on the Stiefel manifold, and the uniform one.

The Stiefel manifold is the set of n × p matrices with :math:`X^\top X = I`. Densities on it are
with respect to its surface measure as a subset of R^{n×p}, the Hausdorff measure of the Frobenius
distance. There, a rotation of two columns into each other by an angle a has length
:math:`\sqrt 2\,a`; authors who assign it the length a have a volume that is smaller by the factor
:math:`2^{p(p-1)/4}`.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc import draw, modelcontext
from pymc.distributions.dist_math import check_parameters, multigammaln
from pymc.distributions.distribution import Continuous
from pymc.distributions.shape_utils import convert_shape
from pymc.distributions.transforms import _default_transform
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.validation import PACKAGE, known_data, require_known_arguments
from pymc_geodesic.ops.numba_backend import LoopRandomVariable
from pymc_geodesic.transforms.gram_schmidt import StiefelTransform, stiefel

ORTHONORMALITY_TOLERANCE = 2e-6
"""Tolerance of the entries of the Gram matrix of a frame."""


class Frame(Continuous):
    """Base class of distributions whose values are matrices with orthonormal columns.

    Free variables get the Stiefel transform; observed data are checked when the model is built.

    Raises
    ------
    ValueError
        If observed data are known and the columns of a matrix are not orthonormal.
    """

    def __new__(cls, name: str, *args: Any, observed: Any = None, **kwargs: Any) -> TensorVariable:
        """Check the observed data and add the variable to the model."""
        if observed is not None:
            require_frames(name, observed)
        rv = super().__new__(cls, name, *args, observed=observed, **kwargs)
        if rv.owner is not None and isinstance(rv.owner.op, type(cls.rv_op)):
            warn_of_missing_constant(
                name, cls.missing_constant_arguments(*rv.owner.op.dist_params(rv.owner))
            )
        return rv

    @classmethod
    def dist(cls, *parameters: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; an unknown argument raises ``TypeError``."""
        require_known_arguments(cls, kwargs)
        return super().dist(*parameters, **kwargs)

    @staticmethod
    def missing_constant_arguments(*parameters: Variable) -> TensorVariable | None:
        """Return the arguments of a constant that the density omits; None if it omits none."""
        return None


@_default_transform.register(Frame)
def frames_default_transform(op: Op, rv: TensorVariable) -> StiefelTransform:
    """Return the default transform of free orthonormal frames."""
    return stiefel


def warn_of_missing_constant(name: str, invariants: TensorVariable | None) -> None:
    """Warn if a constant that is omitted depends on a free variable of the model.

    The test compares two draws of the arguments of the constant. Free axes, as in
    ``axes * concentrations``, do not change them.

    Parameters
    ----------
    name : str
        Name of the random variable, for the message.
    invariants : TensorVariable or None
        Arguments of the constant; None if the constant is computed.
    """
    if invariants is None:
        return
    above = set(ancestors([invariants]))
    free = [rv for rv in modelcontext(None).free_RVs if rv in above]
    if not free:
        return
    try:
        first, second = draw(invariants, draws=2, random_seed=0, mode="FAST_COMPILE")
    except NotImplementedError:  # improper priors have no draws
        first, second = np.zeros(1), np.ones(1)
    if not np.allclose(first, second, rtol=1e-5, atol=1e-8):
        warnings.warn(
            f"the log-density of {name!r} omits its normalizing constant, which depends on "
            f"{', '.join(repr(rv.name) for rv in free)}: their posterior is not valid. Set the "
            "concentrations to numbers, or use numbers of rows and columns for which the constant "
            "is computed; the documentation of the distribution lists them.",
            UserWarning,
            skip_file_prefixes=(PACKAGE, os.path.dirname(pymc.__file__)),
        )


def log_stiefel_volume(n: Any, p: Any) -> TensorVariable:
    r"""Symbolic logarithm of the surface measure of the Stiefel manifold.

    .. math:: \operatorname{vol} = 2^{p(p-1)/4}\, \frac{2^p\, \pi^{np/2}}{\Gamma_p(n/2)}

    For p = 1 it is the area of the sphere in R^n.

    Parameters
    ----------
    n, p : int or scalar tensor_like of int
        Rows and columns, p at most n.

    Returns
    -------
    TensorVariable of float64, scalar

    References
    ----------
    Muirhead (1982), *Aspects of multivariate statistical theory*, theorem 2.1.15, without the
    power of √2 of the Frobenius distance.

    Examples
    --------
    The orthogonal 2 × 2 matrices are two circles of radius √2:

    >>> import numpy as np
    >>> from pymc_geodesic.distributions.frames import log_stiefel_volume
    >>> float(np.exp(log_stiefel_volume(2, 2).eval(mode="FAST_COMPILE")) / (4 * np.pi * 2**0.5))
    1.000...
    """
    rows = pt.as_tensor(n).astype("float64")
    columns = pt.as_tensor(p).astype("float64")
    return (
        columns * (columns + 3.0) / 4.0 * np.log(2.0)
        + rows * columns / 2.0 * np.log(np.pi)
        - multigammaln(rows / 2.0, columns)
    )


def minus_infinity_off_stiefel(
    value: TensorVariable, log_density: TensorVariable
) -> TensorVariable:
    """Return the log-density, minus infinity for matrices without orthonormal columns.

    Data that are known to be frames are not tested at each evaluation.

    Parameters
    ----------
    value : TensorVariable, shape (..., n, p)
        Argument of the density.
    log_density : TensorVariable, shape (...)
        The log-density on the manifold.

    Returns
    -------
    TensorVariable, shape (...)

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.distributions.frames import minus_infinity_off_stiefel
    >>> X = pt.matrix("X")
    >>> density = minus_infinity_off_stiefel(X, pt.as_tensor(1.0))
    >>> [density.eval({X: scale * np.eye(2)}, mode="FAST_COMPILE").item() for scale in (1, 2)]
    [1.0, -inf]
    """
    data = known_data(value)
    if data is not None and np.all(are_frames(data)):
        return log_density
    deviation = pt.abs(value.mT @ value - pt.eye(value.shape[-1]))
    return pt.where(
        pt.all(deviation < ORTHONORMALITY_TOLERANCE, axis=(-2, -1)), log_density, -np.inf
    )


def are_frames(matrices: Any) -> np.ndarray:
    """Return whether the columns of each matrix are orthonormal, to single precision.

    Parameters
    ----------
    matrices : array_like of float, shape (..., n, p)

    Returns
    -------
    ndarray of bool, shape (...)
        False for a matrix that holds a NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.frames import are_frames
    >>> are_frames([np.eye(3, 2), np.ones((3, 2))])
    array([ True, False])
    """
    array = np.asarray(matrices, dtype=float)
    gram = np.swapaxes(array, -1, -2) @ array
    return np.all(np.abs(gram - np.eye(array.shape[-1])) < ORTHONORMALITY_TOLERANCE, axis=(-2, -1))


def require_frames(name: str, observed: Any) -> None:
    """Raise if observed matrices that are known are not frames.

    Parameters
    ----------
    name : str
        Name of the random variable, for the message.
    observed : array_like or Variable, shape (..., n, p)
        Argument ``observed``.

    Raises
    ------
    ValueError
        If the columns of a matrix are not orthonormal.
    """
    data = known_data(observed)
    if data is None or data.ndim < 2:
        return
    wrong = ~are_frames(np.ma.filled(np.ma.asarray(data, dtype=float), np.nan))
    if wrong.any():
        raise ValueError(
            f"the observed data of {name!r} must be matrices with orthonormal columns (last two "
            f"axes), but {int(wrong.sum())} of {wrong.size} are not; np.linalg.qr(x).Q gives an "
            "orthonormal basis of the columns of each"
        )


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
        # QR defines the columns up to sign; with a positive diagonal the factor is that of
        # Gram–Schmidt, which is equivariant under rotations and therefore uniform.
        return orthogonal * np.where(pivots < 0, -1.0, 1.0)[..., None, :]

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one frame, by Gram–Schmidt, which compiles faster than LAPACK's QR."""
        dtype = self.dtype

        @njit
        def draw(rng, n, p, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            if out is None:
                out = np.empty((n, p), dtype=dtype)
            for i in range(n):
                for r in range(p):
                    out[i, r] = rng.standard_normal()
            for r in range(p):
                for twice in range(2 * r):  # against rounding, if the remainder is small
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


class UniformStiefel(Frame):
    r"""Uniform distribution on n × p matrices with orthonormal columns.

    .. math:: f(X) = \frac{\Gamma_p(n/2)}{2^{p(p-1)/4}\, 2^p\, \pi^{np/2}},
              \qquad X^\top X = I_p

    with respect to surface measure in R^{n×p}. For p = 1 it is the uniform distribution on the
    sphere, for p = n Haar measure on the orthogonal matrices of both determinants. A free
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
        independent frames. In a model, ``dims`` or ``observed`` may define it.
    **kwargs
        Arguments of every PyMC distribution.

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
    >>> from pymc_geodesic.distributions.frames import UniformStiefel
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
