"""The law of the length that the unconstrained coordinates have beyond a direction."""

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable
from scipy.special import gammaln

LEAST_DEGREES_OF_FREEDOM = 16


def static_or_symbolic_length(value: TensorVariable) -> int | TensorVariable:
    """Length of the last axis: a Python integer where the type knows it."""
    static = value.type.shape[-1]
    return value.shape[-1] if static is None else static


def log_radial_density(value: TensorVariable) -> TensorVariable:
    r"""Log-density that makes the length of ``value`` a proper variable.

    With :math:`y = r x`, :math:`dy = r^{d-1}\,dr\,d\sigma(x)`, and the length drawn as
    :math:`r^2 \sim \mathrm{Gamma}(\nu/2, \nu/2)`, :math:`\nu = \max(d, 16)`,

    .. math:: \log\frac{h(r)}{r^{d-1}} = \log 2 + \tfrac\nu2\log\tfrac\nu2
              - \log\Gamma(\tfrac\nu2) + (\nu - d)\log r - \tfrac\nu2 r^2 .

    Parameters
    ----------
    value : TensorVariable, shape (..., d)
        Unconstrained coordinates y.

    Returns
    -------
    TensorVariable, shape (...)
        The log-density; minus infinity at the zero vector.
    """
    squared = pt.sum(value**2, axis=-1)
    dim = static_or_symbolic_length(value)
    if isinstance(dim, int):
        dof = float(max(dim, LEAST_DEGREES_OF_FREEDOM))
        constant = np.log(2.0) + dof / 2 * np.log(dof / 2) - gammaln(dof / 2)
    else:
        dof = pt.maximum(dim, LEAST_DEGREES_OF_FREEDOM).astype(value.dtype)
        constant = np.log(2.0) + dof / 2 * pt.log(dof / 2) - pt.gammaln(dof / 2)
    positive = squared > 0
    log_squared = pt.log(pt.where(positive, squared, 1.0))
    density = constant + (dof - dim) / 2 * log_squared - dof / 2 * squared
    return pt.where(positive, density, -np.inf)
