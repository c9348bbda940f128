"""Monitors of group effects and their scales, for all samplers."""

from __future__ import annotations

from pymc_geodesic.densities.effect_residuals import EffectResiduals
from pymc_geodesic.densities.variables import hierarchical_pairs
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.monitoring.effect_scales import EffectScaleMonitor
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.steps.packing import ManifoldPacking
from pymc_geodesic.steps.step import GeodesicStep


def funnel_diagnosis(step: GeodesicStep, funnel: Funnel | None) -> Diagnosis | None:
    """Describe a funnel and its remedy in the model of a step."""
    if funnel is None:
        return None
    pairs = hierarchical_pairs(step.model, [each.name for each in step.variables])
    return funnel.diagnosis(pairs, step.centered)


def effect_scale_monitor(step: GeodesicStep) -> EffectScaleMonitor | None:
    """Create the monitor of the scales of group effects; None for a model without them."""
    residuals = EffectResiduals(step.model, step.variables)
    if not residuals.columns:
        return None
    coordinates = ManifoldPacking(step.variables, step.product)
    return EffectScaleMonitor(residuals.columns, lambda x: residuals(coordinates.unpack(x)))
