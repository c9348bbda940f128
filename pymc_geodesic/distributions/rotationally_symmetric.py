"""Rotationally symmetric distributions on the sphere.

von Mises–Fisher, power spherical and spherical Cauchy distributions: densities that depend on the
cosine to a mean direction.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply
from pytensor.scalar import upcast
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.unit_sphere import Directional, broadcast_to_size
from pymc_geodesic.distributions.validation import (
    has_unit_length,
    length_of_last_axis,
    minus_infinity_off_sphere,
)
from pymc_geodesic.distributions.von_mises_fisher_draws import (
    LENGTH_TOLERANCE,
    are_unit_vectors,
    compiled_draws,
    draw_around_mean,
    draw_uniform_directions,
    draw_von_mises_fisher,
)
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.gamma import log_gamma_ratio
from pymc_geodesic.ops.inner_products import inner_product
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


class RotationallySymmetric(Directional):
    """Base class of distributions with a mean direction, or axis, and a concentration."""

    @classmethod
    def dist_around_mean(cls, mu: Any, concentration: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; called by `dist`."""
        mu = pt.as_tensor_variable(floatX(mu))
        concentration = pt.as_tensor_variable(floatX(concentration))
        if mu.type.ndim == 0 or mu.type.shape[-1] == 1:
            raise ValueError(
                f"mu of {cls.__name__} must be a unit vector of at least 2 coordinates (last "
                f"axis), but has the static shape {mu.type.shape}"
            )
        cls.require_last_axis(kwargs.get("shape"), mu.type.shape[-1], "mu")
        return super().dist([mu, concentration], **kwargs)


def mean_direction(
    size: TensorVariable, mu: TensorVariable, concentration: TensorVariable
) -> TensorVariable:
    """Return the mean direction in the shape of the variable."""
    return broadcast_to_size(pt.broadcast_arrays(mu, concentration[..., None])[0], size)


