"""Smoothness checks of a log-density: kinks, edges of the support, and jumps.

At a kink the gradient is discontinuous. At an edge the log-density drops to −∞, and at a jump it
changes by a finite amount. The gradient shows neither edges nor jumps.
"""

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

from pymc_geodesic.densities.graphs import rebuild_graphs, unoptimized_function
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see

type Point = Mapping[str, np.ndarray]

# --- analysis of graphs -------------------------------------------------------------------------


def _scalar_op(variable: Variable) -> object:
    """Return the elementwise operation that computes a variable, if there is one."""
    node = variable.owner
    if node is not None and isinstance(node.op, Elemwise):
        return node.op.scalar_op
    return None


def _is_minus_infinity(variable: Variable) -> bool:
    """Whether a variable is the constant −∞, of any shape."""
    node = variable.owner
    while node is not None:
        if not isinstance(node.op, DimShuffle | Alloc) and not isinstance(
            _scalar_op(variable), Cast
        ):
            return False
        variable = node.inputs[0]
        node = variable.owner
    return isinstance(variable, Constant) and bool(np.all(np.equal(variable.data, -np.inf)))


def _dependent(graphs: Sequence[Variable], sampled: set[Variable]) -> set[Variable]:
    """Find variables whose value, and not only whose shape, depends on sampled variables."""
    found = set(sampled)
    for node in io_toposort([], graphs):
        if not isinstance(node.op, Shape | Shape_i) and not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def _is_inequality(condition: Variable, dependent: set[Variable]) -> bool:
    """Whether a condition is, or contains, an inequality of dependent variables."""
    if condition not in dependent or condition.type.dtype != "bool" or condition.owner is None:
        return False
    if isinstance(_scalar_op(condition), LT | GT | LE | GE):
        return True
    return any(_is_inequality(each, dependent) for each in condition.owner.inputs)


# --- kinks --------------------------------------------------------------------------------------


def has_kinks(graphs: Sequence[Variable], sampled: Sequence[Variable]) -> bool:
    """Whether the gradient of a graph may be discontinuous in sampled variables.

    This is assumed for absolute values, signs, maxima and minima, and for a switch by an inequality
    unless one of its branches is −∞. It is not checked whether branches meet smoothly.

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
    dependent = _dependent(graphs, set(sampled))
    for node in io_toposort([], graphs):
        if dependent.isdisjoint(node.outputs):
            continue
        op = _scalar_op(node.outputs[0])
        if isinstance(op, Abs | Clip | ScalarMaximum | ScalarMinimum | Sign):
            return True
        if isinstance(node.op, Argmax | Max | Min):
            return True
        if isinstance(op, Switch):
            condition, *branches = node.inputs
            if _is_inequality(condition, dependent) and not any(map(_is_minus_infinity, branches)):
                return True
    return False


# --- edges of the support -----------------------------------------------------------------------

_EDGE_DISTANCES = np.logspace(-1.0, 1.0, 10)
"""Distances from the initial point, in PyMC's values, of the points that are tested for edges."""


def find_edges(
    model: Model,
    variables: Sequence[ManifoldVariable],
    terms: Mapping[TensorVariable, TensorVariable],
) -> list[tuple[str, list[str]]]:
    """Find the terms of a model whose support depends on sampled variables.

    A uniform likelihood between 0 and s has an edge: if s is below an observation, the density is
    zero, and the gradient on both sides points to smaller s. Variables with a transform have no
    edge, since the transform maps their bounds to ±∞.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Variables that a step samples together.
    terms : mapping of TensorVariable to TensorVariable
        See `pymc_geodesic.densities.model_terms.logp_terms`.

    Returns
    -------
    list of (str, list of str)
        Name of a term, and names of the sampled variables on which its support depends.
    """
    sampled = {variable.value: variable.name for variable in variables}
    found = []
    for term, graph in terms.items():
        if model.rvs_to_values.get(term) in sampled or model.rvs_to_transforms.get(term):
            continue
        conditions = _support_conditions(graph, _dependent([graph], set(sampled)))
        if not conditions:
            continue
        is_inside = unoptimized_function(model.value_vars, pt.all(pt.stack(conditions)))
        start = model.initial_point(random_seed=0)
        rng = np.random.default_rng(0)
        crossed = []
        for value, name in sampled.items():
            for distance in _EDGE_DISTANCES:
                step = distance * rng.choice([-1.0, 1.0], size=np.shape(start[value.name]))
                ends = (start[value.name] + step, start[value.name] - step)
                if any(_is_outside(is_inside, model, start | {value.name: end}) for end in ends):
                    crossed.append(name)
                    break
        if crossed:
            found.append((term.name, crossed))
    return found


