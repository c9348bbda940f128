"""Diagnostics of any sampler: bias of step size and minibatches, and plots in the ArviZ manner."""

from pymc_geodesic.diagnostics.halving import StepHalving, step_halving
from pymc_geodesic.diagnostics.plots.temperature import plot_temperature
from pymc_geodesic.diagnostics.plots.warmup import plot_warmup
from pymc_geodesic.diagnostics.stein.discrepancy import KernelSteinDiscrepancy, ksd
from pymc_geodesic.diagnostics.stein.thinning import stein_thinning
from pymc_geodesic.diagnostics.temperature import temperature_summary

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
