r"""The constant of the bivariate von Mises distribution with sines.

.. math::

    Z = 4\pi^2 \sum_{m \ge 0} \binom{2m}{m} \Bigl(\frac{\lambda}{2}\Bigr)^{2m}
        \frac{I_m(\kappa_1)}{\kappa_1^m} \frac{I_m(\kappa_2)}{\kappa_2^m}

Every term is positive, and :math:`I_m(\kappa) / \kappa^m` is the inverse of a von Mises–Fisher
constant, which knows zero and its derivatives.
"""

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer

SMALL = 1e-7
"""Below this λ two terms are exact to rounding, and have derivatives at zero."""

DROP = 40.0
"""Terms are summed until they are e^−40 of the largest."""

MOST = 1e7
"""Terms beyond which none are summed, and the constant is NaN."""


def _number_of_terms(kappa: TensorVariable, lam: TensorVariable) -> TensorVariable:
    r"""Return a number of terms that is large enough, for all rows.

    By Amos's bound terms fall at least as those with both concentrations the smaller one, κ; the
    largest of these is near :math:`m_* = (\lambda^2 - \kappa^2) / (2 |\lambda|)`, and with
    :math:`R^2 = m_*^2 + \kappa^2` the logarithm has fallen by :math:`\Delta^2 / (R + \Delta)` at
    :math:`m_* + \Delta`.
    """
    least, size = pt.min(kappa, axis=-1), pt.switch(pt.abs(lam) > 1e-6, pt.abs(lam), 1e-6)
    peak = pt.switch(size > least, (size**2 - least**2) / (2.0 * size), 0.0)
    radius = pt.sqrt(peak**2 + least**2)
    beyond = DROP / 2.0 + pt.sqrt(DROP**2 / 4.0 + DROP * radius)
    n_terms = pt.ceil(pt.max(peak + beyond)) + 2.0
    return pt.switch((n_terms >= 2.0) & (n_terms < MOST), n_terms, 2.0).astype("int64")


def log_sine_normalizer(kappa: TensorVariable, lam: TensorVariable) -> TensorVariable:
    r"""Return log Z, differentiable in both arguments.

    Parameters
    ----------
    kappa : TensorVariable, shape (..., 2)
        Concentrations, at least 0.
    lam : TensorVariable, shape (...)
        Interaction.

    Returns
    -------
    TensorVariable of float64, shape (...)
        NaN where λ is so large that ten million terms are not enough.

    References
    ----------
    Singh, Hnizdo and Demchuk (2002), Probabilistic model for two dependent circular variables,
    equation 3; Amos (1974), Computation of modified Bessel functions and their ratios.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.torus_constant import log_sine_normalizer
    >>> log_z = log_sine_normalizer(pt.as_tensor([0.0, 0.0]), pt.as_tensor(0.0))
    >>> float(log_z.exp().eval(mode="FAST_COMPILE") / (4 * np.pi**2))
    1.000...
    """
    kappa, lam = kappa.astype("float64"), lam.astype("float64")
    n_terms = disconnected_grad(_number_of_terms(kappa, lam))
    m = pt.arange(n_terms).astype("float64")
    constants = log_vmf_normalizer(2.0 * m + 2.0, kappa[..., None]).sum(axis=-2)
    log_binomial = pt.gammaln(2.0 * m + 1.0) - 2.0 * pt.gammaln(m + 1.0)
    fixed = log_binomial - constants - 2.0 * (m + 1.0) * np.log(2.0 * np.pi)
    is_small = pt.abs(lam) < SMALL
    size = pt.switch(is_small, 1.0, pt.abs(lam))
    terms = fixed + 2.0 * m * pt.log(0.5 * size)[..., None]
    quarter = 0.25 * pt.switch(is_small, lam, 0.0) ** 2
    two_terms = fixed[..., 0] + pt.log1p(quarter * pt.exp(fixed[..., 1] - fixed[..., 0]))
    summed = pt.switch(n_terms > 2, pt.logsumexp(terms, axis=-1), np.nan)
    return 2.0 * np.log(2.0 * np.pi) + pt.switch(is_small, two_terms, summed)