def _support_conditions(graph: Variable, dependent: set[Variable]) -> list[Variable]:
    """List the conditions of dependent variables under which a term is not −∞."""
    found = []
    for node in io_toposort([], [graph]):
        if not isinstance(_scalar_op(node.outputs[0]), Switch):
            continue
        condition, if_true, if_false = node.inputs
        if not _is_inequality(condition, dependent):
            continue
        if _is_minus_infinity(if_false):
            found.append(pt.all(condition))
        elif _is_minus_infinity(if_true):
            found.append(pt.all(~condition))
    return found


def _is_outside(is_inside: pytensor.compile.Function, model: Model, point: Point) -> bool:
    """Whether a point is outside the support; False if other parameters are invalid there."""
    values = [np.asarray(point[value.name], dtype=value.type.dtype) for value in model.value_vars]
    try:
        return not is_inside(*values)
    except ParameterValueError:
        return False


def edge_message(sampler: str, term: str, names: Sequence[str]) -> str:
    """Error message for a term whose support depends on variables of an uncorrected sampler.

    Parameters
    ----------
    sampler, term : str
        Names of the step method, and of the random variable or potential.
    names : sequence of str
        Variables on which the support depends.
    """
    sampled = ", ".join(repr(name) for name in names)
    return see(
        f"the support of {term!r} depends on {sampled}: its log-density drops to −∞ at an edge, "
        f"which gradients do not show, and {sampler} has no Metropolis correction that rejects "
        f"points outside the support. Sample {sampled} with GMC or NUTS, and pass the other "
        f"variables to {sampler} by name",
        "edge",
    )


# --- jumps --------------------------------------------------------------------------------------

_STEP_FUNCTIONS = (Floor, Ceil, IntDiv, RoundHalfAwayFromZero, RoundHalfToEven, Sign, Trunc)
"""Operations with piecewise constant real values."""

_AT_POINTS = (EQ, NEQ, IsInf, IsNan)
"""Conditions that differ only at isolated points, which are not jumps."""

_POINT_SD = 0.5
"""Standard deviation of the random point around the initial point, in PyMC's values."""

_JUMP_DISTANCES = (0.3, 1.0, 3.0, 10.0)
"""Lengths of the paths that are searched for jumps, each in a random direction and its opposite."""

_N_BISECTIONS = 46
"""Number of bisections of such a path, down to the rounding error."""

_TOLERANCE = 1e-5
"""Change of an element of a term, relative to 1 plus its size, above which it counts as a jump."""

_NO_VALUE = (ArithmeticError, AssertionError, IndexError, ParameterValueError, ValueError)
"""Errors of evaluations of a term with invalid parameters."""

_ROWS = 200
"""Minimum number of rows that represent all rows."""


def find_jumps(
    model: Model,
    variables: Sequence[ManifoldVariable],
    terms: Mapping[TensorVariable, TensorVariable],
    minibatch: Sequence[str] | str | None = None,
) -> list[tuple[str, list[str]]]:
    """Find the terms of a model that are discontinuous in sampled variables.

    The mean of a change-point model, ``pt.switch(time < tau, before, after)``, jumps if τ passes an
    observation and is constant in between: its gradient with respect to τ is zero. A piecewise
    defined term, such as a hinge loss, does not jump if it is continuous.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Variables that a step samples together.
    terms : mapping of TensorVariable to TensorVariable
        See `pymc_geodesic.densities.model_terms.logp_terms`.
    minibatch : str or sequence of str, optional
        Data that are replaced by evenly spaced rows.

    Returns
    -------
    list of (str, list of str)
        Name of a term, and names of the sampled variables in which it jumps.
    """
    sampled = {variable.value: variable.name for variable in variables}
    names = [minibatch] if isinstance(minibatch, str) else minibatch or ()
    try:
        graphs = rebuild_graphs(list(terms.values()), _fewer_rows(model, names))
    except (IndexError, TypeError, ValueError):  # other data have rows; reported elsewhere
        return []
    found = []
    for term, graph in zip(terms, graphs, strict=True):
        pieces = _piecewise_constant(graph, _dependent([graph], set(sampled)))
        if pieces:
            search = _JumpSearch(model, pieces, graph)
            jumping = [name for value, name in sampled.items() if search.jumps_along(value.name)]
            if jumping:
                found.append((term.name, jumping))
    return found


