"""The uniform distribution on the sphere."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import convert_shape
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.compiled_draws import compiled_draws
from pymc_geodesic.distributions.directional import Directional
from pymc_geodesic.distributions.draws import draw_uniform_directions
from pymc_geodesic.distributions.unit_rows import minus_infinity_off_sphere
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


class UniformSphereRV(LoopRandomVariable):
    """Random variable Op of `UniformSphere`; its parameter is the dimension d of the space."""

    name = "UniformSphere"
    signature = "()->(d)"
    dtype = "floatX"
    _print_name = ("UniformSphere", "\\operatorname{UniformSphere}")

    def _supp_shape_from_params(
        self, dist_params: Sequence[Variable], param_shapes: Any = None
    ) -> list[Variable]:
        """Return the dimension of the space as the shape of one draw."""
        return [dist_params[0].squeeze()]

    @classmethod
    def rng_fn(
        cls, rng: np.random.Generator, d: NDArray[np.integer], size: tuple[int, ...] | None
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_uniform_directions`."""
        return draw_uniform_directions(rng, (*(size or ()), int(np.squeeze(d))))

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one direction."""
        dtype = self.dtype
        fill_uniform = compiled_draws(njit).fill_uniform

        @njit
        def draw(rng, d, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            if out is None:
                out = np.empty(d, dtype=dtype)
            fill_uniform(rng, out)
            return out

        draw.handles_out = True
        return draw


uniform_sphere = UniformSphereRV()


class UniformSphere(Directional):
    r"""Directions without preference: the uniform distribution on the sphere :math:`S^{d-1}`.

    The density with respect to surface measure is one over the area of the sphere,

    .. math:: p(x) = \frac{\Gamma(d/2)}{2\,\pi^{d/2}} .

    Free variables carry the unit-vector transform.

    Parameters
    ----------
    d : int, optional
        Dimension of the space, at least 2. The last entry of ``shape`` if left out.
    shape : tuple of int, optional
        Shape of the variable, (..., d); in a model ``dims`` or ``observed`` do as well.
    **kwargs
        What every PyMC distribution takes: ``dims``, ``observed``, ``total_size``, ….

    Raises
    ------
    ValueError
        If neither ``d`` nor a shape is given, if they disagree, if d is below 2, or if observed
        data are known and not unit vectors.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions import UniformSphere
    >>> x = UniformSphere.dist(shape=(4, 3))
    >>> density = pm.logp(x, np.array([0.0, 0.6, 0.8]))
    >>> float(density.exp().eval(mode="FAST_COMPILE")[0] * 4 * np.pi)
    1.000...
    """

    rv_op = uniform_sphere

    @classmethod
    def dist(cls, d: Any = None, *, shape: Any = None, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        if shape is not None:
            shape = convert_shape(shape)
        if d is None:
            if not shape:
                raise ValueError(
                    "UniformSphere needs the dimension of the space: pass shape=(..., d), dims, "
                    "observed data, or d"
                )
            d = shape[-1]
        dimension = pt.as_tensor_variable(d, dtype="int64", ndim=0)
        known = _number(dimension)
        if known is not None and known < 2:
            raise ValueError(f"UniformSphere needs a space of dimension 2 or more, but d = {known}")
        if shape and _number(shape[-1]) not in (None, known):
            raise ValueError(
                f"UniformSphere has d = {known}, but its shape ends with {_number(shape[-1])}; the "
                "last axis holds the coordinates"
            )
        return super().dist([dimension], shape=shape, **kwargs)

    def support_point(
        rv: TensorVariable, size: TensorVariable, d: TensorVariable
    ) -> TensorVariable:
        """Return the direction with equal coordinates."""
        return pt.full(rv.shape, 1.0 / pt.sqrt(d.squeeze().astype(rv.dtype)))

    def logp(value: TensorVariable, d: TensorVariable) -> TensorVariable:
        """Return the log-density of unit vectors, shape (...), for values of shape (..., d)."""
        constant = log_vmf_normalizer(d.squeeze(), 0.0).astype(value.dtype)
        density = pt.full(value.shape[:-1], constant)
        return check_parameters(
            minus_infinity_off_sphere(value, density),
            pt.eq(d.squeeze(), value.shape[-1]),
            msg="d is the number of coordinates",
        )


def _number(length: Any) -> int | None:
    """Return the number behind a length, if it is known."""
    variable = pt.as_tensor_variable(length)
    try:
        return int(pt.get_underlying_scalar_constant_value(variable))
    except NotScalarConstantError:
        return None
