"""Circular distributions: von Mises, wrapped Cauchy, and a link for angular regression."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Continuous
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.distributions.transforms import _default_transform, circular
from pymc.logprob.transforms import CircularTransform, Transform
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.validation import PACKAGE, known_data, require_known_arguments
from pymc_geodesic.distributions.von_mises_fisher_draws import compiled_draws, draw_von_mises_fisher
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.numba_backend import LoopRandomVariable

LIKELY_DEGREES = 4.0 * np.pi
"""Absolute value in radians above which observed angles are probably in degrees."""

Array = NDArray[np.float64]


class TorusTransform(CircularTransform):
    """Transform of points of a torus, angles along the last axis that are wrapped to (−π, π].

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.circular import torus
    >>> torus.backward(np.array([1.0, 2.0 * np.pi + 1.0])).eval().round(6).tolist()
    [1.0, 1.0]
    """

    name = "torus"
    ndim_supp = 1

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return zero for each point: wrapping preserves areas.

        Parameters
        ----------
        value : TensorVariable, shape (..., n)
        *inputs : Variable
            Inputs of the random variable; not used.

        Returns
        -------
        TensorVariable, shape (...)
        """
        return pt.zeros_like(value[..., 0])


torus = TorusTransform()


class Angular(Continuous):
    """Base class of distributions of angles, in radians, whose density has the period 2π.

    Free variables get a circular transform, which wraps values to (−π, π].

    Raises
    ------
    ValueError
        If observed angles are known and not finite.

    Warns
    -----
    UserWarning
        If observed angles are known and some are beyond 4π, as degrees are.
    """

    def __new__(cls, name: str, *args: Any, observed: Any = None, **kwargs: Any) -> TensorVariable:
        """Check the observed data and add the variable to the model."""
        data = None if observed is None else known_data(observed)
        if data is not None and not np.ma.isMaskedArray(data) and np.isinf(data).any():
            raise ValueError(f"the observed angles of {name!r} are not finite; drop those rows")
        if data is not None and data.size:
            _warn_of_degrees(name, np.abs(np.ma.masked_invalid(data)).max())
        return super().__new__(cls, name, *args, observed=observed, **kwargs)

    @classmethod
    def dist(cls, *parameters: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; an unknown argument raises ``TypeError``."""
        require_known_arguments(cls, kwargs)
        return super().dist(*parameters, **kwargs)


def _warn_of_degrees(name: str, largest: Any) -> None:
    """Warn if observed angles, not all of them missing, are probably in degrees."""
    if largest is not np.ma.masked and largest > LIKELY_DEGREES:
        warnings.warn(
            f"the observed angles of {name!r} have absolute values up to {largest:.6g} radians. "
            "np.deg2rad converts degrees, and np.angle(np.exp(1j * x)) wraps angles that have gone "
            "around many times",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )


@_default_transform.register(Angular)
def angular_default_transform(op: Op, rv: TensorVariable) -> Transform:
    """Return the default transform of free angles, or pairs of angles."""
    return circular if op.ndim_supp == 0 else torus


def wrap_angles(angles: ArrayLike) -> NDArray[np.float64]:
    """Return angles in (−π, π].

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.circular import wrap_angles
    >>> wrap_angles([0.5, 2.0 * np.pi + 0.5]).tolist()
    [0.5, 0.5]
    """
    return np.pi - np.mod(np.pi - np.asarray(angles, dtype=float), 2.0 * np.pi)


def broadcast_mean_angle(
    size: TensorVariable, mu: TensorVariable, concentration: TensorVariable
) -> TensorVariable:
    """Return the mean angle in the shape of the variable, in [−π, π]."""
    point = pt.broadcast_arrays(pt.arctan2(pt.sin(mu), pt.cos(mu)), concentration)[0]
    return point if rv_size_is_none(size) else pt.full(size, point)


def squared_half_chord(angle: TensorVariable) -> TensorVariable:
    """Return sin²(a/2) = (1 − cos a) / 2, without cancellation."""
    return pt.sin(0.5 * angle) ** 2


def circular_link(eta: Any, mu: Any = 0.0) -> TensorVariable:
    r"""Link function of angular regression: the real line mapped once around the circle.

    .. math:: \theta = \mu + 2 \arctan \eta

    It maps zero to μ, is increasing, and approaches the point opposite to μ as η goes to plus or
    minus infinity. With η = xᵀβ without an intercept, and μ a parameter, it is Fisher and Lee's
    regression of an angle on covariates.

    Parameters
    ----------
    eta : tensor_like of float, shape (...)
        Linear predictor.
    mu : tensor_like of float, shape (...)
        Angle at η = 0, in radians.

    Returns
    -------
    TensorVariable, shape (...)
        Angles in radians, within π of μ: mean directions for `PeriodicVonMises` and
        `WrappedCauchy`.

    Notes
    -----
    The likelihood in β is flat for large β, where all mean directions are opposite to μ, and may
    have several modes: give β a proper prior on the scale of the covariates. `ProjectedNormal` with
    a linear mean does not have these problems.

    References
    ----------
    Fisher and Lee (1992), Regression models for an angular response, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import PeriodicVonMises, circular_link
    >>> wind, hour = np.array([3.0, 3.3, -2.9]), np.array([-1.0, 0.0, 1.0])
    >>> with pm.Model() as model:
    ...     mean = PeriodicVonMises("mean", mu=0.0, kappa=0.0)
    ...     slope = pm.Normal("slope", 0.0, 1.0)
    ...     mu = circular_link(slope * hour, mean)
    ...     x = PeriodicVonMises("x", mu=mu, kappa=4.0, observed=wind)
    >>> circular_link(np.array([0.0, 1.0, 1e9]), np.pi).eval().round(3).tolist()
    [3.142, 4.712, 6.283]
    """
    eta, mu = (pt.as_tensor_variable(floatX(each)) for each in (eta, mu))
    return mu + 2.0 * pt.arctan(eta)


def draw_von_mises(
    rng: np.random.Generator,
    mu: NDArray[np.floating],
    kappa: NDArray[np.floating],
    size: tuple[int, ...] | None = None,
) -> Array:
    """Draw von Mises angles in (−π, π] by `draw_von_mises_fisher` on the circle."""
    if not np.all(np.isfinite(mu)):
        raise ValueError("mu must be finite")
    x = draw_von_mises_fisher(rng, np.array([1.0, 0.0]), kappa, _size(size, mu, kappa))
    return wrap_angles(mu + np.arctan2(x[..., 1], x[..., 0]))


def draw_wrapped_cauchy(
    rng: np.random.Generator,
    mu: NDArray[np.floating],
    rho: NDArray[np.floating],
    size: tuple[int, ...] | None = None,
) -> Array:
    """Draw wrapped Cauchy angles in (−π, π], by a Möbius map of uniform angles."""
    if not np.all((rho >= 0) & (rho < 1)):
        raise ValueError("rho must be at least 0 and below 1")
    uniform = rng.random(_size(size, mu, rho)) - 0.5
    return wrap_angles(mu + 2.0 * np.arctan((1.0 - rho) / (1.0 + rho) * np.tan(np.pi * uniform)))


def _size(size: tuple[int, ...] | None, *parameters: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(each) for each in parameters)) if size is None else size


@cache
def compiled_von_mises(njit: Any) -> Callable[..., float]:
    """Return the function, compiled by Numba, that draws a von Mises angle for given μ and κ."""
    fill_von_mises_fisher = compiled_draws(njit).fill_von_mises_fisher

    @njit
    def von_mises(rng: np.random.Generator, mu: float, kappa: float) -> float:
        pole = np.array([1.0, 0.0])
        out = np.empty(2)
        fill_von_mises_fisher(rng, pole, kappa, out)
        return np.pi - (np.pi - mu - np.arctan2(out[1], out[0])) % (2.0 * np.pi)

    return von_mises


class PeriodicVonMisesRV(LoopRandomVariable):
    """Random variable Op of `PeriodicVonMises`."""

    name = "PeriodicVonMises"
    signature = "(),()->()"
    dtype = "floatX"
    _print_name = ("PeriodicVonMises", "\\operatorname{PeriodicVonMises}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        kappa: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_von_mises`."""
        return draw_von_mises(rng, mu, kappa, size)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one angle."""
        von_mises = compiled_von_mises(njit)

        @njit
        def draw(rng, mu, kappa):  # type: ignore[no-untyped-def]  # typed by Numba
            return von_mises(rng, mu, kappa)

        return draw


periodic_von_mises = PeriodicVonMisesRV()


class PeriodicVonMises(Angular):
    r"""Von Mises distribution of angles, with a density of period 2π on the real line.

    .. math::

        p(\theta \mid \mu, \kappa) = \frac{e^{\kappa \cos(\theta - \mu)}}{2\pi I_0(\kappa)}

    ========  ==================================================================
    Support   the circle; :math:`\theta` and :math:`\theta + 2\pi` are the same angle
    Mean      direction μ, resultant length :math:`I_1(\kappa) / I_0(\kappa)`
    ========  ==================================================================

    `pymc.VonMises` has zero density beyond ±π, so that angles must be wrapped first, and does not
    allow κ = 0. Here data may be in [0, 2π) or unwrapped, μ may be any function of covariates, such
    as `circular_link` of a linear predictor, and κ = 0 is the uniform distribution. Constant and
    gradient are exact to rounding for kappa from 0 to 1e8; draws are exact and in (−π, π]. Free
    variables carry a circular transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (...), default 0
        Mean direction, an angle in radians.
    kappa : tensor_like of float, shape (...), default 1
        Concentration, at least 0.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not finite or a negative ``kappa``.
    ValueError
        If observed angles are known and not finite.

    Warns
    -----
    UserWarning
        If observed angles are known and some are beyond 4π, as degrees are.

    References
    ----------
    Mardia and Jupp, *Directional Statistics* (2000), section 3.5.4.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import PeriodicVonMises
    >>> x = PeriodicVonMises.dist(mu=6.0, kappa=2.0)
    >>> pm.logp(x, np.array([0.1, 0.1 + 2 * np.pi])).eval(mode="FAST_COMPILE").round(6).tolist()
    [-0.806914, -0.806914]
    """

    rv_op = periodic_von_mises

    @classmethod
    def dist(cls, mu: Any = 0.0, kappa: Any = 1.0, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        mu, kappa = pt.as_tensor_variable(floatX(mu)), pt.as_tensor_variable(floatX(kappa))
        return super().dist([mu, kappa], **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, mu: TensorVariable, kappa: TensorVariable
    ) -> TensorVariable:
        """Return the mean direction."""
        return broadcast_mean_angle(size, mu, kappa)

    def logp(value: TensorVariable, mu: TensorVariable, kappa: TensorVariable) -> TensorVariable:
        """Return the log-density of angles."""
        constant = log_vmf_normalizer(2, kappa).astype(kappa.dtype)
        return check_parameters(
            constant + kappa * pt.cos(value - mu),
            pt.isfinite(mu),
            kappa >= 0,
            msg="mu of PeriodicVonMises is finite, kappa >= 0",
        )


class WrappedCauchyRV(LoopRandomVariable):
    """Random variable Op of `WrappedCauchy`."""

    name = "WrappedCauchy"
    signature = "(),()->()"
    dtype = "floatX"
    _print_name = ("WrappedCauchy", "\\operatorname{WrappedCauchy}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        rho: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_wrapped_cauchy`."""
        return draw_wrapped_cauchy(rng, mu, rho, size)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one angle."""

        @njit
        def draw(rng, mu, rho):  # type: ignore[no-untyped-def]  # typed by Numba
            if not (rho >= 0.0 and rho < 1.0):
                raise ValueError("rho must be at least 0 and below 1")
            tangent = np.tan(np.pi * (rng.random() - 0.5))
            angle = mu + 2.0 * np.arctan((1.0 - rho) / (1.0 + rho) * tangent)
            return np.pi - (np.pi - angle) % (2.0 * np.pi)

        return draw


wrapped_cauchy = WrappedCauchyRV()


class WrappedCauchy(Angular):
    r"""Wrapped Cauchy distribution of angles, with heavy tails.

    .. math::

        p(\theta \mid \mu, \rho)
            = \frac{1}{2\pi} \frac{1 - \rho^2}{1 + \rho^2 - 2\rho \cos(\theta - \mu)}

    ========  ==================================================================
    Support   the circle; :math:`\theta` and :math:`\theta + 2\pi` are the same angle
    Moments   :math:`\mathbb{E}\, e^{i p \theta} = \rho^{|p|} e^{i p \mu}`
    ========  ==================================================================

    It is the distribution of a Cauchy variable of scale −log ρ modulo 2π. Draws are exact and in
    (−π, π]. Free variables carry a circular transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (...)
        Mean direction, an angle in radians.
    rho : tensor_like of float, shape (...)
        Mean resultant length, at least 0, where the distribution is uniform, and below 1.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not finite or a ``rho`` that is not in
        [0, 1).
    ValueError
        If observed angles are known and not finite.

    Warns
    -----
    UserWarning
        If observed angles are known and some are beyond 4π, as degrees are.

    References
    ----------
    Mardia and Jupp, *Directional Statistics* (2000), section 3.5.7.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import WrappedCauchy
    >>> x = WrappedCauchy.dist(mu=0.0, rho=0.5)
    >>> density = pm.logp(x, np.array([0.0, 2.0 * np.pi])).exp()  # 3 / (2 pi)
    >>> density.eval(mode="FAST_COMPILE").round(6).tolist()
    [0.477465, 0.477465]
    """

    rv_op = wrapped_cauchy

    @classmethod
    def dist(cls, mu: Any, rho: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        mu, rho = pt.as_tensor_variable(floatX(mu)), pt.as_tensor_variable(floatX(rho))
        return super().dist([mu, rho], **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, mu: TensorVariable, rho: TensorVariable
    ) -> TensorVariable:
        """Return the mean direction."""
        return broadcast_mean_angle(size, mu, rho)

    def logp(value: TensorVariable, mu: TensorVariable, rho: TensorVariable) -> TensorVariable:
        """Return the log-density of angles."""
        inside = (rho >= 0.0) & (rho < 1.0)
        denominator = (1.0 - rho) ** 2 + 4.0 * rho * squared_half_chord(value - mu)
        ratio = pt.log1p(-pt.switch(inside, rho, 0.5)) + pt.log1p(rho)
        return check_parameters(
            ratio - pt.log(denominator) - np.log(2.0 * np.pi),
            pt.isfinite(mu),
            inside,
            msg="mu of WrappedCauchy is finite, 0 <= rho < 1",
        )
