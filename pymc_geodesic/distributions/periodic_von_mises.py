"""The von Mises distribution of angles that may be any number."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.angle_draws import compiled_von_mises, draw_von_mises
from pymc_geodesic.distributions.angular import Angular, angle_of_mean
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


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
    r"""Von Mises distribution of angles that may be any number: its density has the period 2π.

    .. math::

        p(\theta \mid \mu, \kappa) = \frac{e^{\kappa \cos(\theta - \mu)}}{2\pi I_0(\kappa)}

    ========  ==================================================================
    Support   the circle; :math:`\theta` and :math:`\theta + 2\pi` are the same angle
    Mean      direction μ, resultant length :math:`I_1(\kappa) / I_0(\kappa)`
    ========  ==================================================================

    `pymc.VonMises` has zero density beyond ±π, so that angles must be wrapped first, and none for
    κ = 0. Here data may be in [0, 2π) or unwrapped, μ may be any function of covariates, as
    `circular_link` of a linear predictor, and κ = 0 is the uniform distribution. Constant and
    gradient are exact to rounding for kappa from 0 to 1e8; draws are exact and in (−π, π]. Free
    variables carry a circular transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (...), default 0
        Mean direction, an angle in radians.
    kappa : tensor_like of float, shape (...), default 1
        Concentration, at least 0.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ….

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
        return angle_of_mean(size, mu, kappa)

    def logp(value: TensorVariable, mu: TensorVariable, kappa: TensorVariable) -> TensorVariable:
        """Return the log-density of angles."""
        constant = log_vmf_normalizer(2, kappa).astype(kappa.dtype)
        return check_parameters(
            constant + kappa * pt.cos(value - mu),
            pt.isfinite(mu),
            kappa >= 0,
            msg="mu of PeriodicVonMises is finite, kappa >= 0",
        )
