"""The power spherical distribution."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pytensor.graph.basic import Apply
from pytensor.scalar import upcast
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.around_mean import AroundMean, draw_around_mean, mean_direction
from pymc_geodesic.distributions.compiled_draws import compiled_draws
from pymc_geodesic.distributions.unit_rows import has_unit_length, minus_infinity_off_sphere
from pymc_geodesic.distributions.von_mises_fisher import length_of_last_axis
from pymc_geodesic.ops.gamma_ratio import log_gamma_ratio
from pymc_geodesic.ops.inner_products import inner_product
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


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
        """Draw (1 − μ·x) / 2 from its beta law, and the rest uniformly around the mean."""
        if not np.all((kappa >= 0) & np.isfinite(kappa)):
            raise ValueError("kappa must be finite and at least 0")
        half = 0.5 * (mu.shape[-1] - 1.0)

        def deficits(kappa: NDArray[np.float64], n: int) -> NDArray[np.float64]:
            behind = rng.standard_gamma(half, n)
            return 2.0 * behind / (behind + rng.standard_gamma(half + kappa, n))

        return draw_around_mean(rng, mu, kappa, size, deficits)

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
            behind = rng.standard_gamma(half)
            deficit = 2.0 * behind / (behind + rng.standard_gamma(half + kappa))
            fill_around_mean(rng, mu, deficit, out)
            return out

        draw.handles_out = True
        return draw


power_spherical = PowerSphericalRV()


class PowerSpherical(AroundMean):
    r"""Directions around a mean direction, with a power for the density.

    The density with respect to surface measure is

    .. math::

        p(x \mid \mu, \kappa) = \frac{\Gamma(a + b)}{2^{a + b}\, \pi^b\, \Gamma(a)}
            (1 + \mu \cdot x)^\kappa, \qquad a = b + \kappa, \quad b = \tfrac{d - 1}{2} .

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      :math:`\kappa\, \mu / (\kappa + d - 1)`
    Mode      :math:`\mu`
    Law       :math:`(1 + \mu \cdot x) / 2 \sim \operatorname{Beta}(a, b)`
    ========  ==================================================================

    Its constant needs gamma functions only, and draws need no rejection; near the mean direction it
    is von Mises–Fisher with half the concentration, opposite to it the density is zero. Constant
    and gradient keep their digits for kappa from 0 to 1e8. Free variables carry the unit-vector
    transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        Mean direction, a unit vector, d at least 2.
    kappa : tensor_like of float, shape (...)
        Concentration, at least 0; at 0 the distribution is uniform.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not of unit length or a negative
        ``kappa``.
    ValueError
        If observed data are known and not unit vectors, or ``mu`` is a single number.

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
        return cls.around(mu, kappa, **kwargs)

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
