"""Trajectories with Metropolis correction, in coordinates that are found on the way."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.kernels import gmc
from pymc_geodesic.kernels.gmc import Chains, Leapfrog, Record
from pymc_geodesic.manifolds import Euclidean, Product
from pymc_geodesic.manifolds.blocks import project
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.streams import uniform
from pymc_geodesic.steps.base.prepared import prepare
from pymc_geodesic.tuning.factor_rule import FactorRule
from pymc_geodesic.tuning.funnel import Funnel
from pymc_geodesic.tuning.metric import Metric, unit_metric
from pymc_geodesic.tuning.trajectory import TrajectoryTuner

__all__ = [
    "AdaptedTrajectories",
    "Trajectory",
    "compact_parts",
    "flat_names",
    "joined",
    "longest_lengths",
]

JITTER = 0.1
"""Each trajectory uses ε(1 + 0.1 U(−1, 1))."""


def compact_parts(product: Product) -> list[tuple[slice, int]]:
    """Place and dimension of each variable that is not Euclidean."""
    return [
        (product.slices[name], rows * manifold.dim)
        for name, manifold, rows in product.components
        if not manifold.is_flat
    ]


def flat_names(product: Product) -> list[str]:
    """Name of the variable of each Euclidean coordinate."""
    return [
        name
        for name, manifold, rows in product.components
        if manifold.is_flat
        for _ in range(rows * manifold.size)
    ]


def longest_lengths(product: Product) -> list[float]:
    """Bound of the length scale of each variable of `compact_parts`: half lines have none."""
    return [
        1.0 if manifold.is_compact else math.inf
        for _, manifold, _ in product.components
        if not manifold.is_flat
    ]


def joined(product: Product) -> Product:
    """Product with one block for all Euclidean variables, which come first.

    Examples
    --------
    >>> from pymc_geodesic.manifolds import Euclidean, Product, Sphere
    >>> from pymc_geodesic.steps.base.adapted_trajectories import joined
    >>> both = Product([("a", Euclidean(2), 1), ("b", Euclidean(3), 1), ("mu", Sphere(3), 4)])
    >>> joined(both).names
    ('Euclidean coordinates', 'mu')
    """
    rest = [one for one in product.components if not one[1].is_flat]
    width = product.size - sum(rows * manifold.size for _, manifold, rows in rest)
    euclidean = [("Euclidean coordinates", Euclidean(width), 1)] if width else []
    return Product([*euclidean, *rest])


@dataclass(frozen=True)
class Trajectory:
    """What one transition reports.

    Attributes
    ----------
    step_size, acceptance_rate, lp, energy : float
    n_grad : int
    diverging : bool
    """

    step_size: float
    acceptance_rate: float
    lp: float
    energy: float
    n_grad: int
    diverging: bool


class AdaptedTrajectories:
    """Geodesic Monte Carlo that adapts metric, step size and length.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        The variables, Euclidean ones first.
    target_accept : float
    rule : FactorRule
        What the metric is made of.
    n_steps : int, optional
        Leapfrog steps; by default as many as a quarter of a period takes.
    is_fixed : bool
        Whether the log-density at a place stays what it is, so that it is evaluated there once.
    """

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        *,
        target_accept: float,
        rule: FactorRule,
        n_steps: int | None = None,
        is_fixed: bool = False,
    ) -> None:
        self.gradient = gradient
        self._target_accept, self._rule, self._n_steps = target_accept, rule, n_steps
        self._model_product = product
        self.product = joined(product)
        self.compact = compact_parts(product)
        self._longest = longest_lengths(product)
        self._record = Record(1, np.empty((0, product.size)), np.empty(1), np.empty((2, 1)))
        self._is_fixed = is_fixed
        self._current = np.full(product.size + 1, math.nan)
        self.has_tuned = False
        prepare(gmc, evaluate, project, uniform)
        self.reset(0)

    def reset(self, n_tune: int) -> None:
        """Begin a chain; without a tuning phase what an earlier one chose is kept."""
        self._n_tune = n_tune
        self.draw = 0
        self._evaluated = 0
        self.z = np.empty(0)
        self._current[:] = math.nan
        self.has_tuned = self.has_tuned and n_tune == 0
        if not self.has_tuned:
            self.use(unit_metric(self.gradient.n_euclidean, len(self.compact)))
            self.tuner = TrajectoryTuner(
                n_tune,
                self._target_accept,
                self._rule,
                self.gradient.n_euclidean,
                self.compact,
                self._longest,
            )

    def use(self, metric: Metric) -> None:
        """Change the coordinates; positions are to be read anew."""
        self._current[:] = math.nan
        self.gradient.use(metric)
        self.product.scales[len(self.product.scales) - len(metric.lengths) :] = metric.lengths

    @property
    def position(self) -> np.ndarray:
        """Coordinates of the model."""
        return self.gradient.to_position(self.z)

    def start(self, x: np.ndarray) -> np.ndarray:
        """Begin at a place, or go on from where another step has put the variables.

        Returns
        -------
        ndarray
            Gradient there in the coordinates of the model where a chain begins, and empty else.
        """
        gradient = np.empty(0)
        if self.draw == 0 and self._n_tune:
            self._evaluated = 1
            gradient = self.gradient.exact_gradient(x)
            d = self.gradient.n_euclidean
            first = self._rule.first(x[:d], gradient[:d])
            steep = [max(np.mean(gradient[part] ** 2), 1.0) ** -0.25 for part, _ in self.compact]
            self.use(Metric(first.centre, first.factor, np.array(steep)))
        self.z = self.gradient.from_position(x)
        self._current[:] = math.nan
        return gradient

    def _longest_step(self) -> float:
        """Step that goes half around the smallest compact manifold."""
        lengths = self.gradient.metric.lengths
        return min(
            (
                math.pi * longest / (length * math.sqrt(dim))
                for length, longest, (_, dim) in zip(
                    lengths, self._longest, self.compact, strict=True
                )
            ),
            default=math.inf,
        )

    def advance(self, stream: np.ndarray, *, tune: bool) -> Trajectory:
        """Make one transition, and learn from it while tuning."""
        steps = self.tuner.step_size
        step_size = min(steps.exploring if tune else steps.settled, self._longest_step())
        n_steps = self._n_steps
        if n_steps is None:
            n_steps = self.tuner.n_steps(step_size, uniform(stream), tune=tune)
        if not self._is_fixed:
            self._current[:] = math.nan
        field = self.gradient.exact
        divergences, n_grad = gmc.call(
            field.callback,
            0,
            self.product.space,
            Chains(1, self.z, self._current),
            Leapfrog(step_size, n_steps, JITTER),
            stream,
            self._record,
        )
        field.raise_error()
        acceptance = float(self._record.acceptance[0])
        n_grad += self._evaluated
        self._evaluated = 0
        if tune:
            n_grad += 1
            self._learn(acceptance)
        self.draw += 1
        return Trajectory(
            step_size=step_size,
            acceptance_rate=acceptance,
            lp=float(self._record.energies[0, 0]),
            energy=float(self._record.energies[1, 0]),
            n_grad=n_grad,
            diverging=divergences > 0,
        )

    def _learn(self, acceptance: float) -> None:
        self.has_tuned = True
        x = self.position
        gradient = self.gradient.exact_gradient(x)
        project(self._model_product.blocks, x, gradient)
        metric = self.tuner.observe(acceptance, x, gradient)
        if metric is not None:
            self.use(metric)
            self.z = self.gradient.from_position(x)

    def funnel(self, in_model: Collection[tuple[str, str]] = ()) -> Funnel | None:
        """Euclidean variable that sets the scale of another, as the tuning draws show it."""
        windows = self.tuner.windows
        if windows is None:
            return None
        product = self._model_product
        names = [name for name, manifold, _ in product.components if manifold.is_flat]
        return windows.funnel({name: product.slices[name] for name in names}, in_model)

    @property
    def state(self) -> dict[str, Any]:
        """All that decides the draws to come."""
        return {
            "draw": self.draw,
            "n_tune": self._n_tune,
            "has_tuned": self.has_tuned,
            "z": self.z.copy(),
            "current": self._current.copy(),
            "tuner": self.tuner.state,
            "gradient": self.gradient.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.reset(state["n_tune"])
        self.draw, self.has_tuned = state["draw"], state["has_tuned"]
        self.z = state["z"].copy()
        self.tuner.state = state["tuner"]
        self.gradient.state = state["gradient"]
        self.use(self.gradient.metric)
        self._current[:] = state["current"]
