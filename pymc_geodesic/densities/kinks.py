"""Kinks of a log-density, where its gradient jumps."""

from __future__ import annotations

from collections.abc import Sequence

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import Abs, Clip, ScalarMaximum, ScalarMinimum, Switch
from pytensor.tensor.math import Argmax, Max, Min

from pymc_geodesic.densities.inequalities import (
    compares,
    is_minus_infinity,
    scalar_op,
    what_moves,
)


def has_kinks(graphs: Sequence[Variable], sampled: Sequence[Variable]) -> bool:
    """Whether the gradient of some graph may jump where what is sampled moves.

    Absolute values, maxima and the like, and choices by an inequality, unless what is chosen is
    minus infinity. Whether both sides meet smoothly is not looked at.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.densities.kinks import has_kinks
    >>> w, x = pt.vector("w"), pt.vector("x")
    >>> has_kinks([pt.sum(pt.maximum(0.0, 1.0 - x * w))], [w])
    True
    >>> has_kinks([pt.sum(pt.softplus(pt.maximum(0.0, x) * w))], [w])
    False
    """
    moving = what_moves(graphs, set(sampled))
    for node in io_toposort([], graphs):
        if moving.isdisjoint(node.outputs):
            continue
        kind = scalar_op(node.outputs[0])
        if isinstance(kind, Abs | Clip | ScalarMaximum | ScalarMinimum):
            return True
        if isinstance(node.op, Argmax | Max | Min):
            return True
        if isinstance(kind, Switch):
            condition, *branches = node.inputs
            if compares(condition, moving) and not any(map(is_minus_infinity, branches)):
                return True
    return False
