"""Private names of PyMC that traces, and the functions that return draws, use."""

from pymc.backends.arviz import (
    coords_and_dims_for_inferencedata,
    find_constants,
    find_observations,
)
from pymc.stats.convergence import (
    SamplerWarning,
    WarningType,
    log_warnings,
    run_convergence_checks,
)
from pymc.step_methods.compound import CompoundStep
from pymc.util import is_transformed_name

try:  # PyMC 6.4
    from pymc.backends import _ZarrChainBase as ZarrChainBase
    from pymc.backends import _ZarrTraceBase as ZarrTraceBase
except ImportError:  # PyMC 6.3
    from pymc.backends.zarr import ZarrChain as ZarrChainBase
    from pymc.backends.zarr import ZarrTrace as ZarrTraceBase

__all__ = [
    "CompoundStep",
    "SamplerWarning",
    "WarningType",
    "ZarrChainBase",
    "ZarrTraceBase",
    "coords_and_dims_for_inferencedata",
    "find_constants",
    "find_observations",
    "is_transformed_name",
    "log_warnings",
    "run_convergence_checks",
]
