"""The wrapped Cauchy distribution."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.angle_draws import draw_wrapped_cauchy
from pymc_geodesic.distributions.angular import Angular, angle_of_mean, squared_half_chord
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


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
    r"""Angles around a mean direction with heavy tails: a Cauchy variable wrapped on the circle.

    .. math::

        p(\theta \mid \mu, \rho)
            = \frac{1}{2\pi} \frac{1 - \rho^2}{1 + \rho^2 - 2\rho \cos(\theta - \mu)}

    ========  ==================================================================
    Support   the circle; :math:`\theta` and :math:`\theta + 2\pi` are the same angle
    Moments   :math:`\mathbb{E}\, e^{i p \theta} = \rho^{|p|} e^{i p \mu}`
    ========  ==================================================================

    The Cauchy variable has the scale −log ρ. Draws are exact and in (−π, π]. Free variables carry a
    circular transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (...)
        Mean direction, an angle in radians.
    rho : tensor_like of float, shape (...)
        Mean resultant length, at least 0, where the distribution is uniform, and below 1.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ….

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
        return angle_of_mean(size, mu, rho)

    def logp(value: TensorVariable, mu: TensorVariable, rho: TensorVariable) -> TensorVariable:
        """Return the log-density of angles."""
        inside = (rho >= 0.0) & (rho < 1.0)
        apart = (1.0 - rho) ** 2 + 4.0 * rho * squared_half_chord(value - mu)
        ratio = pt.log1p(-pt.switch(inside, rho, 0.5)) + pt.log1p(rho)
        return check_parameters(
            ratio - pt.log(apart) - np.log(2.0 * np.pi),
            pt.isfinite(mu),
            inside,
            msg="mu of WrappedCauchy is finite, 0 <= rho < 1",
        )
