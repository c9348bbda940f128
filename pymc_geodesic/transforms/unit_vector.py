r"""Unit vectors as directions of unconstrained vectors.

A direction x in R^d has one degree of freedom less than a vector, the length. Gradient-based
samplers move the full vector, so the length needs a proper distribution. It must be independent
of x, and it should keep the sampler away from zero, where a small step changes x a lot, without
being so concentrated at one that steps have to be short. ``docs/transforms.md`` has the
measurements.
"""

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

MIN_DEGREES_OF_FREEDOM = 16
"""Minimum degrees of freedom of the length or Gram matrix, times p + 1 for p columns."""


def log_radial_density(value: TensorVariable) -> TensorVariable:
    r"""Log-density of the length of a vector, with respect to dy over surface measure.

    With :math:`y = r x`, :math:`dy = r^{d-1}\,dr\,d\sigma(x)`, and the squared length drawn as
    :math:`r^2 \sim \mathrm{Gamma}(\nu/2, \nu/2)`, :math:`\nu = \max(d, 32)`, the density of y is
    that of x with respect to surface measure σ times

    .. math:: \frac{h(r)}{r^{d-1}} = \frac{2\,(\nu/2)^{\nu/2}}{\Gamma(\nu/2)}\,
              r^{\nu - d}\, e^{-\nu r^2/2} .

    The mean of r² is one and the standard deviation of r about :math:`1/\sqrt{2\nu}`. From 32
    dimensions on, this is :math:`y \sim N(0, I/d)`.

    Parameters
    ----------
    value : TensorVariable, shape (..., d)
        Unconstrained vectors y.

    Returns
    -------
    TensorVariable, shape (...)
        The log-density; minus infinity at the zero vector.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> log_radial_density(pt.as_tensor(np.zeros(3))).eval().item()
    -inf
    """
    squared = pt.sum(pt.sqr(value), axis=-1)
    positive = squared > 0
    log_squared = pt.log(pt.where(positive, squared, 1.0))
    dim = pt.cast(value.shape[-1], value.dtype)
    dof = pt.maximum(dim, 2 * MIN_DEGREES_OF_FREEDOM)
    constant = np.log(2.0) + dof / 2 * pt.log(dof / 2) - pt.gammaln(dof / 2)
    density = constant + (dof - dim) / 2 * log_squared - dof / 2 * squared
    return pt.where(positive, density, -np.inf)


class UnitVectorTransform(Transform):
    r"""Unit vectors :math:`x = y / \|y\|` of unconstrained vectors y (last axis).

    A point on the sphere is its own value, and at :math:`\|y\| = 1` the gradient of a log-density
    of x with respect to y is tangent to the sphere. So the same value variable can be
    updated on the sphere by a geodesic step and in R^d by NUTS.

    Under the density of y, :math:`p(x)\, h(r) / r^{d-1}`, the direction x has density p with
    respect to surface measure, independently of the length r, whose density h is that of
    :func:`~pymc_geodesic.transforms.unit_vector.log_radial_density`. ``pm.find_MAP`` leaves
    Jacobian terms out and so maximizes p(x), the density with respect to surface measure, as it
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
