"""Unit vectors as directions of unconstrained vectors."""

import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.transforms.radial_law import log_radial_density


class UnitVectorTransform(Transform):
    r"""Unit vectors :math:`x = y / \|y\|` of unconstrained vectors y (last axis).

    The value of a point on the sphere is the point itself.
    """

    name = "unit_vector"
    ndim_supp = 1

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the point itself, which lies in R^d with length one."""
        return pt.as_tensor_variable(value)

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the direction of ``value``; the zero vector, which has none, stays zero."""
        value = pt.as_tensor_variable(value)
        squared = pt.sum(value**2, axis=-1, keepdims=True)
        return value / pt.sqrt(pt.where(squared > 0, squared, 1.0))

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the log-density of the length with respect to dy over surface measure."""
        return log_radial_density(pt.as_tensor_variable(value))


unit_vector = UnitVectorTransform()
