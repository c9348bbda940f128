r"""Cost of an independent draw with minibatches, compared with all rows.

In whitened coordinates the gradient of a minibatch of n of N rows, with first-order control
variates, is noisy since rows have curvature and draws differ from the centering point; the noise is
proportional to the posterior variance of the linear predictor of a row. For a group effect with m
rows, and a prior as informative as m₀ rows, its variance is

.. math:: b = \frac{N}{n} \frac{m}{(m + m_0)^2} \approx \frac{N}{n m} ,

which is summed over the grouping factors. A coefficient of all rows adds 1/n. With second-order
control variates, the variance for a group effect is smaller by a factor in proportion to m + m₀,
since the remainder has the square of the effect instead of the effect, and other coefficients add
little. The noise bounds the step size, and its friction adds steps: smaller groups require larger
minibatches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.adaptation.control_variates import SETTINGS as CONTROL_VARIATES
from pymc_geodesic.adaptation.eligibility import hessian_structures, values_per_row
from pymc_geodesic.adaptation.langevin_parameters import SETTINGS as LANGEVIN
from pymc_geodesic.adaptation.langevin_parameters import ParameterRule
from pymc_geodesic.adaptation.mass_matrix import SETTINGS as MASS_MATRIX
from pymc_geodesic.adaptation.step_size_bounds import SETTINGS as BOUNDS
from pymc_geodesic.adaptation.step_size_bounds import has_shared_scales
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.manifolds import Product


@dataclass(frozen=True)
class MinibatchCostSettings:
    """Constants of the cost. Its unit is 10 ns.

    They are estimated from the processor time of draws of logistic, normal and Poisson regressions
    with 10⁴ to 10⁶ rows and up to 2,000 groups (`benchmarks.minibatch_cost`), where the predicted
    ratio of times was 0.2 to 7 times the measured one: smallest for correlated intercepts and
    slopes, whose prior is more expensive, and largest where second order removes nearly all noise.
    The effective sample size per draw was 0.4 to 1.6 times that with all rows; the ratio is assumed
    to be 1.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    prior_rows : float
        m₀, the number of rows that are as informative as the prior of a group effect: 1/(τ² w) for
        effects with standard deviation τ and rows with curvature w, 9 for τ = 0.7 in a logistic
        regression.
    row, row_value : float
        Cost of a row in a gradient over all rows, and of each of its values.
    statistic : float
        Cost of an entry of sufficient statistics that replace the rows, in a gradient over all
        rows: 0.75 ns with 10⁶ entries.
    minibatch_row, minibatch_value : float
        The same in a minibatch, whose gradient is evaluated at two points.
    coordinate, pair : float
        Cost of a coordinate in a step, for whitening and noise, and of a pair of coordinates with a
        dense metric.
    step, draw : float
        Fixed cost of a step, and of a draw.
    second_order_noise : float
        Ratio of the noise variance along a group effect with second-order control variates to that
        with first-order ones, times m + m₀; measured with 20 to 200 rows per group.
    worst_noise : float
        Ratio of the noise variance along the worst coordinate to that along a typical one, measured
        as 1.9 to 3.9. It bounds the step size.
    step_size_ratio : float
        Ratio of the step size of leapfrog steps to that on a normal distribution, measured as 0.75
        to 0.92.
    exponent_all : float
        Exponent of the number of coordinates with which the number of gradients of a trajectory
        over all rows grows, measured as 1 to 2.3 with up to 105 coordinates and a split
        Hamiltonian.
    max_draws : float
        Number of draws per independent draw above which a message recommends larger minibatches.
    min_rows : int
        Number of rows below which no message is issued, since sampling takes seconds in any case.
    reported_ratio : float
        Ratio of the time with minibatches to that with all rows above which a message recommends
        all rows. A single experiment with correlated effects of 10,000 rows measured 0.55 where 2.1
        was predicted.
    """

    prior_rows: float = 9.0
    row: float = 0.5
    row_value: float = 0.1
    statistic: float = 0.075
    minibatch_row: float = 2.5
    minibatch_value: float = 0.05
    coordinate: float = 1.5
    pair: float = 0.04
    step: float = 330.0
    draw: float = 2500.0
    second_order_noise: float = 0.25
    worst_noise: float = 2.0
    step_size_ratio: float = 0.8
    exponent_all: float = 1.0 / 12.0
    max_draws: float = 2.0
    min_rows: int = 5_000
    reported_ratio: float = 4.0


SETTINGS = MinibatchCostSettings()


@dataclass(frozen=True)
class MinibatchCost:
    """Expected number of gradients, and time, of an independent draw.

    Attributes
    ----------
    n_rows, batch_size : int
    noise : float
        Variance of the gradient noise along a typical whitened coordinate.
    n_steps : float
        Number of minibatch gradients for an independent draw.
    n_steps_all : float
        Number of gradients over all rows of a trajectory.
    ratio : float
        Time with minibatches divided by that with all rows.
    has_statistics : bool
        Whether sufficient statistics replace the rows in a gradient over all rows.
    """

    n_rows: int
    batch_size: int
    noise: float
    n_steps: float
    n_steps_all: float
    ratio: float
    has_statistics: bool = False

    def __str__(self) -> str:
        """Describe the cost."""
        return (
            f"An independent draw takes about {self.n_steps:.0f} minibatch gradients "
            f"(batch_size={self.batch_size} of {self.n_rows:,} rows), {self.ratio:.2g} times the "
            f"time of a GMC trajectory with {self.n_steps_all:.1f} gradients over all rows"
        )

    @property
    def advice(self) -> str:
        """Recommendation of all rows, or of larger minibatches; empty without one."""
        if self.n_rows >= SETTINGS.min_rows and self.ratio > SETTINGS.reported_ratio:
            if self.has_statistics:
                return "Use GMC, for which sufficient statistics replace the rows"
            return "Use GMC, which evaluates all rows"
        most = LANGEVIN.max_steps
        if self.n_steps > SETTINGS.max_draws * most:
            # with this batch size n_steps is about the maximum, since noise is proportional to 1/n
            larger = min(math.ceil(self.batch_size * self.n_steps / most), self.n_rows)
            or_gmc = ", or GMC" if self.ratio > 1.0 else ""
            return (
                f"A draw uses at most {most} of these gradients, so that draws are autocorrelated. "
                f"Use batch_size >= {larger}{or_gmc}"
            )
        return ""


def gradient_noise_of_groups(
    sizes_by_row: Sequence[np.ndarray],
    n_coordinates: int,
    n_rows: int,
    batch_size: int,
    *,
    order: int = 1,
) -> float:
    """Compute the variance of gradient noise in whitened coordinates.

    Parameters
    ----------
    sizes_by_row : sequence of ndarray, shape (N,)
        Size of the group of each row, for each grouping factor.
    n_coordinates : int
        Number of coordinates of the model, including those of groups.
    n_rows, batch_size : int
        N and n.
    order : {1, 2}
        Order of the control variates.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.minibatch_cost import gradient_noise_of_groups
    >>> sizes = [np.full(60_000, 20), np.full(60_000, 50), np.full(60_000, 200)]
    >>> [round(gradient_noise_of_groups([m], 0, 60_000, 200), 1) for m in sizes]  # 6.9, 4.3, 1.7
    [7.1, 4.3, 1.4]
    """
    noise, n_effects = 0.0, 0.0
    for sizes in sizes_by_row:
        informed = sizes + SETTINGS.prior_rows
        variance = sizes / informed**2
        if order == 2:
            variance *= SETTINGS.second_order_noise / informed
        noise += n_rows / batch_size * float(np.mean(variance))
        n_effects += float(np.sum(1.0 / sizes))
    if order == 2:
        return noise
    return noise + max(n_coordinates - n_effects, 0.0) / batch_size


def _decorrelation_steps(
    noise: float, rule: ParameterRule, sizes: Sequence[int], *, is_split: bool
) -> float:
    """Return the number of inner steps between independent draws for noise of this variance."""
    d, noises, worst = sum(sizes), np.array([noise]), np.array([SETTINGS.worst_noise * noise])
    longest = max(
        rule.max_step_size_for_heterogeneity(worst, worst), BOUNDS.min_step_size_for_heterogeneity
    )
    if not is_split or has_shared_scales(sizes):
        of_exploration = SETTINGS.step_size_ratio * (LANGEVIN.reference_step_size / d) ** 0.25
        by_shape = rule.max_step_size_for_shape(
            of_exploration, d, has_shared_scales=has_shared_scales(sizes)
        )
        longest = min(longest, by_shape)
    step_size = min(rule.parameters(noises).step_size, longest)
    return rule.parameters(noises, step_size=step_size).decorrelation_steps


def minibatch_cost(
    estimator: GradientEstimator,
    product: Product,
    *,
    rule: ParameterRule,
    control_variates: str | int,
    is_split: bool = False,
) -> MinibatchCost | None:
    """Estimate the cost of an independent draw with minibatches of rows in memory.

    Parameters
    ----------
    estimator : GradientEstimator
    product : Product
    rule : ParameterRule
        Step size for gradient noise of known variance.
    control_variates : {"auto", 1, 2, 0}
    is_split : bool
        Whether the Hamiltonian is split if the posterior is nearly normal, as is assumed.

    Returns
    -------
    MinibatchCost or None
        None without minibatches, or for streamed rows.
    """
    source = estimator.source
    if source.has_all_rows or source.is_streamed:
        return None
    arrays, _ = next(iter(source.all_rows() or ()), ({}, 0))
    if not arrays:
        return None
    shares: Mapping[str, np.ndarray] = estimator.row_shares(arrays)
    groups = [1.0 / each[each > 0.0] for each in shares.values() if (each > 0.0).any()]
    d, n_rows, batch_size = product.size, source.n_rows, source.batch_size
    sizes = [part.stop - part.start for part in product.slices.values()]
    structures = hessian_structures(estimator, product, control_variates)
    if not control_variates:
        noises = [n_rows / batch_size]
    elif structures and not structures[0].n_groups:
        noises = [0.0]  # of second order
    else:
        orders = (1, 2) if structures and groups else (1,)
        noises = [
            gradient_noise_of_groups(groups, d, n_rows, batch_size, order=each) for each in orders
        ]
    steps = [_decorrelation_steps(each, rule, sizes, is_split=is_split) for each in noises]
    if len(steps) > 1 and CONTROL_VARIATES.second_order_cost * steps[1] >= steps[0]:
        steps.pop()
    noise, n_steps = noises[len(steps) - 1], steps[-1]
    n_all = d**SETTINGS.exponent_all
    n_values = min(values_per_row(source), d)
    fixed = SETTINGS.step + SETTINGS.coordinate * d
    step = fixed + batch_size * (SETTINGS.minibatch_row + SETTINGS.minibatch_value * n_values)
    if d <= MASS_MATRIX.max_dense:
        step += SETTINGS.pair * d**2
    n_statistics = estimator.count_statistics()
    if n_statistics is None:
        step_all = fixed + n_rows * (SETTINGS.row + SETTINGS.row_value * n_values)
    else:
        step_all = fixed + n_statistics * SETTINGS.statistic
    ratio = (SETTINGS.draw + n_steps * step) / (SETTINGS.draw + n_all * step_all)
    has_statistics = n_statistics is not None
    return MinibatchCost(n_rows, batch_size, noise, n_steps, n_all, ratio, has_statistics)
