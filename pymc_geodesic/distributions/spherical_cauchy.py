"""The spherical Cauchy distribution."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pytensor.graph.basic import Apply
from pytensor.scalar import upcast
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.around_mean import AroundMean, mean_direction
from pymc_geodesic.distributions.compiled_draws import compiled_draws
from pymc_geodesic.distributions.draws import (
    LENGTH_TOLERANCE,
    are_unit_vectors,
    draw_uniform_directions,
)
from pymc_geodesic.distributions.unit_rows import has_unit_length, minus_infinity_off_sphere
from pymc_geodesic.distributions.von_mises_fisher import length_of_last_axis
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


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
        """Move uniform directions u by the Möbius map, u ↦ ρμ + (1 − ρ²)(u + ρμ) / ‖u + ρμ‖²."""
        if not np.all(are_unit_vectors(mu)):
            raise ValueError("mu must hold unit vectors; divide each by its length")
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
                raise ValueError("mu must hold unit vectors; divide each by its length")
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


class SphericalCauchy(AroundMean):
    r"""Directions around a mean direction with heavy tails, on the sphere :math:`S^{d-1}`.

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

    It is the law of a uniform direction moved by a Möbius map of the sphere, and closed under such
    maps; stereographic projection makes it a multivariate t distribution with d − 1 degrees of
    freedom, hence the tails. On the circle it is the wrapped Cauchy distribution; see
    `WrappedCauchy` for angles. Draws are exact. Free variables carry the unit-vector transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        Mean direction, a unit vector, d at least 2.
    rho : tensor_like of float, shape (...)
        Concentration, at least 0, where the distribution is uniform, and below 1.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not of unit length or a ``rho`` that is
        not in [0, 1).
    ValueError
        If observed data are known and not unit vectors, or ``mu`` is a single number.

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
        return cls.around(mu, rho, **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, mu: TensorVariable, rho: TensorVariable
    ) -> TensorVariable:
        """Return the mean direction, which is on the sphere."""
        return mean_direction(size, mu, rho)

    def logp(value: TensorVariable, mu: TensorVariable, rho: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        d = length_of_last_axis(mu, value)
        # 1 + ρ² − 2ρ cos = (1 − ρ)² + ρ‖x − μ‖², in which nothing cancels.
        apart = (1.0 - rho) ** 2 + rho * pt.sum((value - mu) ** 2, axis=-1)
        inside = (rho >= 0.0) & (rho < 1.0)
        ratio = pt.log1p(-pt.switch(inside, rho, 0.5)) + pt.log1p(rho) - pt.log(apart)
        density = log_vmf_normalizer(d, 0.0) + (pt.as_tensor(d).astype("float64") - 1.0) * ratio
        return check_parameters(
            minus_infinity_off_sphere(value, density.astype(upcast(value.dtype, mu.dtype))),
            has_unit_length(mu),
            inside,
            msg="mu of SphericalCauchy is a unit vector, 0 <= rho < 1",
        )
