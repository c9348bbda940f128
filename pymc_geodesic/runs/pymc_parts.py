"""What runs on disk take from inside PyMC, in one place."""

from pymc.backends.arviz import (
    coords_and_dims_for_inferencedata,
    find_constants,
    find_observations,
)
from pymc.stats.convergence import SamplerWarning
from pymc.step_methods.compound import CompoundStep
from pymc.util import is_transformed_name

try:  # PyMC 6.4
    from pymc.backends import _ZarrChainBase as RecordsInWorker
    from pymc.backends import _ZarrTraceBase as KnowsTheStep
except ImportError:  # PyMC 6.3
    from pymc.backends.zarr import ZarrChain as RecordsInWorker
    from pymc.backends.zarr import ZarrTrace as KnowsTheStep

__all__ = [
    "CompoundStep",
    "KnowsTheStep",
    "RecordsInWorker",
    "SamplerWarning",
    "coords_and_dims_for_inferencedata",
    "find_constants",
    "find_observations",
    "is_transformed_name",
]
