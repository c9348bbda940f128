"""Distributions of directions with a quadratic form in the exponent: Fisher–Bingham and Kent."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.fisher_bingham_draws import (
    draw_fisher_bingham,
    fill_fisher_bingham,
    fill_kent,
    require_direction,
)
from pymc_geodesic.distributions.unit_sphere import Directional, broadcast_to_size, leading_axis
from pymc_geodesic.distributions.validation import (
    has_unit_length,
    is_symmetric,
    minus_infinity_off_sphere,
    require_square,
)
from pymc_geodesic.distributions.von_mises_fisher_draws import LENGTH_TOLERANCE
from pymc_geodesic.ops.fisher_bingham_ops import matrix_integral, spectral_integral
from pymc_geodesic.ops.inner_products import inner_product, quadratic_form
from pymc_geodesic.ops.numba_backend import LoopRandomVariable, draw_batch


class FisherBinghamRV(LoopRandomVariable):
    """Random variable Op of `FisherBingham`."""

    name = "FisherBingham"
    signature = "(d),(),(d,d)->(d)"
    dtype = "floatX"
    _print_name = ("FisherBingham", "\\operatorname{FisherBingham}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        kappa: NDArray[np.floating],
        A: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_fisher_bingham`."""
        for each in mu.reshape(-1, mu.shape[-1]):
            require_direction(np.ascontiguousarray(each, dtype=float))
        if not np.all(np.asarray(kappa) >= 0):
            raise ValueError("kappa must be at least 0")
        return draw_fisher_bingham(rng, A, mu * np.asarray(kappa)[..., None], size)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype

        @njit
        def draw(rng, mu, kappa, A):  # type: ignore[no-untyped-def]  # typed by Numba
            direction = np.ascontiguousarray(mu).astype(np.float64)
            require_direction(direction)
            if not kappa >= 0.0:
                raise ValueError("kappa must be at least 0")
            matrix = np.ascontiguousarray(A).astype(np.float64)
            out = np.empty((1, direction.size))
            fill_fisher_bingham(rng, matrix, direction * float(kappa), out)
            return out[0].astype(dtype)

        return draw


fisher_bingham = FisherBinghamRV()


