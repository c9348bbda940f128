"""Terms of the log-density of a model, as PyMC writes them: graphs, and values at a point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pytensor
from pymc.logprob.utils import ParameterValueError
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.graphs import function_as_written


class _Kept(NamedTuple):
    """Terms, and what the model was when they were written."""

    parts: tuple[Any, ...]
    terms: dict[TensorVariable, TensorVariable]


_kept: WeakKeyDictionary[Model, _Kept] = WeakKeyDictionary()


def terms_as_written(model: Model) -> dict[TensorVariable, TensorVariable]:
    """Return the elementwise log-density of each variable and potential, in PyMC's values.

    PyMC takes tens of milliseconds or more to write them, and every step asks twice: where it is
    made, and where it starts.

    Parameters
    ----------
    model : pymc.Model

    Returns
    -------
    dict
        Graph over the value variables, by random variable or potential. Do not change it.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_geodesic.densities.model_terms import terms_as_written
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    >>> term = terms_as_written(model)[x]
    >>> term.eval({model.rvs_to_values[x]: 0.0}, mode="FAST_COMPILE").round(4).item()
    -0.9189
    >>> terms_as_written(model)[x] is term
    True
    """
    written = [*model.basic_RVs, *model.potentials]
    values = [model.rvs_to_values[rv] for rv in model.basic_RVs]
    transforms = [model.rvs_to_transforms.get(rv) for rv in model.basic_RVs]
    parts = (*written, *values, *transforms)
    kept = _kept.get(model)
    if kept is None or not _are_same(kept.parts, parts):
        terms = model.logp(written, sum=False) if written else []
        kept = _Kept(parts, dict(zip(written, terms, strict=True)))
        _kept[model] = kept
    return kept.terms


def _are_same(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))


MOST_NUMBERS = 10**6
"""Data beyond which a term is not looked at before anything is wrong: that would take long."""


def _data_of(graph: Variable) -> list[np.ndarray]:
    """Numbers that a graph holds, of shared variables and constants."""
    found = []
    for each in graph_inputs([graph]):
        if isinstance(each, SharedVariable):
            found.append(each.get_value(borrow=True))
        elif isinstance(each, Constant):
            found.append(each.data)
    return [each for each in found if isinstance(each, np.ndarray)]


class LogTerms:
    """Log-densities of the variables and potentials of a model at a point.

    Parameters
    ----------
    model : pymc.Model
    without : collection of str
        Data containers whose values are no data, but placeholders for rows that come later.
    own : collection of str
        Variables whose own terms are not looked at, as the sampler may start from an edge.
    """

    def __init__(self, model: Model, without: Iterable[str] = (), own: Iterable[str] = ()) -> None:
        self._model = model
        left_out = set(own)
        every = [v for v in (*model.basic_RVs, *model.potentials) if v.name not in left_out]
        placeholders = {model[name] for name in without if name in model.named_vars}
        terms = terms_as_written(model)
        self._graphs = {
            each.name: terms[each].sum()
            for each in every
            if placeholders.isdisjoint(graph_inputs([terms[each]]))
        }
        self._observed = {each.name: model.rvs_to_values[each] for each in model.observed_RVs}
        small = [
            graph
            for graph in self._graphs.values()
            if sum(data.size for data in _data_of(graph)) <= MOST_NUMBERS
        ]
        self._quick = function_as_written(model.value_vars, small)

    def _rewritten(self, graph: Variable) -> pytensor.compile.Function:
        return self._model.compile_fn(
            graph, inputs=self._model.value_vars, point_fn=False, on_unused_input="ignore"
        )

    def fails(self, point: Mapping[str, np.ndarray]) -> bool:
        """Whether some term of little data has no log-density, or parameters that break a rule."""
        if not self._model.check_bounds:
            return False
        values = [point[value.name] for value in self._model.value_vars]
        if not all(np.isfinite(value).all() for value in values):
            return False  # the variable itself is to blame
        try:
            return any(np.isnan(term) or term == -np.inf for term in self._quick(*values))
        except ParameterValueError:
            return True

    def report(self, point: Mapping[str, np.ndarray]) -> str | None:
        """Say which terms have no log-density at a point, why, and what helps; None if all have.

        Like the error of `pymc.Model.check_start_vals` it lists the log-density of every term.
        """
        values = [point[value.name] for value in self._model.value_vars]
        listed: list[str] = []
        reasons: list[str] = []
        for name, graph in self._graphs.items():
            try:
                term = float(function_as_written(self._model.value_vars, graph)(*values))
            except ParameterValueError as error:
                listed.append(f"{name}: -inf")
                rule = str(error).splitlines()[0]
                reasons.append(
                    f"The parameters of {name!r} break the rule “{rule}”: correct them"
                    + self._initial_values(name, but=name)
                )
                continue
            if not np.isfinite(
                term
            ):  # as written, logarithms underflow where rewritten ones do not
                term = float(self._rewritten(graph)(*values))
            listed.append(f"{name}: {term:.2f}")
            if not np.isfinite(term):
                reasons.append(self._reason(name, graph))
        if not reasons:
            return None
        terms = ", ".join(listed)
        return f"The terms there are {{{terms}}}. {'. '.join(reasons)}"

    def _reason(self, name: str, graph: Variable) -> str:
        data = [each for each in _data_of(graph) if each.dtype.kind == "f"]
        if any(np.isnan(each).any() for each in data):
            return f"The data of {name!r} hold NaN: drop or impute those rows"
        what = "data outside its support, or " if name in self._observed else ""
        return (
            f"{name!r} has {what}parameters for which it has no density: correct them"
            f"{self._initial_values(name)}; model.debug() shows more"
        )

    def _initial_values(self, name: str, but: str = "") -> str:
        """Remedy if a term depends on free variables, of which one does not matter."""
        above = set(graph_inputs([self._graphs[name]]))
        names = [
            repr(rv.name)
            for rv in self._model.free_RVs
            if self._model.rvs_to_values[rv] in above and rv.name != but
        ]
        if not names:
            return ""
        return f", or give another initial value (initval=) to {', '.join(names)}"
