"""Points at which a model is looked at before it runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pymc.initial_point import make_initial_point_fn
from pymc.model import Model

from pymc_geodesic.densities.variables import ManifoldVariable

__all__ = ["probed_points"]

_POINTS = 3


def probed_points(
    model: Model, variables: Sequence[ManifoldVariable]
) -> list[dict[str, np.ndarray]]:
    """Where a model begins, and points nearby: a first value of zero may hide a likelihood.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Variables of a step; those of other steps are moved, within their supports.
    """
    own = [variable.rv for variable in variables]
    others = {rv for rv in model.free_RVs if rv not in own and rv.dtype.startswith("float")}
    nearby = make_initial_point_fn(model=model, jitter_rvs=others)
    return [model.initial_point(random_seed=0), *(nearby(seed) for seed in range(1, _POINTS))]
