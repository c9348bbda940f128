"""Smoothness of a log-density: kinks, edges of its support, and jumps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.logprob.utils import ParameterValueError
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NEQ,
    Abs,
    Cast,
    Ceil,
    Clip,
    Floor,
    IntDiv,
    IsInf,
    IsNan,
    Mod,
    RoundHalfAwayFromZero,
    RoundHalfToEven,
    ScalarMaximum,
    ScalarMinimum,
    Sign,
    Switch,
    Trunc,
)
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Argmax, Max, Min
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.graphs import function_as_written
from pymc_geodesic.densities.log_density import rebuilt
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see


def scalar_op(variable: Variable) -> object:
    """Return the operation on single numbers that made a variable, if it was one."""
    node = variable.owner
    if node is not None and isinstance(node.op, Elemwise):
        return node.op.scalar_op
    return None


def is_minus_infinity(variable: Variable) -> bool:
    """Return whether a variable is the constant −∞, in whatever shape."""
    node = variable.owner
    while node is not None:
        if not isinstance(node.op, DimShuffle | Alloc) and not isinstance(
            scalar_op(variable), Cast
        ):
            return False
        variable = node.inputs[0]
        node = variable.owner
    return isinstance(variable, Constant) and bool(np.all(np.equal(variable.data, -np.inf)))


def what_moves(graphs: Sequence[Variable], sampled: set[Variable]) -> set[Variable]:
    """Variables in graphs whose value, and not only whose shape, depends on what is sampled."""
    moving = set(sampled)
    for node in io_toposort([], graphs):
        if not isinstance(node.op, Shape | Shape_i) and not moving.isdisjoint(node.inputs):
            moving.update(node.outputs)
    return moving


def compares(condition: Variable, moving: set[Variable]) -> bool:
    """Whether a condition is an inequality about something that moves, or made of such."""
    if condition not in moving or condition.type.dtype != "bool" or condition.owner is None:
        return False
    if isinstance(scalar_op(condition), LT | GT | LE | GE):
        return True
    return any(compares(each, moving) for each in condition.owner.inputs)


# --- kinks ---------------------------------------------------------------------------------------

def has_kinks(graphs: Sequence[Variable], sampled: Sequence[Variable]) -> bool:
    """Whether the gradient of some graph may jump where what is sampled moves.

    Absolute values, maxima and the like, and choices by an inequality, unless what is chosen is
    minus infinity. Whether both sides meet smoothly is not looked at.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.densities.smoothness import has_kinks
    >>> w, x = pt.vector("w"), pt.vector("x")
    >>> has_kinks([pt.sum(pt.maximum(0.0, 1.0 - x * w))], [w])
    True
    >>> has_kinks([pt.sum(pt.softplus(pt.maximum(0.0, x) * w))], [w])
    False
    """
    moving = what_moves(graphs, set(sampled))
    for node in io_toposort([], graphs):
        if moving.isdisjoint(node.outputs):
            continue
        kind = scalar_op(node.outputs[0])
        if isinstance(kind, Abs | Clip | ScalarMaximum | ScalarMinimum):
            return True
        if isinstance(node.op, Argmax | Max | Min):
            return True
        if isinstance(kind, Switch):
            condition, *branches = node.inputs
            if compares(condition, moving) and not any(map(is_minus_infinity, branches)):
                return True
    return False


# --- edges of the support ------------------------------------------------------------------------

_SCALES = np.logspace(-1.0, 1.0, 10)
"""Distances from the initial point, in PyMC's values, at which an edge is looked for."""


def _conditions(graph: Variable, moving: set[Variable]) -> list[Variable]:
    """Where a term is not minus infinity, for each place where moving may make it so."""
    found = []
    for node in io_toposort([], [graph]):
        if not isinstance(scalar_op(node.outputs[0]), Switch):
            continue
        condition, if_true, if_false = node.inputs
        if not compares(condition, moving):
            continue
        if is_minus_infinity(if_false):
            found.append(pt.all(condition))
        elif is_minus_infinity(if_true):
            found.append(pt.all(~condition))
    return found


