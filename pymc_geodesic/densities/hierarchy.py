"""Pairs of variables in a model of which one is a parameter of the distribution of the other."""

from __future__ import annotations

from collections.abc import Iterable

from pymc.model import Model
from pytensor.graph.traversal import ancestors


def hierarchical_pairs(model: Model, names: Iterable[str]) -> set[tuple[str, str]]:
    """Find all pairs (parameter, variable) among some variables of a model.

    Parameters
    ----------
    model : pymc.Model
    names : iterable of str
        Random variables.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_geodesic.densities.hierarchy import hierarchical_pairs
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
