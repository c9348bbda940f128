"""Graphs that are evaluated as they are written: nothing is rewritten, nothing compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable

__all__ = ["function_as_written"]

_IN_PYTHON = Mode(linker="py", optimizer=None)


def function_as_written(
    inputs: Sequence[Variable], outputs: Variable | Sequence[Variable]
) -> pytensor.compile.Function:
    """Evaluate a graph in Python, where rewriting would take longer than the few evaluations.

    Rewrites would also take away checks of parameters that a user wants to read.

    Parameters
    ----------
    inputs : list of variables
        Those that the outputs do not depend on are ignored.
    outputs : variable or list of variables

    Returns
    -------
    callable

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.densities.as_written import function_as_written
    >>> x, y = pt.scalars("x", "y")
    >>> function_as_written([x, y], x + 1.0)(2.0, 0.0).item()
    3.0
    """
    given: Any = outputs
    # PyTensor would compile the graphs within Ops by a C compiler, for half a minute at times.
    with pytensor.config.change_flags(cxx=""):
        return pytensor.function(list(inputs), given, mode=_IN_PYTHON, on_unused_input="ignore")
