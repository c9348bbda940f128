"""Free variables of a model: manifolds, coordinates, and hierarchical dependence."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV
from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.distributions.transforms import LogExpM1, _default_transform
from pymc.logprob.transforms import (
    CircularTransform,
    IntervalTransform,
    LogOddsTransform,
    LogTransform,
    SimplexTransform,
    Transform,
)
from pymc.model import Model
from pymc.pytensorf import constant_fold
from pymc.util import get_value_vars_from_user_vars
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.failure_modes import see
from pymc_geodesic.manifolds import (
    MANIFOLDS,
    Euclidean,
    FlatSimplex,
    HalfLine,
    Manifold,
    Product,
    Simplex,
    Sphere,
    Stiefel,
)
from pymc_geodesic.transforms import square_root_simplex, stiefel, unit_vector

# --- supports and transforms --------------------------------------------------------------------

_DESCRIPTIONS = {
    HalfLine: "the positive numbers",
    Sphere: "unit vectors",
    Stiefel: "orthonormal frames",
    Simplex: "proportions that sum to one",
    FlatSimplex: "proportions that sum to one",
}


def identity(value: np.ndarray) -> np.ndarray:
    """Return the value itself, for variables without a transform."""
    return value


def _softmax_of_zero_sum(value: np.ndarray) -> np.ndarray:
    full = np.concatenate([value, -value.sum(axis=-1, keepdims=True)], axis=-1)
    full = np.exp(full - full.max(axis=-1, keepdims=True))
    return full / full.sum(axis=-1, keepdims=True)


def _centered_log(simplex: np.ndarray) -> np.ndarray:
    log = np.log(simplex)
    return log[..., :-1] - log.mean(axis=-1, keepdims=True)


def _squared_direction(value: np.ndarray) -> np.ndarray:
    return value**2 / np.sum(value**2, axis=-1, keepdims=True)


def _softplus(value: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, value)


def _inverse_softplus(positive: np.ndarray) -> np.ndarray:
    return positive + np.log(-np.expm1(-positive))


_IN_NUMPY: dict[type, tuple[Callable, Callable]] = {
    type(None): (identity, identity),
    type(unit_vector): (identity, identity),
    type(stiefel): (identity, identity),
    SimplexTransform: (_softmax_of_zero_sum, _centered_log),
    type(square_root_simplex): (_squared_direction, np.sqrt),
    LogTransform: (np.exp, np.log),
    LogExpM1: (_softplus, _inverse_softplus),
}
"""(backward, forward) of transforms, in NumPy."""


class _CompiledTransform:
    """One direction of a transform, compiled by PyTensor at the first call."""

    def __init__(self, direction: str, transform: Transform, rv: TensorVariable) -> None:
        self._direction, self._transform, self._rv = direction, transform, rv
        self._function: Callable[[np.ndarray], np.ndarray] | None = None

    def __call__(self, value: np.ndarray) -> np.ndarray:
        """Transform one array of the shape of the variable or of its value."""
        if self._function is None:
            number = pt.tensor("value", dtype="float64", shape=(None,) * np.ndim(value))
            graph = getattr(self._transform, self._direction)(number, *self._rv.owner.inputs)
            self._function = pytensor.function([number], graph, mode="FAST_COMPILE")
        return np.asarray(self._function(np.asarray(value, dtype=float)))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_function": None}


def natural_manifold(transform: Transform | None) -> type[Manifold]:
    """Return the manifold of the variables that have a transform."""
    if isinstance(transform, type(unit_vector)):
        return Sphere
    if isinstance(transform, type(stiefel)):
        return Stiefel
    if isinstance(transform, SimplexTransform | type(square_root_simplex)):
        return Simplex
    return Euclidean


def _bound(variable: Any, unbounded: float) -> np.ndarray | None:
    """Evaluate a bound; None if it depends on random variables or on data."""
    if variable is None:
        return np.asarray(unbounded)
    (number,) = constant_fold([pt.as_tensor_variable(variable)], raise_not_constant=False)
    return None if isinstance(number, Variable) else np.asarray(number)


def _support(transform: Transform | None, rv: TensorVariable) -> tuple[tuple, str]:
    """Find the manifolds that are the support of a variable, and describe the support."""
    natural = natural_manifold(transform)
    if natural is Simplex:
        return (Simplex, FlatSimplex), _DESCRIPTIONS[Simplex]
    if natural is not Euclidean:
        return (natural,), _DESCRIPTIONS[natural]
    if isinstance(transform, LogTransform | LogExpM1):
        return (HalfLine,), _DESCRIPTIONS[HalfLine]
    if isinstance(transform, IntervalTransform):
        bounds = transform.args_fn(*rv.owner.inputs)
        lower, upper = _bound(bounds[0], -np.inf), _bound(bounds[1], np.inf)
        if lower is None or upper is None:
            return (), "the numbers between bounds that depend on other variables or on data"
        if np.all(lower == 0.0) and np.all(upper == np.inf):
            return (HalfLine,), _DESCRIPTIONS[HalfLine]
        return (), f"the numbers between {lower.min():g} and {upper.max():g}"
    if isinstance(transform, LogOddsTransform):
        return (), "the numbers between 0 and 1"
    if isinstance(transform, CircularTransform):
        return (), "angles"
    if transform is not None:
        return (), f"the range of PyMC's transform {transform.name or type(transform).__name__!r}"
    if isinstance(rv.owner.op, FlatRV | CustomDistRV | CustomSymbolicDistRV):
        return MANIFOLDS, "any manifold"
    return (), "all real numbers"


def check_support(
    name: str, kind: type[Manifold], transform: Transform | None, rv: TensorVariable
) -> None:
    """Check that a manifold is the support of a variable.

    Manifolds that users define are not checked.

    Parameters
    ----------
    name : str
    kind : Manifold class
    transform : Transform or None
        Of the value variable.
    rv : TensorVariable

    Raises
    ------
    ValueError
        If the manifold is not the support, or the variable has bounds and no transform.
    """
    if kind is Euclidean:
        if transform is None and _default_transform(rv.owner.op, rv) is not None:
            message = (
                f"{name!r} has bounds but no transform, so that a step could leave its "
                "support. Keep the default transform of its distribution"
            )
            raise ValueError(see(message, "manifold"))
        return
    if kind not in MANIFOLDS:
        return
    effective = _default_transform(rv.owner.op, rv) if transform is None else transform
    allowed, support = _support(effective, rv)
    if kind in allowed:
        return
    choice = " or ".join(each.__name__ for each in allowed)
    remedy = f"Use {choice}, or remove" if choice else "Remove"
    message = (
        f"{name!r} cannot be sampled on {kind.__name__} ({_DESCRIPTIONS[kind]}): its support is "
        f"{support}, and the step would sample another posterior. {remedy} {name!r} from "
        "manifolds="
    )
    raise ValueError(see(message, "manifold"))


def transform_functions(
    name: str, transform: Transform | None, rv: TensorVariable
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    """Return the functions (backward, forward) between PyMC's value of a variable and its point.

    Raises
    ------
    ValueError
        If the transform depends on other random variables.
    """
    if type(transform) in _IN_NUMPY:
        return _IN_NUMPY[type(transform)]
    if isinstance(transform, IntervalTransform) and HalfLine in _support(transform, rv)[0]:
        return _IN_NUMPY[LogTransform]
    assert transform is not None
    graph = transform.backward(pt.tensor("value", shape=(None,) * rv.type.ndim), *rv.owner.inputs)
    for above in ancestors([graph]):
        if above.owner is not None and isinstance(above.owner.op, RandomVariable):
            message = (
                f"{name!r} has a transform that depends on {above.name or 'another variable'!r}, "
                f"and can only be sampled as PyMC's unconstrained value. Remove {name!r} from "
                "manifolds="
            )
            raise ValueError(see(message, "manifold"))
    return _CompiledTransform("backward", transform, rv), _CompiledTransform(
        "forward", transform, rv
    )


# --- variables on manifolds ---------------------------------------------------------------------


@dataclass(frozen=True)
class ManifoldVariable:
    """A free variable of a model, as points on a manifold.

    Attributes
    ----------
    name : str
        Name of the random variable.
    value_name : str
        Name of the value variable, the key in PyMC's points.
    rv, value : TensorVariable
        Random variable and value variable of the model.
    manifold : Manifold
        Manifold of each point.
    rows : int
        Number of points.
    shape : tuple of int
        Shape of the variable, with ``rows * manifold.size`` elements.
    value_shape : tuple of int
        Shape of PyMC's value.
    on_manifold : bool
        Whether the coordinates are those of the variable itself, and not of PyMC's unconstrained
        value; true for all variables that are not Euclidean.
    backward, forward : callable
        Functions in NumPy from PyMC's value to the variable, and from the variable to the value.
    is_angle : bool
        Whether PyMC's values are unwrapped angles, so that the density has the period 2π.
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
        return [f"{self.name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]

    def in_model(self, model: Model) -> ManifoldVariable:
        """Return the variable of the same name of a copy of the model."""
        rv = model[self.name]
        return replace(self, rv=rv, value=model.rvs_to_values[rv])

    def coordinates(self, values: np.ndarray) -> np.ndarray:
        """Compute the kernel coordinates, shape ``(n, size)``, of the values of n points.

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
        """Whether the coordinates are equal to PyMC's values."""
        has_chart = type(self.manifold).from_coordinates is not Manifold.from_coordinates
        return self.forward is identity and not has_chart

    def values(self, coordinates: np.ndarray) -> np.ndarray:
        """Return PyMC's values for coordinates of any number of points, to be reshaped."""
        if self.coordinates_are_values:
            return coordinates.copy()
        points = coordinates.reshape(-1, *self.manifold.shape)
        return self.forward(np.asarray(self.manifold.from_coordinates(points)))


def _manifold_of_shape(
    manifold: Callable[..., Manifold], name: str, shape: tuple[int, ...], by_row: bool
) -> tuple[Manifold, int]:
    """Manifold of each point of an array, and number of points."""
    if by_row and len(shape) < 1:
        raise ValueError(
            f"{name!r} is a scalar, but a local variable has a value for each row. Remove it from "
            "local="
        )
    if manifold in (Euclidean, HalfLine):
        if by_row:
            return manifold(int(np.prod(shape[1:], dtype=int))), shape[0]
        return manifold(int(np.prod(shape, dtype=int))), 1
    if manifold is Stiefel:
        if len(shape) < 2:
            raise ValueError(
                f"{name!r} has shape {shape}, but an orthonormal frame has shape (n, p). Use "
                "another manifold"
            )
        return Stiefel(*shape[-2:]), int(np.prod(shape[:-2], dtype=int))
    if len(shape) < 1:
        raise ValueError(
            f"{name!r} is a scalar, but a point on {manifold.__name__} is a vector. Use another "
            "manifold"
        )
    return manifold(shape[-1]), int(np.prod(shape[:-1], dtype=int))


def _manifold_classes(manifolds: Mapping[str, type[Manifold]] | None) -> dict[str, type[Manifold]]:
    """Check the argument ``manifolds=`` of a step method."""
    if manifolds is None:
        return {}
    if not isinstance(manifolds, Mapping):
        raise ValueError(
            f"manifolds={manifolds!r} is not a mapping. Pass a dictionary of names and classes, "
            'such as {"x": pg.manifolds.Sphere}'
        )
    kinds = {getattr(key, "name", key): kind for key, kind in manifolds.items()}
    for name, kind in kinds.items():
        if not (isinstance(kind, type) and issubclass(kind, Manifold)):
            raise ValueError(
                f"manifolds= maps {name!r} to {kind!r}, which is not a manifold class. Pass a "
                "class, such as pg.manifolds.Sphere; its size is that of the variable"
            )
    return kinds


def _value_variables(
    model: Model, vars: Sequence[TensorVariable | str] | TensorVariable | str
) -> list[TensorVariable]:
    """Value variables of variables or names."""
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
            raise ValueError(f"Unknown variable {each!r}. The free variables are {free}.{hint}")
        if not isinstance(each, str | Variable):
            raise ValueError(f"vars must be variables or their names, got {each!r} among them")
        variable = model[each] if isinstance(each, str) else each
        rv = model.values_to_rvs.get(variable, variable)
        if rv in model.observed_RVs:
            raise ValueError(f"{rv.name!r} is observed and cannot be sampled. Remove it from vars")
        if rv not in model.free_RVs:
            kind = "a variable of this model"
            if rv.name in model.named_vars and model[rv.name] is not rv:
                kind = "the variable with that name in this model but belongs to another model"
            elif rv in model.deterministics:
                kind = "a random variable but a Deterministic"
            elif rv in model.data_vars:
                kind = "a random variable but a data container"
            elif rv in model.potentials:
                kind = "a random variable but a Potential"
            raise ValueError(f"{rv.name!r} is not {kind}. The free variables are {free}")
        if rv in named:
            raise ValueError(f"vars names {rv.name!r} twice. Name every variable once")
        named.append(rv)
    if not named:
        raise ValueError(f"vars is empty. Name some of the free variables {free}")
    return get_value_vars_from_user_vars(named, model)


def manifold_variables(
    model: Model,
    vars: Sequence[TensorVariable | str] | TensorVariable | str | None,
    manifolds: Mapping[str, type[Manifold]] | None = None,
    by_row: bool = False,
    manifold: type[Manifold] | None = None,
) -> list[ManifoldVariable]:
    """Find the manifold of each variable.

    Parameters
    ----------
    model : pymc.Model
    vars : variables or names
        Random or value variables; all continuous free variables by default.
    manifolds : mapping of str to class, optional
        Manifold of a variable by name, instead of that of its transform: `Sphere` for unit
        vectors, `Simplex`, `Stiefel` for orthonormal frames, and otherwise `Euclidean` for PyMC's
        unconstrained value.
    by_row : bool
        Whether each entry of the first axis is a separate point, in Euclidean space too.
    manifold : class, optional
        Manifold of all variables that ``manifolds`` does not name.

    Raises
    ------
    ValueError
        For an unknown, discrete, observed or empty variable, a variable with bounds and no
        transform, or a direction in single precision.
    """
    values = list(model.continuous_value_vars) if vars is None else _value_variables(model, vars)
    manifolds = _manifold_classes(manifolds)
    names = [model.values_to_rvs[value].name for value in values]
    if unknown := [name for name in manifolds if name not in names]:
        raise ValueError(
            f"manifolds= names {unknown}, which are not sampled by this step. Its variables are "
            f"{names}"
        )
    start = model.initial_point(random_seed=0)
    return [
        _manifold_variable(model, value, start[value.name], manifolds, by_row, manifold)
        for value in values
    ]


def _manifold_variable(
    model: Model,
    value: TensorVariable,
    initial: np.ndarray,
    manifolds: Mapping[str, type[Manifold]],
    by_row: bool,
    manifold: type[Manifold] | None,
) -> ManifoldVariable:
    """Find the manifold of a variable, given its initial value; see `manifold_variables`."""
    rv = model.values_to_rvs[value]
    if value.dtype not in ("float64", "float32"):
        raise ValueError(
            f"{rv.name!r} is discrete ({value.dtype}), but gradient samplers need continuous "
            "variables. Leave it to another step method"
        )
    initial = np.asarray(initial, dtype=float)
    if initial.size == 0:
        raise ValueError(
            f"{rv.name!r} has shape {initial.shape} and no elements. Remove it from vars"
        )
    transform = model.rvs_to_transforms[rv]
    kind = manifolds.get(rv.name)
    if kind is None:
        natural = _default_transform(rv.owner.op, rv) if transform is None else transform
        kind = manifold or natural_manifold(natural)
    if kind in (Sphere, Stiefel) and value.dtype != "float64":
        raise ValueError(
            f"{rv.name!r} has dtype {value.dtype}, but {kind.__name__} needs float64. Build "
            'the model with pytensor.config.floatX = "float64"'
        )
    on_manifold = kind is not Euclidean
    backward, forward = (
        transform_functions(rv.name, transform, rv) if on_manifold else (identity, identity)
    )
    shape = backward(initial).shape
    own, rows = _manifold_of_shape(kind, rv.name, shape, by_row)
    check_support(rv.name, kind, transform, rv)
    return ManifoldVariable(
        name=rv.name,
        value_name=value.name,
        rv=rv,
        value=value,
        manifold=own,
        rows=rows,
        shape=shape,
        value_shape=initial.shape,
        on_manifold=on_manifold,
        backward=backward,
        forward=forward,
        is_angle=kind is Euclidean and isinstance(transform, CircularTransform),
    )


def angles_of(variables: Sequence[ManifoldVariable]) -> list[str]:
    """Names of the variables whose values are unwrapped angles."""
    return [variable.name for variable in variables if variable.is_angle]


def product_of(variables: Sequence[ManifoldVariable]) -> Product:
    """Create the product manifold of several variables, in their order."""
    return Product([(v.name, v.manifold, v.rows) for v in variables])


# --- dependence ---------------------------------------------------------------------------------


def hierarchical_pairs(model: Model, names: Iterable[str]) -> set[tuple[str, str]]:
    """Find the pairs (parameter, variable) such that the first is a parameter of the second.

    Parameters
    ----------
    model : pymc.Model
    names : iterable of str
        Random variables.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_geodesic.densities.variables import hierarchical_pairs
    >>> with pm.Model() as model:
    ...     tau = pm.Gamma("tau", 1.0, 1.0)
    ...     centered, scaled = pm.Normal("b", 0.0, tau=tau, shape=3), pm.Normal("z", shape=3)
    >>> hierarchical_pairs(model, ["tau", "b", "z"])
    {('tau', 'b')}
    """
    variables = {model[name]: name for name in names}
    return {
        (variables[parent], name)
        for variable, name in variables.items()
        for parent in ancestors([variable])
        if parent in variables and parent is not variable
    }
