"""The angular central Gaussian distribution of axes."""

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
from pymc_geodesic.distributions.draws import Array
from pymc_geodesic.distributions.quadratic import (
    is_symmetric,
    leading_axis,
    of_size,
    quadratic_form,
    require_square,
)
from pymc_geodesic.distributions.quadratic_draws import SYMMETRY_TOLERANCE, fill_each
from pymc_geodesic.distributions.unit_rows import minus_infinity_off_sphere
from pymc_geodesic.distributions.von_mises_fisher import length_of_last_axis
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.numba_backend import LoopRandomVariable
from pymc_geodesic.runtime.jit import compiled


@compiled
def fill_angular_central_gaussian(rng: np.random.Generator, cov: Array, out: Array) -> None:
    """Fill the rows of ``out``, shape (n, d), with normal vectors divided by their lengths."""
    d = cov.shape[0]
    lower = np.zeros((d, d))
    for i in range(d):
        for j in range(i + 1):
            if not abs(cov[i, j] - cov[j, i]) <= SYMMETRY_TOLERANCE * np.max(np.abs(cov)):
                raise ValueError("cov must be symmetric")
            rest = cov[i, j]
            for k in range(j):
                rest -= lower[i, k] * lower[j, k]
            if i == j:
                if not (rest > 0.0 and rest < np.inf):
                    raise ValueError("cov must be positive definite")
                lower[i, i] = np.sqrt(rest)
            else:
                lower[i, j] = rest / lower[j, j]
    normal = np.empty(d)
    for row in range(out.shape[0]):
        squared = 0.0
        for i in range(d):
            normal[i] = rng.standard_normal()
            value = 0.0
            for j in range(i + 1):
                value += lower[i, j] * normal[j]
            out[row, i] = value
            squared += value * value
        for i in range(d):
            out[row, i] /= np.sqrt(squared)


class AngularCentralGaussianRV(LoopRandomVariable):
    """Random variable Op of `AngularCentralGaussian`."""

    name = "AngularCentralGaussian"
    signature = "(d,d)->(d)"
    dtype = "floatX"
    _print_name = ("AngularCentralGaussian", "\\operatorname{AngularCentralGaussian}")

    @classmethod
    def rng_fn(
        cls, rng: np.random.Generator, cov: NDArray[np.floating], size: tuple[int, ...] | None
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `fill_angular_central_gaussian`."""
        matrices = np.asarray(cov, dtype=np.float64)
        leading = cov.shape[:-2]
        size = leading if size is None else size
        fill = fill_angular_central_gaussian
        return fill_each(fill, rng, (matrices,), (leading,), size, cov.shape[-1:])

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype

        @njit
        def draw(rng, cov):  # type: ignore[no-untyped-def]  # typed by Numba
            out = np.empty((1, cov.shape[0]))
            matrix = np.ascontiguousarray(cov).astype(np.float64)
            fill_angular_central_gaussian(rng, matrix, out)
            return out[0].astype(dtype)

        return draw


angular_central_gaussian = AngularCentralGaussianRV()


class AngularCentralGaussian(Directional):
    r"""Axes of normal vectors: :math:`x = z / \|z\|` with :math:`z \sim N(0, \Sigma)`.

    The density with respect to surface measure on the sphere :math:`S^{d-1}` is

    .. math::

        p(x \mid \Sigma) = \frac{\Gamma(d/2)}{2 \pi^{d/2}}\, |\Sigma|^{-1/2}
                           (x^\top \Sigma^{-1} x)^{-d/2} .

    x and −x are equally likely, and Σ and c Σ are the same distribution: a prior has to settle the
    scale. The tails are heavier than those of `Bingham`, and there is no constant to compute.

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      0
    Mode      ± the eigenvector of the largest eigenvalue of Σ
    ========  ==================================================================

    Free variables carry the unit-vector transform.

    Parameters
    ----------
    cov : tensor_like of float, shape (..., d, d)
        Σ, symmetric and positive definite, d at least 2.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``cov`` that is not symmetric and positive definite.
    ValueError
        If observed data are known and not unit vectors, or ``cov`` is not square.

    References
    ----------
    Tyler (1987), Statistical analysis for the angular central Gaussian distribution on the sphere,
    Biometrika 74, equation 1.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions import AngularCentralGaussian
    >>> x = AngularCentralGaussian.dist(np.eye(3))
    >>> density = pm.logp(x, np.array([0.0, 0.6, 0.8])).exp()
    >>> float(density.eval(mode="FAST_COMPILE") * 4 * np.pi)
    1.000...
    """

    rv_op = angular_central_gaussian

    @classmethod
    def dist(cls, cov: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        cov = pt.as_tensor_variable(floatX(cov))
        require_square(cov, "cov", "AngularCentralGaussian")
        cls.require_last_axis(kwargs.get("shape"), cov.type.shape[-1], "cov")
        return super().dist([cov], **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, cov: TensorVariable
    ) -> TensorVariable:
        """Return a mode."""
        return of_size(leading_axis(cov), size)

    def logp(value: TensorVariable, cov: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        d = length_of_last_axis(cov, value)
        # The derivatives of the inverse and of the determinant are smaller graphs than that of the
        # Cholesky factor, which here only says whether there is one.
        factor = pt.linalg.cholesky(cov)
        log_determinant = pt.linalg.slogdet(cov)[1]
        log_form = pt.log(quadratic_form(value, pt.linalg.inv(cov)))
        area = log_vmf_normalizer(d, 0.0).astype(value.dtype)
        density = area - 0.5 * log_determinant - 0.5 * d * log_form
        return check_parameters(
            minus_infinity_off_sphere(value, density),
            is_symmetric(cov),
            pt.all(pt.diagonal(factor, axis1=-2, axis2=-1) > 0, axis=-1),
            msg="cov is symmetric and positive definite",
        )