class FisherBingham(Directional):
    r"""Fisher–Bingham distribution: the log-density is a polynomial of second degree.

    The density with respect to surface measure on the sphere :math:`S^{d-1}` is

    .. math::

        p(x \mid \mu, \kappa, A) = \frac{e^{\kappa\, \mu \cdot x + x^\top A x}}{C(\kappa \mu, A)} .

    It is a normal distribution on :math:`\mathbb R^d` conditioned on unit length.
    `VonMisesFisher` (A = 0), `Bingham` (κ = 0), `Watson` and `Kent` are special cases. A and
    A + c I define the same distribution.

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      :math:`\partial \log C / \partial (\kappa \mu)`
    ========  ==================================================================

    The constant is Kume and Wood's contour integral, computed by quadrature instead of a
    saddle-point approximation: its relative error is below 1e-13, and it is twice differentiable in
    all parameters. Random draws are exact: rejection from an angular central Gaussian, with two
    proposals on average if the distribution is close to a `Kent` distribution, and a number that
    grows with the square root of the concentration if μ is orthogonal to the leading axis of A.
    Free variables carry the unit-vector transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        A unit vector, d at least 2.
    kappa : tensor_like of float, shape (...)
        Weight of the linear term, at least 0.
    A : tensor_like of float, shape (..., d, d)
        Symmetric matrix of the quadratic term.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not of unit length, a negative
        ``kappa`` or an ``A`` that is not symmetric.
    ValueError
        If observed data are known and not unit vectors, ``mu`` is a scalar or ``A`` is not
        square.

    References
    ----------
    Mardia and Jupp, *Directional Statistics* (2000), section 9.3.3. Constant: Kume and Wood (2005),
    Biometrika 92, section 2; draws: Kent, Ganeiber and Mardia (2013), arXiv:1310.8110.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions import FisherBingham
    >>> north = np.array([0.0, 0.0, 1.0])
    >>> with pm.Model() as model:
    ...     x = FisherBingham("x", mu=north, kappa=10.0, A=np.diag([3.0, -3.0, 0.0]))
    >>> model.initial_point()["x_unitvector__"]
    array([0., 0., 1.])
    """

    rv_op = fisher_bingham

    @classmethod
    def dist(cls, mu: Any, kappa: Any, A: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        mu = pt.as_tensor_variable(floatX(mu))
        kappa = pt.as_tensor_variable(floatX(kappa))
        A = pt.as_tensor_variable(floatX(A))
        if mu.type.ndim == 0:
            raise ValueError("mu of FisherBingham must be a unit vector (last axis), not a number")
        require_square(A, "A", "FisherBingham")
        lengths = {mu.type.shape[-1], *A.type.shape[-2:]} - {None}
        if len(lengths) > 1:
            raise ValueError(
                f"mu of FisherBingham has {mu.type.shape[-1]} coordinates, but A is a matrix of "
                f"{A.type.shape[-1]} rows"
            )
        cls.require_last_axis(kwargs.get("shape"), mu.type.shape[-1], "mu")
        return super().dist([mu, kappa, A], **kwargs)

    def support_point(
        rv: TensorVariable,
        size: TensorVariable,
        mu: TensorVariable,
        kappa: TensorVariable,
        A: TensorVariable,
    ) -> TensorVariable:
        """Return μ or the leading axis of A, signed towards μ, whichever has the higher density."""
        axis = leading_axis(A)
        cosine = pt.sum(axis * mu, axis=-1, keepdims=True)
        axis = pt.where(cosine >= 0, axis, -axis)

        def log_density(x: TensorVariable) -> TensorVariable:
            return kappa * pt.sum(mu * x, axis=-1) + pt.sum(pt.matvec(A, x) * x, axis=-1)

        best = pt.where((log_density(mu) >= log_density(axis))[..., None], mu, axis)
        return broadcast_to_size(best.astype(rv.dtype), size)

    def logp(
        value: TensorVariable, mu: TensorVariable, kappa: TensorVariable, A: TensorVariable
    ) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        log_integral = matrix_integral(A, kappa[..., None] * mu)[0].astype(value.dtype)
        density = kappa * inner_product(value, mu) + quadratic_form(value, A) - log_integral
        return check_parameters(
            minus_infinity_off_sphere(value, density),
            has_unit_length(mu),
            kappa >= 0,
            is_symmetric(A),
            msg="mu is a unit vector, kappa >= 0, A is symmetric",
        )


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
        return draw_batch(fill_kent, rng, parameters, leading, size, (3,))

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
    r"""Kent distribution: elliptical contours around a mean direction on the sphere :math:`S^2`.

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
        Major axis, a unit vector orthogonal to ``mu``; the sign has no effect.
    kappa : tensor_like of float, shape (...)
        Concentration, positive.
    beta : tensor_like of float, shape (...)
        Ovalness, at least 0 and below ``kappa / 2``.
    axes : tensor_like of float, shape (..., 3, 2) or (..., 3, 3), keyword only
        Instead of ``mu`` and ``major``: orthonormal columns, mean direction and major axis first.
        A `UniformStiefel` of that shape is a prior on them.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with axes that are not orthonormal, a negative ``beta``, or
        ``beta >= kappa / 2``, where ``mu`` is not the only mode; use `FisherBingham` for these.
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
        return broadcast_to_size(pt.broadcast_arrays(mu, major, (kappa + beta)[..., None])[0], size)

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
        slopes = pt.stack([kappa, pt.zeros_like(kappa), pt.zeros_like(kappa)], axis=-1)
        log_integral = spectral_integral(values, np.ones(3), slopes)[0].astype(value.dtype)
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
