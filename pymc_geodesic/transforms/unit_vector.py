"""Unit vectors as directions of unconstrained vectors."""

import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.transforms.radial_law import log_radial_density


class UnitVectorTransform(Transform):
    r"""Unit vectors :math:`x = y / \|y\|` of unconstrained vectors y (last axis).

    A point on the sphere is its own value, and at :math:`\|y\| = 1` the gradient of a log-density
    of x with respect to y is tangent to the sphere. So one and the same value variable can be
    moved on the sphere by a geodesic step and in R^d by NUTS.

    Under the density of y, :math:`p(x)\, h(r) / r^{d-1}`, the direction x has density p with
    respect to surface measure, independently of the length r, whose law h is that of
    :func:`~pymc_geodesic.transforms.radial_law.log_radial_density`. ``pm.find_MAP`` leaves
    Jacobian terms out and so maximises p(x), the density with respect to surface measure, as it
    should. (The inverse Hessian that it computes on request is singular along y.)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.transforms import unit_vector
    >>> unit_vector.backward(np.array([3.0, 4.0])).eval().tolist()
    [0.6, 0.8]
    >>> unit_vector.forward(np.array([0.6, 0.8])).eval().tolist()
    [0.6, 0.8]
    """

    name = "unitvector"
    ndim_supp = 1

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the point itself, which lies in R^d with length one.

        Parameters
        ----------
        value : TensorVariable, shape (..., d)
            Unit vectors.
        *inputs : Variable
            Inputs of the random variable; not used.

        Returns
        -------
        TensorVariable, shape (..., d)
            The same vectors.
        """
        return pt.as_tensor_variable(value)

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the direction of ``value``.

        Parameters
        ----------
        value : TensorVariable, shape (..., d)
            Unconstrained vectors.
        *inputs : Variable
            Inputs of the random variable; not used.

        Returns
        -------
        TensorVariable, shape (..., d)
            Vectors of length one; the zero vector, which has no direction, stays zero.
        """
        value = pt.as_tensor_variable(value)
        squared = pt.sum(pt.sqr(value), axis=-1, keepdims=True)
        return value / pt.sqrt(pt.where(squared > 0, squared, 1.0))

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the log-density of the length with respect to dy over surface measure.

        Parameters
        ----------
        value : TensorVariable, shape (..., d)
            Unconstrained vectors.
        *inputs : Variable
            Inputs of the random variable; not used.

        Returns
        -------
        TensorVariable, shape (...)
            The log Jacobian term; minus infinity at the zero vector.
        """
        return log_radial_density(pt.as_tensor_variable(value))

    def __reduce__(self) -> str:
        """Pickle by name: there is one object."""
        return "unit_vector"


unit_vector = UnitVectorTransform()
