"""Columns of the design matrices of a Bambi model, evaluated on rows of a table."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pymc_geodesic.datasets.derived_columns import is_numeric


class BambiFeatures:
    """Columns of the design matrices and of the response of a Bambi model.

    The library ``formulae`` evaluates each term, with the levels, knots, means and other parameters
    of the rows that the model was built on. Groups that are columns of the table are factors.

    Parameters
    ----------
    model : bambi.Model
    """

    def __init__(self, model: Any) -> None:
        self._terms: dict[str, tuple[Any, int]] = {}
        self.columns: Mapping[str, Collection[str]] = {}
        self.factors: Sequence[str] = []
        needed: set[str] = set()
        factors: list[str] = []
        for term, is_group in _terms(model):
            variables = term.var_names & set(model.data.columns)
            needed |= variables
            is_response = bool(getattr(term.components[0], "is_response", False))
            is_column = len(term.components) == 1 and not hasattr(term.components[0], "call")
            if is_column and (is_group or (is_response and not is_numeric(model.data[term.name]))):
                factors.append(term.name)
                continue
            if term.kind == "proportion":  # of which formulae evaluates only the denominator
                for name in variables:
                    self._add(name, None, 0, {name})
            elif is_group:
                self._add(f"group of {term.name}", term, -1, variables)
            else:
                width = np.asarray(term.data).reshape(len(term.data), -1).shape[1]
                labels = term.labels or []
                if len(labels) != width:
                    labels = [f"{term.name}[{j}]" for j in range(width)]
                for j, label in enumerate(labels):
                    self._add(label, term, j, variables)
        self.factors = list(dict.fromkeys(factors))
        frame = model.data[sorted(needed)]
        self.sample = frame.dropna() if model.dropna else frame

    def __getstate__(self) -> dict[str, Any]:
        copies = {id(term): _without_rows(term) for term, _ in self._terms.values()}
        terms = {label: (copies[id(term)], j) for label, (term, j) in self._terms.items()}
        return self.__dict__ | {"sample": self.sample.head(0), "_terms": terms}

    def _add(self, label: str, term: Any, column: int, variables: Collection[str]) -> None:
        """Add a feature, unless a term with the same values has its label."""
        while label in self._terms:
            other, j = self._terms[label]
            if term is None or np.array_equal(_column(term, column), _column(other, j)):
                return
            label += "*"
        self._terms[label] = term, column
        self.columns = {**self.columns, label: variables}

    def evaluate(self, frame: pd.DataFrame, wanted: Collection[str]) -> dict[str, np.ndarray]:
        """Compute columns of the design matrix.

        Raises
        ------
        ValueError
            If formulae cannot evaluate a term, as for a level that the sample does not have.
        """
        found: dict[str, np.ndarray] = {}
        matrices: dict[int, np.ndarray] = {}
        for label in wanted:
            term, column = self._terms[label]
            if term is None:
                found[label] = frame[label].to_numpy()
                continue
            if id(term) not in matrices:
                matrices[id(term)] = _evaluate(term, frame)
            matrix = matrices[id(term)]
            found[label] = matrix.argmax(axis=1) if column < 0 else matrix[:, column]
        return found


def _terms(model: Any) -> list[tuple[Any, bool]]:
    """Terms of formulae with data, and whether they are groups."""
    found = []
    for component in model.conditional_parameters.values():
        design = component.design
        common = design.common.terms.values() if design.common else ()
        groups = design.group.terms.values() if design.group else ()
        found += [(term, False) for term in common]
        found += [(term.expr, False) for term in groups]
        found += [(term.factor, True) for term in groups]
    found.append((model.response_term.term, False))
    return [(term, is_group) for term, is_group in found if hasattr(term, "components")]


def _column(term: Any, column: int) -> np.ndarray:
    data = np.asarray(term.data)
    return data if data.ndim == 1 else data[:, column]


def _without_rows(term: Any) -> Any:
    """Copy a term without the rows of the sample, and with the names that its calls mention.

    The names of a formula are looked up in the frame of the code that made the model, which cannot
    be pickled.
    """
    if term is None:
        return None
    term = copy.copy(term)
    term.data = None
    components = []
    for component in map(copy.copy, term.components):
        component.value = None
        if hasattr(component, "call"):
            names, found = set(re.findall(r"\w+", component.name)), component.env.namespace
            known = {name: found[name] for name in names if name in found}
            component.env = type(component.env)([known])
        else:
            component._intermediate_data = None
        components.append(component)
    term.components = components
    return term


def _evaluate(term: Any, frame: pd.DataFrame) -> np.ndarray:
    try:
        matrix = np.asarray(term.eval_new_data(frame))
    except Exception as error:
        raise ValueError(
            f"Bambi cannot evaluate {term.name!r} on rows of the table: {str(error).rstrip('.')}. "
            "Build the model on a sample with all levels and all kinds of values of the table."
        ) from error
    return matrix.reshape(len(frame), -1)
