r"""Projected normal distribution on the sphere.

Its density contains the integral

.. math:: M_n(\alpha) = \int_0^\infty s^n\, e^{-(s - \alpha)^2 / 2}\, ds .

For n = 1 and 2, where :math:`\alpha` is not far below zero, it is computed by the recurrence
:math:`M_n = \alpha M_{n-1} + (n - 1) M_{n-2}` from :math:`M_0` and :math:`M_1`. Opposite to the
mean direction, where :math:`\alpha` is negative, the recurrence has a relative error of the order
:math:`\alpha^{2n}` times rounding; there, and for larger n, quadratures with positive terms are
used.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.pytensorf import floatX
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Apply
from pytensor.scalar import upcast
from pytensor.tensor.variable import TensorVariable
from scipy.special import roots_genlaguerre

from pymc_geodesic.distributions.unit_sphere import Directional, broadcast_to_size
from pymc_geodesic.distributions.validation import length_of_last_axis, minus_infinity_off_sphere
from pymc_geodesic.ops.inner_products import matrix_product
from pymc_geodesic.ops.numba_backend import LoopRandomVariable

LAGUERRE_BOUND = -5.0
"""Value of α below which Gauss–Laguerre quadrature of s = t / |α| is exact to rounding."""

N_NODES = 16
_STRETCH, _SPACING = 0.2, 0.3
_GRID = _SPACING * np.arange(-42, 25)

NODES = np.sinh(_STRETCH * _GRID) / _STRETCH
"""Nodes of the integrand in log s: standard deviations from its mode."""

LOG_WEIGHTS = np.log(_SPACING * np.cosh(_STRETCH * _GRID))


def log_half_line_moment(n: int | TensorVariable, alpha: TensorVariable) -> TensorVariable:
    r"""Return :math:`\log M_n(\alpha) + \min(\alpha, 0)^2 / 2`, differentiable in alpha.

    Parameters
    ----------
    n : int or TensorVariable of int
        At least 1; closed forms are used if it is an int, 1 or 2.
    alpha : TensorVariable, shape (...)

    Returns
    -------
    TensorVariable, shape (...)
        Error below 1e-12, relative for values above one in absolute value.

    References
    ----------
    Hernandez-Stumpfhauser, Breidt and van der Woerd (2017), The general projected normal
    distribution of arbitrary dimension, section 3.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.distributions.projected_normal import log_half_line_moment
    >>> moment = log_half_line_moment(2, pt.as_tensor(0.0))  # sqrt(pi / 2)
    >>> float(moment.exp().eval(mode="FAST_COMPILE"))
    1.253314...
    """
    if n in (1, 2):
        return _closed_form(int(n), alpha)
    return _by_quadrature(pt.as_tensor(n).astype("float64") + 1.0, alpha)


def _closed_form(n: int, alpha: TensorVariable) -> TensorVariable:
    """Return the moment by the recurrence, or by quadrature with weight tⁿe⁻ᵗ for α ≪ 0."""
    # Switches, since a rewrite of PyTensor fails on the second derivatives of pt.maximum.
    near = pt.switch(alpha > LAGUERRE_BOUND, alpha, LAGUERRE_BOUND)
    far = pt.switch(alpha > LAGUERRE_BOUND, -LAGUERRE_BOUND, -alpha)
    ahead, behind = pt.switch(near > 0.0, near, 0.0), pt.switch(near > 0.0, 0.0, -near)
    peak = pt.exp(-0.5 * ahead**2)
    zeroth = np.sqrt(np.pi / 2.0) * pt.switch(
        near > 0.0, pt.erfc(-ahead / np.sqrt(2.0)), pt.erfcx(behind / np.sqrt(2.0))
    )
    moment = peak + near * zeroth
    if n == 2:
        moment = near * moment + zeroth
    nodes, weights = roots_genlaguerre(N_NODES, n)
    inverse_square = (far**-2.0)[..., None]
    tail = pt.sum(weights * pt.exp(-0.5 * nodes**2 * inverse_square), axis=-1)
    return pt.switch(
        alpha > LAGUERRE_BOUND,
        pt.log(moment),
        pt.log(tail) - (n + 1.0) * pt.log(far),
    )


def _by_quadrature(order: TensorVariable, alpha: TensorVariable) -> TensorVariable:
    r"""Return the moment by the trapezoidal rule in log s around the mode of the integrand.

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


