r"""The law of what unconstrained coordinates have beyond a direction or a frame.

A direction x in R^d is one number short of a vector, the length; an orthonormal frame X is the
Gram matrix short of an n × p matrix. Gradient-based samplers move the full vector or matrix, so
the missing part needs a proper law of its own. It must not touch the law of x, and it should give
the sampler a round and gentle space: not near zero, where a small step turns x around, and not so
tight about one that the steps are short. ``docs/transforms.md`` has the measurements.
"""

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import multigammaln
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.transforms.gram_schmidt import gram_schmidt

LEAST_DEGREES_OF_FREEDOM = 16
"""Times p + 1, for p columns: the degrees of freedom, unless there are more rows than that."""


def log_radial_density(value: TensorVariable) -> TensorVariable:
    r"""Log-density that makes the length of a vector a proper variable.

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
    dof = pt.maximum(dim, 2 * LEAST_DEGREES_OF_FREEDOM)
    constant = np.log(2.0) + dof / 2 * pt.log(dof / 2) - pt.gammaln(dof / 2)
    density = constant + (dof - dim) / 2 * log_squared - dof / 2 * squared
    return pt.where(positive, density, -np.inf)


def log_gram_density(value: TensorVariable) -> TensorVariable:
    r"""Log-density that makes the Gram matrix of a matrix a proper variable.

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
    >>> y = np.array([0.3, -0.9, 0.5])
    >>> vector = log_radial_density(pt.as_tensor(y)).eval()
    >>> matrix = log_gram_density(pt.as_tensor(y[:, None])).eval()
    >>> bool(np.isclose(vector, matrix, rtol=1e-12))
    True
    """
    _, log_volume = gram_schmidt(value)
    rows = pt.cast(value.shape[-2], value.dtype)
    columns = pt.cast(value.shape[-1], value.dtype)
    dof = pt.maximum(rows, LEAST_DEGREES_OF_FREEDOM * (columns + 1))
    constant = (
        columns * (columns + 3) / 4 * np.log(2.0)
        + dof * columns / 2 * pt.log(dof / 2)
        - multigammaln(dof / 2, columns)
    )
    trace = pt.sum(pt.sqr(value), axis=(-2, -1))
    density = constant + (dof - rows) * log_volume - dof / 2 * trace
    return pt.where(pt.isnan(log_volume), -np.inf, density)
