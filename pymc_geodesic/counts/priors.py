"""Conjugate priors of SCIR and SGRLD: selection of variables, and parameters of the priors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
from pymc.logprob.utils import replace_rvs_by_values
from pymc.model import Model, modelcontext
from pymc.util import get_value_vars_from_user_vars
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.counts.layout import family_of
from pymc_geodesic.densities.variables import ManifoldVariable, manifold_variables
from pymc_geodesic.manifolds import FlatSimplex, HalfLine, Manifold

_HINT = "(Write Exponential(λ) as Gamma(1, λ), and Beta(a, b) as a component of Dirichlet([a, b]).)"


def variables_of_families(
    sampler: str,
    model: Model | None,
    vars: Sequence[TensorVariable | str] | TensorVariable | str | None,
    local: Sequence[TensorVariable | str] | TensorVariable | str | None,
    families: Sequence[str],
) -> tuple[list[TensorVariable], Mapping[str, type[Manifold]]]:
    """Select the global variables of a step, and their manifolds.

    Parameters
    ----------
    sampler : str
        Name of the step method, for error messages.
    model : pymc.Model, optional
        The model of the context by default.
    vars : variables or names, optional
        All free variables of the families by default.
    local : variables or names, optional
        Variables to exclude, since the step samples them by row.
    families : sequence of str
        Names of the supported distributions.

    Returns
    -------
    variables : list of TensorVariable
    manifolds : mapping of str to Manifold class
        By name.

    Raises
    ------
    ValueError
        For a variable with another distribution or an unknown name, or if there are no variables.
    """
    model = modelcontext(model)
    by_row = [] if local is None else manifold_variables(model, local, by_row=True)
    left_out = [variable.rv for variable in by_row]
    found = _free_variables(sampler, model, vars, families)
    sampled = [rv for rv in found if rv not in left_out]
    return sampled, {
        rv.name: FlatSimplex if family_of(rv) == "Dirichlet" else HalfLine for rv in sampled
    }


def _free_variables(
    sampler: str,
    model: Model,
    vars: Sequence[TensorVariable | str] | TensorVariable | str | None,
    families: Sequence[str],
) -> list[TensorVariable]:
    supported = f"{', '.join(families[:-1])} and {families[-1]}"
    if vars is None:
        found = [rv for rv in model.free_RVs if family_of(rv) in families]
        if not found:
            names = [rv.name for rv in model.free_RVs]
            raise ValueError(
                f"{sampler} samples {supported} variables, but this model has only {names}. {_HINT}"
            )
        return found
    if isinstance(vars, str | TensorVariable):
        vars = [vars]
    free = [rv.name for rv in model.free_RVs]
    unknown = [v for v in vars if isinstance(v, str) and v not in free]
    if unknown:
        raise ValueError(f"Unknown variable {unknown[0]!r}. The free variables are {free}")
    named = [model[v] if isinstance(v, str) else v for v in vars]
    rvs = [model.values_to_rvs[value] for value in get_value_vars_from_user_vars(named, model)]
    for rv in rvs:
        if family_of(rv) not in families:
            raise ValueError(
                f"{sampler} samples {supported} variables, but {rv.name!r} has another "
                "distribution. Leave it to another step method, such as SGGMC, GMC or NUTS. "
                f"{_HINT}"
            )
    return rvs


class ConjugatePriors:
    """Parameters of the priors of the variables, as a function of the variables of other steps.

    Parameters
    ----------
    model : pymc.Model
    variables : sequence of ManifoldVariable
        Dirichlet, Gamma or LogNormal variables.
    minibatched : sequence of str
        Names of the data containers that are subsampled.

    Attributes
    ----------
    depends_on_others : bool
        Whether the parameters depend on variables that other step methods sample.

    Raises
    ------
    ValueError
        If a parameter depends on a variable of the step or on rows of a minibatch.
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
        self._names = [value.name for value in values]
        self.depends_on_others = bool(values)
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
        inputs = set(ancestors([graph]))
        for other in variables:
            if other.value in inputs:
                raise ValueError(
                    f"the prior of {variable.name!r} depends on {other.name!r}, which the same "
                    f"step samples. Sample {other.name!r} with another step method"
                )
        for name in minibatched:
            container: Any = model.named_vars.get(name)
            if isinstance(container, SharedVariable) and container in inputs:
                raise ValueError(
                    f"the prior of {variable.name!r} depends on rows of {name!r}, but only "
                    "likelihoods may depend on rows of a minibatch. Remove it from minibatch="
                )

    def __call__(self, point: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Compute the parameters at a point, as vectors in the order of the variables.

        Parameters
        ----------
        point : mapping of str to ndarray
            Values of the value variables by name.

        Returns
        -------
        shape, rate : ndarray, shape (size,)
            Shape and rate of a Gamma variable, concentration and ones for a Dirichlet variable,
            μ/σ² and 1/σ² for a LogNormal variable.

        Raises
        ------
        ValueError
            If a parameter that must be positive is not.
        """
        results = self._function(*(point[name] for name in self._names))
        shapes, rates = [], []
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
            shapes.append(np.broadcast_to(first, variable.shape).ravel())
            rates.append(np.broadcast_to(second, variable.shape).ravel())
        return np.concatenate(shapes), np.concatenate(rates)
