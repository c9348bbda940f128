"""Graphs that Python evaluates: nothing is compiled, or not even rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytensor
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable

_AS_WRITTEN = Mode(linker="py", optimizer=None)


def interpreting() -> AbstractContextManager[Any]:
    """Compile nothing meanwhile, of functions that PyTensor interprets.

    It interprets them by ``mode="FAST_COMPILE"``, but has a C compiler compile the graphs within
    Ops, such as a softmax or a symbolic random variable: half a second for each of their nodes.

    Examples
    --------
    >>> import pytensor
    >>> from pymc_geodesic.densities.interpreted import interpreting
    >>> with interpreting():
    ...     pytensor.config.cxx
    ''
    """
    return pytensor.config.change_flags(cxx="")


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
    >>> from pymc_geodesic.densities.interpreted import function_as_written
    >>> x, y = pt.scalars("x", "y")
    >>> function_as_written([x, y], x + 1.0)(2.0, 0.0).item()
    3.0
    """
    given: Any = outputs
    with interpreting():
        return pytensor.function(list(inputs), given, mode=_AS_WRITTEN, on_unused_input="ignore")