def edges(
    model: Model,
    variables: Sequence[ManifoldVariable],
    terms: Mapping[TensorVariable, TensorVariable],
) -> list[tuple[str, list[str]]]:
    """Find the terms of a model whose support depends on sampled variables.

    A uniform likelihood between 0 and s has an edge: where s falls below an observation, the
    density is zero, and the gradient there, as on the other side, points to smaller s. Variables
    with a transform have none, since their values move with their bounds.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        What a step moves together.
    terms : mapping of TensorVariable to TensorVariable
        See `pymc_geodesic.densities.model_terms.terms_as_written`.

    Returns
    -------
    list of (str, list of str)
        Names of a term and of the sampled variables that its support depends on.
    """
    sampled = {variable.value: variable.name for variable in variables}
    found = []
    for term, graph in terms.items():
        if model.rvs_to_values.get(term) in sampled or model.rvs_to_transforms.get(term):
            continue
        conditions = _conditions(graph, what_moves([graph], set(sampled)))
        if not conditions:
            continue
        inside = function_as_written(model.value_vars, pt.all(pt.stack(conditions)))
        start = model.initial_point(random_seed=0)
        rng = np.random.default_rng(0)
        crossed = []
        for value, name in sampled.items():
            for scale in _SCALES:
                step = scale * rng.choice([-1.0, 1.0], size=np.shape(start[value.name]))
                point = start | {value.name: start[value.name] + step}
                back = start | {value.name: start[value.name] - step}
                if _crosses(inside, model, point) or _crosses(inside, model, back):
                    crossed.append(name)
                    break
        if crossed:
            found.append((term.name, crossed))
    return found


def _crosses(inside: pytensor.compile.Function, model: Model, point: dict[str, np.ndarray]) -> bool:
    """Whether a point lies beyond an edge; one with other parameters that are wrong does not."""
    values = [np.asarray(point[value.name], dtype=value.type.dtype) for value in model.value_vars]
    try:
        return not inside(*values)
    except ParameterValueError:
        return False


def support_message(sampler: str, term: str, names: Sequence[str]) -> str:
    """Error message for a term whose support depends on variables of an uncorrected sampler.

    Parameters
    ----------
    sampler, term : str
        Names of the step method, and of the random variable or potential.
    names : sequence of str
        Variables that the support depends on.
    """
    sampled = ", ".join(repr(name) for name in names)
    return see(
        f"the support of {term!r} depends on {sampled}: its log-density ends at an edge, which "
        f"gradients do not show, and {sampler} has no Metropolis correction that rejects points "
        f"beyond the edge. Sample {sampled} with GMC or NUTS, and pass the other variables to "
        f"{sampler} by name",
        "edge",
    )


# --- jumps ---------------------------------------------------------------------------------------

_IN_STEPS = (Floor, Ceil, IntDiv, RoundHalfAwayFromZero, RoundHalfToEven, Sign, Trunc)
"""What makes steps of a number that moves, beside comparisons and integers."""
_AT_POINTS = (EQ, NEQ, IsInf, IsNan)
"""What a path passes without an interval on one side of it."""

_SPREAD = 0.5
"""How far from the initial point, in PyMC's values: there, two levels may be the same."""

_SCALES = (0.3, 1.0, 3.0, 10.0)
"""Distances over which a jump is looked for, in a direction of its own each, and back."""

_HALVINGS = 46
"""Of such a distance, until it is as short as rounding allows."""

_TOLERANCE = 1e-5
"""Change of one entry of a term, over 1 plus its size, that is no rounding."""

_NO_VALUE = (ArithmeticError, AssertionError, IndexError, ParameterValueError, ValueError)

_ROWS = 200
"""Rows that stand for all, at least."""

type Point = Mapping[str, np.ndarray]


def jumps(
    model: Model,
    variables: Sequence[ManifoldVariable],
    terms: Mapping[TensorVariable, TensorVariable],
    minibatch: Sequence[str] | str | None = None,
) -> list[tuple[str, list[str]]]:
    """Find the terms of a model that jump where sampled variables move.

    The mean of a change point, ``pt.switch(time < tau, before, after)``, jumps where τ passes an
    observation and is flat in between: its gradient in τ is zero everywhere, whatever the data say.
    A term that is only written in pieces, such as a hinge loss, does not jump where they meet.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        What a step moves together.
    terms : mapping of TensorVariable to TensorVariable
        See `pymc_geodesic.densities.model_terms.terms_as_written`.
    minibatch : str or sequence of str, optional
        Data of which some rows, evenly spaced, stand for all.

    Returns
    -------
    list of (str, list of str)
        Names of a term and of the sampled variables whose movement makes it jump.
    """
    sampled = {variable.value: variable.name for variable in variables}
    found = []
    some = _some_rows(model, [minibatch] if isinstance(minibatch, str) else minibatch or ())
    try:
        graphs = rebuilt(list(terms.values()), some)
    except (
        IndexError,
        TypeError,
        ValueError,
    ):  # rows that go with others: an error of its own says which
        return []
    for term, graph in zip(terms, graphs, strict=True):
        pieces = _pieces(graph, what_moves([graph], set(sampled)))
        if pieces:
            look = _Look(model, pieces, graph)
            names = [name for value, name in sampled.items() if look.jumps_along(value.name)]
            if names:
                found.append((term.name, names))
    return found


