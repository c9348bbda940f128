"""The von Mises–Fisher distribution."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pytensor.graph.basic import Apply
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.around_mean import AroundMean, mean_direction
from pymc_geodesic.distributions.compiled_draws import compiled_draws
from pymc_geodesic.distributions.draws import draw_von_mises_fisher
from pymc_geodesic.distributions.unit_rows import has_unit_length, minus_infinity_off_sphere
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.inner_products import inner_product
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


class VonMisesFisherRV(LoopRandomVariable):
    """Random variable Op of `VonMisesFisher`."""

    name = "VonMisesFisher"
    signature = "(d),()->(d)"
    dtype = "floatX"
    _print_name = ("VonMisesFisher", "\\operatorname{VonMisesFisher}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        kappa: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_von_mises_fisher`."""
        return draw_von_mises_fisher(rng, mu, kappa, size)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype
        fill_von_mises_fisher = compiled_draws(njit).fill_von_mises_fisher

        @njit
        def draw(rng, mu, kappa, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            if out is None:
                out = np.empty(mu.shape[0], dtype=dtype)
            fill_von_mises_fisher(rng, mu, kappa, out)
            return out

        draw.handles_out = True
        return draw


von_mises_fisher = VonMisesFisherRV()


def log_density_of_cosine(
    cosine: TensorVariable, kappa: TensorVariable, d: int | TensorVariable
) -> TensorVariable:
    r"""Return :math:`\log c_d(\kappa) + \kappa \cos`, in the precision of the cosine."""
    constant = log_vmf_normalizer(d, kappa).astype(cosine.dtype)
    return constant + kappa * cosine


def length_of_last_axis(*variables: TensorVariable) -> int | TensorVariable:
    """Return the length of the last axis: a number if any of the variables knows it."""
    for variable in variables:
        if variable.type.shape[-1] is not None:
            return int(variable.type.shape[-1])
    return variables[0].shape[-1]


class VonMisesFisher(AroundMean):
    r"""Directions scattered around a mean direction on the sphere :math:`S^{d-1}`.

    The density with respect to surface measure is

    .. math::

        p(x \mid \mu, \kappa) = c_d(\kappa)\, e^{\kappa\, \mu \cdot x}, \qquad
        c_d(\kappa) = \frac{\kappa^{d/2-1}}{(2\pi)^{d/2}\, I_{d/2-1}(\kappa)} .

    ========  ==================================================================
    Support   :math:`x \in \mathbb{R}^d`, :math:`\|x\| = 1`
    Mean      :math:`A_d(\kappa)\,\mu`, :math:`A_d = I_{d/2} / I_{d/2-1}`
    Mode      :math:`\mu`
    ========  ==================================================================

    Constant and gradient are exact to rounding for d from 2 to 1e5 and kappa from 0 to 1e8, and
    random draws are exact. Free variables carry the unit-vector transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        Mean direction, a unit vector, d at least 2.
    kappa : tensor_like of float, shape (...)
        Concentration, at least 0; at 0 the distribution is uniform.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a ``mu`` that is not of unit length or a negative
        ``kappa``.
    ValueError
        If observed data are known and not unit vectors, or ``mu`` is a single number.

    Notes
    -----
    The log-density of a value that is not of unit length is minus infinity. Data known when the
    log-density is built (arrays, `pymc.Data`, `pymc.Minibatch`) are tested then, once; data put
    in their place by `pymc.set_data` must be unit vectors too, and are not tested again.

    References
    ----------
    Mardia and Jupp, *Directional Statistics* (2000), section 9.3.2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions import VonMisesFisher
    >>> north = np.array([0.0, 0.0, 1.0])
    >>> with pm.Model() as model:
    ...     mean = VonMisesFisher("mean", mu=north, kappa=1.0)
    ...     x = VonMisesFisher("x", mu=mean, kappa=10.0, observed=np.eye(3))
    >>> model.free_RVs, model.initial_point()
    ([mean], {'mean_unitvector__': array([0., 0., 1.])})
    """

    rv_op = von_mises_fisher

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
        density = log_density_of_cosine(inner_product(value, mu), kappa, d)
        return check_parameters(
            minus_infinity_off_sphere(value, density),
            has_unit_length(mu),
            kappa >= 0,
            msg="mu is a unit vector, kappa >= 0",
        )
