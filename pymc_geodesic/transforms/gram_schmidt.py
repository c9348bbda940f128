"""Orthonormal frames of matrices, with a gradient that is cheap to compile and to evaluate."""

from collections.abc import Sequence

import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import DisconnectedType
from pytensor.tensor.variable import TensorVariable


def gram_schmidt(value: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    r"""Return the frames of matrices, :math:`Y = X L^\top`, and the logarithm of :math:`|L|`.

    L is the Cholesky factor of :math:`Y^\top Y`, so that :math:`\log|L|` is the logarithm of the
    volume that the columns of Y span. The reverse-mode derivative is that of the QR
    decomposition: for the cotangents :math:`\bar X` and :math:`\bar v`, with C(M) the symmetric
    matrix that has the lower triangle of M,

    .. math:: \bar Y = \{\bar X - X\, C(\bar X^\top X) + \bar v\, X\}\, L^{-1} .

    It takes the place of the derivative of the Cholesky decomposition, a graph several times as
    large, for which Numba needs half a minute.

    Parameters
    ----------
    value : TensorVariable, shape (..., n, p)
        Matrices Y.

    Returns
    -------
    frame : TensorVariable, shape (..., n, p)
        X, with orthonormal columns; Y itself where the columns of Y are dependent.
    log_volume : TensorVariable, shape (...)
        :math:`\log|L|`; NaN where the columns of Y are dependent.

    References
    ----------
    Walter and Lehmann (2010), Algorithmic differentiation of linear algebra functions, on QR.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.transforms.gram_schmidt import gram_schmidt
    >>> frame, log_volume = gram_schmidt(pt.as_tensor(np.array([[2.0, 1.0], [0.0, 3.0]])))
    >>> frame.eval(mode="FAST_COMPILE").tolist(), log_volume.exp().eval(mode="FAST_COMPILE").item()
    ([[1.0, 0.0], [0.0, 1.0]], 6.0)
    """
    matrix = value.type()
    factor = pt.linalg.cholesky(matrix.mT @ matrix)
    frame = pt.linalg.solve_triangular(_invertible(factor), matrix.mT, lower=True, b_ndim=2).mT
    pivots = pt.sum(pt.eye(factor.shape[-1]) * factor, axis=-1)
    log_volume = pt.sum(pt.log(pivots), axis=-1)
    split = OpFromGraph([matrix], [frame, log_volume, factor], inline=True, pullback=_pullback)
    return tuple(split(value)[:2])


def _invertible(factor: TensorVariable) -> TensorVariable:
    """Put the identity where the Cholesky decomposition has failed and left NaN."""
    return pt.where(pt.isnan(factor), pt.eye(factor.shape[-1]), factor)


def _pullback(
    inputs: Sequence[TensorVariable],
    outputs: Sequence[TensorVariable],
    cotangents: Sequence[TensorVariable],
) -> list[TensorVariable]:
    """Return the derivative; the factor has a cotangent in second derivatives only."""
    frame, factor = outputs[0], _invertible(outputs[2])
    frame_bar, log_volume_bar, factor_bar = (
        None if isinstance(cotangent.type, DisconnectedType) else cotangent
        for cotangent in cotangents
    )
    moment, unscaled = [], []
    if frame_bar is not None:
        unscaled.append(frame_bar)
        moment.append(-frame_bar.mT @ frame)
    if factor_bar is not None:
        moment.append(factor.mT @ factor_bar)
    if moment:
        lower, strictly_lower = pt.tri(factor.shape[-1]), pt.tri(factor.shape[-1], k=-1)
        symmetric = lower * sum(moment) + (strictly_lower * sum(moment)).mT
        unscaled.append(frame @ symmetric)
    if log_volume_bar is not None:
        unscaled.append(log_volume_bar[..., None, None] * frame)
    return [pt.linalg.solve_triangular(factor.mT, sum(unscaled).mT, lower=False, b_ndim=2).mT]
