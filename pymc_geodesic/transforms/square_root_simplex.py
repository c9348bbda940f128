"""Proportions as squares of the coordinates of a point on the sphere."""

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.raise_op import Assert
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.transforms.unit_vector import log_radial_density, unit_vector

_PROPORTIONS_REQUIRED = Assert(
    "square_root_simplex: the initial value must be proportions, non-negative with sum 1 along "
    "the last axis. If this is a Dirichlet with transform=square_root_simplex, PyMC has stacked "
    "the transform on its own simplex transform: write default_transform=square_root_simplex"
)


class SquareRootSimplexTransform(Transform):
    r"""Proportions :math:`x_k = y_k^2 / \|y\|^2` of unconstrained vectors y (last axis).

    The square root :math:`q = \sqrt x` of proportions is a point on the positive orthant of the
    sphere, and under this map the simplex with the Fisher metric of the categorical distribution is
    a piece of a sphere of radius two. Each of the :math:`2^K` orthants maps onto the whole simplex,
    so the sampler may cross from one to the next without reflection. With
    :math:`dx_1\dots dx_{K-1} = 2^{K-1} \prod_k |q_k| \, d\sigma(q)` and the distribution of the
    length of :func:`~pymc_geodesic.transforms.unit_vector.log_radial_density`, the log Jacobian
    term is

    .. math:: \sum_k \log|q_k| - \log 2 + \log\frac{h(r)}{r^{K-1}},

    which makes a Dirichlet that is normalized over the first K−1 proportions (as PyMC's is)
    normalized over y.

    Notes
    -----
    A Dirichlet with concentrations :math:`a_k` has density proportional to
    :math:`\prod |q_k|^{2 a_k - 1}` on the sphere. It is flat at :math:`a_k = 1/2`, the Jeffreys
    prior. With large concentrations the density is low near the boundaries :math:`q_k = 0`, and
    NUTS is two to three times as efficient as in PyMC's own coordinates. With moderate ones
    trajectories reach the boundaries, where some of them diverge and are rejected; below one half
    the density is infinite there. For such a posterior PyMC's transform is the better choice with
    NUTS (``docs/transforms.md`` has figures).

    Pass it as ``default_transform``: with ``transform=`` PyMC applies it *after* its own simplex
    transform of a Dirichlet, which is an error at the initial point.

    References
    ----------
    Patterson, S. and Teh, Y. W. (2013). Stochastic gradient Riemannian Langevin dynamics on the
    probability simplex. NeurIPS 26.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_geodesic.transforms import square_root_simplex
    >>> with pm.Model() as model:
    ...     w = pm.Dirichlet("w", [4.0, 4.0, 4.0, 4.0], default_transform=square_root_simplex)
    >>> model.initial_point()["w_squarerootsimplex__"].tolist()
    [0.5, 0.5, 0.5, 0.5]
    """

    name = "squarerootsimplex"
    ndim_supp = 1

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        r"""Return the point :math:`\sqrt x` on the positive orthant of the sphere.

        Parameters
        ----------
        value : TensorVariable, shape (..., K)
            Proportions.
        *inputs : Variable
            Inputs of the random variable; not used.

        Returns
        -------
        TensorVariable, shape (..., K)
            Unit vectors with non-negative coordinates.

        Raises
        ------
        AssertionError
            At evaluation, if a proportion is negative or they do not sum to one.
        """
        value = pt.as_tensor_variable(value)
        total = pt.sum(value, axis=-1)
        proportions = _PROPORTIONS_REQUIRED(
            value, pt.all(value >= 0), pt.all(pt.abs(total - 1.0) < 1e-5)
        )
        return pt.sqrt(proportions)

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the squared coordinates of the direction of ``value``.

        Parameters
        ----------
        value : TensorVariable, shape (..., K)
            Unconstrained vectors.
        *inputs : Variable
            Inputs of the random variable; not used.

        Returns
        -------
        TensorVariable, shape (..., K)
            Proportions.
        """
        return pt.sqr(unit_vector.backward(value))

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the log-density of y over the flat measure of the first K−1 proportions.

        Parameters
        ----------
        value : TensorVariable, shape (..., K)
            Unconstrained vectors.
        *inputs : Variable
            Inputs of the random variable; not used.

        Returns
        -------
        TensorVariable, shape (...)
            The log Jacobian term; minus infinity where a coordinate is zero.
        """
        value = pt.as_tensor_variable(value)
        direction = unit_vector.backward(value)
        log_volume = pt.sum(pt.log(pt.abs(direction)), axis=-1) - np.log(2.0)
        return log_volume + log_radial_density(value)

    def __reduce__(self) -> str:
        """Pickle by name: there is one object."""
        return "square_root_simplex"


square_root_simplex = SquareRootSimplexTransform()
