"""Whether a model can be sampled in coordinates and around an anchor of its own."""

from __future__ import annotations

import math

from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.manifolds import Product
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.minibatches.stratified_sample import RowSample, stratified_sample

__all__ = ["adapted_gradient", "numbers_of_row", "rows_of_sample", "sample_size"]

SAMPLE_ROWS, SAMPLE_ROWS_PER_DIMENSION = 5000, 50
"""Rows that stand for all while the posterior is looked for."""

LARGEST_SAMPLE = 20_000_000
"""What a look at the sample may cost, in numbers; see `sample_size`."""

FEWEST_MINIBATCHES = 10
"""Minibatches' worth of rows that a sample needs to be better than one."""

LARGEST_OF_MINIBATCHES = 100_000_000
"""Numbers of so many minibatches with which the posterior is not looked for: they cost too much."""

MOST_CURVED = 64
"""Coordinates up to which differences of second order are thought of: so many passes they take."""

FEW_IN_EPOCH = 100
"""Minibatches of an epoch below which the noise of single ones says little of their sum."""


def sample_size(n_rows: int, size: int, batch_size: int, row_numbers: int) -> int:
    """Rows of the sample that stands for all in the search.

    The gradient of a row costs something between the numbers it holds, as where codes choose the
    effects of groups, and all coordinates: their geometric mean is what is counted.

    Parameters
    ----------
    n_rows, size, batch_size : int
        Rows of the data, coordinates, and rows of a minibatch.
    row_numbers : int
        Numbers that a row holds.

    Examples
    --------
    >>> from pymc_geodesic.steps.base.adaptable import sample_size
    >>> sample_size(1_000, 10, 100, 10), sample_size(10**6, 10, 100, 10)
    (1000, 5000)
    >>> sample_size(10**6, 1_000, 100, 1_000), sample_size(100_000, 4_000, 100, 5)
    (20000, 100000)
    >>> sample_size(10**6, 20_000, 300, 20_000)
    3000
    """
    wanted = max(SAMPLE_ROWS, SAMPLE_ROWS_PER_DIMENSION * size)
    cost = math.sqrt(min(row_numbers, size) * size)
    affordable = max(int(LARGEST_SAMPLE / cost), FEWEST_MINIBATCHES * batch_size)
    return min(n_rows, wanted, affordable)


def numbers_of_row(source: RowSource) -> int:
    """Numbers that a row of a source holds, at least 1."""
    return max(1, sum(math.prod(rows.shape[1:]) for rows in source.arrays.values()))


def rows_of_sample(estimator: GradientEstimate, size: int) -> RowSample:
    """Weighted sample of the rows for the search; all of them where they are few.

    Rows in memory are stratified where a simple random sample would miss levels or indicators,
    whose coordinates would then keep the scale of the prior.

    Parameters
    ----------
    estimator : GradientEstimate
    size : int
        Coordinates.
    """
    source = estimator.source
    n_rows = source.n_rows
    wanted = sample_size(n_rows, size, source.batch_size, numbers_of_row(source))
    if wanted == n_rows and not source.moves:
        arrays, _ = next(iter(source.all_rows() or ()))
        return RowSample.simple(arrays, n_rows, n_rows)
    if not source.passes_by:
        arrays, _ = next(iter(source.all_rows() or ()))
        sample = stratified_sample(arrays, n_rows, wanted, estimator.row_shares(arrays))
        if sample is not None:
            return sample
    arrays, count = source.sample_rows(wanted)
    return RowSample.simple(arrays, count, n_rows)


def adapted_gradient(
    estimator: GradientEstimate, product: Product, *, control_variates: str | int
) -> AdaptedGradient | None:
    """Fields of an estimator in coordinates that can be changed.

    None where it has not all rows; where a variable lives on a manifold with an edge: beside the
    pole of a density neither one length nor the noise around an anchor says enough; and where rows
    pass by in short epochs, over which noise adds up to zero that would be taken off as known, or
    in blocks without an anchor: the noise of a block adds up to as much again as is taken off.

    Parameters
    ----------
    estimator : GradientEstimate
    product : Product
    control_variates : {"auto", 1, 2, False}
        With ``"auto"`` the gradient has differences of second order if they may pay: where the
        gradient has no kinks, and coordinates are few.

    Raises
    ------
    ValueError
        If differences of second order are asked for and there are none.
    """
    if any(manifold.has_edge for _, manifold, _ in product.components):
        return None
    widths = [
        rows * manifold.size for _, manifold, rows in product.components if not manifold.is_flat
    ]
    if estimator.source.is_everything:
        return AdaptedGradient(product.size, widths, estimator.field)
    source = estimator.source
    if source.all_rows() is None:
        return None
    few_minibatches = min(FEWEST_MINIBATCHES * source.batch_size, source.n_rows)
    if few_minibatches * product.size > LARGEST_OF_MINIBATCHES:
        return None
    has_variates = bool(control_variates) and not estimator.depends_on_others
    few = source.n_rows < FEW_IN_EPOCH * source.batch_size
    if source.walks_epochs and (few or not has_variates):
        return None
    if source.stays_in_blocks and not has_variates:
        return None
    total = estimator.total_gradient()
    if total is None:
        return None
    may_curve = control_variates == 2
    if control_variates == "auto":
        may_curve = product.size <= MOST_CURVED and not estimator.has_kinks
    gradient = AdaptedGradient(
        product.size,
        widths,
        total.field,
        estimator.field,
        total,
        source.all_rows,
        use_variates=has_variates,
        curvature=estimator.row_curvature if may_curve else None,
    )
    if control_variates == 2 and has_variates and not gradient.has_second_order():
        message = (
            "control_variates=2 needs second derivatives of the log-density of "
            f"{', '.join(map(repr, estimator.row_names))}, and PyTensor has none for an operation "
            'in it; choose control_variates=1 or "auto"'
        )
        raise ValueError(see(message, "second-derivatives"))
    return gradient
