"""Gradient estimators of step methods, composed from their arguments."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.row_dependence import local_total_size
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.gradients.local_gradient import LocalGradient
from pymc_geodesic.gradients.minibatch_gradient import MinibatchGradient
from pymc_geodesic.minibatches.from_arguments import (
    MinibatchArguments,
    MinibatchNoise,
    minibatch_source,
)
from pymc_geodesic.steps.pymc_interface import Model
from pymc_geodesic.steps.unused_arguments import check_defaults

_log = logging.getLogger("pymc")


@dataclass(frozen=True)
class LocalArguments:
    """Arguments of a step for its local variables.

    Attributes
    ----------
    draws, tune : int
        Number of transitions to average over, and number to discard before them.
    steps : int
        Number of leapfrog steps of each transition.

    Raises
    ------
    ValueError
        If one of them is not an integer, or below 1 (``tune``: below 0).
    """

    draws: int
    tune: int
    steps: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_integers(
            local_draws=(self.draws, 1), local_tune=(self.tune, 0), local_steps=(self.steps, 1)
        )

    @classmethod
    def of_step(cls, step: Any, local: Any, *, draws: int, tune: int, steps: int) -> Self:
        """Check the arguments of a step.

        Parameters
        ----------
        step : GeodesicStep
        local : object
            The argument ``local``; without it, the others must have their default values.
        draws, tune, steps : int
            The arguments ``local_draws``, ``local_tune`` and ``local_steps``.

        Raises
        ------
        ValueError
            If a number is invalid, or has no effect.
        """
        checked = cls(draws, tune, steps)
        if local is None:
            check_defaults(
                type(step),
                "without local=",
                local_draws=draws,
                local_tune=tune,
                local_steps=steps,
            )
        return checked


def gradient_estimator(
    model: Model,
    variables: Sequence[ManifoldVariable],
    minibatches: MinibatchArguments,
    *,
    local: Sequence[ManifoldVariable] = (),
    local_arguments: LocalArguments | None = None,
    noise: MinibatchNoise = MinibatchNoise.ANY,
    with_value: bool = False,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> GradientEstimator:
    r"""Compile the gradient estimator.

    With n of N rows in a minibatch S

    .. math::

        \nabla \log \tilde\pi(x) = \nabla \log \pi_0(x)
        + \frac{N}{n} \sum_{i \in S} \nabla \log p(y_i \mid x),

    with respect to the coordinates of the manifolds. `minibatch_log_density` of
    `pymc_geodesic.gradients.minibatch_gradient` multiplies the terms of the rows by N / n.

    Parameters
    ----------
    model : pymc.Model
    variables, local : list of ManifoldVariable
        Variables of the gradient, and variables with one value for each row.
    minibatches : MinibatchArguments
    local_arguments : LocalArguments, optional
    noise : MinibatchNoise
        Assumption of the dynamics about the gradient noise of minibatches.
    with_value : bool
        Whether to compute the log-density too.
    compile_kwargs : mapping, optional
        Passed to `pymc.compile`.

    Raises
    ------
    ValueError
        If the arguments contradict each other or the model.
    """
    if not local:
        source = minibatch_source(model, minibatches, noise=noise)
        density = RowDensity(model, variables, source, minibatches.total_size)
        gradient = MinibatchGradient(density, with_value=with_value, compile_kwargs=compile_kwargs)
        if gradient.statistics:
            names = ", ".join(repr(each.name) for each in gradient.statistics)
            _log.info(f"Sufficient statistics replace the rows of {names}")
        return gradient
    assert local_arguments is not None
    if minibatches.batches is not None:
        raise ValueError(
            "local= visits the same rows repeatedly, which batches= does not allow. Use "
            "minibatch=[...] and batch_size="
        )
    if minibatches.minibatch is None:
        raise ValueError(
            "local= needs minibatch=[...], the names of the data containers whose rows the "
            "local variables belong to. Omit batch_size= to use all rows"
        )
    n_rows = local[0].shape[0]
    source = minibatch_source(model, minibatches, noise=noise, default_batch_size=n_rows)
    total_size = local_total_size(model, local, source, minibatches.total_size)
    n_draws = local_arguments.draws
    if not with_value:
        # Local draws are fixed during a draw, which acts on the global variables as friction. The
        # variance between the local draws balances it only if there are at most N / n of them.
        n_draws = min(n_draws, max(1, total_size // source.batch_size))
    return LocalGradient(
        model,
        variables,
        local,
        source=source,
        total_size=total_size,
        n_draws=n_draws,
        n_discarded=local_arguments.tune,
        n_steps=local_arguments.steps,
        with_value=with_value,
        compile_kwargs=compile_kwargs,
    )
