"""The Fisher–Bingham distribution."""

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
from pymc_geodesic.distributions.quadratic import (
    is_symmetric,
    leading_axis,
    of_size,
    quadratic_form,
    require_square,
)
from pymc_geodesic.distributions.quadratic_draws import (
    draw_fisher_bingham,
    fill_fisher_bingham,
    require_direction,
)
from pymc_geodesic.distributions.unit_rows import has_unit_length, minus_infinity_off_sphere
from pymc_geodesic.ops.inner_products import inner_product
from pymc_geodesic.ops.numba_backend import LoopRandomVariable
from pymc_geodesic.ops.quadratic_ops import matrix_integral


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
    r"""Directions whose log-density is any polynomial of second degree.

    The density with respect to surface measure on the sphere :math:`S^{d-1}` is

    .. math::

        p(x \mid \mu, \kappa, A) = \frac{e^{\kappa\, \mu \cdot x + x^\top A x}}{C(\kappa \mu, A)} .

    It is a normal distribution of :math:`\mathbb R^d` given that the vector has length one.
    `VonMisesFisher` (A = 0), `Bingham` (κ = 0), `Watson` and `Kent` are special cases. A and
    A + c I are the same distribution.

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      :math:`\partial \log C / \partial (\kappa \mu)`; see
              `pymc_geodesic.distributions.quadratic.fisher_bingham_moments`
    ========  ==================================================================

    The constant is Kume and Wood's contour integral, summed up rather than approximated at its
    saddle point: its relative error is below 1e-13, and it is twice differentiable in all
    parameters. Random draws are exact: rejection from an angular central Gaussian, with two
    proposals on average for a Kent-like distribution, and a number that grows with the square root
    of the concentration where μ is orthogonal to the leading axis of A. Free variables carry the
    unit-vector transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        A unit vector, d at least 2.
    kappa : tensor_like of float, shape (...)
        Weight of the linear term, at least 0.
    A : tensor_like of float, shape (..., d, d)
        Symmetric matrix of the quadratic term.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not of unit length, a negative
        ``kappa`` or an ``A`` that is not symmetric.
    ValueError
        If observed data are known and not unit vectors, ``mu`` is a single number or ``A`` is not
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
        """Return the likelier of μ and the leading axis of A, in the direction nearer to μ."""
        axis = leading_axis(A)
        cosine = pt.sum(axis * mu, axis=-1, keepdims=True)
        axis = pt.where(cosine >= 0, axis, -axis)

        def log_density(x: TensorVariable) -> TensorVariable:
            return kappa * pt.sum(mu * x, axis=-1) + pt.sum(pt.matvec(A, x) * x, axis=-1)

        best = pt.where((log_density(mu) >= log_density(axis))[..., None], mu, axis)
        return of_size(best.astype(rv.dtype), size)

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
