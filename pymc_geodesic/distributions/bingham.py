"""Distributions of axes with a quadratic form in the exponent: Bingham and Watson."""

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
    fill_watson,
)
from pymc_geodesic.distributions.rotationally_symmetric import RotationallySymmetric
from pymc_geodesic.distributions.unit_sphere import Directional, broadcast_to_size, leading_axis
from pymc_geodesic.distributions.validation import (
    has_unit_length,
    is_symmetric,
    length_of_last_axis,
    minus_infinity_off_sphere,
    require_square,
)
from pymc_geodesic.ops.fisher_bingham_ops import matrix_integral, spectral_integral
from pymc_geodesic.ops.inner_products import inner_product, quadratic_form
from pymc_geodesic.ops.numba_backend import LoopRandomVariable, draw_batch


def matrix_of_axes(A: Any, axes: Any, concentrations: Any, distribution: str) -> Any:
    """Return A, or axes · diag(concentrations) · axesᵀ if these are given instead.

    Raises
    ------
    TypeError
        If both or neither are given.
    ValueError
        If the static shape of the axes is not square or does not match the concentrations.
    """
    if (axes is None) != (concentrations is None) or (A is None) == (axes is None):
        raise TypeError(f"{distribution} takes either A, or axes= and concentrations= together")
    if A is not None:
        return A
    columns, weights = pt.as_tensor(axes), pt.as_tensor(concentrations)
    require_square(columns, "axes", distribution)
    if weights.type.ndim == 0:
        raise ValueError(
            f"concentrations of {distribution} must hold one number for each axis, not one for all"
        )
    lengths = {*columns.type.shape[-2:], weights.type.shape[-1]} - {None}
    if len(lengths) > 1:
        raise ValueError(
            f"axes of {distribution} has {columns.type.shape[-1]} columns, but there are "
            f"{weights.type.shape[-1]} concentrations: each column needs its own"
        )
    return (columns * weights[..., None, :]) @ columns.mT


class BinghamRV(LoopRandomVariable):
    """Random variable Op of `Bingham`."""

    name = "Bingham"
    signature = "(d,d)->(d)"
    dtype = "floatX"
    _print_name = ("Bingham", "\\operatorname{Bingham}")

    @classmethod
    def rng_fn(
        cls, rng: np.random.Generator, A: NDArray[np.floating], size: tuple[int, ...] | None
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_fisher_bingham`."""
        return draw_fisher_bingham(rng, A, np.zeros(A.shape[-1]), size)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype

        @njit
        def draw(rng, A):  # type: ignore[no-untyped-def]  # typed by Numba
            matrix = np.ascontiguousarray(A).astype(np.float64)
            out = np.empty((1, matrix.shape[0]))
            fill_fisher_bingham(rng, matrix, np.zeros(matrix.shape[0]), out)
            return out[0].astype(dtype)

        return draw


bingham = BinghamRV()


class Bingham(Directional):
    r"""Bingham distribution of axes on the sphere :math:`S^{d-1}`.

    The density with respect to surface measure on the sphere :math:`S^{d-1}` is

    .. math::

        p(x \mid A) = \frac{e^{x^\top A x}}{C(A)}, \qquad
        C(A) = \frac{2 \pi^{d/2}}{\Gamma(d/2)}\, {}_1F_1(\tfrac12; \tfrac d2; A) .

    x and −x have the same density. A and A + c I define the same distribution, so c is identified
    only by a prior on A or by a constraint on its trace or largest eigenvalue.

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      0; :math:`\mathrm E\,x x^\top = \partial \log C / \partial A`
    Mode      ± the eigenvector of the largest eigenvalue of A
    ========  ==================================================================

    The constant has a relative error below 1e-13, for any eigenvalues, equal ones too, and is
    twice differentiable in A. Random draws are exact: rejection from an angular central Gaussian,
    with at most about :math:`\sqrt d` proposals. Free variables carry the unit-vector transform.

    Parameters
    ----------
    A : tensor_like of float, shape (..., d, d)
        Symmetric matrix, not necessarily definite.
    axes : tensor_like of float, shape (..., d, d), keyword only
        Instead of A: orthonormal axes in columns.
    concentrations : tensor_like of float, shape (..., d), keyword only
        With ``axes``: the eigenvalues of A.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with an ``A`` that is not symmetric.
    TypeError
        If not exactly one of ``A``, or ``axes`` with ``concentrations``, is given.
    ValueError
        If observed data are known and not unit vectors, or ``A`` is not square.

    References
    ----------
    Bingham (1974), An antipodally symmetric distribution on the sphere, Annals of Statistics 2;
    Mardia and Jupp, *Directional Statistics* (2000), section 9.4.3. Constant: Kume and Wood (2005),
    Biometrika 92, section 2; draws: Kent, Ganeiber and Mardia (2013), arXiv:1310.8110.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions import Bingham
    >>> with pm.Model() as model:
    ...     x = Bingham("x", np.diag([0.0, 5.0, -20.0]))
    >>> abs(model.initial_point()["x_unitvector__"])
    array([0., 1., 0.])
    """

    rv_op = bingham

    @classmethod
    def dist(
        cls, A: Any = None, *, axes: Any = None, concentrations: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        A = matrix_of_axes(A, axes, concentrations, "Bingham")
        A = pt.as_tensor_variable(floatX(A))
        require_square(A, "A", "Bingham")
        cls.require_last_axis(kwargs.get("shape"), A.type.shape[-1], "A")
        return super().dist([A], **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, A: TensorVariable
    ) -> TensorVariable:
        """Return a mode."""
        return broadcast_to_size(leading_axis(A), size)

    def logp(value: TensorVariable, A: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        log_integral = matrix_integral(A, pt.zeros(A.shape[-1:]))[0].astype(value.dtype)
        density = quadratic_form(value, A) - log_integral
        return check_parameters(
            minus_infinity_off_sphere(value, density), is_symmetric(A), msg="A is symmetric"
        )


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
        return draw_batch(fill_watson, rng, parameters, leading, size, mu.shape[-1:])

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


class Watson(RotationallySymmetric):
    r"""Watson distribution of axes, bipolar or girdle, on the sphere :math:`S^{d-1}`.

    The density with respect to surface measure on the sphere :math:`S^{d-1}` is

    .. math::

        p(x \mid \mu, \kappa) = \frac{e^{\kappa\, (\mu \cdot x)^2}}{C_d(\kappa)}, \qquad
        C_d(\kappa) = \frac{2 \pi^{d/2}}{\Gamma(d/2)}\,
                      {}_1F_1(\tfrac12; \tfrac d2; \kappa) .

    x and −x have the same density: data are axes, given by either of their directions.

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
        Concentration: positive for axes around ``mu``, negative for axes around the great circle
        orthogonal to it, 0 for the uniform distribution.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not of unit length or a ``kappa`` that
        is not finite.
    ValueError
        If observed data are known and not unit vectors, or ``mu`` is a scalar.

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
        return cls.dist_around_mean(mu, kappa, **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, mu: TensorVariable, kappa: TensorVariable
    ) -> TensorVariable:
        """Return a mode: the axis, or a direction orthogonal to it."""
        smallest = pt.eq(pt.arange(mu.shape[-1]), pt.argmin(pt.abs(mu), axis=-1)[..., None])
        across = smallest - pt.sum(smallest * mu, axis=-1, keepdims=True) * mu
        across = across / pt.sqrt(pt.sum(across**2, axis=-1, keepdims=True))
        return broadcast_to_size(pt.where(kappa[..., None] >= 0, mu, across).astype(rv.dtype), size)

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
