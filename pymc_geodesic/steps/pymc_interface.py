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
from pymc.util import RandomGenerator, get_random_generator
from pytensor.compile.mode import get_mode
from pytensor.link.vm import VMLinker
from pytensor.tensor.variable import TensorVariable

__all__ = [
    "BlockedStep",
    "DataClassState",
    "Model",
    "PointType",
    "RandomGenerator",
    "SamplerWarning",
    "SamplingError",
    "StatsType",
    "StepMethodState",
    "TensorVariable",
    "WarningType",
    "WithSamplingState",
    "arguments_of_sample",
    "backend_of",
    "dataclass_state",
    "get_random_generator",
    "modelcontext",
]

_MAX_FRAMES = 5
"""Maximum number of stack frames between `arguments_of_sample` and `assign_step_methods`: two of a
step, and one or two of a compound step."""


def arguments_of_sample() -> Mapping[str, Any] | None:
    """Return the arguments of the `pymc.sample` call that is assigning step methods.

    `pymc.sample` does not pass its arguments to a step that exists already. In the main process,
    before any chain begins, it calls `assign_step_methods`, which reads ``vars`` of each such step;
    ``compile_kwargs``, with the mode of ``backend=``, ``draws``, ``chains``, ``var_names`` and
    ``trace`` are local variables of the frame of `pymc.sample`.

    Returns
    -------
    mapping or None
        None outside `pymc.sample`.
    """
    frame = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        caller = frame.f_back
        if caller is None:
            return None
        if frame.f_code is assign_step_methods.__code__:
            return caller.f_locals if caller.f_code is sample.__code__ else None
        frame = caller
    return None


def backend_of(mode: Any) -> str:
    """Name of the backend of a compilation mode, such as ``"NUMBA"``, ``"JAX"`` or ``"CVM"``.

    Parameters
    ----------
    mode : Mode, str or None
        Argument ``mode`` of `pymc.compile`.
    """
    linker = get_mode(mode).linker
    if isinstance(linker, VMLinker):
        return "CVM" if linker.c_thunks else "FAST_COMPILE"
    return type(linker).__name__.removesuffix("Linker").upper()
