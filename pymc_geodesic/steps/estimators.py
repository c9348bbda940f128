"""The gradient estimate that the arguments of a step method ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pymc.model import Model

from pymc_geodesic.gradients.estimator import GradientEstimator, named_row_source
from pymc_geodesic.gradients.local import LocalGradientEstimator
from pymc_geodesic.gradients.rows import StreamedRows
from pymc_geodesic.gradients.variables import ManifoldVariable

__all__ = ["local_counts", "make_estimator"]


def local_counts(local_draws: int, local_tune: int, local_steps: int) -> dict[str, int]:
    """Check how local variables are to be drawn.

    Raises
    ------
    ValueError
        If a number is not an integer, or too small.
    """
    for name, value, least in (
        ("local_draws", local_draws, 1),
        ("local_tune", local_tune, 0),
        ("local_steps", local_steps, 1),
    ):
        if int(value) != value or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value}")
    return {
        "n_draws": int(local_draws), "n_discarded": int(local_tune), "n_local_steps": int(local_steps)
    }


def make_estimator(
    model: Model,
    variables: Sequence[ManifoldVariable],
    local: Sequence[ManifoldVariable],
    *,
    batch_size: int | None,
    minibatch: Sequence[str] | str | None,
    batches: Iterable[Any] | None,
    total_size: int | None,
    minibatch_order: str,
    n_draws: int,
    n_discarded: int,
    n_local_steps: int,
    with_value: bool = False,
    compile_kwargs: Mapping[str, Any] | None,
) -> GradientEstimator | LocalGradientEstimator:
    """Compile the gradient estimate of a step method.

    Raises
    ------
    ValueError
        If the arguments contradict each other or the model.
    """
    if local and minibatch is None:
        raise ValueError(
            "local= needs minibatch=[...], the names of the data containers whose rows the local "
            "variables belong to; batch_size= may be left out to use all rows"
        )
    if local and batch_size is None and batches is None:
        first = minibatch if isinstance(minibatch, str) else minibatch[0]
        batch_size = len(model[first].get_value(borrow=True))
    source = named_row_source(
        model,
        batch_size=batch_size,
        minibatch=minibatch,
        batches=batches,
        total_size=total_size,
        minibatch_order=minibatch_order,
    )
    if not local:
        return GradientEstimator(
            model,
            variables,
            source=source,
            total_size=total_size,
            minibatch_order=minibatch_order,
            with_value=with_value,
            compile_kwargs=compile_kwargs,
        )
    if isinstance(source, StreamedRows):
        raise ValueError("local= needs rows that can be visited again, not batches=")
    assert source is not None
    return LocalGradientEstimator(
        model,
        variables,
        local,
        source=source,
        total_size=total_size,
        n_draws=n_draws,
        n_discarded=n_discarded,
        n_steps=n_local_steps,
        with_value=with_value,
        compile_kwargs=compile_kwargs,
    )
