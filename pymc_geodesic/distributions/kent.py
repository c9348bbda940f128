"""The Kent distribution on the sphere in three dimensions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.directional import Directional
from pymc_geodesic.distributions.draws import LENGTH_TOLERANCE
from pymc_geodesic.distributions.quadratic import of_size
from pymc_geodesic.distributions.quadratic_draws import fill_each, fill_kent
from pymc_geodesic.distributions.unit_rows import has_unit_length, minus_infinity_off_sphere
from pymc_geodesic.ops.inner_products import inner_product
from pymc_geodesic.ops.numba_backend import LoopRandomVariable
from pymc_geodesic.ops.quadratic_ops import spectral_integral


class KentRV(LoopRandomVariable):
    """Random variable Op of `Kent`."""

    name = "Kent"
    signature = "(d),(d),(),()->(d)"
    dtype = "floatX"
    _print_name = ("Kent", "\\operatorname{Kent}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        major: NDArray[np.floating],
        kappa: NDArray[np.floating],
        beta: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `fill_kent`."""
        parameters = tuple(np.asarray(each, dtype=float) for each in (mu, major, kappa, beta))
        leading = (mu.shape[:-1], major.shape[:-1], kappa.shape, beta.shape)
        size = np.broadcast_shapes(*leading) if size is None else size
        return fill_each(fill_kent, rng, parameters, leading, size, (3,))

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype

        @njit
        def draw(rng, mu, major, kappa, beta):  # type: ignore[no-untyped-def]  # typed by Numba
            out = np.empty((1, 3))
            first = np.ascontiguousarray(mu).astype(np.float64)
            second = np.ascontiguousarray(major).astype(np.float64)
            fill_kent(rng, first, second, float(kappa), float(beta), out)
            return out[0].astype(dtype)

        return draw


kent = KentRV()


class Kent(Directional):
    r"""Directions on the sphere in three dimensions with an elliptical scatter around their mean.

    The density with respect to surface measure is

    .. math::

        p(x) = \frac{1}{C(\kappa, \beta)} \exp\bigl\{\kappa\, \mu \cdot x
               + \beta\, [(\gamma_2 \cdot x)^2 - (\gamma_3 \cdot x)^2]\bigr\} ,

    with the major axis :math:`\gamma_2` and the minor axis :math:`\gamma_3 = \mu \times \gamma_2`.
    For large κ it is nearly normal in the tangent plane, with variances
    :math:`1 / (\kappa - 2 \beta)` and :math:`1 / (\kappa + 2 \beta)`.

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^3`, :math:`\|x\| = 1`
    Mean      :math:`\mu\, \partial \log C / \partial \kappa`
    Mode      :math:`\mu`
    ========  ==================================================================

    The constant has a relative error below 1e-13 and is twice differentiable in κ and β. Random
    draws are exact, about two proposals each. Free variables carry the unit-vector transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., 3)
        Mean direction, a unit vector.
    major : tensor_like of float, shape (..., 3)
        Major axis, a unit vector orthogonal to ``mu``; its sign does not matter.
    kappa : tensor_like of float, shape (...)
        Concentration, positive.
    beta : tensor_like of float, shape (...)
        Ovalness, at least 0 and below ``kappa / 2``.
    axes : tensor_like of float, shape (..., 3, 2) or (..., 3, 3), keyword only
        Instead of ``mu`` and ``major``: orthonormal columns, mean direction and major axis first.
        A `UniformStiefel` of that shape is a prior on them.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with axes that are not orthonormal, a negative ``beta``, or
        ``beta >= kappa / 2``, where the mode is no longer at ``mu`` alone: for these
        `FisherBingham` is the distribution.
    TypeError
        If not exactly one of ``mu`` with ``major``, or ``axes``, is given.
    ValueError
        If observed data are known and not unit vectors, or a direction does not have three
        coordinates.

    References
    ----------
    Kent (1982), The Fisher–Bingham distribution on the sphere, Journal of the Royal Statistical
    Society B 44; Mardia and Jupp, *Directional Statistics* (2000), equation 9.3.19.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import Kent, UniformStiefel
    >>> with pm.Model() as model:
    ...     axes = UniformStiefel("axes", shape=(3, 2))
    ...     kappa = pm.HalfNormal("kappa", 50.0)
    ...     ovalness = pm.Beta("ovalness", 1.0, 1.0)
    ...     x = Kent("x", axes=axes, kappa=kappa, beta=ovalness * kappa / 2, shape=(4, 3))
    >>> pm.draw(x, random_seed=1).shape
    (4, 3)
    """

    rv_op = kent

    @classmethod
    def dist(
        cls,
        mu: Any = None,
        major: Any = None,
        kappa: Any = None,
        beta: Any = None,
        *,
        axes: Any = None,
        **kwargs: Any,
    ) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        if (mu is None) != (major is None) or (mu is None) == (axes is None):
            raise TypeError("Kent takes either mu and major, or axes=")
        if kappa is None or beta is None:
            raise TypeError("Kent needs kappa and beta")
        if axes is not None:
            columns = pt.as_tensor_variable(floatX(axes))
            mu, major = columns[..., :, 0], columns[..., :, 1]
        mu, major, kappa, beta = (
            pt.as_tensor_variable(floatX(each)) for each in (mu, major, kappa, beta)
        )
        for name, each in (("mu", mu), ("major", major)):
            if each.type.ndim == 0 or each.type.shape[-1] not in (None, 3):
                raise ValueError(
                    f"{name} of Kent must have 3 coordinates (last axis), but has the static shape "
                    f"{each.type.shape}; in other dimensions use FisherBingham"
                )
        cls.require_last_axis(kwargs.get("shape"), 3, "mu")
        return super().dist([mu, major, kappa, beta], **kwargs)

    def support_point(
        rv: TensorVariable,
        size: TensorVariable,
        mu: TensorVariable,
        major: TensorVariable,
        kappa: TensorVariable,
        beta: TensorVariable,
    ) -> TensorVariable:
        """Return the mean direction."""
        return of_size(pt.broadcast_arrays(mu, major, (kappa + beta)[..., None])[0], size)

    def logp(
        value: TensorVariable,
        mu: TensorVariable,
        major: TensorVariable,
        kappa: TensorVariable,
        beta: TensorVariable,
    ) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., 3)."""
        zero = pt.zeros_like(beta)
        values = pt.stack([zero, beta, -beta], axis=-1)
        pulls = pt.stack([kappa, pt.zeros_like(kappa), pt.zeros_like(kappa)], axis=-1)
        log_integral = spectral_integral(values, np.ones(3), pulls)[0].astype(value.dtype)
        cosine, along = inner_product(value, mu), inner_product(value, major)
        # The squares of the three cosines sum to one.
        density = kappa * cosine + beta * (2.0 * along**2 + cosine**2 - 1.0) - log_integral
        return check_parameters(
            minus_infinity_off_sphere(value, density),
            has_unit_length(mu),
            has_unit_length(major),
            pt.abs(pt.sum(mu * major, axis=-1)) <= 2.0 * LENGTH_TOLERANCE,
            kappa > 0,
            beta >= 0,
            2.0 * beta < kappa,
            msg="mu and major are orthogonal unit vectors, 0 <= beta < kappa / 2",
        )
