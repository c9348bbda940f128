"""Private names of PyMC that the step methods use."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pymc.blocking import PointType, StatsType
from pymc.exceptions import SamplingError
from pymc.model import Model, modelcontext
from pymc.sampling.mcmc import assign_step_methods, sample
from pymc.stats.convergence import SamplerWarning, WarningType
from pymc.step_methods.compound import BlockedStep, StepMethodState
from pymc.step_methods.state import DataClassState, WithSamplingState, dataclass_state
from pymc.step_methods.step_sizes import DualAverageAdaptation, StepSizeState
from pymc.util import RandomGenerator, get_random_generator
from pytensor.compile.mode import get_mode
from pytensor.link.vm import VMLinker
from pytensor.tensor.variable import TensorVariable

__all__ = [
    "BlockedStep",
    "DataClassState",
    "DualAverageAdaptation",
    "Model",
    "PointType",
    "RandomGenerator",
    "SamplerWarning",
    "SamplingError",
    "StatsType",
    "StepMethodState",
    "StepSizeState",
    "TensorVariable",
    "WarningType",
    "WithSamplingState",
    "arguments_of_sample",
    "backend_of",
    "dataclass_state",
    "get_random_generator",
    "modelcontext",
]

_MOST_FRAMES = 5
"""Frames between `arguments_of_sample` and `assign_step_methods`, at most: two of a step, and
one or two of a compound step."""


def arguments_of_sample() -> Mapping[str, Any] | None:
    """Return the local variables of the `pymc.sample` that reads the variables of a step.

    `pymc.sample` does not pass its arguments to a step that exists already. In the main process,
    before any chain begins, it calls `assign_step_methods`, which reads ``vars`` of each such step;
    ``compile_kwargs``, with the mode of ``backend=``, ``draws``, ``chains``, ``var_names`` and
    ``trace`` are local variables of its frame.

    Returns
    -------
    mapping or None
        None outside `pymc.sample`.
    """
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        caller = frame.f_back
        if caller is None:
            return None
        if frame.f_code is assign_step_methods.__code__:
            return caller.f_locals if caller.f_code is sample.__code__ else None
        frame = caller
    return None


def backend_of(mode: Any) -> str:
    """Name of a mode with the backend of another, such as ``"NUMBA"``, ``"JAX"`` or ``"CVM"``.

    Parameters
    ----------
    mode : Mode, str or None
        As `pymc.compile` takes it.
    """
    linker = get_mode(mode).linker
    if isinstance(linker, VMLinker):
        return "CVM" if linker.c_thunks else "FAST_COMPILE"
    return type(linker).__name__.removesuffix("Linker").upper()
