r"""Cost of an independent draw with minibatches, compared with all rows.

In whitened coordinates the gradient of a minibatch of n of N rows, with control variates of first
order, has noise because rows have curvature and the draws are around the centering point, by the
posterior variance of the predictor of a row. A group effect with m rows, and a prior as informative
as m₀ rows, has noise of the variance

.. math:: b = \frac{N}{n} \frac{m}{(m + m_0)^2} \approx \frac{N}{n m} ,

and several kinds of groups add up. A coefficient that all rows share adds 1/n. The noise bounds the
step size, and its friction adds steps: the smaller the groups, the larger the minibatch has to be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.adaptation.eligibility import SETTINGS as ELIGIBILITY
from pymc_geodesic.adaptation.eligibility import values_per_row
from pymc_geodesic.adaptation.langevin_parameters import SETTINGS as LANGEVIN
from pymc_geodesic.adaptation.langevin_parameters import ParameterRule
from pymc_geodesic.adaptation.step_size_bounds import SETTINGS as BOUNDS
from pymc_geodesic.adaptation.step_size_bounds import has_shared_scales
from pymc_geodesic.gradients.estimate import GradientEstimate


@dataclass(frozen=True)
class MinibatchCostSettings:
    """Constants of the cost; its unit is the time of a row in a gradient over all rows, 45 ns.

    By processor time of the draws of logistic regressions with 900, 5,000 and 20,000 rows in groups
    of 10 and 20, and minibatches of 100 to 2,500. There draws with minibatches had 0.8 to 3.5 times
    the effective draws of those with all rows, which are taken to be the same here.

    Attributes
    ----------
    prior_rows : float
        m₀, the rows of a group that are as informative as its prior: 1/(τ² w) for effects of
        standard deviation τ and rows of curvature w, 9 for τ = 0.7 in a logistic regression.
    minibatch_row : float
        Cost of a row of a minibatch, of which only the gradient is evaluated.
    coordinate : float
        Cost of a coordinate in a step, for whitening and noise.
    step : float
        Fixed cost of a step.
    values_per_row : float
        Values of a row that double its cost; chosen by hand.
    worst_noise : float
        Variance of the noise along the worst coordinate, divided by that along a typical one: 1.9
        to 3.9. It bounds the step size.
    step_size_ratio : float
        Step size of trajectories, divided by that on a normal distribution: 0.75 to 0.92.
    trajectory_length : float
        Mean length of a trajectory in whitened coordinates.
    max_draws : float
        Draws between independent ones from which a message recommends larger minibatches; chosen by
        hand.
    min_rows : int
        Rows below which no message is issued, because either way takes seconds.
    reported_ratio : float
        Time compared with all rows from which a message recommends them; chosen by hand.
    """

    prior_rows: float = 9.0
    minibatch_row: float = 0.5
    coordinate: float = 0.12
    step: float = 40.0
    values_per_row: float = 100.0
    worst_noise: float = 2.0
    step_size_ratio: float = 0.8
    trajectory_length: float = 0.5 * math.pi
    max_draws: float = 2.0
    min_rows: int = 500
    reported_ratio: float = 1.5


SETTINGS = MinibatchCostSettings()


@dataclass(frozen=True)
class MinibatchCost:
    """Expected gradients of minibatches, and time, of an independent draw.

    Attributes
    ----------
    n_rows, batch_size : int
    noise : float
        Variance of the gradient noise along a typical whitened coordinate.
    n_steps : float
        Gradients of minibatches for a draw that is independent of the last one.
    n_steps_all : float
        Gradients over all rows of a trajectory.
    ratio : float
        Time with minibatches divided by that with all rows.
    """

    n_rows: int
    batch_size: int
    noise: float
    n_steps: float
    n_steps_all: float
    ratio: float

    def __str__(self) -> str:
        """Describe the cost."""
        return (
            f"An independent draw takes about {self.n_steps:.0f} gradients of "
            f"batch_size={self.batch_size} of {self.n_rows:,} rows, and {self.ratio:.2g} times as "
            f"long as the {self.n_steps_all:.0f} gradients with all rows"
        )

    @property
    def advice(self) -> str:
        """Recommendation of all rows, or of larger minibatches; empty without one."""
        if self.n_rows >= SETTINGS.min_rows and self.ratio > SETTINGS.reported_ratio:
            return "Use GMC, which takes all rows"
        most = LANGEVIN.max_steps
        if self.n_steps > SETTINGS.max_draws * most:
            # about as many gradients as a draw may take, because noise is proportional to 1/n
            larger = min(math.ceil(self.batch_size * self.n_steps / most), self.n_rows)
            return (
                f"A draw takes at most {most} of them, so that draws depend on each other. Use "
                f"batch_size >= {larger}, or GMC"
            )
        return ""


def gradient_noise_of_groups(
    sizes_by_row: Sequence[np.ndarray], n_coordinates: int, n_rows: int, batch_size: int
) -> float:
    """Variance of the gradient noise in whitened coordinates with first-order control variates.

    Parameters
    ----------
    sizes_by_row : sequence of ndarray, shape (N,)
        Rows of the group of each row, for each kind of groups.
    n_coordinates : int
        All coordinates of the model, those of groups among them.
    n_rows, batch_size : int
        N and n.

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
        noise += n_rows / batch_size * float(np.mean(sizes / (sizes + SETTINGS.prior_rows) ** 2))
        n_effects += float(np.sum(1.0 / sizes))
    return noise + max(n_coordinates - n_effects, 0.0) / batch_size


