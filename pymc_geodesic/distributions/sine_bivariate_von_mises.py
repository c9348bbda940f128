"""The bivariate von Mises distribution with sines, on the torus."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.angular import Angular
from pymc_geodesic.distributions.arguments import last_length
from pymc_geodesic.distributions.sine_draws import compiled_sine_pair, draw_sine_bivariate
from pymc_geodesic.ops.numba_backend import LoopRandomVariable
from pymc_geodesic.ops.torus_constant import log_sine_normalizer


class SineBivariateVonMisesRV(LoopRandomVariable):
    """Random variable Op of `SineBivariateVonMises`."""

    name = "SineBivariateVonMises"
    signature = "(p),(p),()->(p)"
    dtype = "floatX"
    _print_name = ("SineBivariateVonMises", "\\operatorname{SineBivariateVonMises}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        kappa: NDArray[np.floating],
        lam: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_sine_bivariate`."""
        return draw_sine_bivariate(rng, mu, kappa, lam, size)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one pair of angles."""
        dtype = self.dtype
        fill_pair = compiled_sine_pair(njit)

        @njit
        def draw(rng, mu, kappa, lam, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            if out is None:
                out = np.empty(2, dtype=dtype)
            fill_pair(rng, np.float64(kappa[0]), np.float64(kappa[1]), np.float64(lam), out)
            for i in range(2):
                out[i] = np.pi - (np.pi - out[i] - mu[i]) % (2.0 * np.pi)
            return out

        draw.handles_out = True
        return draw


sine_bivariate_von_mises = SineBivariateVonMisesRV()


class SineBivariateVonMises(Angular):
    r"""Pairs of dependent angles: the bivariate von Mises distribution with sines.

    .. math::

        p(\theta \mid \mu, \kappa, \lambda) = \frac1Z \exp\{
            \kappa_1 \cos(\theta_1 - \mu_1) + \kappa_2 \cos(\theta_2 - \mu_2)
            + \lambda \sin(\theta_1 - \mu_1) \sin(\theta_2 - \mu_2) \},

        Z = 4\pi^2 \sum_{m \ge 0} \binom{2m}{m} \Bigl( \frac{\lambda^2}{4 \kappa_1 \kappa_2}
            \Bigr)^{\!m} I_m(\kappa_1)\, I_m(\kappa_2) .

    =========== ===============================================================
    Support     the torus, angles in radians; multiples of 2π change nothing
    Means       directions :math:`\mu_1, \mu_2`
    Moments     :math:`\mathbb{E} \cos(\theta_i - \mu_i) = \partial_{\kappa_i} \log Z`,
                :math:`\mathbb{E} \sin(\theta_1 - \mu_1) \sin(\theta_2 - \mu_2)
                = \partial_\lambda \log Z`
    Mode        μ if :math:`\lambda^2 \le \kappa_1 \kappa_2`, else there are two
    =========== ===============================================================

    For large concentrations it is close to a normal law with the precision matrix of diagonal κ and
    off-diagonal −λ. The series has positive terms only and is summed to rounding; its gradient in κ
    and λ is that of the sum. Draws are exact. Free variables carry a circular transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., 2)
        Mean directions, angles in radians.
    kappa : tensor_like of float, shape (..., 2)
        Concentrations, at least 0.
    lam : tensor_like of float, shape (...)
        Interaction λ, of either sign; zero for independent angles.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a negative ``kappa`` or parameters that are not finite.
    ValueError
        If ``mu`` or ``kappa`` is no pair, or observed angles are known and not finite.

    Warns
    -----
    UserWarning
        If observed angles are known and some are beyond 4π, as degrees are.

    Notes
    -----
    Time grows with the square root of the concentrations, and with λ where it is larger than they
    are. JAX must know the number of terms in advance: unless ``kappa`` and ``lam`` are
    numbers it refuses the density with a ``NotImplementedError`` that names ``arange``.

    References
    ----------
    Singh, Hnizdo and Demchuk (2002), Probabilistic model for two dependent circular variables,
    equations 1 and 3; Mardia, Taylor and Subramaniam (2007), Protein bioinformatics and mixtures of
    bivariate von Mises distributions for angular data, for the modes.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import SineBivariateVonMises
    >>> x = SineBivariateVonMises.dist(mu=[0.0, 1.0], kappa=[2.0, 3.0], lam=1.5)
    >>> float(pm.logp(x, np.array([0.3, 1.2])).eval(mode="FAST_COMPILE"))
    -1.253728...
    """

    rv_op = sine_bivariate_von_mises

    @classmethod
    def dist(cls, mu: Any, kappa: Any, lam: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        mu, kappa, lam = (pt.as_tensor_variable(floatX(each)) for each in (mu, kappa, lam))
        for name, pair in (("mu", mu), ("kappa", kappa)):
            if pair.type.ndim == 0 or pair.type.shape[-1] not in (None, 2):
                raise ValueError(
                    f"{name} of SineBivariateVonMises must be a pair of numbers on its last axis, "
                    f"but has the static shape {pair.type.shape}"
                )
        last = last_length(kwargs.get("shape"))
        if last not in (None, 2):
            raise ValueError(
                "the shape of SineBivariateVonMises, or of its observed data or dims, ends with "
                f"{last}; the last axis holds the two angles"
            )
        return super().dist([mu, kappa, lam], **kwargs)

    def support_point(
        rv: TensorVariable,
        size: TensorVariable,
        mu: TensorVariable,
        kappa: TensorVariable,
        lam: TensorVariable,
    ) -> TensorVariable:
        """Return the mean directions."""
        point = pt.broadcast_arrays(pt.arctan2(pt.sin(mu), pt.cos(mu)), kappa, lam[..., None])[0]
        return point if rv_size_is_none(size) else pt.full(pt.concatenate([size, [2]]), point)

    def logp(
        value: TensorVariable, mu: TensorVariable, kappa: TensorVariable, lam: TensorVariable
    ) -> TensorVariable:
        """Return the log-density of pairs of angles, shape (...), for values of shape (..., 2)."""
        if value.type.ndim == 0 or value.type.shape[-1] not in (None, 2):
            raise ValueError(
                "values of SineBivariateVonMises are pairs of angles on the last axis; this one "
                f"has the static shape {value.type.shape}"
            )
        away = value - mu
        exponent = pt.sum(kappa * pt.cos(away), axis=-1)
        exponent = exponent + lam * pt.sin(away[..., 0]) * pt.sin(away[..., 1])
        return check_parameters(
            exponent - log_sine_normalizer(kappa, lam).astype(kappa.dtype),
            pt.isfinite(mu).all(axis=-1),
            (kappa >= 0).all(axis=-1) & pt.isfinite(kappa).all(axis=-1),
            pt.isfinite(lam),
            msg="mu and lam of SineBivariateVonMises are finite, kappa >= 0",
        )
