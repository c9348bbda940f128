"""The priors of variables that exact transitions can sample, and their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
from pymc.logprob.utils import replace_rvs_by_values
from pymc.model import Model
from pymc.util import get_value_vars_from_user_vars
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import DirichletRV, GammaRV, LogNormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.variables import ManifoldVariable

__all__ = ["ConjugatePriors", "family_of", "variables_of_families"]

_FAMILIES = {DirichletRV: "Dirichlet", GammaRV: "Gamma", LogNormalRV: "LogNormal"}

_HINT = "(Write Exponential(λ) as Gamma(1, λ), and Beta(a, b) as a component of Dirichlet([a, b]).)"


def family_of(rv: TensorVariable) -> str | None:
    """Name of the distribution of a variable: Dirichlet, Gamma, LogNormal, or None for others."""
    op = None if rv.owner is None else rv.owner.op
    return next((name for kind, name in _FAMILIES.items() if isinstance(op, kind)), None)


def variables_of_families(
    model: Model,
    vars: Sequence[TensorVariable | str] | TensorVariable | str | None,
    families: Sequence[str],
    sampler: str,
) -> list[TensorVariable]:
    """Random variables to be sampled by a method that knows some families only.

    Parameters
    ----------
    model : pymc.Model
    vars : variables or names
        All free variables of the families when None.
    families : list of str
    sampler : str
        Name of the step method, for messages.

    Raises
    ------
    ValueError
        For a variable of another family, an unknown one, or if there is none at all.
    """
    known = f"{', '.join(families[:-1])} and {families[-1]}"
    if vars is None:
        found = [rv for rv in model.free_RVs if family_of(rv) in families]
        if not found:
            names = [rv.name for rv in model.free_RVs]
            raise ValueError(
                f"{sampler} samples {known} variables; this model has none, but {names}. {_HINT}"
            )
        return found
    if isinstance(vars, str | TensorVariable):
        vars = [vars]
    free = [rv.name for rv in model.free_RVs]
    unknown = [v for v in vars if isinstance(v, str) and v not in free]
    if unknown:
        raise ValueError(f"Unknown variable {unknown[0]!r}; the free variables are {free}")
    named = [model[v] if isinstance(v, str) else v for v in vars]
    rvs = [model.values_to_rvs[value] for value in get_value_vars_from_user_vars(named, model)]
    for rv in rvs:
        if family_of(rv) not in families:
            raise ValueError(
                f"{sampler} samples {known} variables, and {rv.name!r} is none of them; leave it "
                f"to another step method, such as SGGMC, GMC or NUTS. {_HINT}"
            )
    return rvs


class ConjugatePriors:
    """Parameters of the priors of variables, as a function of the variables of other steps.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Dirichlet, Gamma or LogNormal variables.
    minibatched : list of str
        Names of the data containers of which only some rows are looked at.

    Raises
    ------
    ValueError
        If a parameter depends on a sampled variable or on rows of a minibatch.
    """

    def __init__(
        self, model: Model, variables: Sequence[ManifoldVariable], minibatched: Sequence[str] = ()
    ) -> None:
        self._variables = list(variables)
        graphs = []
        for variable in variables:
            first, second = self._parameters(variable.rv)
            graphs += [first, second]
        graphs = replace_rvs_by_values(
            graphs,
            rvs_to_values=model.rvs_to_values,
            rvs_to_transforms=model.rvs_to_transforms,
        )
        for i, graph in enumerate(graphs):
            self._check(model, variables, variables[i // 2], graph, minibatched)
        needed = set(ancestors(graphs))
        values = [value for value in model.value_vars if value in needed]
        self.names = [value.name for value in values]
        self.changes = bool(values)
        self._function = pytensor.function(values, graphs, mode="FAST_COMPILE")

    @staticmethod
    def _parameters(rv: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
        parameters = rv.owner.op.dist_params(rv.owner)
        if family_of(rv) == "Dirichlet":
            return parameters[0], pytensor.tensor.ones(())
        return parameters[0], parameters[1]

    @staticmethod
    def _check(
        model: Model,
        variables: Sequence[ManifoldVariable],
        variable: ManifoldVariable,
        graph: TensorVariable,
        minibatched: Sequence[str],
    ) -> None:
        above = set(ancestors([graph]))
        for other in variables:
            if other.value in above:
                raise ValueError(
                    f"the prior of {variable.name!r} depends on {other.name!r}, which the same "
                    f"step samples; sample {other.name!r} by another step method"
                )
        for name in minibatched:
            container: Any = model.named_vars.get(name)
            if isinstance(container, SharedVariable) and container in above:
                raise ValueError(
                    f"the prior of {variable.name!r} depends on rows of {name!r}, which "
                    "minibatch= divides; only likelihoods can be divided"
                )

    def __call__(self, point: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Parameters at a point, each in one vector in the order of the variables.

        Returns
        -------
        first, second : ndarray, shape (size,)
            Shape and rate of a Gamma, concentration and ones of a Dirichlet, μ/σ² and 1/σ² of a
            LogNormal variable.

        Raises
        ------
        ValueError
            If a parameter that must be positive is not.
        """
        results = self._function(*(point[name] for name in self.names))
        firsts, seconds = [], []
        for i, variable in enumerate(self._variables):
            family = family_of(variable.rv)
            first, second = (np.asarray(r, dtype=float) for r in results[2 * i : 2 * i + 2])
            if family == "Gamma":
                second = 1.0 / second
            elif family == "LogNormal":
                second = second**-2.0
                first = first * second
            for parameter in (second,) if family == "LogNormal" else (first, second):
                if not np.all((parameter > 0.0) & np.isfinite(parameter)):
                    raise ValueError(
                        f"the {family} prior of {variable.name!r} has a parameter that is not "
                        f"positive and finite: {parameter[~(parameter > 0.0)].ravel()[:3]}"
                    )
            firsts.append(np.broadcast_to(first, variable.shape).ravel())
            seconds.append(np.broadcast_to(second, variable.shape).ravel())
        return np.concatenate(firsts), np.concatenate(seconds)
