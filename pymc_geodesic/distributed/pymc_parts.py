"""What chains over shards take from inside PyMC, in one place."""

from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pymc.stats.convergence import (
    SamplerWarning,
    WarningType,
    log_warnings,
    run_convergence_checks,
)
from pymc.util import is_transformed_name
from pytensor.compile.sharedvalue import SharedVariable

__all__ = [
    "SamplerWarning",
    "SharedVariable",
    "WarningType",
    "coords_and_dims_for_inferencedata",
    "is_transformed_name",
    "log_warnings",
    "run_convergence_checks",
]
