"""Unit sphere: base class of its distributions, the uniform distribution, and rotations."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Continuous
from pymc.distributions.shape_utils import convert_shape, rv_size_is_none
from pymc.distributions.transforms import _default_transform
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.validation import (
    known_data,
    last_length,
    minus_infinity_off_sphere,
    require_known_arguments,
    require_unit_rows,
)
from pymc_geodesic.distributions.von_mises_fisher_draws import (
    are_unit_vectors,
    compiled_draws,
    draw_uniform_directions,
)
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.numba_backend import LoopRandomVariable
from pymc_geodesic.transforms.unit_vector import UnitVectorTransform, unit_vector


class Directional(Continuous):
    """Base class of distributions whose values are unit vectors along the last axis.

    Free variables get the unit-vector transform; observed data are checked when the model is
    built.

    Raises
    ------
    ValueError
        If observed data are known and hold a row that is not a unit vector.
    """

    def __new__(cls, name: str, *args: Any, observed: Any = None, **kwargs: Any) -> TensorVariable:
        """Check the observed data and add the variable to the model."""
        if observed is not None:
            require_unit_rows(name, observed)
        return super().__new__(cls, name, *args, observed=observed, **kwargs)

    @classmethod
    def dist(cls, *parameters: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; an unknown argument raises ``TypeError``."""
        require_known_arguments(cls, kwargs)
        return super().dist(*parameters, **kwargs)

    @classmethod
    def require_last_axis(cls, shape: Any, length: int | None, parameter: str) -> None:
        """Raise ``ValueError`` if the last entry of a known shape is not the given length."""
        last = last_length(shape)
        if None not in (last, length) and last != length:
            raise ValueError(
                f"the shape of {cls.__name__}, or of its observed data or dims, ends with {last}, "
                f"but {parameter} has {length} coordinates on its last axis"
            )


@_default_transform.register(Directional)
def directional_default_transform(op: Op, rv: TensorVariable) -> UnitVectorTransform:
    """Return the default transform of free variables on the sphere."""
    return unit_vector


def leading_axis(matrix: TensorVariable) -> TensorVariable:
    """Return a unit eigenvector of the largest eigenvalue, shape (..., d)."""
    return pt.linalg.eigh(matrix)[1][..., :, -1]


