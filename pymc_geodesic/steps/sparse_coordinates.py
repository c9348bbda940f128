"""Sparse metric with partial centering, for the group effects of a hierarchical model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.sparse_metric import SparseMetric, SparseTrajectories
from pymc_geodesic.adaptation.whitened_trajectories import WhitenedTrajectories
from pymc_geodesic.densities.effect_detection import (
    NoEffectsError,
    find_effects,
    names_with_unknown_scale,
)
from pymc_geodesic.densities.group_effects import GroupEffects
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.gradients.partial_centering import PartialCentering
from pymc_geodesic.manifolds import Product
from pymc_geodesic.steps.step import GeodesicStep

_log = logging.getLogger("pymc")


def find_group_effects(
    step: GeodesicStep,
    estimator: GradientEstimator,
    metric: str | np.ndarray | None,
    compile_kwargs: Mapping[str, Any] | None,
) -> GroupEffects | None:
    """Find the group effects of a hierarchical model, if the argument ``metric`` uses them.

    Parameters
    ----------
    step : GeodesicStep
    estimator : GradientEstimator
        That of the step.
    metric, compile_kwargs
        See `pymc_geodesic.GMC`.

    Raises
    ------
    ValueError
        If ``metric="sparse"`` and the model has no group effects, or gradients are those of
        minibatches.
    """
    if not isinstance(metric, str) or metric not in ("auto", "sparse"):
        return None
    if not estimator.source.has_all_rows:
        if metric == "auto":
            return None
        raise ValueError(
            'metric="sparse" needs gradients over all rows, because its change of coordinates '
            'costs about as much as one of them. Omit batch_size=, or use metric="auto"'
        )
    try:
        effects = find_effects(step.model, step.variables, compile_kwargs, estimator.statistics)
    except NoEffectsError as error:
        if metric == "sparse":
            raise ValueError(
                f'metric="sparse" needs group effects: {error}. Use metric="auto" for this model'
            ) from error
        names = error.names or names_with_unknown_scale(step.model)
        _report_uncentered(step, names, str(error))
        return None
    names = [each.name for each in effects.effects]
    others = [name for name in names_with_unknown_scale(step.model) if name not in names]
    reason = "the prior is not normal, or uses are not of the form effect[group]"
    _report_uncentered(step, others, reason)
    if metric == "auto" and not effects.are_hierarchical:
        return None
    if metric == "auto" and effects.n_dependent >= effects.n_entries:
        reason = "as many coordinates or more have a multivariate prior, such as pm.ICAR"
        _report_uncentered(step, names, reason)
        return None
    _log.info(f"{type(step).__name__}: partial centering of {', '.join(names)}")
    return effects


def _report_uncentered(step: GeodesicStep, names: Sequence[str], reason: str) -> None:
    """Log which vectors have an unknown scale and no partial centering."""
    if names:
        _log.info(f"{type(step).__name__}: no partial centering of {', '.join(names)}: {reason}")


def sparse_trajectories(
    estimator: GradientEstimator,
    product: Product,
    effects: GroupEffects,
    *,
    target_accept: float,
    n_steps: int | None = None,
    only_explores: bool = False,
) -> SparseTrajectories:
    """Create the adaptation of Hamiltonian trajectories in the coordinates of a sparse metric.

    Parameters
    ----------
    estimator : GradientEstimator
        Gradient and log-density of all rows.
    product : Product
        Euclidean variables.
    effects : GroupEffects
    target_accept, n_steps, only_explores
        See `WhitenedTrajectories`.
    """
    entries = [np.arange(each.part.start, each.part.stop) for each in effects.effects]
    centering = PartialCentering(
        estimator.logp_grad,
        effects.prior,
        product.size,
        np.concatenate(entries),
        effects.is_offset,
        effects.n_zero_sums,
    )
    inner = WhitenedTrajectories(
        AdaptedGradient(product.size, [], centering.logp_grad),
        product,
        target_accept=target_accept,
        metric="auto",
        n_steps=n_steps,
        can_reuse_gradient=True,
        only_explores=only_explores,
        is_near_normal=True,
    )
    return SparseTrajectories(SparseMetric(effects, centering), inner)
