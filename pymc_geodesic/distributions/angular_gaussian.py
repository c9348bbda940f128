"""Angular Gaussian distributions on the sphere: angular central Gaussian and ESAG."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.fisher_bingham_draws import SYMMETRY_TOLERANCE
from pymc_geodesic.distributions.projected_normal import log_half_line_moment
from pymc_geodesic.distributions.unit_sphere import Directional, broadcast_to_size, leading_axis
from pymc_geodesic.distributions.validation import (
    is_symmetric,
    length_of_last_axis,
    minus_infinity_off_sphere,
    require_square,
)
from pymc_geodesic.distributions.von_mises_fisher_draws import Array
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.inner_products import quadratic_form
from pymc_geodesic.ops.numba_backend import LoopRandomVariable, draw_batch
from pymc_geodesic.runtime.jit import compiled


@compiled
def fill_angular_central_gaussian(rng: np.random.Generator, cov: Array, out: Array) -> None:
    """Fill the rows of ``out``, shape (n, d), with normal vectors divided by their lengths."""
    d = cov.shape[0]
    lower = np.zeros((d, d))
    for i in range(d):
        for j in range(i + 1):
            if not abs(cov[i, j] - cov[j, i]) <= SYMMETRY_TOLERANCE * np.max(np.abs(cov)):
                raise ValueError("cov must be symmetric")
            rest = cov[i, j]
            for k in range(j):
                rest -= lower[i, k] * lower[j, k]
            if i == j:
                if not (rest > 0.0 and rest < np.inf):
                    raise ValueError("cov must be positive definite")
                lower[i, i] = np.sqrt(rest)
            else:
                lower[i, j] = rest / lower[j, j]
    normal = np.empty(d)
    for row in range(out.shape[0]):
        squared = 0.0
        for i in range(d):
            normal[i] = rng.standard_normal()
            value = 0.0
            for j in range(i + 1):
                value += lower[i, j] * normal[j]
            out[row, i] = value
            squared += value * value
        for i in range(d):
            out[row, i] /= np.sqrt(squared)


class AngularCentralGaussianRV(LoopRandomVariable):
    """Random variable Op of `AngularCentralGaussian`."""

    name = "AngularCentralGaussian"
    signature = "(d,d)->(d)"
    dtype = "floatX"
    _print_name = ("AngularCentralGaussian", "\\operatorname{AngularCentralGaussian}")

    @classmethod
    def rng_fn(
        cls, rng: np.random.Generator, cov: NDArray[np.floating], size: tuple[int, ...] | None
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `fill_angular_central_gaussian`."""
        matrices = np.asarray(cov, dtype=np.float64)
        leading = cov.shape[:-2]
        size = leading if size is None else size
        fill = fill_angular_central_gaussian
        return draw_batch(fill, rng, (matrices,), (leading,), size, cov.shape[-1:])

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype

        @njit
        def draw(rng, cov):  # type: ignore[no-untyped-def]  # typed by Numba
            out = np.empty((1, cov.shape[0]))
            matrix = np.ascontiguousarray(cov).astype(np.float64)
            fill_angular_central_gaussian(rng, matrix, out)
            return out[0].astype(dtype)

        return draw


angular_central_gaussian = AngularCentralGaussianRV()