def broadcast_to_size(point: TensorVariable, size: TensorVariable) -> TensorVariable:
    """Broadcast a point to the size of a random variable."""
    if rv_size_is_none(size):
        return point
    return pt.full(pt.concatenate([size, [point.shape[-1]]]), point)


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
    r"""Uniform distribution on the sphere :math:`S^{d-1}`.

    The density with respect to surface measure is one over the area of the sphere,

    .. math:: p(x) = \frac{\Gamma(d/2)}{2\,\pi^{d/2}} .

    Free variables carry the unit-vector transform.

    Parameters
    ----------
    d : int, optional
        Dimension of the space, at least 2. The default is the last entry of ``shape``.
    shape : tuple of int, optional
        Shape of the variable, (..., d); in a model, ``dims`` or ``observed`` may define it.
    **kwargs
        Arguments of every PyMC distribution: ``dims``, ``observed``, ``total_size``, ….

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
        known = _static_length(dimension)
        if known is not None and known < 2:
            raise ValueError(f"UniformSphere needs a space of dimension 2 or more, but d = {known}")
        last = _static_length(shape[-1]) if shape else None
        if last not in (None, known):
            raise ValueError(
                f"UniformSphere has d = {known}, but its shape ends with {last}; the last axis "
                "holds the coordinates"
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


def _static_length(length: Any) -> int | None:
    """Return a length as an int, or None if it is symbolic."""
    variable = pt.as_tensor_variable(length)
    try:
        return int(pt.get_underlying_scalar_constant_value(variable))
    except NotScalarConstantError:
        return None


def rotation_to(mu: Any, kind: Literal["rotation", "reflection"] = "rotation") -> TensorVariable:
    r"""Orthogonal matrix that maps the north pole to a direction, differentiable in it.

    With :math:`\mu = (u, c)`, c the last coordinate, the rotation along the great circle from the
    north pole :math:`n = (0, \dots, 0, 1)` to μ is

    .. math::

        R = \begin{pmatrix} I - u u^\top / (1 + c) & u \\ -u^\top & c \end{pmatrix},

    and the Householder reflection that exchanges them

    .. math::

        H = \begin{pmatrix} I - u u^\top / (1 - c) & u \\ u^\top & c \end{pmatrix}.

    In a regression of directions, the mean of row i is R m_i, where R rotates the pole to an
    overall mean direction μ and m_i is a direction near the pole.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., d)
        Unit vectors.
    kind : {"rotation", "reflection"}
        The rotation is smooth for directions near the pole, the reflection, of determinant −1, for
        those near the south pole.

    Returns
    -------
    TensorVariable, shape (..., d, d)

    Raises
    ------
    ValueError
        If ``mu`` is a scalar, or known and not of unit length, or ``kind`` is unknown.

    Notes
    -----
    No such matrix is continuous on the whole sphere unless d is 2, 4 or 8. The rotation is
    discontinuous at the south pole, where it is defined as the half-turn in the plane of the first
    and the last axis; the reflection is discontinuous at the north pole, where it is defined as
    that of the first axis. These points have probability zero, but the posterior should be far from
    them: rotate the data first if it is not.

    References
    ----------
    Mardia and Jupp, *Directional Statistics* (2000), section 9.1, for coordinates around a pole.

    Examples
    --------
    Directions whose mean depends on a covariate z, through the tangent plane at an overall mean:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic import UniformSphere, VonMisesFisher, rotation_to
    >>> z = np.linspace(-1.0, 1.0, 3)
    >>> with pm.Model() as model:
    ...     overall = UniformSphere("overall", shape=3)
    ...     slope = pm.Normal("slope", 0.0, 1.0, shape=2)
    ...     chart = pt.concatenate([z[:, None] * slope, np.ones((3, 1))], axis=1)
    ...     near_pole = chart / pt.sqrt((chart**2).sum(axis=1, keepdims=True))
    ...     mean = near_pole @ rotation_to(overall).T
    ...     x = VonMisesFisher("x", mean, 20.0, observed=np.eye(3))
    >>> R = rotation_to(np.array([0.6, 0.0, 0.8])).eval()
    >>> (R @ [0.0, 0.0, 1.0]).round(12).tolist(), float(np.linalg.det(R).round(12))
    ([0.6, 0.0, 0.8], 1.0)
    """
    if kind not in ("rotation", "reflection"):
        raise ValueError(f'kind={kind!r} is unknown; choose "rotation" or "reflection"')
    mu = pt.as_tensor_variable(floatX(mu))
    if mu.type.ndim == 0 or mu.type.shape[-1] == 1:
        raise ValueError(
            "mu of rotation_to must be a unit vector of at least 2 coordinates (last axis), but "
            f"has the static shape {mu.type.shape}"
        )
    known = known_data(mu)
    if known is not None and not np.all(are_unit_vectors(known)):
        raise ValueError("mu of rotation_to must contain unit vectors. Divide each by its length.")
    sign = 1.0 if kind == "rotation" else -1.0
    u, c = mu[..., :-1], mu[..., -1]
    height = sign * c
    squared = pt.sum(u**2, axis=-1)
    singular = pt.eq(squared, 0.0) & (height < 0.0)
    # 1 + c for c near −1, computed from the other coordinates without cancellation.
    below = pt.switch(height < 0.0, squared / (1.0 - height), 1.0 + height)
    first = pt.zeros_like(u)
    first = pt.set_subtensor(first[..., 0], 1.0)
    outer = u[..., :, None] * u[..., None, :] / pt.switch(singular, 1.0, below)[..., None, None]
    half_turn = 2.0 * first[..., :, None] * first[..., None, :]
    block = pt.eye(mu.shape[-1] - 1) - pt.switch(singular[..., None, None], half_turn, outer)
    top = pt.concatenate([block, u[..., :, None]], axis=-1)
    bottom = pt.concatenate([-sign * u, c[..., None]], axis=-1)[..., None, :]
    return pt.concatenate([top, bottom], axis=-2).astype(np.dtype(mu.dtype))
