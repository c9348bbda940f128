"""Values that the variables of a run have at a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor


class ValuesAt:
    """Function of a point that gives the values of variables, in their order.

    Variables that are entries of the point are taken from it; what is compiled are the others,
    transformed and deterministic ones. A call of a compiled function takes microseconds, as much as
    the rest of keeping a draw does.

    Parameters
    ----------
    model : pymc.Model
    variables : list of TensorVariable
    """

    def __init__(self, model: pm.Model, variables: Sequence[Any]) -> None:
        entries = set(model.value_vars)
        others = [v for v in variables if v not in entries]
        self._inputs = [v.name for v in model.value_vars]
        self._names = [v.name for v in variables]
        self._others = [v.name for v in others]
        self._evaluate = None
        if others:
            self._evaluate = model.compile_fn(
                inputs=[pytensor.In(v, borrow=True) for v in model.value_vars],
                outs=[pytensor.Out(v, borrow=True) for v in others],
                point_fn=False,
                on_unused_input="ignore",
            )
            self._evaluate.trust_input = True  # points of PyMC are of the right types

    def __call__(self, point: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Give the values, some of which may be those of the point itself."""
        if self._evaluate is None:
            return [point[name] for name in self._names]
        found = self._evaluate(*[point[name] for name in self._inputs])
        if len(found) == len(self._names):
            return found
        all_values = {**point, **dict(zip(self._others, found, strict=True))}
        return [all_values[name] for name in self._names]
