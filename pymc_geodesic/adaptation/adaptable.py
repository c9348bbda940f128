"""Whether a model can be sampled in coordinates and around an anchor of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.manifolds import Product
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.minibatches.stratified_sample import RowSample, stratified_sample

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
    >>> from pymc_geodesic.adaptation.adaptable import sample_size
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


@dataclass(frozen=True)
class NotAdapted:
    """Why metric, control variates and friction are not adapted.

    Attributes
    ----------
    reason : str
    remedy : str
        An imperative; empty if there is none.
    largest_batch : int or None
        Rows of a minibatch up to which they are adapted, where a smaller one is the remedy.
    """

    reason: str
    remedy: str = ""
    largest_batch: int | None = None

    def instead_of_whitening(self, what: str) -> str:
        """Describe what is adapted instead, and why."""
        remedy = f" {self.remedy}." if self.remedy else ""
        return (
            f"{what} in the coordinates of the model, without a metric and without control "
            f"variates: {self.reason}.{remedy}"
        )

    @property
    def minibatch_remedy(self) -> str:
        """What to do about too much gradient noise; larger minibatches would change nothing."""
        if self.largest_batch is None:
            return "larger minibatches"
        return f"batch_size <= {self.largest_batch}, with which the step adapts"


def _too_many_numbers(source: RowSource, size: int) -> NotAdapted | None:
    """Check what the gradients of a few minibatches hold; see `LARGEST_OF_MINIBATCHES`."""
    n_rows = min(FEWEST_MINIBATCHES * source.batch_size, source.n_rows)
    if n_rows * size <= LARGEST_OF_MINIBATCHES:
        return None
    reason = (
        f"{n_rows} rows ({FEWEST_MINIBATCHES} minibatches of batch_size={source.batch_size}) times "
        f"{size} coordinates exceed {LARGEST_OF_MINIBATCHES} numbers"
    )
    largest = LARGEST_OF_MINIBATCHES // (FEWEST_MINIBATCHES * size)
    if largest < 1:
        return NotAdapted(reason, "Set step_size and friction")
    return NotAdapted(reason, f"Use batch_size <= {largest}", largest)


def obstacle_to_adaptation(
    estimator: GradientEstimate, product: Product, *, has_variates: bool
) -> NotAdapted | None:
    """Find what keeps a step from adapting; None where nothing does.

    Parameters
    ----------
    estimator : GradientEstimate
    product : Product
    has_variates : bool
        Whether there are control variates.
    """
    if any(manifold.has_edge for _, manifold, _ in product.components):
        return NotAdapted("a variable is on a manifold with an edge, such as a simplex")
    source = estimator.source
    if source.is_everything:
        return None
    if source.all_rows() is None:
        return NotAdapted(
            "the rows cannot be read more than once",
            "Use batches= that can be iterated over repeatedly, such as a list or a DataLoader",
        )
    too_many = _too_many_numbers(source, product.size)
    if too_many is not None:
        return too_many
    if source.walks_epochs and source.n_rows < FEW_IN_EPOCH * source.batch_size:
        largest = source.n_rows // FEW_IN_EPOCH
        return NotAdapted(
            f"an epoch of {source.n_rows} rows has fewer than {FEW_IN_EPOCH} minibatches of "
            f"batch_size={source.batch_size}",
            f"Use batch_size <= {largest}" if largest else "",
            largest or None,
        )
    if (source.walks_epochs or source.stays_in_blocks) and not has_variates:
        return NotAdapted(
            "rows come in epochs or blocks, and there are no control variates",
            "Leave control_variates at its default and sample all variables with this step",
        )
    return None


def adapted_gradient(
    estimator: GradientEstimate, product: Product, *, control_variates: str | int
) -> AdaptedGradient | NotAdapted:
    """Fields of an estimator in coordinates that can be changed.

    `NotAdapted` where it has not all rows; where a variable lives on a manifold with an edge: near
    the pole of a density neither one length nor the noise around an anchor says enough; and where
    rows pass by in short epochs, over which noise adds up to zero that would be taken off as known,
    or in blocks without an anchor: the noise of a block adds up to as much again as is taken off.

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
    has_variates = bool(control_variates) and not estimator.depends_on_others
    obstacle = obstacle_to_adaptation(estimator, product, has_variates=has_variates)
    if obstacle is not None:
        return obstacle
    widths = [
        rows * manifold.size for _, manifold, rows in product.components if not manifold.is_flat
    ]
    if estimator.source.is_everything:
        return AdaptedGradient(product.size, widths, estimator.field)
    source = estimator.source
    total = estimator.total_gradient()
    if total is None:
        return NotAdapted("the rows are drawn in several independent groups")
    may_curve = control_variates == 2
    if control_variates == "auto":
        may_curve = product.size <= MOST_CURVED and not estimator.has_kinks
    gradient = AdaptedGradient(
        product.size,
        widths,
        total.logp_grad,
        estimator.field,
        total,
        source.all_rows,
        use_control_variates=has_variates,
        make_curvature=estimator.row_curvature if may_curve else None,
    )
    if control_variates == 2 and has_variates and not gradient.compile_second_order():
        message = (
            "control_variates=2 needs second derivatives of the log-density of "
            f"{', '.join(map(repr, estimator.row_names))}, and PyTensor has none for an operation "
            'in it; choose control_variates=1 or "auto"'
        )
        raise ValueError(see(message, "second-derivatives"))
    return gradient
