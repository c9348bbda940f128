"""Monitors of group effects and their scales, for all samplers."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.densities.effect_residuals import EffectResiduals
from pymc_geodesic.densities.variables import hierarchical_pairs
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.monitoring.effect_scales import EffectScaleMonitor
from pymc_geodesic.monitoring.funnels import Funnel
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

    def values(position: np.ndarray) -> dict[str, np.ndarray]:
        """Values of the model of the step, which differ from those of points of the user's."""
        found = {}
        for variable in step.variables:
            part = position[step.product.slices[variable.name]]
            value = variable.values(part) if variable.on_manifold else part
            found[str(variable.value.name)] = value.reshape(variable.value_shape)
        return found

    return EffectScaleMonitor(residuals.columns, lambda x: residuals(values(x)))