def _fewer_rows(model: Model, names: Sequence[str]) -> dict[Variable, Variable]:
    """Map data containers to a subset of their rows."""
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


def _piecewise_constant(graph: Variable, dependent: set[Variable]) -> list[Variable]:
    """Find piecewise constant functions of real variables that depend on sampled variables."""
    at_edges = {
        node.inputs[0]
        for node in io_toposort([], [graph])
        if isinstance(_scalar_op(node.outputs[0]), Switch)
        and any(map(_is_minus_infinity, node.inputs[1:]))
    }
    pieces = []
    for node in io_toposort([], [graph]):
        if not any(each in dependent and _is_real(each) for each in node.inputs):
            continue
        op = _scalar_op(node.outputs[0])
        if isinstance(op, _AT_POINTS):
            continue
        if isinstance(op, Mod):
            pieces.append(pt.floor(node.inputs[0] / node.inputs[1]))
        elif isinstance(op, _STEP_FUNCTIONS):
            pieces.append(node.outputs[0])
        else:
            pieces += [
                output
                for output in node.outputs
                if output in dependent and output not in at_edges and _is_integer(output)
            ]
    return pieces


def _is_real(variable: Variable) -> bool:
    return str(getattr(variable.type, "dtype", "")).startswith("float")


def _is_integer(variable: Variable) -> bool:
    return str(getattr(variable.type, "dtype", "")).startswith(("bool", "int", "uint"))


class _JumpSearch:
    """Search for jumps of one term, at the points where a piecewise constant function changes.

    Parameters
    ----------
    model : pymc.Model
    pieces : list of Variable
        See `_piecewise_constant`.
    graph : Variable
        The term.
    """

    def __init__(self, model: Model, pieces: list[Variable], graph: Variable) -> None:
        self._names = [(value.name, value.type.dtype) for value in model.value_vars]
        self._pieces = self._function(model, [piece.ravel() for piece in pieces])
        self._term = cache(lambda: self._function(model, [graph]))
        self._rng = np.random.default_rng(0)
        start = model.initial_point(random_seed=0)
        floating = {name for name, dtype in self._names if dtype.startswith("float")}
        self._point = {
            name: value + _POINT_SD * self._rng.standard_normal(np.shape(value))
            if name in floating
            else value
            for name, value in start.items()
        }

    def jumps_along(self, name: str) -> bool:
        """Whether the term jumps in one variable."""
        here = self._point[name]
        steps = [scale * self._rng.standard_normal(np.shape(here)) for scale in _JUMP_DISTANCES]
        return any(
            self._jumps_between(name, here, there)
            for step in steps
            for there in (here + step, here - step)
        )

    def _jumps_between(self, name: str, near: np.ndarray, far: np.ndarray) -> bool:
        """Whether the term changes at the end of the first piece of a path, found by bisection."""
        try:
            first = self._pieces(self._point | {name: near})
            if _are_equal(first, self._pieces(self._point | {name: far})):
                return False
            for _ in range(_N_BISECTIONS):
                middle = 0.5 * (near + far)
                if _are_equal(first, self._pieces(self._point | {name: middle})):
                    near = middle
                else:
                    far = middle
            before, after = (self._term()(self._point | {name: end})[0] for end in (near, far))
        except _NO_VALUE:
            return False
        with np.errstate(invalid="ignore"):
            change = np.abs(after - before)
        allowed = _TOLERANCE * (1.0 + np.abs(before))
        return bool(np.any(change > allowed, where=np.isfinite(change)))

    def _function(
        self, model: Model, outputs: list[Variable]
    ) -> Callable[[Point], list[np.ndarray]]:
        function = unoptimized_function(model.value_vars, outputs)

        def evaluate(point: Point) -> list[np.ndarray]:
            with np.errstate(all="ignore"):
                return function(*(np.asarray(point[name], dtype) for name, dtype in self._names))

        return evaluate


def _are_equal(some: list[np.ndarray], others: list[np.ndarray]) -> bool:
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
        f"the log-density of {term!r} jumps as a function of {sampled}, as with comparisons, "
        f"rounding or step functions: gradients do not show jumps, and {sampler} has no "
        f"Metropolis correction. Sample {sampled} with pm.Slice, GMC or NUTS, and pass the other "
        f"variables to {sampler} by name; or use a smooth function, such as "
        "pm.math.sigmoid((time - tau) / width) instead of time > tau",
        "jump",
    )
