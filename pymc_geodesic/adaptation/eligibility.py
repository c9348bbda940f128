"""Eligibility of models and data for whitened coordinates and control variates.

Also the subsample of the rows for the exploration phase.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.gradients.rows_of_coordinates import shares_of_rare_coordinates
from pymc_geodesic.gradients.structured_hessian import HessianStructure
from pymc_geodesic.manifolds import Product
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.minibatches.stratified_sample import (
    ROWS_PER_LEVEL,
    RowSample,
    largest_shares,
    select_rare_rows,
    stratified_sample,
)

_log = logging.getLogger("pymc")


@dataclass(frozen=True)
class EligibilitySettings:
    """Limits of the exploration and of control variates. A value is a number of 8 bytes.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    sample_rows, sample_rows_per_dimension : int
        Number of rows of the subsample for the exploration: 5,000, or 30 for each coordinate if
        that is more. With 25 a logistic regression with 2,000 groups of 500 rows had as many
        effective draws as with 50, with 12 the metric did not fit all rows. Sixteen posteriors were
        explored with at most 5,000 rows (`benchmarks.adaptation`).
    max_sample_cost : int
        Upper bound on the number of rows of the subsample times the geometric mean of the number of
        values of a row and the number of coordinates.
    min_minibatches : int
        Minimum size of the subsample, in minibatches.
    max_values : int
        Upper bound on the number of values in the smallest subsample, which the exploration keeps
        in memory: 0.8 GB.
    max_coordinates : int
        Maximum number of coordinates of the noise measurement, which then takes about 5 GB with 800
        pairs of minibatches and at most 32 kB for each coordinate; by calculation.
    max_second_order : int
        Maximum number of Hessian-vector products over all rows with which
        ``control_variates="auto"`` may use second order: one for each coordinate, except for
        effects of the groups of one factor, where all entries of a vector take one together. With
        28 coordinates the Hessian over all rows took 20 to 30 times as long as the gradient, in a
        single experiment.
    min_epoch : int
        Minimum number of minibatches of an epoch. Below it, the noise of single minibatches is a
        poor estimate of the noise of their sum.
    min_rare_share : float
        Share of a row in a level or indicator above which every gradient estimate contains the row,
        if minibatches contain less than one such row on average: indicators of up to 200 rows.
    max_rare_rows : int
        Maximum number of these rows: 500, or a minibatch if that is more. With first-order control
        variates, which evaluate each minibatch twice, an estimate then takes up to 1.5 times as
        long for minibatches of 500 and more rows.
    position_sd : float
        Standard deviation of the Euclidean coordinates of the position at which derivatives that
        are not zero show the rows of a coordinate. It is small, so that few rows have a linear
        predictor at which the derivative of the log-likelihood is zero, such as with a hinge loss.
    partitions_with_kinks : int
        See `pymc_geodesic.gradients.rows_of_coordinates.shares_of_rare_coordinates`.
    """

    sample_rows: int = 5000
    sample_rows_per_dimension: int = 30
    max_sample_cost: int = 20_000_000
    min_minibatches: int = 10
    max_values: int = 100_000_000
    max_coordinates: int = 150_000
    max_second_order: int = 64
    min_epoch: int = 100
    min_rare_share: float = 0.005
    max_rare_rows: int = 500
    position_sd: float = 1e-3
    partitions_with_kinks: int = 3


SETTINGS = EligibilitySettings()


# --- sample of the rows ----------------------------------------------------------------------


def sample_size(n_rows: int, size: int, batch_size: int, row_values: int) -> int:
    """Return the number of rows of the subsample for the exploration.

    The cost of the gradient of a row is between the number of its values, as for indices of group
    effects, and the number of coordinates; the geometric mean is used.

    Parameters
    ----------
    n_rows, size, batch_size : int
        Number of rows of the data, of coordinates, and of rows of a minibatch.
    row_values : int
        Number of values of a row.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.eligibility import sample_size
    >>> sample_size(1_000, 10, 100, 10), sample_size(10**6, 10, 100, 10)
    (1000, 5000)
    >>> sample_size(10**6, 1_000, 100, 1_000), sample_size(100_000, 4_000, 100, 5)
    (20000, 100000)
    >>> sample_size(10**6, 20_000, 300, 20_000)
    3000
    """
    wanted = max(SETTINGS.sample_rows, SETTINGS.sample_rows_per_dimension * size)
    cost = math.sqrt(min(row_values, size) * size)
    affordable = max(int(SETTINGS.max_sample_cost / cost), SETTINGS.min_minibatches * batch_size)
    return min(n_rows, wanted, affordable)


def values_per_row(source: RowSource) -> int:
    """Return the number of values of a row, at least 1."""
    return max(1, sum(math.prod(rows.shape[1:]) for rows in source.arrays.values()))


def _rows_in_memory(source: RowSource) -> tuple[Mapping[str, np.ndarray], int] | None:
    """Return the rows of one table in memory and their number; None for all other sources."""
    parts = None if source.has_all_rows or source.is_streamed else source.all_rows()
    return None if parts is None else next(iter(parts))


def _min_rare_share(source: RowSource) -> float:
    return max(source.batch_size / source.n_rows, SETTINGS.min_rare_share)


def _sample_size(source: RowSource, size: int) -> int:
    return sample_size(source.n_rows, size, source.batch_size, values_per_row(source))


def shares_of_rows(
    estimator: GradientEstimator, gradient: AdaptedGradient, product: Product
) -> np.ndarray | None:
    """Compute the largest share of each row in a level, an indicator or a coordinate.

    Parameters
    ----------
    estimator : GradientEstimator
    gradient : AdaptedGradient
    product : Product
        The variables, Euclidean ones first.

    Returns
    -------
    ndarray, shape (n_rows,), or None
        See `pymc_geodesic.minibatches.stratified_sample.largest_shares`; None if the rows are not
        those of one table in memory.
    """
    source = estimator.source
    parts = _rows_in_memory(source)
    if parts is None:
        return None
    arrays, n_rows = parts
    share_in_sample = _sample_size(source, product.size) / n_rows / ROWS_PER_LEVEL
    least = _min_rare_share(source)
    shares = largest_shares(
        arrays, n_rows, min(least, share_in_sample), estimator.row_shares(arrays)
    )
    if gradient.total is None or estimator.depends_on_others:
        return shares
    x = product.random_point(np.random.default_rng(0))
    x[: gradient.n_euclidean] *= SETTINGS.position_sd
    try:
        gradient.total.gradient_of_rows(x, arrays, 1)
    except Exception as error:  # of an Op of the user, at this position
        _log.info("rows of indicators that the model computes are not detected: %s", error)
        return shares
    n_partitions = SETTINGS.partitions_with_kinks if estimator.has_kinks else 1
    of_coordinates = shares_of_rare_coordinates(
        gradient.total, x, arrays, n_rows, int(1.0 / least), n_partitions
    )
    return np.maximum(shares, of_coordinates)


def find_rare_rows(source: RowSource, shares: np.ndarray | None) -> np.ndarray | None:
    """Find rows that every gradient estimate should contain, such as those of rare indicators.

    Parameters
    ----------
    source : RowSource
    shares : ndarray, shape (n_rows,), or None
        See `shares_of_rows`.

    Returns
    -------
    ndarray of bool, shape (n_rows,), or None
        None if there are none.
    """
    if shares is None:
        return None
    max_rows = max(SETTINGS.max_rare_rows, source.batch_size)
    is_rare = select_rare_rows(shares, _min_rare_share(source), max_rows)
    return is_rare if is_rare.any() else None


def sample_rows(
    source: RowSource,
    size: int,
    shares: np.ndarray | None,
    is_complete: np.ndarray | None = None,
) -> RowSample:
    """Draw a weighted subsample of the rows for the exploration; all rows if they are few.

    Rows in memory are stratified if a simple random sample would miss levels or indicators, whose
    coordinates would then have the scale of the prior.

    Parameters
    ----------
    source : RowSource
    size : int
        Number of coordinates.
    shares : ndarray, shape (n_rows,), or None
        See `shares_of_rows`.
    is_complete : ndarray of bool, shape (n_rows,), optional
        Rows that every gradient estimate contains.
    """
    n_rows, wanted = source.n_rows, _sample_size(source, size)
    parts = _rows_in_memory(source)
    if parts is not None and wanted == n_rows and not source.replaces_arrays:
        return RowSample.simple(parts[0], n_rows, n_rows)
    if parts is not None and shares is not None:
        sample = stratified_sample(parts[0], wanted, shares, is_complete)
        if sample is not None:
            return sample
    arrays, count = source.sample_rows(wanted)
    return RowSample.simple(arrays, count, n_rows)


# --- eligibility -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Ineligibility:
    """Reason why neither metric nor control variates are adapted.

    Attributes
    ----------
    reason : str
    remedy : str
        Sentence in the imperative; empty if there is no remedy.
    largest_batch : int or None
        Maximum batch size with which they are adapted, if a smaller batch size is the remedy.
    needs_all_rows : bool
        Whether a step method with all rows is the remedy.
    """

    reason: str
    remedy: str = ""
    largest_batch: int | None = None
    needs_all_rows: bool = False

    def describe(self, adapted: str) -> str:
        """Describe what is adapted instead, and why."""
        remedy = f" {self.remedy}." if self.remedy else ""
        return (
            f"{adapted} in the coordinates of the model, without a metric and without control "
            f"variates: {self.reason}.{remedy}"
        )


def minibatch_remedy(ineligibility: Ineligibility | None) -> str:
    """Return the remedy for too much gradient noise, as a change of the minibatches."""
    if ineligibility is not None and ineligibility.needs_all_rows:
        return "GMC, because this step does not adapt"
    if ineligibility is None or ineligibility.largest_batch is None:
        return "larger minibatches"
    return f"batch_size <= {ineligibility.largest_batch}, with which the step adapts"


def _check_memory(source: RowSource, size: int) -> Ineligibility | None:
    """Check the memory of the warm-up; see `EligibilitySettings`."""
    if size > SETTINGS.max_coordinates:
        return Ineligibility(
            f"the noise measurement takes too much memory with {size} coordinates (limit: "
            f"{SETTINGS.max_coordinates})",
            "Use GMC, which needs no noise measurement, or sample fewer coordinates with this step",
            needs_all_rows=True,
        )
    values = values_per_row(source)
    n_rows = min(SETTINGS.min_minibatches * source.batch_size, source.n_rows)
    if n_rows * values <= SETTINGS.max_values:
        return None
    reason = (
        f"{n_rows} rows ({SETTINGS.min_minibatches} minibatches of "
        f"batch_size={source.batch_size}) of {values} values exceed {SETTINGS.max_values} numbers"
    )
    largest = SETTINGS.max_values // (SETTINGS.min_minibatches * values)
    if largest < 1:
        return Ineligibility(reason, "Set step_size and friction")
    return Ineligibility(reason, f"Use batch_size <= {largest}", largest)


def _without_pass(source: RowSource) -> Ineligibility:
    """Return the reason why the gradient over all rows cannot be computed by a pass over them."""
    if not source.is_streamed:
        return Ineligibility("the rows come from several pm.Minibatch that are drawn independently")
    if source.whole:
        return Ineligibility("the blocks of batches= contain sparse matrices")
    return Ineligibility(
        "the rows cannot be read more than once",
        "Use batches= that can be iterated over repeatedly, such as a list or a DataLoader",
    )


def check_eligibility(
    estimator: GradientEstimator, product: Product, *, has_control_variates: bool
) -> Ineligibility | None:
    """Return the reason why coordinates cannot be adapted; None if they can.

    Coordinates are not adapted on a manifold with an edge, where a density may have a pole, so that
    neither one length scale nor the noise around one point is informative. Nor are they with short
    epochs, whose noise sums to zero and cannot be subtracted as if it were independent, and with
    epochs or blocks without control variates, since the noise of a block is as large as the
    subtracted noise.
    """
    if any(manifold.has_edge for _, manifold, _ in product.components):
        return Ineligibility("a variable is on a manifold with an edge, such as a simplex")
    source = estimator.source
    if source.has_all_rows:
        return None
    if source.all_rows() is None:
        return _without_pass(source)
    too_large = _check_memory(source, product.size)
    if too_large is not None:
        return too_large
    if source.has_epochs and source.n_rows < SETTINGS.min_epoch * source.batch_size:
        largest = source.n_rows // SETTINGS.min_epoch
        return Ineligibility(
            f"an epoch of {source.n_rows} rows has fewer than {SETTINGS.min_epoch} minibatches of "
            f"batch_size={source.batch_size}",
            f"Use batch_size <= {largest}" if largest else "",
            largest or None,
        )
    if (source.has_epochs or source.stays_in_blocks) and not has_control_variates:
        return Ineligibility(
            "rows come in epochs or blocks, and there are no control variates",
            "Leave control_variates at its default and sample all variables with this step",
        )
    return None


def hessian_structures(
    estimator: GradientEstimator, product: Product, control_variates: str | int
) -> list[HessianStructure]:
    """List possible structures of the Hessian of second-order control variates, best first.

    Parameters
    ----------
    estimator : GradientEstimator
    product : Product
        Variables that are not Euclidean have no groups.
    control_variates : {"auto", 1, 2, 0}
        With ``"auto"`` second order is possible if few Hessian-vector products determine the
        Hessian, and the gradient has no kinks.

    Returns
    -------
    list of HessianStructure
        Empty if second order is impossible.
    """
    if control_variates not in ("auto", 2):
        return []
    structures = [HessianStructure.dense(product.size)]
    if product.size > SETTINGS.max_second_order:
        n_euclidean, shapes, value_shapes = 0, [], estimator.value_shapes
        for name, manifold, rows in product.components:
            size = rows * manifold.size
            shapes.append(value_shapes.get(name, (size,)) if manifold.is_flat else (size,))
            n_euclidean += size if manifold.is_flat else 0
        by_group = HessianStructure.by_group(shapes)
        if all(vector.stop <= n_euclidean for vector in by_group.vectors):
            structures.insert(0, by_group)
    if control_variates == 2:
        return structures
    few = [each for each in structures if each.n_products <= SETTINGS.max_second_order]
    return few if few and not estimator.has_kinks else []


def adapted_gradient(
    estimator: GradientEstimator, product: Product, *, control_variates: str | int
) -> AdaptedGradient | Ineligibility:
    """Create gradient functions in adaptable coordinates, or return the reason why it fails.

    Parameters
    ----------
    estimator : GradientEstimator
    product : Product
    control_variates : {"auto", 1, 2, False}
        See `hessian_structures`.

    Raises
    ------
    ValueError
        For ``control_variates=2``, if PyTensor has no second derivatives of the model.
    """
    has_control_variates = bool(control_variates) and not estimator.depends_on_others
    ineligibility = check_eligibility(estimator, product, has_control_variates=has_control_variates)
    if ineligibility is not None:
        return ineligibility
    widths = [
        rows * manifold.size for _, manifold, rows in product.components if not manifold.is_flat
    ]
    source = estimator.source
    if source.has_all_rows:
        return AdaptedGradient(product.size, widths, estimator.logp_grad)
    total = estimator.total_gradient()
    assert total is not None  # several tables have no `all_rows`, and are not eligible
    structures = hessian_structures(estimator, product, control_variates)
    gradient = AdaptedGradient(
        product.size,
        widths,
        total.logp_grad,
        estimator.logp_grad,
        total,
        source.all_rows,
        use_control_variates=has_control_variates,
        make_curvature=estimator.row_curvature if structures else None,
        structures=structures,
        data_version=lambda: source.n_changes,
    )
    if control_variates == 2 and has_control_variates and not gradient.compile_second_order():
        message = (
            "control_variates=2 needs second derivatives of the log-density of "
            f"{', '.join(map(repr, estimator.row_names))}, which PyTensor does not have for one of "
            'its operations. Use control_variates=1 or "auto"'
        )
        raise ValueError(see(message, "second-derivatives"))
    return gradient
