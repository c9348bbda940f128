"""Gradients of a log-density, and which of its terms has none."""

from __future__ import annotations

from collections.abc import Sequence

import pytensor.tensor as pt
from pymc.model import Model
from pytensor.gradient import NullTypeGradError, grad
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.model_terms import terms_as_written
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see

_NO_GRADIENT = (NotImplementedError, NullTypeGradError)
"""What PyTensor raises for an operation that does not say what its gradient is."""


def gradients_of(
    total: TensorVariable,
    coordinates: Sequence[TensorVariable],
    model: Model,
    variables: Sequence[ManifoldVariable],
) -> list[TensorVariable]:
    """Differentiate a log-density.

    Parameters
    ----------
    total : TensorVariable
        The log-density, a scalar.
    coordinates : list of TensorVariable
        What to differentiate by.
    model : pymc.Model
    variables : list of ManifoldVariable
        Those that the coordinates belong to.

    Raises
    ------
    ValueError
        If an operation has no gradient; the message names the terms that it is in.
    """
    try:
        return grad(total, coordinates, disconnected_inputs="ignore")
    except _NO_GRADIENT as error:
        terms, names = _without_gradient(model, variables)
        message = (
            f"the log-density of {terms} has no gradient in {names} ({error}), and gradients are "
            f"what these samplers move by. Sample {names} with a step method that needs none, such "
            "as pm.Slice or pm.DEMetropolisZ, or give the operation a gradient (pullback)"
        )
        raise ValueError(see(message, "no-gradient")) from error


def _without_gradient(model: Model, variables: Sequence[ManifoldVariable]) -> tuple[str, str]:
    """Names of the terms that have no gradient, and of the variables by which they have none."""
    terms: dict[str, None] = {}
    names: dict[str, None] = {}
    for term, graph in terms_as_written(model).items():
        for variable in variables:
            try:
                grad(pt.sum(graph), variable.value, disconnected_inputs="ignore")
            except _NO_GRADIENT:
                terms[repr(term.name)] = names[repr(variable.name)] = None
    return ", ".join(terms) or "the model", ", ".join(names) or "its variables"
