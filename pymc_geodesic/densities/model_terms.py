"""Log-density terms of a model as functions of PyMC's value variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

from pymc_geodesic.densities.graphs import unoptimized_function

# --- graphs -------------------------------------------------------------------------------------


class _CachedTerms(NamedTuple):
    """Terms, and the variables of the model from which they were built."""

    parts: tuple[Any, ...]
    terms: dict[TensorVariable, TensorVariable]


_cache: WeakKeyDictionary[Model, _CachedTerms] = WeakKeyDictionary()


def logp_terms(model: Model) -> dict[TensorVariable, TensorVariable]:
    """Return the elementwise log-density of each variable and potential.

    The graphs are cached: building them takes tens of milliseconds or more, and each step needs
    them in the constructor and at the start of a chain.

    Parameters
    ----------
    model : pymc.Model

    Returns
    -------
    dict
        Graph of the value variables, by random variable or potential. It must not be modified.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_geodesic.densities.model_terms import logp_terms
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    >>> term = logp_terms(model)[x]
    >>> term.eval({model.rvs_to_values[x]: 0.0}, mode="FAST_COMPILE").round(4).item()
    -0.9189
    >>> logp_terms(model)[x] is term
    True
    """
    variables = [*model.basic_RVs, *model.potentials]
    values = [model.rvs_to_values[rv] for rv in model.basic_RVs]
    transforms = [model.rvs_to_transforms.get(rv) for rv in model.basic_RVs]
    parts = (*variables, *values, *transforms)
    cached = _cache.get(model)
    if cached is None or not _are_identical(cached.parts, parts):
        terms = model.logp(variables, sum=False) if variables else []
        cached = _CachedTerms(parts, dict(zip(variables, terms, strict=True)))
        _cache[model] = cached
    return cached.terms


def _are_identical(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))


# --- values -------------------------------------------------------------------------------------

MAX_DATA = 10**6
"""Size of the data of a term above which `LogTerms.fails` skips it, to save time."""


class LogTerms:
    """Log-densities of the variables and potentials of a model at a point.

    Parameters
    ----------
    model : pymc.Model
    without : iterable of str
        Data containers whose values are placeholders for streamed rows.
    own : iterable of str
        Variables whose prior terms are omitted, because the sampler may start at the boundary of
        their support.
    """

    def __init__(self, model: Model, without: Iterable[str], own: Iterable[str]) -> None:
        self._model = model
        omitted = set(own)
        variables = [v for v in (*model.basic_RVs, *model.potentials) if v.name not in omitted]
        placeholders = {model[name] for name in without if name in model.named_vars}
        terms = logp_terms(model)
        self._graphs = {
            each.name: terms[each].sum()
            for each in variables
            if placeholders.isdisjoint(graph_inputs([terms[each]]))
        }
        self._observed = {rv.name for rv in model.observed_RVs}
        self._small = [
            graph
            for graph in self._graphs.values()
            if sum(data.size for data in _data_of(graph)) <= MAX_DATA
        ]
        self._small_terms = unoptimized_function(model.value_vars, self._small)

    def fails(self, point: Mapping[str, np.ndarray]) -> bool:
        """Whether a term with at most `MAX_DATA` data is not finite, or has invalid parameters."""
        if not self._model.check_bounds:
            return False
        values = [point[value.name] for value in self._model.value_vars]
        if not all(np.isfinite(value).all() for value in values):
            return False  # the variable itself is the cause
        try:
            terms = self._evaluate_small(values)
        except ParameterValueError:
            return True
        return any(np.isnan(term) or term == -np.inf for term in terms)

    def report(self, point: Mapping[str, np.ndarray]) -> str | None:
        """Describe terms that are not finite at a point, with cause and remedy; None if all are.

        Like the error of `pymc.Model.check_start_vals`, it lists the log-density of each term.
        """
        values = [point[value.name] for value in self._model.value_vars]
        listed: list[str] = []
        reasons: list[str] = []
        for name, graph in self._graphs.items():
            try:
                term = self._evaluate(graph, values)
            except ParameterValueError as error:
                listed.append(f"{name}: -inf")
                rule = str(error).splitlines()[0]
                reasons.append(
                    _describe_undefined_data(name, graph)
                    or f"The parameters of {name!r} violate “{rule}”: correct them"
                    + self._suggest_initial_values(name, but=name)
                )
                continue
            if not np.isfinite(term):  # logarithms may underflow without rewrites
                term = float(self._rewritten(graph)(*values))
            listed.append(f"{name}: {term:.2f}")
            if not np.isfinite(term):
                reasons.append(self._describe_cause(name, graph))
        if not reasons:
            return None
        terms = ", ".join(listed)
        return f"The terms there are {{{terms}}}. {'. '.join(reasons)}"

    def _evaluate_small(self, values: Sequence[np.ndarray]) -> Sequence[float]:
        """Evaluate the terms with at most `MAX_DATA` data."""
        try:
            return list(self._small_terms(*values))
        except ParameterValueError:
            raise
        except ValueError:
            self._small_terms = self._rewritten(self._small)
            return list(self._small_terms(*values))

    def _evaluate(self, graph: Variable, values: Sequence[np.ndarray]) -> float:
        """Evaluate a term, with rewrites if its graph needs them, as that of `pymc.CAR` does."""
        try:
            return float(unoptimized_function(self._model.value_vars, graph)(*values))
        except ParameterValueError:
            raise
        except ValueError:
            return float(self._rewritten(graph)(*values))

    def _rewritten(self, graphs: Variable | list[Variable]) -> pytensor.compile.Function:
        return self._model.compile_fn(
            graphs, inputs=self._model.value_vars, point_fn=False, on_unused_input="ignore"
        )

    def _describe_cause(self, name: str, graph: Variable) -> str:
        if found := _describe_undefined_data(name, graph):
            return found
        data_or = "data outside its support, or " if name in self._observed else ""
        return (
            f"{name!r} has {data_or}invalid parameters: correct them"
            f"{self._suggest_initial_values(name)}; model.debug() shows details"
        )

    def _suggest_initial_values(self, name: str, but: str = "") -> str:
        """Suggest initial values of the free variables of a term other than ``but``."""
        above = set(graph_inputs([self._graphs[name]]))
        names = [
            repr(rv.name)
            for rv in self._model.free_RVs
            if self._model.rvs_to_values[rv] in above and rv.name != but
        ]
        if not names:
            return ""
        return f", or set another initial value (initval=) of {', '.join(names)}"


def _describe_undefined_data(name: str, graph: Variable) -> str:
    """Describe NaN in the data of a term, with the first row; empty without any."""
    for each in _data_of(graph):
        if each.dtype.kind == "f" and np.isnan(each).any():
            where = f" in row {np.argwhere(np.isnan(each))[0][0]}" if each.ndim else ""
            return f"The data of {name!r} contain NaN{where}: drop or impute those rows"
    return ""


def _data_of(graph: Variable) -> list[np.ndarray]:
    """Arrays of the shared variables and constants of a graph."""
    found = []
    for each in graph_inputs([graph]):
        if isinstance(each, SharedVariable):
            found.append(each.get_value(borrow=True))
        elif isinstance(each, Constant):
            found.append(each.data)
    return [each for each in found if isinstance(each, np.ndarray)]
