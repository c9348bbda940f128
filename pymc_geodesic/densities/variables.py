"""Which manifold every variable of a model lives on, and its coordinates there."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pymc.distributions.transforms import _default_transform
from pymc.logprob.transforms import CircularTransform
from pymc.model import Model
from pymc.util import get_value_vars_from_user_vars
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.supports import natural_manifold, require_support, same, values_of
from pymc_geodesic.manifolds import (
    Euclidean,
    HalfLine,
    Manifold,
    Product,
    Sphere,
    Stiefel,
)


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
    is_angle : bool
        Whether PyMC's values are angles that are not wrapped, with a density of period 2π.
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
    is_angle: bool = False

    @property
    def coordinate_names(self) -> list[str]:
        """Name of each coordinate, as in ``b[2]``; that of the variable if there is only one."""
        shape = self.shape if self.on_manifold else self.value_shape
        if math.prod(shape) == 1:
            return [self.name]
        return [f"{self.name}[{', '.join(map(str, place))}]" for place in np.ndindex(*shape)]

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
        return self.forward is same and not has_chart

    def values(self, coordinates: np.ndarray) -> np.ndarray:
        """Values that PyMC passes around, a new array that is to be reshaped.

        ``coordinates`` are those of any number of points, in any shape.
        """
        if self.coordinates_are_values:
            return coordinates.copy()
        points = coordinates.reshape(-1, *self.manifold.shape)
        return self.forward(np.asarray(self.manifold.from_coordinates(points)))


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


def _kinds(manifolds: Mapping[str, type[Manifold]] | None) -> dict[str, type[Manifold]]:
    """Check the argument ``manifolds=`` of a step method."""
    if manifolds is None:
        return {}
    if not isinstance(manifolds, Mapping):
        raise ValueError(
            'manifolds= maps names to classes, as in {"x": pg.manifolds.Sphere}; got '
            f"{manifolds!r}"
        )
    kinds = {getattr(key, "name", key): kind for key, kind in manifolds.items()}
    for name, kind in kinds.items():
        if not (isinstance(kind, type) and issubclass(kind, Manifold)):
            raise ValueError(
                f"manifolds= gives {name!r} the manifold {kind!r}; give a class, such as "
                "pg.manifolds.Sphere, whose size comes from the shape of the variable"
            )
    return kinds


def _values_of(
    model: Model, vars: Sequence[TensorVariable | str] | TensorVariable | str
) -> list[TensorVariable]:
    """Value variables of the variables that a user names."""
    free = [rv.name for rv in model.free_RVs]
    if isinstance(vars, str | Variable):
        vars = [vars]
    if not isinstance(vars, Iterable):
        raise ValueError(f"vars must be variables or their names, got {vars!r}")
    named = []
    for each in vars:
        if isinstance(each, str) and each not in model.named_vars:
            near = difflib.get_close_matches(each, free, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"Unknown variable {each!r}; the free variables are {free}.{hint}")
        if not isinstance(each, str | Variable):
            raise ValueError(f"vars must be variables or their names, got {each!r} among them")
        variable = model[each] if isinstance(each, str) else each
        rv = model.values_to_rvs.get(variable, variable)
        if rv in model.observed_RVs:
            raise ValueError(f"{rv.name!r} is observed and cannot be sampled; leave it out of vars")
        if rv not in model.free_RVs:
            kind = "a variable of this model"
            if rv.name in model.named_vars and model[rv.name] is not rv:
                kind = "the variable of that name in this model but that of another model"
            elif rv in model.deterministics:
                kind = "a random variable but a Deterministic"
            elif rv in model.data_vars:
                kind = "a random variable but a data container"
            elif rv in model.potentials:
                kind = "a random variable but a Potential"
            raise ValueError(f"{rv.name!r} is not {kind}; the free variables are {free}")
        if rv in named:
            raise ValueError(f"vars names {rv.name!r} twice; name every variable once")
        named.append(rv)
    if not named:
        raise ValueError(f"vars is empty; name some of the free variables {free}")
    return get_value_vars_from_user_vars(named, model)


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
    values = list(model.continuous_value_vars) if vars is None else _values_of(model, vars)
    manifolds = _kinds(manifolds)
    names = [model.values_to_rvs[value].name for value in values]
    if strange := [name for name in manifolds if name not in names]:
        raise ValueError(
            f"manifolds= names variables that are not sampled here: {strange}; the sampled ones "
            f"are {names}"
        )
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
        kind = manifolds.get(rv.name)
        if kind is None:
            natural = _default_transform(rv.owner.op, rv) if transform is None else transform
            kind = everywhere or natural_manifold(natural)
        if kind in (Sphere, Stiefel) and value.dtype != "float64":
            raise ValueError(
                f"{rv.name!r} is {value.dtype}, too coarse to stay on {kind.__name__}; make the "
                'model with pytensor.config.floatX = "float64"'
            )
        on_manifold = kind is not Euclidean
        backward, forward = values_of(rv.name, transform, rv) if on_manifold else (same, same)
        shape = backward(initial).shape
        manifold, rows = _place(kind, rv.name, shape, by_row)
        require_support(rv.name, kind, transform, rv)
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
                is_angle=kind is Euclidean and isinstance(transform, CircularTransform),
            )
        )
    return variables


def angles_of(variables: Sequence[ManifoldVariable]) -> list[str]:
    """Names of the variables whose values are angles."""
    return [variable.name for variable in variables if variable.is_angle]


def product_of(variables: Sequence[ManifoldVariable]) -> Product:
    """Product manifold of several variables, in their order."""
    return Product([(v.name, v.manifold, v.rows) for v in variables])