def _some_rows(model: Model, names: Sequence[str]) -> dict[Variable, Variable]:
    """Return some rows of data containers, to take the place of all."""
    containers = [model.named_vars.get(name) for name in names]
    values = {
        container: container.get_value(borrow=True)
        for container in containers
        if isinstance(container, SharedVariable)
    }
    return {
        container: pt.constant(value[:: max(1, len(value) // _ROWS)], dtype=container.dtype)
        for container, value in values.items()
        if value.ndim and len(value) > _ROWS
    }


def _pieces(graph: Variable, moving: set[Variable]) -> list[Variable]:
    """Return what is constant in pieces although it is computed from numbers that move."""
    at_edges = {
        node.inputs[0]
        for node in io_toposort([], [graph])
        if isinstance(scalar_op(node.outputs[0]), Switch)
        and any(map(is_minus_infinity, node.inputs[1:]))
    }
    pieces = []
    for node in io_toposort([], [graph]):
        numbers = [each for each in node.inputs if each in moving and _is_real(each)]
        if not numbers:
            continue
        kind = scalar_op(node.outputs[0])
        if isinstance(kind, _AT_POINTS):
            continue
        if isinstance(kind, Mod):
            pieces.append(pt.floor(node.inputs[0] / node.inputs[1]))
        elif isinstance(kind, _IN_STEPS):
            pieces.append(node.outputs[0])
        else:
            pieces += [
                output
                for output in node.outputs
                if output in moving and output not in at_edges and _is_whole(output)
            ]
    return pieces


def _is_real(variable: Variable) -> bool:
    return str(getattr(variable.type, "dtype", "")).startswith("float")


def _is_whole(variable: Variable) -> bool:
    return str(getattr(variable.type, "dtype", "")).startswith(("bool", "int", "uint"))


class _Look:
    """A look for places where one term changes from piece to piece."""

    def __init__(self, model: Model, pieces: list[Variable], graph: Variable) -> None:
        self._names = [(value.name, value.type.dtype) for value in model.value_vars]
        self._pieces = self._function(model, [piece.ravel() for piece in pieces])
        self._term = cache(lambda: self._function(model, [graph]))
        self._rng = np.random.default_rng(0)
        start = model.initial_point(random_seed=0)
        floating = {name for name, dtype in self._names if dtype.startswith("float")}
        self._place = {
            name: self._beside(value) if name in floating else value
            for name, value in start.items()
        }

    def jumps_along(self, name: str) -> bool:
        """Whether the term jumps where one variable moves."""
        here = self._place[name]
        ways = [scale * self._rng.standard_normal(np.shape(here)) for scale in _SCALES]
        return any(
            self._jumps_between(name, here, there)
            for way in ways
            for there in (here + way, here - way)
        )

    def _beside(self, value: np.ndarray) -> np.ndarray:
        return value + _SPREAD * self._rng.standard_normal(np.shape(value))

    def _jumps_between(self, name: str, near: np.ndarray, far: np.ndarray) -> bool:
        """Whether the term changes where the first of its pieces ends on the way."""
        try:
            first = self._pieces(self._place | {name: near})
            if _same(first, self._pieces(self._place | {name: far})):
                return False
            for _ in range(_HALVINGS):
                middle = 0.5 * (near + far)
                if _same(first, self._pieces(self._place | {name: middle})):
                    near = middle
                else:
                    far = middle
            before, after = (self._term()(self._place | {name: end})[0] for end in (near, far))
        except _NO_VALUE:
            return False
        with np.errstate(invalid="ignore"):
            change = np.abs(after - before)
        allowed = _TOLERANCE * (1.0 + np.abs(before))
        return bool(np.any(change > allowed, where=np.isfinite(change)))

    def _function(
        self, model: Model, outputs: list[Variable]
    ) -> Callable[[Point], list[np.ndarray]]:
        compiled = function_as_written(model.value_vars, outputs)

        def evaluate(point: Point) -> list[np.ndarray]:
            with np.errstate(all="ignore"):
                return compiled(*(np.asarray(point[name], dtype) for name, dtype in self._names))

        return evaluate


def _same(some: list[np.ndarray], others: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(some, others, strict=True))


def jump_message(sampler: str, term: str, names: Sequence[str]) -> str:
    """Error message for a term that is discontinuous in variables of an uncorrected sampler.

    Parameters
    ----------
    sampler, term : str
        Names of the step method, and of the random variable or potential.
    names : sequence of str
        Variables in which the term jumps.
    """
    sampled = ", ".join(repr(name) for name in names)
    return see(
        f"the log-density of {term!r} jumps where {sampled} moves, as with comparisons, rounding "
        f"or step functions: gradients do not show a jump, and {sampler} has no Metropolis "
        f"correction. Sample {sampled} with pm.Slice, GMC or NUTS, pass the other variables to "
        f"{sampler} by name, or write a smooth change, such as pm.math.sigmoid((time - tau) / "
        "width) for time > tau",
        "jump",
    )
