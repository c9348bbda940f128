"""The terms of the log-density of a model as PyMC writes them, made once for each model."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pymc.model import Model
from pytensor.tensor.variable import TensorVariable


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
    >>> from pymc_geodesic.densities.written_terms import terms_as_written
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