def _batch(size: tuple[int, ...] | None, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    return np.broadcast_shapes(*shapes) if size is None else size


class ProjectedNormalRV(LoopRandomVariable):
    """Random variable Op of `ProjectedNormal` with the identity as covariance."""

    name = "ProjectedNormal"
    signature = "(d)->(d)"
    dtype = "floatX"
    _print_name = ("ProjectedNormal", "\\operatorname{ProjectedNormal}")

    @classmethod
    def rng_fn(
        cls, rng: np.random.Generator, mu: NDArray[np.floating], size: tuple[int, ...] | None
    ) -> NDArray[np.float64]:
        """Draw normal vectors and divide them by their lengths."""
        y = mu + rng.standard_normal((*_batch(size, mu.shape[:-1]), mu.shape[-1]))
        return y / np.linalg.norm(y, axis=-1, keepdims=True)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype

        @njit
        def draw(rng, mu, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            if out is None:
                out = np.empty(mu.shape[0], dtype=dtype)
            squared = 0.0
            for i in range(mu.shape[0]):
                y = mu[i] + rng.standard_normal()
                out[i] = y
                squared += y * y
            out /= np.sqrt(squared)
            return out

        draw.handles_out = True
        return draw


class GeneralProjectedNormalRV(LoopRandomVariable):
    """Random variable Op of `ProjectedNormal` with a covariance."""

    name = "ProjectedNormal"
    signature = "(d),(d,d)->(d)"
    dtype = "floatX"
    _print_name = ("ProjectedNormal", "\\operatorname{ProjectedNormal}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        cov: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw normal vectors and divide them by their lengths."""
        factor = np.linalg.cholesky(cov)
        shape = (*_batch(size, mu.shape[:-1], cov.shape[:-2]), mu.shape[-1])
        y = mu + np.einsum("...ij,...j->...i", factor, rng.standard_normal(shape))
        return y / np.linalg.norm(y, axis=-1, keepdims=True)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype

        @njit
        def draw(rng, mu, cov, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            d = mu.shape[0]
            if out is None:
                out = np.empty(d, dtype=dtype)
            factor = np.linalg.cholesky(cov.astype(np.float64))
            normal = np.empty(d)
            squared = 0.0
            for i in range(d):
                normal[i] = rng.standard_normal()
                y = np.float64(mu[i])
                for j in range(i + 1):
                    y += factor[i, j] * normal[j]
                out[i] = y
                squared += y * y
            out /= np.sqrt(squared)
            return out

        draw.handles_out = True
        return draw


projected_normal = ProjectedNormalRV()
general_projected_normal = GeneralProjectedNormalRV()


def _log_density(whitened: TensorVariable, mean: TensorVariable, d: Any) -> TensorVariable:
    r"""Return :math:`\log \int r^{d-1} N(r y; m, I)\, dr` for whitened vectors y, m."""
    squared = pt.sum(whitened**2, axis=-1)
    direction = whitened / pt.sqrt(squared)[..., None]
    alpha = pt.sum(direction * mean, axis=-1)
    # The part of the mean orthogonal to the direction; all of it where alpha < 0.
    forward = pt.switch(alpha > 0.0, alpha, 0.0)
    rest = mean - forward[..., None] * direction
    return (
        log_half_line_moment(d - 1, alpha)
        - 0.5 * pt.sum(rest**2, axis=-1)
        - 0.5 * d * (np.log(2.0 * np.pi) + pt.log(squared))
    ).astype(upcast(whitened.dtype, mean.dtype))


class ProjectedNormal(Directional):
    r"""Projected normal distribution of directions on the sphere :math:`S^{d-1}`.

    It is the distribution of x = y / ‖y‖ with y ~ N(μ, Σ).

    The density with respect to surface measure is, with
    :math:`A = x^\top \Sigma^{-1} x`, :math:`\alpha = x^\top \Sigma^{-1} \mu / \sqrt{A}` and
    :math:`M_n(\alpha) = \int_0^\infty s^n e^{-(s - \alpha)^2/2} ds`,

    .. math::

        p(x \mid \mu, \Sigma) = (2\pi A)^{-d/2}\, |\Sigma|^{-1/2}\,
            e^{-(\mu^\top \Sigma^{-1} \mu - \alpha^2) / 2}\, M_{d-1}(\alpha) .

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      for Σ = I along μ, of length
              :math:`\Gamma(\tfrac{d+1}{2}) \|\mu\|\,
              {}_1F_1(\tfrac12; \tfrac d2 + 1; -\tfrac12 \|\mu\|^2)
              / \{\sqrt2\, \Gamma(\tfrac d2 + 1)\}`
    ========  ==================================================================

    With Σ = I it is rotationally symmetric around μ, uniform for μ = 0, and its concentration grows
    with the length of μ; with another Σ it may be skew or bimodal. In a regression, μ = Bᵀz may be
    any linear function of covariates, since it has no bounds. Log-density and gradients are exact
    to 1e-11 for every d, also opposite to μ, where the usual recurrence is inaccurate; draws are
    exact. Free variables carry the unit-vector transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        Mean of the normal vector, of any length, d at least 2.
    cov : tensor_like of float, shape (..., d, d), optional
        Covariance of the normal vector; the identity by default.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``cov`` that is not symmetric and positive definite,
        or a ``mu`` that is not finite.
    ValueError
        If observed data are known and not unit vectors, or shapes contradict each other.

    Notes
    -----
    (cμ, c²Σ) defines the same distribution for every c > 0: fix the scale of an unknown Σ, for
    example by setting one variance to one.

    References
    ----------
    Hernandez-Stumpfhauser, Breidt and van der Woerd (2017), The general projected normal
    distribution of arbitrary dimension: modeling and Bayesian inference, equation 3 and section 3;
    Presnell, Morrison and Littell (1998), Projected multivariate linear models for directional
    data, for the regression.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import ProjectedNormal
    >>> x = ProjectedNormal.dist(mu=np.zeros(3))  # uniform
    >>> density = pm.logp(x, np.array([0.0, 0.6, 0.8])).exp()
    >>> float(density.eval(mode="FAST_COMPILE") * 4 * np.pi)
    1.000...
    """

    rv_op = projected_normal

    @classmethod
    def dist(cls, mu: Any, cov: Any = None, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        mu = pt.as_tensor_variable(floatX(mu))
        if mu.type.ndim == 0 or mu.type.shape[-1] == 1:
            raise ValueError(
                "mu of ProjectedNormal must be a vector of at least 2 coordinates (last axis), "
                f"but has the static shape {mu.type.shape}"
            )
        cls.require_last_axis(kwargs.get("shape"), mu.type.shape[-1], "mu")
        if cov is None:
            return super().dist([mu], **kwargs)
        return GeneralProjectedNormal.dist(mu, cov, **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, mu: TensorVariable
    ) -> TensorVariable:
        """Return the direction of the mean."""
        return _direction_of_mean(size, mu)

    def logp(value: TensorVariable, mu: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        density = _log_density(value, mu, length_of_last_axis(mu, value))
        return check_parameters(
            minus_infinity_off_sphere(value, density),
            pt.isfinite(mu).all(axis=-1),
            msg="mu of ProjectedNormal is finite",
        )


class GeneralProjectedNormal(Directional):
    """`ProjectedNormal` with a covariance."""

    rv_op = general_projected_normal

    @classmethod
    def dist(cls, mu: Any, cov: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; see `ProjectedNormal`."""
        cov = pt.as_tensor_variable(floatX(cov))
        lengths = {length for length in cov.type.shape[-2:] if length is not None}
        if cov.type.ndim < 2 or len(lengths | ({mu.type.shape[-1]} - {None})) > 1:
            raise ValueError(
                "cov of ProjectedNormal must be a matrix with as many rows and columns as mu has "
                f"coordinates; cov has the shape {cov.type.shape}, mu {mu.type.shape}"
            )
        return super().dist([mu, cov], **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, mu: TensorVariable, cov: TensorVariable
    ) -> TensorVariable:
        """Return the direction of the mean."""
        return _direction_of_mean(size, pt.broadcast_arrays(mu, cov[..., 0])[0])

    def logp(value: TensorVariable, mu: TensorVariable, cov: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        d = length_of_last_axis(mu, value, cov)
        factor = pt.linalg.cholesky(cov, lower=True, on_error="nan")
        scales = pt.diagonal(factor, axis1=-2, axis2=-1)
        definite = pt.all(scales > 0.0, axis=-1)
        factor = pt.switch(definite[..., None, None], factor, pt.eye(cov.shape[-1]))
        whitening = pt.linalg.solve_triangular(factor, pt.eye(cov.shape[-1]), lower=True)
        whitening = pt.moveaxis(whitening, -1, -2)
        density = _log_density(
            matrix_product(value, whitening), matrix_product(mu, whitening), d
        ) - pt.sum(pt.log(pt.abs(scales)), axis=-1)
        return check_parameters(
            minus_infinity_off_sphere(value, density),
            pt.isfinite(mu).all(axis=-1),
            definite,
            pt.isclose(cov, pt.moveaxis(cov, -1, -2)).all(axis=(-2, -1)),
            msg="mu of ProjectedNormal is finite, cov symmetric and positive definite",
        )


def _direction_of_mean(size: TensorVariable, mu: TensorVariable) -> TensorVariable:
    """Return μ / ‖μ‖, or the last axis if μ is zero."""
    squared = pt.sum(mu**2, axis=-1, keepdims=True)
    pole = pt.eye(mu.shape[-1])[-1]
    point = pt.switch(squared > 0.0, mu / pt.sqrt(pt.switch(squared > 0.0, squared, 1.0)), pole)
    return broadcast_to_size(point, size)
