r"""Orthonormal frames as the Gram–Schmidt factor of unconstrained matrices.

An n × p matrix Y consists of an orthonormal frame X and a Gram matrix, which gets a proper
distribution for the same reason as the length of a vector in
`pymc_geodesic.transforms.unit_vector`.
"""

from collections.abc import Sequence

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import multigammaln
from pymc.logprob.transforms import Transform
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.transforms.unit_vector import MIN_DEGREES_OF_FREEDOM


def gram_schmidt(value: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    r"""Return the frames of matrices, :math:`Y = X L^\top`, and the logarithm of :math:`|L|`.

    L is the Cholesky factor of :math:`Y^\top Y`, so that :math:`\log|L|` is the logarithm of the
    volume that the columns of Y span. The reverse-mode derivative is that of the QR
    decomposition: for the cotangents :math:`\bar X` and :math:`\bar v`, with C(M) the symmetric
    matrix that has the lower triangle of M,

    .. math:: \bar Y = \{\bar X - X\, C(\bar X^\top X) + \bar v\, X\}\, L^{-1} .

    It replaces the derivative of the Cholesky decomposition, a graph several times as large, which
    Numba compiles in half a minute.

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
    """Replace the NaN of a failed Cholesky decomposition by the identity."""
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


def log_gram_density(value: TensorVariable) -> TensorVariable:
    r"""Log-density of the Gram matrix, with respect to dY over the measure of the frame.

    The matrix Y has a frame X and a Gram matrix :math:`W = Y^\top Y`; W is drawn as
    :math:`\mathrm{Wishart}_p(\nu, I/\nu)` with :math:`\nu = \max\{n, 16 (p + 1)\}`. The density
    of Y is that of X, with respect to the surface measure of the Stiefel manifold as a subset of
    R^{n×p} (a rotation of two columns by an angle a has length :math:`\sqrt 2\, a`), times

    .. math:: 2^{p(p-1)/4}\, \frac{2^p\, (\nu/2)^{\nu p/2}}{\Gamma_p(\nu/2)}\,
              |W|^{(\nu-n)/2}\, e^{-\nu \operatorname{tr} W/2} .

    Parameters
    ----------
    value : TensorVariable, shape (..., n, p)
        Unconstrained matrices Y.

    Returns
    -------
    TensorVariable, shape (...)
        The log-density; minus infinity where the columns are linearly dependent.

    Examples
    --------
    A single column is a vector:

    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.transforms.unit_vector import log_radial_density
    >>> y = np.array([0.3, -0.9, 0.5])
    >>> vector = log_radial_density(pt.as_tensor(y)).eval()
    >>> matrix = log_gram_density(pt.as_tensor(y[:, None])).eval()
    >>> bool(np.isclose(vector, matrix, rtol=1e-12))
    True
    """
    _, log_volume = gram_schmidt(value)
    rows = pt.cast(value.shape[-2], value.dtype)
    columns = pt.cast(value.shape[-1], value.dtype)
    dof = pt.maximum(rows, MIN_DEGREES_OF_FREEDOM * (columns + 1))
    constant = (
        columns * (columns + 3) / 4 * np.log(2.0)
        + dof * columns / 2 * pt.log(dof / 2)
        - multigammaln(dof / 2, columns)
    )
    trace = pt.sum(pt.sqr(value), axis=(-2, -1))
    density = constant + (dof - rows) * log_volume - dof / 2 * trace
    return pt.where(pt.isnan(log_volume), -np.inf, density)


class StiefelTransform(Transform):
    r"""Frames X with orthonormal columns, from matrices :math:`Y = X L^\top` (last two axes).

    L is the Cholesky factor of the Gram matrix, :math:`Y^\top Y = W = L L^\top`, so that
    :math:`X = Y L^{-\top}` is the result of Gram–Schmidt on the columns of Y. A frame is its own
    value: for :math:`X^\top X = I` the Cholesky factor is the identity.

    The measure splits as :math:`dY \propto |W|^{(n-p-1)/2}\, dW\, d\mu(X)` with the invariant
    measure μ, which is invariant under right-multiplication by an orthogonal matrix; therefore any
    distribution of W alone makes the density over Y proper, and the Jacobian term is that of the
    polar decomposition as well. The distribution is :math:`W \sim \mathrm{Wishart}_p(\nu, I/\nu)`,
    see :func:`~pymc_geodesic.transforms.gram_schmidt.log_gram_density`, which for p = 1 is that of
    :class:`~pymc_geodesic.transforms.unit_vector.UnitVectorTransform`.

    Notes
    -----
    The polar factor :math:`Y W^{-1/2}` treats the columns alike but needs the gradient of a
    symmetric eigenproblem, which is infinite where eigenvalues meet: at every frame, since there
    W = I. Cholesky and triangular solve have smooth gradients in every PyTensor backend.

    References
    ----------
    Muirhead, R. J. (1982). Aspects of multivariate statistical theory, theorem 2.1.14.

    Jauch, M., Hoff, P. D. and Dunson, D. B. (2021). Monte Carlo simulation on the Stiefel
    manifold via polar expansion. Journal of Computational and Graphical Statistics 30(3).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.transforms import stiefel
    >>> frame = stiefel.backward(np.array([[2.0, 1.0], [0.0, 1.0], [0.0, 0.0]])).eval()
    >>> frame.tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """

    name = "stiefel"
    ndim_supp = 2

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the frame itself.

        Parameters
        ----------
        value : TensorVariable, shape (..., n, p)
            Matrices with orthonormal columns.
        *inputs : Variable
            Inputs of the random variable; not used.

        Returns
        -------
        TensorVariable, shape (..., n, p)
            The same matrices.
        """
        return pt.as_tensor_variable(value)

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the orthonormal frame of the columns of ``value``, in their order.

        Parameters
        ----------
        value : TensorVariable, shape (..., n, p)
            Unconstrained matrices.
        *inputs : Variable
            Inputs of the random variable; not used.

        Returns
        -------
        TensorVariable, shape (..., n, p)
            Matrices with orthonormal columns; ``value`` itself where its columns are dependent.
        """
        frame, _ = gram_schmidt(pt.as_tensor_variable(value))
        return frame

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the log-density of the Gram matrix with respect to dY over dμ(X).

        Parameters
        ----------
        value : TensorVariable, shape (..., n, p)
            Unconstrained matrices.
        *inputs : Variable
            Inputs of the random variable; not used.

        Returns
        -------
        TensorVariable, shape (...)
            The log Jacobian term; minus infinity where the columns are dependent.
        """
        return log_gram_density(pt.as_tensor_variable(value))

    def __reduce__(self) -> str:
        """Pickle by name: there is one object."""
        return self.name


stiefel = StiefelTransform()
