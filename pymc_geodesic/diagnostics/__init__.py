"""Diagnostics of any sampler: bias due to step size and minibatches, and plots with ArviZ."""

from pymc_geodesic.diagnostics.halving import StepHalving, step_halving
from pymc_geodesic.diagnostics.stein_discrepancy import KernelSteinDiscrepancy, ksd
from pymc_geodesic.diagnostics.temperature import plot_temperature, temperature_summary
from pymc_geodesic.diagnostics.thinning import stein_thinning
from pymc_geodesic.diagnostics.warmup import plot_warmup

__all__ = [
    "KernelSteinDiscrepancy",
    "StepHalving",
    "ksd",
    "plot_temperature",
    "plot_warmup",
    "stein_thinning",
    "step_halving",
    "temperature_summary",
]
