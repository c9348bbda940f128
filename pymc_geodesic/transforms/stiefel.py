"""Orthonormal frames as the orthogonal factor of unconstrained matrices."""

import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.transforms.gram_schmidt import gram_schmidt
from pymc_geodesic.transforms.radial_law import log_gram_density


class StiefelTransform(Transform):
    r"""Frames X with orthonormal columns, from matrices :math:`Y = X L^\top` (last two axes).

    L is the Cholesky factor of the Gram matrix, :math:`Y^\top Y = W = L L^\top`, so that
    :math:`X = Y L^{-\top}` is the result of Gram–Schmidt on the columns of Y. A frame is its own
    value: for :math:`X^\top X = I` the Cholesky factor is the identity.

    The measure splits as :math:`dY \propto |W|^{(n-p-1)/2}\, dW\, d\mu(X)` with the invariant
    measure μ, which right-multiplication by an orthogonal matrix leaves as it is; therefore any
    law for W alone makes the density over Y proper, and the Jacobian term is that of the polar
    decomposition as well. The law is :math:`W \sim \mathrm{Wishart}_p(\nu, I/\nu)`, see
    :func:`~pymc_geodesic.transforms.radial_law.log_gram_density`, which for p = 1 is the law that
    :class:`~pymc_geodesic.transforms.unit_vector.UnitVectorTransform` uses.

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
