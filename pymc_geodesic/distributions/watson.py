"""The Watson distribution of axes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pytensor.graph.basic import Apply
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.around_mean import AroundMean
from pymc_geodesic.distributions.quadratic import of_size
from pymc_geodesic.distributions.quadratic_draws import fill_each
from pymc_geodesic.distributions.unit_rows import has_unit_length, minus_infinity_off_sphere
from pymc_geodesic.distributions.von_mises_fisher import length_of_last_axis
from pymc_geodesic.distributions.watson_draws import fill_watson
from pymc_geodesic.ops.inner_products import inner_product
from pymc_geodesic.ops.numba_backend import LoopRandomVariable
from pymc_geodesic.ops.quadratic_ops import spectral_integral


class WatsonRV(LoopRandomVariable):
    """Random variable Op of `Watson`."""

    name = "Watson"
    signature = "(d),()->(d)"
    dtype = "floatX"
    _print_name = ("Watson", "\\operatorname{Watson}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        kappa: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `fill_watson`."""
        parameters = np.asarray(mu, dtype=np.float64), np.asarray(kappa, dtype=np.float64)
        leading = (mu.shape[:-1], kappa.shape)
        size = np.broadcast_shapes(*leading) if size is None else size
        return fill_each(fill_watson, rng, parameters, leading, size, mu.shape[-1:])

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype

        @njit
        def draw(rng, mu, kappa):  # type: ignore[no-untyped-def]  # typed by Numba
            out = np.empty((1, mu.shape[0]))
            fill_watson(rng, np.ascontiguousarray(mu).astype(np.float64), float(kappa), out)
            return out[0].astype(dtype)

        return draw


watson = WatsonRV()


class Watson(AroundMean):
    r"""Axes scattered around one axis, or around the great circle orthogonal to it.

    The density with respect to surface measure on the sphere :math:`S^{d-1}` is

    .. math::

        p(x \mid \mu, \kappa) = \frac{e^{\kappa\, (\mu \cdot x)^2}}{C_d(\kappa)}, \qquad
        C_d(\kappa) = \frac{2 \pi^{d/2}}{\Gamma(d/2)}\,
                      {}_1F_1(\tfrac12; \tfrac d2; \kappa) .

    x and −x are equally likely: data are axes, in either of their directions.

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      0; :math:`\mathrm E(\mu \cdot x)^2 = C_d'(\kappa) / C_d(\kappa)`
    Mode      :math:`\pm \mu` for κ > 0; all directions orthogonal to it for κ < 0
    ========  ==================================================================

    The constant has a relative error below 1e-13 for d from 2 to 1000 and :math:`|\kappa|` to 1e4
    and beyond, and is twice differentiable in κ. Random draws are exact: rejection of the squared
    cosine, with at most about :math:`\sqrt d` proposals. Free variables carry the unit-vector
    transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        Axis, a unit vector, d at least 2.
    kappa : tensor_like of float, shape (...)
        Concentration: positive around the axis, negative around the circle orthogonal to it, 0
        uniform.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not of unit length or a ``kappa`` that
        is not finite.
    ValueError
        If observed data are known and not unit vectors, or ``mu`` is a single number.

    References
    ----------
    Mardia and Jupp, *Directional Statistics* (2000), section 9.4.2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions import Watson
    >>> with pm.Model() as model:
    ...     axis = Watson("axis", mu=np.array([0.0, 0.0, 1.0]), kappa=0.0)
    ...     kappa = pm.Normal("kappa", 0.0, 10.0)
    ...     x = Watson("x", mu=axis, kappa=kappa, observed=np.eye(3))
    >>> model.initial_point()["axis_unitvector__"]
    array([0., 0., 1.])
    """

    rv_op = watson

    @classmethod
    def dist(cls, mu: Any, kappa: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        return cls.around(mu, kappa, **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, mu: TensorVariable, kappa: TensorVariable
    ) -> TensorVariable:
        """Return a mode: the axis, or a direction orthogonal to it."""
        smallest = pt.eq(pt.arange(mu.shape[-1]), pt.argmin(pt.abs(mu), axis=-1)[..., None])
        across = smallest - pt.sum(smallest * mu, axis=-1, keepdims=True) * mu
        across = across / pt.sqrt(pt.sum(across**2, axis=-1, keepdims=True))
        return of_size(pt.where(kappa[..., None] >= 0, mu, across).astype(rv.dtype), size)

    def logp(value: TensorVariable, mu: TensorVariable, kappa: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        d = length_of_last_axis(mu, value)
        values = pt.stack([kappa, pt.zeros_like(kappa)], axis=-1)
        counts = pt.stack([pt.as_tensor(1.0), pt.as_tensor(d) - 1.0])
        log_integral = spectral_integral(values, counts, np.zeros(2))[0].astype(value.dtype)
        density = kappa * inner_product(value, mu) ** 2 - log_integral
        return check_parameters(
            minus_infinity_off_sphere(value, density),
            has_unit_length(mu),
            pt.isfinite(kappa),
            msg="mu is a unit vector, kappa finite",
        )
