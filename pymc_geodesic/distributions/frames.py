r"""What the distributions on orthonormal frames have in common.

The Stiefel manifold holds the n × p matrices with :math:`X^\top X = I`. Densities on it are with
respect to its surface measure as a subset of R^{n×p}, the Hausdorff measure of the Frobenius
distance. There, a rotation of two columns into each other by an angle a has length
:math:`\sqrt 2\,a`; texts that count it as a have a volume that is smaller by the factor
:math:`2^{p(p-1)/4}`.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import multigammaln
from pymc.distributions.distribution import Continuous
from pymc.distributions.transforms import _default_transform
from pytensor.graph.op import Op
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.unit_rows import known_data
from pymc_geodesic.transforms.stiefel import StiefelTransform, stiefel

ORTHONORMALITY_TOLERANCE = 2e-6
"""How far an entry of the Gram matrix of a frame may be from the identity."""


class Frames(Continuous):
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
        return super().__new__(cls, name, *args, observed=observed, **kwargs)


@_default_transform.register(Frames)
def frames_default_transform(op: Op, rv: TensorVariable) -> StiefelTransform:
    """Return the transform that a free orthonormal frame carries by default."""
    return stiefel


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
    power of √2 that the Frobenius distance brings.

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
    """Give matrices whose columns are not orthonormal the log-density minus infinity.

    Data that are known to be frames are not tested again at every evaluation.

    Parameters
    ----------
    value : TensorVariable, shape (..., n, p)
        Where the density is evaluated.
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
    """Reject observed matrices that are not frames, as far as their numbers are known.

    Parameters
    ----------
    name : str
        Name of the random variable, for the message.
    observed : array_like or Variable, shape (..., n, p)
        What the user passed as ``observed``.

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
