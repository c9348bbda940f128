"""Shapes that are known while a model is being built."""

from __future__ import annotations

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorVariable


def known_shape(variable: TensorVariable) -> tuple[int, ...] | None:
    """Return the shape of a variable, as far as dimensions and data containers tell it.

    The static shape of PyTensor knows neither the length of a dimension of a model nor that of a
    data container, because both may change.

    Parameters
    ----------
    variable : TensorVariable

    Returns
    -------
    tuple of int or None
        None if the shape depends on something that has no value yet.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions.known_shapes import known_shape
    >>> with pm.Model(coords={"class": ["low", "high"]}):
    ...     X = pm.Data("X", np.ones((5, 3)))
    ...     W = pm.Normal("W", shape=(3, 2))
    ...     b = pm.Normal("b", dims="class")
    >>> (X @ W + b).type.shape, known_shape(X @ W + b)
    ((None, 2), (5, 2))
    """
    if None not in variable.type.shape:
        return variable.type.shape
    shape = rewrite_graph(variable.shape, include=("ShapeOpt", "canonicalize"))
    for entry in graph_inputs([shape]):
        if isinstance(entry.type, RandomType) or not isinstance(entry, Constant | SharedVariable):
            return None
    return tuple(int(length) for length in shape.eval(mode="FAST_COMPILE"))
