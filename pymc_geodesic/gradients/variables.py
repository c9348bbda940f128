"""Which manifold every variable of a model lives on, and its coordinates there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pymc.distributions.transforms import _default_transform
from pymc.logprob.transforms import LogTransform, SimplexTransform, Transform
from pymc.model import Model
from pymc.util import get_value_vars_from_user_vars
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.manifolds import (
    Euclidean,
    HalfLine,
    Manifold,
    Product,
    Simplex,
    Sphere,
    Stiefel,
)
from pymc_geodesic.transforms import square_root_simplex, stiefel, unit_vector

__all__ = ["ManifoldVariable", "manifold_variables", "product_of"]


def _same(value: np.ndarray) -> np.ndarray:
    return value


def _softmax_of_zero_sum(value: np.ndarray) -> np.ndarray:
    full = np.concatenate([value, -value.sum(axis=-1, keepdims=True)], axis=-1)
    full = np.exp(full - full.max(axis=-1, keepdims=True))
    return full / full.sum(axis=-1, keepdims=True)


def _centred_log(simplex: np.ndarray) -> np.ndarray:
    log = np.log(simplex)
    return log[..., :-1] - log.mean(axis=-1, keepdims=True)


def _squared_direction(value: np.ndarray) -> np.ndarray:
    return value**2 / np.sum(value**2, axis=-1, keepdims=True)


_NUMERICAL_TRANSFORMS: dict[type[Transform], tuple[Callable, Callable]] = {
    SimplexTransform: (_softmax_of_zero_sum, _centred_log),
    type(square_root_simplex): (_squared_direction, np.sqrt),
    LogTransform: (np.exp, np.log),
}
"""(backward, forward) of transforms whose point differs from the value PyMC keeps."""


@dataclass(frozen=True)
class ManifoldVariable:
    """A free variable of a model, as the points of a manifold.

    Attributes
    ----------
    name : str
        Name of the random variable.
    value_name : str
        Its key in the points that PyMC passes around.
    rv, value : TensorVariable
        Random variable and value variable of the model.
    manifold : Manifold
        Where each point lives.
    rows : int
        Number of points.
    shape : tuple of int
        Shape of the variable itself, ``rows * manifold.size`` numbers.
    value_shape : tuple of int
        Shape of PyMC's value.
    on_manifold : bool
        Whether the geodesic step moves the variable itself instead of PyMC's unconstrained
        value (true for all but Euclidean variables).
    backward, forward : callable
        From PyMC's value to the variable and back, in NumPy.
    """

    name: str
    value_name: str
    rv: TensorVariable
    value: TensorVariable
    manifold: Manifold
    rows: int
    shape: tuple[int, ...]
    value_shape: tuple[int, ...]
    on_manifold: bool
    backward: Callable[[np.ndarray], np.ndarray]
    forward: Callable[[np.ndarray], np.ndarray]

    def coordinates(self, values: np.ndarray) -> np.ndarray:
        """Kernel coordinates, shape ``(n, size)``, of the values of n of its points.

        Raises
        ------
        ValueError
            If a point is not on the manifold; the message names the variable.
        """
        points = self.backward(np.asarray(values, dtype=float)).reshape(-1, *self.manifold.shape)
        self.manifold.check(self.name, points)
        return self.manifold.to_coordinates(points).reshape(-1, self.manifold.size)

    @cached_property
    def coordinates_are_values(self) -> bool:
        """Whether the coordinates are the very numbers that PyMC passes around."""
        has_chart = type(self.manifold).from_coordinates is not Manifold.from_coordinates
        return self.forward is _same and not has_chart

    def values(self, coordinates: np.ndarray) -> np.ndarray:
        """Values that PyMC passes around, a new array that is to be reshaped.

        ``coordinates`` are those of any number of points, in any shape.
        """
        if self.coordinates_are_values:
            return coordinates.copy()
        points = coordinates.reshape(-1, *self.manifold.shape)
        return self.forward(np.asarray(self.manifold.from_coordinates(points)))


def _default_manifold(transform: Transform | None) -> type[Manifold]:
    """Return where a variable lives that PyMC keeps under this transform."""
    if transform is unit_vector or isinstance(transform, type(unit_vector)):
        return Sphere
    if isinstance(transform, type(stiefel)):
        return Stiefel
    if isinstance(transform, SimplexTransform | type(square_root_simplex)):
        return Simplex
    return Euclidean


def _place(
    manifold: Callable[..., Manifold], name: str, shape: tuple[int, ...], by_row: bool
) -> tuple[Manifold, int]:
    """Instance of ``manifold`` and number of its points in an array of this shape."""
    if by_row and len(shape) < 1:
        raise ValueError(f"{name!r} is a scalar: a local variable has a value for each row of data")
    if manifold in (Euclidean, HalfLine):
        if by_row:
            return manifold(int(np.prod(shape[1:], dtype=int))), shape[0]
        return manifold(int(np.prod(shape, dtype=int))), 1
    if manifold is Stiefel:
        if len(shape) < 2:
            raise ValueError(f"{name!r} has shape {shape}: an orthonormal frame is a matrix (n, p)")
        return Stiefel(*shape[-2:]), int(np.prod(shape[:-2], dtype=int))
    if len(shape) < 1:
        raise ValueError(f"{name!r} is a scalar: a point of {manifold.__name__} is a vector")
    return manifold(shape[-1]), int(np.prod(shape[:-1], dtype=int))


def manifold_variables(
    model: Model,
    vars: Sequence[TensorVariable | str] | TensorVariable | str | None,
    manifolds: Mapping[str, type[Manifold]] | None = None,
    by_row: bool = False,
    everywhere: type[Manifold] | None = None,
) -> list[ManifoldVariable]:
    """Look up the manifold of every variable.

    Parameters
    ----------
    model : pymc.Model
    vars : variables or names
        Random or value variables; all continuous free variables when None.
    manifolds : mapping of str to class, optional
        Manifold of a variable by name, instead of the one its transform implies:
        unit vector → `Sphere`, simplex → `Simplex`, orthonormal frame → `Stiefel`,
        otherwise `Euclidean` in PyMC's unconstrained value.
    by_row : bool
        Whether each entry of the first axis is a point of its own, also in Euclidean space.
    everywhere : class, optional
        Manifold of all variables that ``manifolds`` does not name, whatever their transform.

    Raises
    ------
    ValueError
        For an unknown, discrete, observed or empty variable, one that has bounds and no
        transform, or a direction in single precision.
    """
    if vars is None:
        values = list(model.continuous_value_vars)
    else:
        if isinstance(vars, str | TensorVariable):
            vars = [vars]
        unknown = [v for v in vars if isinstance(v, str) and v not in model.named_vars]
        if unknown:
            known = [rv.name for rv in model.free_RVs]
            raise ValueError(f"Unknown variable {unknown[0]!r}; the free variables are {known}")
        named = [model[v] if isinstance(v, str) else v for v in vars]
        observed = [v.name for v in named if v in model.observed_RVs]
        if observed:
            raise ValueError(f"{observed[0]!r} is observed and cannot be sampled")
        values = get_value_vars_from_user_vars(named, model)
    manifolds = {} if manifolds is None else dict(manifolds)
    initial_point = model.initial_point(random_seed=0)

    variables = []
    for value in values:
        rv = model.values_to_rvs[value]
        if value.dtype not in ("float64", "float32"):
            raise ValueError(
                f"{rv.name!r} is discrete ({value.dtype}): gradient samplers need continuous "
                "variables; leave it to another step method"
            )
        transform = model.rvs_to_transforms[rv]
        initial = np.asarray(initial_point[value.name], dtype=float)
        if initial.size == 0:
            raise ValueError(f"{rv.name!r} has shape {initial.shape}: there is nothing to sample")
        kind = manifolds.pop(rv.name, None)
        if kind is None:
            kind = everywhere or _default_manifold(transform)
            if transform is None and (natural := _default_transform(rv.owner.op, rv)) is not None:
                kind = _default_manifold(natural)
                if kind is Euclidean or everywhere is not None:
                    raise ValueError(
                        f"{rv.name!r} has bounds and no transform, so that a step could leave its "
                        "support; keep the default transform of its distribution"
                    )
        if kind in (Sphere, Stiefel) and value.dtype != "float64":
            raise ValueError(
                f"{rv.name!r} is {value.dtype}, too coarse to stay on {kind.__name__}; make the "
                'model with pytensor.config.floatX = "float64"'
            )
        on_manifold = kind is not Euclidean
        if on_manifold:
            backward, forward = _NUMERICAL_TRANSFORMS.get(type(transform), (_same, _same))
        else:
            backward, forward = _same, _same
        shape = backward(initial).shape
        manifold, rows = _place(kind, rv.name, shape, by_row)
        variables.append(
            ManifoldVariable(
                name=rv.name,
                value_name=value.name,
                rv=rv,
                value=value,
                manifold=manifold,
                rows=rows,
                shape=shape,
                value_shape=initial.shape,
                on_manifold=on_manifold,
                backward=backward,
                forward=forward,
            )
        )
    if manifolds:
        raise ValueError(f"manifolds= names variables that are not sampled here: {list(manifolds)}")
    return variables


def product_of(variables: Sequence[ManifoldVariable]) -> Product:
    """Product manifold of several variables, in their order."""
    return Product([(v.name, v.manifold, v.rows) for v in variables])
