"""Which manifolds a variable may be placed on, and PyMC's values of its points."""

from __future__ import annotations

from collections.abc import Callable
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
from pymc.pytensorf import constant_fold
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
    Simplex,
    Sphere,
    Stiefel,
)
from pymc_geodesic.transforms import square_root_simplex, stiefel, unit_vector

_POINTS = {
    HalfLine: "the positive numbers",
    Sphere: "unit vectors",
    Stiefel: "orthonormal frames",
    Simplex: "proportions that sum to one",
    FlatSimplex: "proportions that sum to one",
}


def same(value: np.ndarray) -> np.ndarray:
    """Return the value itself, where PyMC keeps the point as it is."""
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


def _softplus(value: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, value)


def _inverse_softplus(positive: np.ndarray) -> np.ndarray:
    return positive + np.log(-np.expm1(-positive))


_IN_NUMPY: dict[type, tuple[Callable, Callable]] = {
    type(None): (same, same),
    type(unit_vector): (same, same),
    type(stiefel): (same, same),
    SimplexTransform: (_softmax_of_zero_sum, _centred_log),
    type(square_root_simplex): (_squared_direction, np.sqrt),
    LogTransform: (np.exp, np.log),
    LogExpM1: (_softplus, _inverse_softplus),
}
"""(backward, forward) of transforms in NumPy."""


class _Transformed:
    """One direction of a transform as PyTensor computes it, compiled when it is first needed."""

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
    """Return where a variable lives that PyMC keeps under this transform."""
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
    """Manifolds of the package that cover the support of a variable, and the support in words."""
    natural = natural_manifold(transform)
    if natural is Simplex:
        return (Simplex, FlatSimplex), _POINTS[Simplex]
    if natural is not Euclidean:
        return (natural,), _POINTS[natural]
    if isinstance(transform, LogTransform | LogExpM1):
        return (HalfLine,), _POINTS[HalfLine]
    if isinstance(transform, IntervalTransform):
        bounds = transform.args_fn(*rv.owner.inputs)
        lower, upper = _bound(bounds[0], -np.inf), _bound(bounds[1], np.inf)
        if lower is None or upper is None:
            return (), "the numbers between bounds that depend on other variables or on data"
        if np.all(lower == 0.0) and np.all(upper == np.inf):
            return (HalfLine,), _POINTS[HalfLine]
        return (), f"the numbers between {lower.min():g} and {upper.max():g}"
    if isinstance(transform, LogOddsTransform):
        return (), "the numbers between 0 and 1"
    if isinstance(transform, CircularTransform):
        return (), "angles"
    if transform is not None:
        return (), f"what PyMC's transform {transform.name or type(transform).__name__!r} covers"
    if isinstance(rv.owner.op, FlatRV | CustomDistRV | CustomSymbolicDistRV):
        return MANIFOLDS, "whatever it is placed on"
    return (), "all real numbers"


def require_support(
    name: str, kind: type[Manifold], transform: Transform | None, rv: TensorVariable
) -> None:
    """Refuse a manifold that is not where a variable lives.

    A manifold of the user's own, or Euclidean space for PyMC's unconstrained value, is no matter.

    Raises
    ------
    ValueError
        It names the variable, where it lives and what else can be chosen.
    """
    if kind is Euclidean:
        if transform is None and _default_transform(rv.owner.op, rv) is not None:
            message = (
                f"{name!r} has bounds and no transform, so that a step could leave its "
                "support; keep the default transform of its distribution"
            )
            raise ValueError(see(message, "manifold"))
        return
    if kind not in MANIFOLDS:
        return
    effective = _default_transform(rv.owner.op, rv) if transform is None else transform
    allowed, lives_on = _support(effective, rv)
    if kind in allowed:
        return
    choice = " or ".join(each.__name__ for each in allowed)
    remedy = f"choose {choice}, or leave" if choice else "leave"
    message = (
        f"{name!r} cannot be sampled on {kind.__name__}, {_POINTS[kind]}: it lives on "
        f"{lives_on}, and what the step would sample is another posterior; {remedy} {name!r} out "
        "of manifolds="
    )
    raise ValueError(see(message, "manifold"))


def values_of(
    name: str, transform: Transform | None, rv: TensorVariable
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    """Return (backward, forward), from PyMC's value of a variable to its point and back.

    Raises
    ------
    ValueError
        If the transform depends on other variables, so that there is no such map.
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
                f"and can only move in PyMC's unconstrained value; leave {name!r} out of manifolds="
            )
            raise ValueError(see(message, "manifold"))
    return _Transformed("backward", transform, rv), _Transformed("forward", transform, rv)
