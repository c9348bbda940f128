"""Metropolis-corrected samplers: adaptation, monitors and checks for `GMC` and `SubgradientHMC`."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.adaptation import TrajectoryAdaptation
from pymc_geodesic.adaptation.components import curved_variables
from pymc_geodesic.adaptation.sparse_metric import SparseTrajectories
from pymc_geodesic.adaptation.step_size import InitialStepSize, StepSizeAdaptation
from pymc_geodesic.adaptation.whitened_trajectories import WhitenedTrajectories
from pymc_geodesic.arguments import DEFAULT_STEPS
from pymc_geodesic.densities.group_effects import GroupEffects
from pymc_geodesic.densities.variables import ManifoldVariable, angles_of
from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.manifolds import Product, Stiefel
from pymc_geodesic.monitoring.acceptance import AcceptanceMonitor
from pymc_geodesic.monitoring.diagnosis import Diagnose, DrawMonitor
from pymc_geodesic.monitoring.effective_size import EffectiveSizeMonitor
from pymc_geodesic.samplers.hmc import HMCSampler
from pymc_geodesic.steps.hierarchy_monitors import effect_scale_monitor, funnel_diagnosis
from pymc_geodesic.steps.pymc_interface import SamplerWarning
from pymc_geodesic.steps.sparse_coordinates import sparse_trajectories
from pymc_geodesic.steps.step import GeodesicStep
from pymc_geodesic.steps.unused_arguments import check_metric_has_coordinates

TRAJECTORY_STATS: dict[str, tuple[Any, list[int] | None]] = {
    "step_size": (np.float64, []),
    "acceptance_rate": (np.float64, []),
    "diverging": (bool, []),
    "n_grad": (np.int64, []),
    "lp": (np.float64, []),
    "energy": (np.float64, []),
    "warning": (SamplerWarning, None),
}
"""Types and shapes of the sample stats."""


def check_exact(name: str, estimator: GradientEstimator) -> None:
    """Check that gradient and log-density use each row of the data exactly once.

    Parameters
    ----------
    name : str
        Name of the step.
    estimator : GradientEstimator

    Raises
    ------
    ValueError
        If they are estimated from a minibatch, or weight the rows.
    """
    if estimator.is_exact:
        return
    if not estimator.is_local:
        message = (
            f"the model has a pm.Minibatch, but the Metropolis correction of {name} needs the "
            "log-density of all data. Write the model with all rows, or use SGGMC or gSGNHT"
        )
    else:
        message = (
            f"the Metropolis correction of {name} needs each row exactly once, but the observed "
            f"variables have total_size={estimator.total_size} for {estimator.source.n_rows} rows. "
            "Omit total_size=, or use SGGMC or gSGNHT"
        )
    raise ValueError(see(message, "exact"))


def trajectory_adaptation(
    estimator: GradientEstimator,
    product: Product,
    *,
    step_size: float | None,
    n_steps: int | None,
    target_accept: float,
    metric: str | np.ndarray | None,
    angles: Collection[str],
    initial_step_size: InitialStepSize,
    effects: GroupEffects | None = None,
    may_split: bool = True,
) -> TrajectoryAdaptation:
    """Choose the adaptation of Hamiltonian trajectories.

    `WhitenedTrajectories` if the step size is not user-specified and there are no local variables,
    otherwise `StepSizeAdaptation`, which keeps a user-specified step size.

    Parameters
    ----------
    estimator : GradientEstimator
        Gradient and log-density.
    product : Product
    initial_step_size : InitialStepSize
        Initial step size of dual averaging in the coordinates of the model.
    step_size, n_steps, target_accept, metric
        See `pymc_geodesic.GMC`.
    effects : GroupEffects, optional
        Effects of a hierarchical model, for ``metric="sparse"``.
    may_split : bool
        Whether the integrator may split the Hamiltonian.

    Raises
    ------
    ValueError
        If ``metric`` has no effect, or is a covariance of other coordinates.
    """
    if effects is not None:
        return sparse_trajectories(
            estimator, product, effects, target_accept=target_accept, n_steps=n_steps
        )
    if metric is not None and step_size is None and not estimator.is_local:
        check_metric_has_coordinates(metric, product)
        parts = curved_variables(product)
        return WhitenedTrajectories(
            AdaptedGradient(
                product.size, [part.stop - part.start for part, _ in parts], estimator.logp_grad
            ),
            product,
            target_accept=target_accept,
            metric=metric,
            angles=angles,
            n_steps=n_steps,
            can_reuse_gradient=not estimator.depends_on_others,
            may_split=may_split,
        )
    dims = [m.dim for _, m, _ in product.components if m.is_compact]
    return StepSizeAdaptation(
        estimator,
        product,
        step_size=step_size,
        n_steps=n_steps or DEFAULT_STEPS,
        target_accept=target_accept,
        initial_step_size=initial_step_size,
        # half of the circumference of the smallest compact manifold, at the rms speed sqrt(dim)
        max_step_size=math.pi / math.sqrt(max(dims)) if dims else math.inf,
    )


def square_frames(
    variables: Sequence[ManifoldVariable], product: Product
) -> list[tuple[slice, int]]:
    """List the coordinates of each orthogonal n × n matrix, with n."""
    frames = []
    for variable in variables:
        manifold = variable.manifold
        if not manifold.is_connected:
            start = product.slices[variable.name].start
            for row in range(variable.rows):
                first = start + row * manifold.size
                frames.append((slice(first, first + manifold.size), manifold.shape[0]))
    return frames


def trajectory_monitors(
    step: GeodesicStep, sampler: HMCSampler, target_accept: float
) -> tuple[Sequence[DrawMonitor], Sequence[Diagnose]]:
    """Create the monitors, and list the diagnose functions in the order of their reports."""
    acceptance = AcceptanceMonitor(target_accept)
    remedy = (
        "Omit step_size and n_steps if they are set, so that they are adapted; otherwise take more "
        "draws."
    )
    frames = [v.name for v in step.variables if isinstance(v.manifold, Stiefel)]
    if frames and sampler.adaptation.whitens:
        names = ", ".join(f"{name!r}: pg.manifolds.Euclidean" for name in frames)
        remedy = f"Take more draws, or use manifolds={{{names}}}, which whitens frames."
    size = EffectiveSizeMonitor(
        step.product, angles_of(step.variables), remedy=step.remedy_of_slow_mixing(remedy)
    )
    monitors: list[DrawMonitor] = [acceptance, size]
    # causes before consequences, because only the first diagnosis is reported
    diagnose_functions: list[Diagnose] = [
        acceptance.diagnosis,
        lambda _: funnel_diagnosis(step, sampler.adaptation.funnel()),
    ]
    if not isinstance(sampler.adaptation, SparseTrajectories):
        scales = effect_scale_monitor(step)
        if scales is not None:
            monitors.append(scales)
            diagnose_functions.append(scales.diagnosis)
    diagnose_functions.append(size.diagnosis)
    return monitors, diagnose_functions