def minibatch_cost(
    estimate: GradientEstimate,
    sizes: Sequence[int],
    *,
    rule: ParameterRule,
    control_variates: str | int,
) -> MinibatchCost | None:
    """Cost of an independent draw with minibatches of rows in memory; None without them.

    Parameters
    ----------
    estimate : GradientEstimate
    sizes : sequence of int
        Number of coordinates of each variable.
    rule : ParameterRule
        Step size for gradient noise of known variance.
    control_variates : {"auto", 1, 2, 0}
    """
    source = estimate.source
    if source.is_everything or source.is_streamed:
        return None
    arrays, _ = next(iter(source.all_rows() or ()), ({}, 0))
    if not arrays:
        return None
    shares: Mapping[str, np.ndarray] = estimate.row_shares(arrays)
    groups = [1.0 / each[each > 0.0] for each in shares.values() if (each > 0.0).any()]
    d, n_rows, batch_size = sum(sizes), source.n_rows, source.batch_size
    if not control_variates:
        noise = n_rows / batch_size
    elif control_variates != 1 and d <= ELIGIBILITY.max_second_order and not estimate.has_kinks:
        noise = 0.0  # of second order
    else:
        noise = gradient_noise_of_groups(groups, d, n_rows, batch_size)
    explored = SETTINGS.step_size_ratio * (LANGEVIN.reference_step_size / d) ** 0.25
    noises, worst = np.array([noise]), np.array([SETTINGS.worst_noise * noise])
    longest = min(
        rule.max_step_size_for_shape(explored, d, has_shared_scales=has_shared_scales(sizes)),
        max(
            rule.max_step_size_for_heterogeneity(worst, worst),
            BOUNDS.min_step_size_for_heterogeneity,
        ),
    )
    parameters = rule.parameters(noises)
    h = min(parameters.step_size, longest)
    friction = rule.parameters(noises, step_size=h).friction
    n_steps = (2.0 * friction.mean() + h * noise) / h if friction.any() else 4.0 / h**2
    n_all = SETTINGS.trajectory_length / explored
    row = 1.0 + min(values_per_row(source), d) / SETTINGS.values_per_row
    fixed = SETTINGS.step + SETTINGS.coordinate * d
    ratio = n_steps * (SETTINGS.minibatch_row * row * batch_size + fixed)
    ratio /= n_all * (row * n_rows + fixed)
    return MinibatchCost(n_rows, batch_size, noise, n_steps, n_all, ratio)
