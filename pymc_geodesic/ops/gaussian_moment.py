r"""Moments of a normal density over the positive half-line, in logarithms.

The density of a projected normal vector holds

.. math:: M_n(\alpha) = \int_0^\infty s^n\, e^{-(s - \alpha)^2 / 2}\, ds .

The recurrence :math:`M_n = \alpha M_{n-1} + (n - 1) M_{n-2}` from :math:`M_0` and :math:`M_1`
serves for n = 1 and 2. It loses :math:`\alpha^{2n}` of accuracy where :math:`\alpha` is negative,
opposite to the mean direction; there, and for larger n, quadratures stand in, whose terms are all
positive.
"""

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable
from scipy.special import roots_genlaguerre

FAR_BEHIND = -5.0
"""Where Gauss–Laguerre quadrature of s = t / |α| is exact to rounding."""

N_NODES = 16

_STRETCH, _SPACING = 0.2, 0.3
_GRID = _SPACING * np.arange(-42, 25)
NODES = np.sinh(_STRETCH * _GRID) / _STRETCH
"""Where the integrand is taken, in its standard deviations from its mode on the scale of log s."""
LOG_WEIGHTS = np.log(_SPACING * np.cosh(_STRETCH * _GRID))


def log_half_line_moment(n: int | TensorVariable, alpha: TensorVariable) -> TensorVariable:
    r"""Return :math:`\log M_n(\alpha) + \min(\alpha, 0)^2 / 2`, differentiable in alpha.

    Parameters
    ----------
    n : int or TensorVariable of int
        At least 1; a number known while the graph is built, if it is 1 or 2, has closed forms.
    alpha : TensorVariable, shape (...)

    Returns
    -------
    TensorVariable, shape (...)
        Error of the value below 1e-12, relative where it is beyond one.

    References
    ----------
    Hernandez-Stumpfhauser, Breidt and van der Woerd (2017), The general projected normal
    distribution of arbitrary dimension, section 3.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.gaussian_moment import log_half_line_moment
    >>> moment = log_half_line_moment(2, pt.as_tensor(0.0))  # sqrt(pi / 2)
    >>> float(moment.exp().eval(mode="FAST_COMPILE"))
    1.253314...
    """
    if n in (1, 2):
        return _closed_form(int(n), alpha)
    return _by_quadrature(pt.as_tensor(n).astype("float64") + 1.0, alpha)


def _closed_form(n: int, alpha: TensorVariable) -> TensorVariable:
    """Recurrence, and far on the negative side a quadrature for the weight tⁿe⁻ᵗ."""
    # Switches, as the second derivatives of pt.maximum stumble over a rewrite of PyTensor.
    near = pt.switch(alpha > FAR_BEHIND, alpha, FAR_BEHIND)
    far = pt.switch(alpha > FAR_BEHIND, -FAR_BEHIND, -alpha)
    ahead, behind = pt.switch(near > 0.0, near, 0.0), pt.switch(near > 0.0, 0.0, -near)
    peak = pt.exp(-0.5 * ahead**2)
    zeroth = np.sqrt(np.pi / 2.0) * pt.switch(
        near > 0.0, pt.erfc(-ahead / np.sqrt(2.0)), pt.erfcx(behind / np.sqrt(2.0))
    )
    moment = peak + near * zeroth
    if n == 2:
        moment = near * moment + zeroth
    nodes, weights = roots_genlaguerre(N_NODES, n)
    spread = (far**-2.0)[..., None]
    tail = pt.sum(weights * pt.exp(-0.5 * nodes**2 * spread), axis=-1)
    return pt.switch(
        alpha > FAR_BEHIND,
        pt.log(moment),
        pt.log(tail) - (n + 1.0) * pt.log(far),
    )


def _by_quadrature(order: TensorVariable, alpha: TensorVariable) -> TensorVariable:
    r"""Trapezoidal rule in log s around the mode of the integrand.

    With :math:`s = s_* e^\tau` the integrand is a constant times
    :math:`\exp\{-(n + 1)(e^\tau - 1 - \tau) - s_*^2 (e^\tau - 1)^2 / 2\}`.
    """
    alpha = alpha.astype("float64")
    root = pt.sqrt(alpha**2 + 4.0 * order)
    mode = 2.0 * order / (root - alpha)
    mode = pt.switch(alpha > 0.0, 0.5 * (alpha + root), mode)
    scale = disconnected_grad(pt.sqrt(1.0 / (order + mode**2)))
    tau = scale[..., None] * NODES
    growth = pt.expm1(tau)
    exponent = LOG_WEIGHTS - pt.shape_padright(order) * (growth - tau)
    exponent = exponent - 0.5 * mode[..., None] ** 2 * growth**2
    around = pt.log(scale * pt.sum(pt.exp(exponent), axis=-1))
    # s α − s²/2 − max(α, 0)²/2 at the mode, where s − α = (n + 1) / s.
    height = pt.switch(alpha > 0.0, -0.5 * (order / mode) ** 2, mode * alpha - 0.5 * mode**2)
    return order * pt.log(mode) + height + around
