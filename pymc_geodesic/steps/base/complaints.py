"""How a step says what is wrong: errors and warnings that name the step and the variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pymc_geodesic.densities.hierarchy import hierarchical_pairs
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.manifolds import Product
from pymc_geodesic.steps.base.pymc_parts import Model, SamplerWarning, SamplingError, WarningType
from pymc_geodesic.tuning.funnel import Funnel

__all__ = ["ComplainingStep"]


class ComplainingStep:
    """A step that names itself and its variables where something fails or is doubtful."""

    variables: Sequence[ManifoldVariable]
    product: Product
    model: Model
    draw: int

    @property
    def _names(self) -> str:
        return ", ".join(repr(variable.name) for variable in self.variables)

    def _fail(self, step_size: float, what: str) -> SamplingError:
        message = (
            f"{type(self).__name__} met a {what or 'velocity'} that is not finite while sampling "
            f"{self._names} with step size {step_size:.3g} at draw {self.draw}. Try a smaller "
            "step_size, more tuning draws, or model.debug() at the starting point."
        )
        return SamplingError(see(message, "not-finite"))

    def _failing_names(self, vector: np.ndarray) -> str:
        return ", ".join(
            repr(name)
            for name, part in self.product.slices.items()
            if not np.all(np.isfinite(vector[part]))
        )

    @staticmethod
    def _warn(message: str, anchor: str) -> SamplerWarning:
        return SamplerWarning(WarningType.BAD_PARAMS, see(message, anchor), "warn")

    def _warn_of(self, complaint: str | None, anchor: str) -> SamplerWarning | None:
        """Warn of what was found; None where nothing was."""
        name = type(self).__name__
        return None if complaint is None else self._warn(f"{name}: {complaint}", anchor)

    def _funnel_warning(self, funnel: Funnel | None) -> SamplerWarning | None:
        """Name a variable that sets the scale of another."""
        if funnel is None:
            return None
        if (funnel.scale, funnel.dependent) in self._hierarchy:
            funnel = replace(funnel, is_centered=True)
        return self._warn_of(funnel.complaint, "funnel")

    @property
    def _hierarchy(self) -> set[tuple[str, str]]:
        """Pairs of variables of which the first is a parameter of the second's distribution."""
        return hierarchical_pairs(self.model, [each.name for each in self.variables])
