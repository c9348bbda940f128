"""The Bingham distribution of axes."""

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
    matrix_of_axes,
    of_size,
    quadratic_form,
    require_square,
)
from pymc_geodesic.distributions.quadratic_draws import draw_fisher_bingham, fill_fisher_bingham
from pymc_geodesic.distributions.unit_rows import minus_infinity_off_sphere
from pymc_geodesic.ops.numba_backend import LoopRandomVariable
from pymc_geodesic.ops.quadratic_ops import matrix_integral


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
    r"""Axes with a normal-like scatter: a quadratic form in the exponent.

    The density with respect to surface measure on the sphere :math:`S^{d-1}` is

    .. math::

        p(x \mid A) = \frac{e^{x^\top A x}}{C(A)}, \qquad
        C(A) = \frac{2 \pi^{d/2}}{\Gamma(d/2)}\, {}_1F_1(\tfrac12; \tfrac d2; A) .

    x and −x are equally likely. A and A + c I are the same distribution, so that a prior on A, or
    a constraint on its trace or largest eigenvalue, has to settle c.

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
        Symmetric matrix, of any signature.
    axes : tensor_like of float, shape (..., d, d), keyword only
        Instead of A: orthonormal axes in columns.
    concentrations : tensor_like of float, shape (..., d), keyword only
        With ``axes``: the eigenvalues of A.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ``total_size``, ….

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
        return of_size(leading_axis(A), size)

    def logp(value: TensorVariable, A: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        log_integral = matrix_integral(A, pt.zeros(A.shape[-1:]))[0].astype(value.dtype)
        density = quadratic_form(value, A) - log_integral
        return check_parameters(
            minus_infinity_off_sphere(value, density), is_symmetric(A), msg="A is symmetric"
        )