class AngularCentralGaussian(Directional):
    r"""Angular central Gaussian distribution of axes on the sphere :math:`S^{d-1}`.

    It is the distribution of :math:`x = z / \|z\|` with :math:`z \sim N(0, \Sigma)`.

    The density with respect to surface measure is

    .. math::

        p(x \mid \Sigma) = \frac{\Gamma(d/2)}{2 \pi^{d/2}}\, |\Sigma|^{-1/2}
                           (x^\top \Sigma^{-1} x)^{-d/2} .

    x and −x have the same density. Σ and c Σ define the same distribution, so the scale is
    identified only by a prior. The tails are heavier than those of `Bingham`, and the constant is
    in closed form.

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      0
    Mode      ± the eigenvector of the largest eigenvalue of Σ
    ========  ==================================================================

    Free variables carry the unit-vector transform.

    Parameters
    ----------
    cov : tensor_like of float, shape (..., d, d)
        Σ, symmetric and positive definite, d at least 2.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``cov`` that is not symmetric and positive definite.
    ValueError
        If observed data are known and not unit vectors, or ``cov`` is not square.

    References
    ----------
    Tyler (1987), Statistical analysis for the angular central Gaussian distribution on the sphere,
    Biometrika 74, equation 1.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions import AngularCentralGaussian
    >>> x = AngularCentralGaussian.dist(np.eye(3))
    >>> density = pm.logp(x, np.array([0.0, 0.6, 0.8])).exp()
    >>> float(density.eval(mode="FAST_COMPILE") * 4 * np.pi)
    1.000...
    """

    rv_op = angular_central_gaussian

    @classmethod
    def dist(cls, cov: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        cov = pt.as_tensor_variable(floatX(cov))
        require_square(cov, "cov", "AngularCentralGaussian")
        cls.require_last_axis(kwargs.get("shape"), cov.type.shape[-1], "cov")
        return super().dist([cov], **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, cov: TensorVariable
    ) -> TensorVariable:
        """Return a mode."""
        return broadcast_to_size(leading_axis(cov), size)

    def logp(value: TensorVariable, cov: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        d = length_of_last_axis(cov, value)
        # The derivatives of the inverse and of the determinant are smaller graphs than that of the
        # Cholesky factor, which is used here only to check that cov is positive definite.
        factor = pt.linalg.cholesky(cov)
        log_determinant = pt.linalg.slogdet(cov)[1]
        log_form = pt.log(quadratic_form(value, pt.linalg.inv(cov)))
        area = log_vmf_normalizer(d, 0.0).astype(value.dtype)
        density = area - 0.5 * log_determinant - 0.5 * d * log_form
        return check_parameters(
            minus_infinity_off_sphere(value, density),
            is_symmetric(cov),
            pt.all(pt.diagonal(factor, axis1=-2, axis2=-1) > 0, axis=-1),
            msg="cov is symmetric and positive definite",
        )


@compiled
def fill_esag(rng: np.random.Generator, mu: Array, gamma: Array, out: Array) -> None:
    """Fill the rows of ``out``, shape (n, 3), with normal vectors divided by their lengths."""
    if not (np.all(np.isfinite(mu)) and np.all(np.isfinite(gamma))):
        raise ValueError("mu and gamma must be finite")
    length, radius = math.sqrt(np.sum(mu * mu)), math.hypot(mu[1], mu[2])
    height, across = (mu[0] / length, radius / length) if length > 0.0 else (1.0, 0.0)
    cosine, sine = (mu[1] / radius, mu[2] / radius) if radius > 0.0 else (1.0, 0.0)
    eccentricity = math.hypot(gamma[0], gamma[1])
    wide = math.sqrt(math.hypot(1.0, eccentricity) + eccentricity)
    angle = 0.5 * math.atan2(gamma[1], gamma[0])
    turned, turned_across = math.cos(angle), math.sin(angle)
    for row in range(out.shape[0]):
        along = rng.standard_normal()
        narrow, broad = rng.standard_normal() / wide, rng.standard_normal() * wide
        first = turned * narrow - turned_across * broad
        second = turned_across * narrow + turned * broad
        x = mu[0] + along * height - first * across
        y = mu[1] + (along * across + first * height) * cosine - second * sine
        z = mu[2] + (along * across + first * height) * sine + second * cosine
        scale = 1.0 / math.sqrt(x * x + y * y + z * z)
        out[row, 0], out[row, 1], out[row, 2] = x * scale, y * scale, z * scale


class ESAGRV(LoopRandomVariable):
    """Random variable Op of `ESAG`."""

    name = "ESAG"
    signature = "(d),(g)->(d)"
    dtype = "floatX"
    _print_name = ("ESAG", "\\operatorname{ESAG}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        gamma: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `fill_esag`."""
        parameters = np.asarray(mu, dtype=float), np.asarray(gamma, dtype=float)
        leading = mu.shape[:-1], gamma.shape[:-1]
        size = np.broadcast_shapes(*leading) if size is None else size
        return draw_batch(fill_esag, rng, parameters, leading, size, (3,))

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype

        @njit
        def draw(rng, mu, gamma):  # type: ignore[no-untyped-def]  # typed by Numba
            out = np.empty((1, 3))
            mean = np.ascontiguousarray(mu).astype(np.float64)
            fill_esag(rng, mean, np.ascontiguousarray(gamma).astype(np.float64), out)
            return out[0].astype(dtype)

        return draw


esag = ESAGRV()


def _sqrt_or(number: TensorVariable, otherwise: float) -> TensorVariable:
    """Return the square root of a positive number, else another value, with finite derivatives."""
    positive = number > 0.0
    return pt.switch(positive, pt.sqrt(pt.switch(positive, number, 1.0)), otherwise)


def frame_of_mean(mu: TensorVariable) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
    """Return μ / ‖μ‖ and the axes ξ₁, ξ₂ orthogonal to it, each of shape (..., 3)."""
    squared = pt.sum(mu**2, axis=-1)
    direction = mu / _sqrt_or(squared, 1.0)[..., None]
    height = pt.switch(squared > 0.0, direction[..., 0], 1.0)
    crosswise = direction[..., 1] ** 2 + direction[..., 2] ** 2
    across = _sqrt_or(crosswise, 0.0)
    divisor = _sqrt_or(crosswise, 1.0)
    cosine = pt.switch(crosswise > 0.0, direction[..., 1] / divisor, 1.0)
    sine = direction[..., 2] / divisor
    return (
        pt.stack([height, across * cosine, across * sine], axis=-1),
        pt.stack([-across, height * cosine, height * sine], axis=-1),
        pt.stack([pt.zeros_like(sine), -sine, cosine], axis=-1),
    )


def elliptic_form(
    first: TensorVariable, second: TensorVariable, gamma: TensorVariable
) -> TensorVariable:
    r"""Return (u, v) W (u, v)ᵀ, W the matrix of determinant one in the tangent plane.

    With b = (u² − v², 2uv) it is :math:`\sqrt{1 + \|\gamma\|^2}\, \|b\| + \gamma \cdot b`, computed
    without cancellation where the second term is negative.
    """
    square = first**2 + second**2
    double = (first**2 - second**2, 2.0 * first * second)
    along = gamma[..., 0] * double[0] + gamma[..., 1] * double[1]
    across = gamma[..., 0] * double[1] - gamma[..., 1] * double[0]
    total = pt.sqrt(1.0 + pt.sum(gamma**2, axis=-1)) * square
    cancels = along < 0.0
    divisor = pt.switch(cancels, total - along, 1.0)
    return pt.switch(cancels, (square**2 + across**2) / divisor, total + along)


class ESAG(Directional):
    r"""Elliptically symmetric angular Gaussian distribution on the sphere :math:`S^2`.

    It is the distribution of x = y / ‖y‖ with y ~ N(μ, V), where V has determinant one and V μ = μ.
    With :math:`A = x^\top V^{-1} x`, :math:`\alpha = x \cdot \mu / \sqrt A` and
    :math:`M_2(\alpha) = \int_0^\infty s^2 e^{-(s - \alpha)^2 / 2} ds` its density with respect to
    surface measure on :math:`S^2` is

    .. math::

        p(x \mid \mu, \gamma) = (2\pi A)^{-3/2}\,
            e^{(\alpha^2 - \|\mu\|^2) / 2}\, M_2(\alpha) ,

    .. math::

        V^{-1} = I + \gamma_1 (\xi_1 \xi_1^\top - \xi_2 \xi_2^\top)
            + \gamma_2 (\xi_1 \xi_2^\top + \xi_2 \xi_1^\top)
            + (\sqrt{1 + \|\gamma\|^2} - 1)(\xi_1 \xi_1^\top + \xi_2 \xi_2^\top)

    with :math:`\xi_1 = (-\mu_0^2, \mu_1\mu_2, \mu_1\mu_3) / (\mu_0 \|\mu\|)`,
    :math:`\xi_2 = (0, -\mu_3, \mu_2) / \mu_0` and :math:`\mu_0^2 = \mu_2^2 + \mu_3^2`.

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^3`, :math:`\|x\| = 1`
    Mean      along μ
    ========  ==================================================================

    Its contours are elliptic like those of `Kent`, and its five parameters have no bounds: in a
    regression, μ = Bᵀz and γ = Cᵀz may be any linear functions of covariates. The concentration
    grows with the length of μ. For γ = 0 it is a `ProjectedNormal`, and with
    :math:`g = \|\gamma\|` the ratio of the semi-axes of the contours is
    :math:`\sqrt{1 + g^2} + g`. The constant is in closed form; draws are exact.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., 3)
        Mean of the normal vector, of any length.
    gamma : tensor_like of float, shape (..., 2)
        Eccentricity and orientation of the contours: the major axis has half the angle of −γ, from
        ξ₁ towards ξ₂.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` or ``gamma`` that is not finite.
    ValueError
        If observed data are known and not unit vectors, or shapes do not match.

    Notes
    -----
    ξ₁ and ξ₂ point south and east on a globe whose pole is the first axis, so that the orientation
    that γ defines is discontinuous at the pole. There, and at μ = 0, ξ₁ and ξ₂ are the limits along
    the second and the first axis. Permute the coordinates if mean directions are near the pole. In
    other dimensions use `ProjectedNormal`, which takes V itself.

    References
    ----------
    Paine, Preston, Tsagris and Wood (2018), An elliptically symmetric angular Gaussian
    distribution, Statistics and Computing 28, 689–697, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import ESAG
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", [0.0, 0.0, 5.0], 10.0, shape=3)
    ...     gamma = pm.Normal("gamma", shape=2)
    ...     x = ESAG("x", mu, gamma)
    >>> model.initial_point()["x_unitvector__"]
    array([0., 0., 1.])
    """

    rv_op = esag

    @classmethod
    def dist(cls, mu: Any, gamma: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        mu = pt.as_tensor_variable(floatX(mu))
        gamma = pt.as_tensor_variable(floatX(gamma))
        for name, parameter, length in (("mu", mu, 3), ("gamma", gamma, 2)):
            if parameter.type.ndim == 0 or parameter.type.shape[-1] not in (None, length):
                raise ValueError(
                    f"{name} of ESAG must have {length} coordinates on its last axis, but has the "
                    f"static shape {parameter.type.shape}; for other spheres see ProjectedNormal"
                )
        cls.require_last_axis(kwargs.get("shape"), 3, "mu")
        return super().dist([mu, gamma], **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, mu: TensorVariable, gamma: TensorVariable
    ) -> TensorVariable:
        """Return the direction of the mean."""
        point = pt.broadcast_arrays(frame_of_mean(mu)[0], gamma[..., :1])[0]
        return broadcast_to_size(point.astype(rv.dtype), size)

    def logp(value: TensorVariable, mu: TensorVariable, gamma: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., 3)."""
        along, first, second = (pt.sum(axis * value, axis=-1) for axis in frame_of_mean(mu))
        across = elliptic_form(first, second, gamma)
        form = along**2 + across
        alpha = pt.sum(mu * value, axis=-1) / pt.sqrt(form)
        # ‖μ‖² − α² = ‖μ‖² · across / form; for α < 0 the moment omits the term α².
        share = pt.switch(alpha > 0.0, across / form, 1.0)
        density = (
            log_half_line_moment(2, alpha)
            - 0.5 * pt.sum(mu**2, axis=-1) * share
            - 1.5 * (np.log(2.0 * np.pi) + pt.log(form))
        ).astype(value.dtype)
        return check_parameters(
            minus_infinity_off_sphere(value, density),
            pt.isfinite(mu).all(axis=-1),
            pt.isfinite(gamma).all(axis=-1),
            msg="mu and gamma of ESAG are finite",
        )