class VonMisesFisherRV(LoopRandomVariable):
    """Random variable Op of `VonMisesFisher`."""

    name = "VonMisesFisher"
    signature = "(d),()->(d)"
    dtype = "floatX"
    _print_name = ("VonMisesFisher", "\\operatorname{VonMisesFisher}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        kappa: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_von_mises_fisher`."""
        return draw_von_mises_fisher(rng, mu, kappa, size)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype
        fill_von_mises_fisher = compiled_draws(njit).fill_von_mises_fisher

        @njit
        def draw(rng, mu, kappa, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            if out is None:
                out = np.empty(mu.shape[0], dtype=dtype)
            fill_von_mises_fisher(rng, mu, kappa, out)
            return out

        draw.handles_out = True
        return draw


von_mises_fisher = VonMisesFisherRV()


def log_density_of_cosine(
    cosine: TensorVariable, kappa: TensorVariable, d: int | TensorVariable
) -> TensorVariable:
    r"""Return :math:`\log c_d(\kappa) + \kappa \cos`, in the precision of the cosine."""
    constant = log_vmf_normalizer(d, kappa).astype(cosine.dtype)
    return constant + kappa * cosine


class VonMisesFisher(RotationallySymmetric):
    r"""von Mises–Fisher distribution of directions on the sphere :math:`S^{d-1}`.

    The density with respect to surface measure is

    .. math::

        p(x \mid \mu, \kappa) = c_d(\kappa)\, e^{\kappa\, \mu \cdot x}, \qquad
        c_d(\kappa) = \frac{\kappa^{d/2-1}}{(2\pi)^{d/2}\, I_{d/2-1}(\kappa)} .

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      :math:`A_d(\kappa)\,\mu`, :math:`A_d = I_{d/2} / I_{d/2-1}`
    Mode      :math:`\mu`
    ========  ==================================================================

    The normalizing constant and its derivative have a relative error of at most 1e-13 for d from 2
    to 1e5 and kappa from 0 to 1e8. The terms of the log-density cancel near μ, with an absolute
    error of order 1e-16 kappa. Random draws are exact. Free variables carry the unit-vector
    transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        Mean direction, a unit vector, d at least 2.
    kappa : tensor_like of float, shape (...)
        Concentration, at least 0; at 0 the distribution is uniform.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not of unit length or a negative
        ``kappa``.
    ValueError
        If observed data are known and not unit vectors, or ``mu`` has fewer than 2
        coordinates.

    Notes
    -----
    The log-density of a value that is not of unit length is minus infinity. Data (arrays,
    `pymc.Data`, `pymc.Minibatch`) are tested once, when the log-density is built. After
    `pymc.set_data` a new log-density or step method tests the new data; functions and step methods
    that were built before do not, and their result for other vectors is undefined.

    References
    ----------
    Mardia and Jupp, *Directional Statistics* (2000), section 9.3.2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import VonMisesFisher
    >>> north = np.array([0.0, 0.0, 1.0])
    >>> with pm.Model() as model:
    ...     mean = VonMisesFisher("mean", mu=north, kappa=1.0)
    ...     x = VonMisesFisher("x", mu=mean, kappa=10.0, observed=np.eye(3))
    >>> model.free_RVs, model.initial_point()
    ([mean], {'mean_unitvector__': array([0., 0., 1.])})
    """

    rv_op = von_mises_fisher

    @classmethod
    def dist(cls, mu: Any, kappa: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        return cls.dist_around_mean(mu, kappa, **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, mu: TensorVariable, kappa: TensorVariable
    ) -> TensorVariable:
        """Return the mean direction, which is on the sphere."""
        return mean_direction(size, mu, kappa)

    def logp(value: TensorVariable, mu: TensorVariable, kappa: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        d = length_of_last_axis(mu, value)
        density = log_density_of_cosine(inner_product(value, mu), kappa, d)
        return check_parameters(
            minus_infinity_off_sphere(value, density),
            has_unit_length(mu),
            kappa >= 0,
            msg="mu of VonMisesFisher is a unit vector, kappa >= 0",
        )


class PowerSphericalRV(LoopRandomVariable):
    """Random variable Op of `PowerSpherical`."""

    name = "PowerSpherical"
    signature = "(d),()->(d)"
    dtype = "floatX"
    _print_name = ("PowerSpherical", "\\operatorname{PowerSpherical}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        kappa: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw (1 − μ·x) / 2 from its beta distribution, and a uniform tangent direction."""
        if not np.all((kappa >= 0) & np.isfinite(kappa)):
            raise ValueError("kappa must be finite and at least 0")
        half = 0.5 * (mu.shape[-1] - 1.0)

        def draw_one_minus_cosine(kappa: NDArray[np.float64], n: int) -> NDArray[np.float64]:
            gamma_b = rng.standard_gamma(half, n)
            return 2.0 * gamma_b / (gamma_b + rng.standard_gamma(half + kappa, n))

        return draw_around_mean(rng, mu, kappa, size, draw_one_minus_cosine)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype
        fill_around_mean = compiled_draws(njit).fill_around_mean

        @njit
        def draw(rng, mu, kappa, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            if out is None:
                out = np.empty(mu.shape[0], dtype=dtype)
            if not (kappa >= 0.0 and kappa < np.inf):
                raise ValueError("kappa must be finite and at least 0")
            half = 0.5 * (mu.shape[0] - 1.0)
            gamma_b = rng.standard_gamma(half)
            one_minus_cosine = 2.0 * gamma_b / (gamma_b + rng.standard_gamma(half + kappa))
            fill_around_mean(rng, mu, one_minus_cosine, out)
            return out

        draw.handles_out = True
        return draw


power_spherical = PowerSphericalRV()


class PowerSpherical(RotationallySymmetric):
    r"""Power spherical distribution of directions on the sphere :math:`S^{d-1}`.

    The density with respect to surface measure is

    .. math::

        p(x \mid \mu, \kappa) = \frac{\Gamma(a + b)}{2^{a + b}\, \pi^b\, \Gamma(a)}
            (1 + \mu \cdot x)^\kappa, \qquad a = b + \kappa, \quad b = \tfrac{d - 1}{2} .

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      :math:`\kappa\, \mu / (\kappa + d - 1)`
    Mode      :math:`\mu`
    Marginal  :math:`(1 + \mu \cdot x) / 2 \sim \operatorname{Beta}(a, b)`
    ========  ==================================================================

    Its constant consists of gamma functions, and draws need no rejection. Near the mean direction
    it approximates a von Mises–Fisher distribution with half the concentration; opposite to it the
    density is zero if kappa > 0. Constant and gradient are computed without cancellation for kappa
    from 0 to 1e8. Free variables carry the unit-vector transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        Mean direction, a unit vector, d at least 2.
    kappa : tensor_like of float, shape (...)
        Concentration, at least 0; at 0 the distribution is uniform.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not of unit length or a negative
        ``kappa``.
    ValueError
        If observed data are known and not unit vectors, or ``mu`` has fewer than 2
        coordinates.

    References
    ----------
    De Cao and Aziz (2020), The power spherical distribution, equations 2 to 6.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import PowerSpherical
    >>> x = PowerSpherical.dist(mu=[0.0, 0.0, 1.0], kappa=2.0)
    >>> density = pm.logp(x, np.array([0.0, 0.0, 1.0])).exp()  # 3 / (4 pi)
    >>> float(density.eval(mode="FAST_COMPILE"))
    0.238732...
    """

    rv_op = power_spherical

    @classmethod
    def dist(cls, mu: Any, kappa: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        return cls.dist_around_mean(mu, kappa, **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, mu: TensorVariable, kappa: TensorVariable
    ) -> TensorVariable:
        """Return the mean direction, which is on the sphere."""
        return mean_direction(size, mu, kappa)

    def logp(value: TensorVariable, mu: TensorVariable, kappa: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        d = length_of_last_axis(mu, value)
        b = 0.5 * (pt.as_tensor(d).astype("float64") - 1.0)
        a = b + kappa
        constant = log_gamma_ratio(a, b) - (a + b) * np.log(2.0) - b * np.log(np.pi)
        opposite = 1.0 + inner_product(value, mu)
        inside = opposite > 0.0
        power = kappa * pt.log(pt.switch(inside, opposite, 1.0))
        density = constant + pt.switch(inside | pt.eq(kappa, 0.0), power, -np.inf)
        return check_parameters(
            minus_infinity_off_sphere(value, density.astype(upcast(value.dtype, mu.dtype))),
            has_unit_length(mu),
            kappa >= 0,
            msg="mu of PowerSpherical is a unit vector, kappa >= 0",
        )


class SphericalCauchyRV(LoopRandomVariable):
    """Random variable Op of `SphericalCauchy`."""

    name = "SphericalCauchy"
    signature = "(d),()->(d)"
    dtype = "floatX"
    _print_name = ("SphericalCauchy", "\\operatorname{SphericalCauchy}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        rho: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Map uniform directions by the Möbius map u ↦ ρμ + (1 − ρ²)(u + ρμ) / ‖u + ρμ‖²."""
        if not np.all(are_unit_vectors(mu)):
            raise ValueError("mu must contain unit vectors. Divide each by its length.")
        if not np.all((rho >= 0) & (rho < 1)):
            raise ValueError("rho must be at least 0 and below 1")
        if size is None:
            size = np.broadcast_shapes(mu.shape[:-1], rho.shape)
        uniform = draw_uniform_directions(rng, (*size, mu.shape[-1]))
        rho = rho[..., None]
        moved = uniform + rho * mu
        squared = np.sum(moved**2, axis=-1, keepdims=True)
        x = rho * mu + (1.0 - rho) * (1.0 + rho) / squared * moved
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype
        fill_uniform = compiled_draws(njit).fill_uniform

        @njit
        def draw(rng, mu, rho, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            d = mu.shape[0]
            if out is None:
                out = np.empty(d, dtype=dtype)
            if not np.abs(np.sum(mu * mu) - 1.0) <= 2.0 * LENGTH_TOLERANCE:
                raise ValueError("mu must contain unit vectors. Divide each by its length.")
            if not (rho >= 0.0 and rho < 1.0):
                raise ValueError("rho must be at least 0 and below 1")
            fill_uniform(rng, out)
            squared = 0.0
            for i in range(d):
                out[i] += rho * mu[i]
                squared += out[i] * out[i]
            scale = (1.0 - rho) * (1.0 + rho) / squared
            length = 0.0
            for i in range(d):
                out[i] = rho * mu[i] + scale * out[i]
                length += out[i] * out[i]
            out /= np.sqrt(length)
            return out

        draw.handles_out = True
        return draw


spherical_cauchy = SphericalCauchyRV()


class SphericalCauchy(RotationallySymmetric):
    r"""Spherical Cauchy distribution of directions on the sphere :math:`S^{d-1}`, with heavy tails.

    The density with respect to surface measure is

    .. math::

        p(x \mid \mu, \rho) = \frac{\Gamma(d/2)}{2\,\pi^{d/2}}
            \left( \frac{1 - \rho^2}{1 + \rho^2 - 2 \rho\, \mu \cdot x} \right)^{d-1} .

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      :math:`\tfrac{2 (d - 1)}{d} \rho\,
              {}_2F_1(1, 1 - \tfrac d2; 1 + \tfrac d2; \rho^2)\, \mu`; ρμ for d = 2
    Mode      :math:`\mu`
    ========  ==================================================================

    It is the distribution of a uniform direction under a Möbius map of the sphere, and closed under
    such maps; its stereographic projection is a multivariate t distribution with d − 1 degrees of
    freedom, hence the tails. On the circle it is the wrapped Cauchy distribution; see
    `WrappedCauchy` for angles. Draws are exact. Free variables carry the unit-vector transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        Mean direction, a unit vector, d at least 2.
    rho : tensor_like of float, shape (...)
        Concentration, at least 0, where the distribution is uniform, and below 1.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not of unit length or a ``rho`` that is
        not in [0, 1).
    ValueError
        If observed data are known and not unit vectors, or ``mu`` has fewer than 2
        coordinates.

    References
    ----------
    Kato and McCullagh (2020), Some properties of a Cauchy family on the sphere derived from the
    Möbius transformations, equation 2 and theorem 1.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import SphericalCauchy
    >>> x = SphericalCauchy.dist(mu=[0.0, 0.0, 1.0], rho=0.5)
    >>> density = pm.logp(x, np.array([0.0, 0.0, 1.0])).exp()  # 9 / (4 pi)
    >>> float(density.eval(mode="FAST_COMPILE"))
    0.716197...
    """

    rv_op = spherical_cauchy

    @classmethod
    def dist(cls, mu: Any, rho: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        return cls.dist_around_mean(mu, rho, **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, mu: TensorVariable, rho: TensorVariable
    ) -> TensorVariable:
        """Return the mean direction, which is on the sphere."""
        return mean_direction(size, mu, rho)

    def logp(value: TensorVariable, mu: TensorVariable, rho: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        d = length_of_last_axis(mu, value)
        # 1 + ρ² − 2ρ cos = (1 − ρ)² + ρ‖x − μ‖², without cancellation.
        denominator = (1.0 - rho) ** 2 + rho * pt.sum((value - mu) ** 2, axis=-1)
        inside = (rho >= 0.0) & (rho < 1.0)
        ratio = pt.log1p(-pt.switch(inside, rho, 0.5)) + pt.log1p(rho) - pt.log(denominator)
        density = log_vmf_normalizer(d, 0.0) + (pt.as_tensor(d).astype("float64") - 1.0) * ratio
        return check_parameters(
            minus_infinity_off_sphere(value, density.astype(upcast(value.dtype, mu.dtype))),
            has_unit_length(mu),
            inside,
            msg="mu of SphericalCauchy is a unit vector, 0 <= rho < 1",
        )
