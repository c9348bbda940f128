"""Private names of PyMC that the step methods use."""

from pymc.blocking import PointType, StatsType
from pymc.exceptions import SamplingError
from pymc.model import Model, modelcontext
from pymc.stats.convergence import SamplerWarning, WarningType
from pymc.step_methods.compound import BlockedStep, StepMethodState
from pymc.step_methods.state import DataClassState, WithSamplingState, dataclass_state
from pymc.step_methods.step_sizes import DualAverageAdaptation, StepSizeState
from pymc.util import RandomGenerator, get_random_generator
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
    "dataclass_state",
    "get_random_generator",
    "modelcontext",
]
