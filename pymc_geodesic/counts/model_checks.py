"""Checks of a model for SCIR and SGRLD, by the counts of its likelihood at random points.

Before a chain starts, the checks determine whether counts are negative, whether the likelihood of a
Gamma or LogNormal variable is conjugate to its prior, and whether counts and their sums depend on
the point. Conjugacy is checked again along the chain during warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pymc.initial_point import make_initial_point_fn
from pymc.model import Model

from pymc_geodesic.counts.count_estimator import CountEstimator
from pymc_geodesic.counts.layout import CountLayout
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.kernels.counts import LOG_NORMAL, SIMPLEX
from pymc_geodesic.runtime.streams import new_stream


@dataclass(frozen=True)
class ModelCheckSettings:
    """Constants of the checks.

    Attributes
    ----------
    n_points : int
        Number of points of the other variables: the initial point, and jittered points.
    n_trials : int
        Number of random values of the sampled variables at each of these points.
    trial_rounding : float
        Relative deviation from conjugacy attributed to rounding, at random values.
    chain_rounding : float
        The same at positions of a chain, where values are more extreme.
    trial_scale : float
        Factor between the two values of a Gamma or LogNormal variable that are compared.
    """

    n_points: int = 3
    n_trials: int = 3
    trial_rounding: float = 1e-6
    chain_rounding: float = 1e-4
    trial_scale: float = 3.0


SETTINGS = ModelCheckSettings()


class Dependence(NamedTuple):
    """Dependence of the estimates on the values of the variables.

    Parameters
    ----------
    counts : bool
        Whether any count or exposure depends on the values.
    sums : ndarray of bool, shape (n_variables,)
        Whether the sum of the counts over any simplex row of a Dirichlet variable depends on the
        values.
    """

    counts: bool
    sums: np.ndarray


def initial_and_jittered_points(
    model: Model, variables: Sequence[ManifoldVariable]
) -> list[dict[str, np.ndarray]]:
    """Return the initial point of a model, and points with jitter on variables of other steps.

    At the initial point, parts of the likelihood may vanish because a coefficient is zero.

    Parameters
    ----------
    model : pymc.Model
    variables : sequence of ManifoldVariable
        Variables of the step, which keep their initial values.
    """
    own = [variable.rv for variable in variables]
    others = {rv for rv in model.free_RVs if rv not in own and rv.dtype.startswith("float")}
    jittered = make_initial_point_fn(model=model, jitter_rvs=others)
    return [
        model.initial_point(random_seed=0),
        *(jittered(seed) for seed in range(1, SETTINGS.n_points)),
    ]


class LikelihoodChecks:
    """Checks of the likelihood by count estimates of single minibatches.

    Parameters
    ----------
    sampler : str
        Name of the step method, for error messages.
    model : pymc.Model
    variables : sequence of ManifoldVariable
    estimator : CountEstimator
    layout : CountLayout
    allows_negative : bool
        Whether the dynamics accept negative counts and likelihoods that are not conjugate.
    """

    def __init__(
        self,
        sampler: str,
        model: Model,
        variables: Sequence[ManifoldVariable],
        estimator: CountEstimator,
        layout: CountLayout,
        *,
        allows_negative: bool,
    ) -> None:
        self._sampler, self._model = sampler, model
        self._variables, self._estimator, self._layout = variables, estimator, layout
        self._allows_negative = allows_negative

    def dependence(self) -> Dependence:
        """Find which counts depend on the values, at random points of a few minibatches.

        Returns
        -------
        Dependence
            For random estimates, whose dependence cannot be determined, counts are assumed to
            depend on the values and their sums not to.

        Raises
        ------
        ValueError
            For a likelihood with negative counts or a likelihood that is not conjugate, unless
            these are allowed.
        """
        n_variables = len(self._variables)
        if not self._estimator.is_deterministic:
            return Dependence(counts=True, sums=np.zeros(n_variables, dtype=bool))
        points = initial_and_jittered_points(self._model, self._variables)
        found = []
        for minibatch, point in zip(
            self._estimator.next_minibatches(len(points)), points, strict=True
        ):
            self._estimator.set_others(point)
            found.append(self._dependence_in(int(minibatch)))
        self._estimator.reset(0)
        sums = np.any([each.sums for each in found], axis=0)
        return Dependence(
            counts=any(each.counts for each in found),
            sums=np.zeros(n_variables, dtype=bool) if self._allows_negative else sums,
        )

    def _dependence_in(self, minibatch: int) -> Dependence:
        """Compare the estimates from one minibatch at random values."""
        table, size = self._layout.table, self._layout.size
        rng = np.random.default_rng(1)
        found = []
        for trial in range(SETTINGS.n_trials):
            log_state = np.log(rng.gamma(1.0 if trial else 0.3, size=size) + 1e-12)
            values = self._layout.values(log_state)
            failed, counts, exposures = self._estimate_at(values, minibatch)
            if not self._allows_negative:
                if failed < 0:
                    self._check_conjugacy(
                        values, minibatch, counts, exposures, SETTINGS.trial_rounding
                    )
                elif math.isfinite(counts[failed]):
                    raise ValueError(
                        self.describe_negative(failed, counts[failed], exposures[failed])
                    )
            found.append((counts, exposures))
        counts, exposures = (np.array(each) for each in zip(*found, strict=True))
        sums = np.zeros(len(table), dtype=bool)
        for variable, (kind, start, rows, width) in enumerate(table):
            if kind == SIMPLEX:
                own = counts[:, start : start + rows * width]
                sums[variable] = _differ(own.reshape(len(found), rows, width).sum(axis=-1))
        return Dependence(_differ(counts) or _differ(exposures), sums)

    def _estimate_at(
        self, values: np.ndarray, minibatch: int
    ) -> tuple[int, np.ndarray, np.ndarray]:
        counts, exposures = np.empty_like(values), np.empty_like(values)
        stream = new_stream(np.random.default_rng(1))
        failed = self._estimator.estimate(values, minibatch, stream, counts, exposures)
        return failed, counts, exposures

    def check_conjugacy(self, values: np.ndarray, minibatch: int) -> int:
        """Check at a position of the chain that likelihoods are conjugate to the priors.

        Parameters
        ----------
        values : ndarray, shape (size,)
        minibatch : int

        Returns
        -------
        int
            Number of count estimates.

        Raises
        ------
        ValueError
            If the likelihood of a Gamma or LogNormal variable is not conjugate to its prior.
        """
        n_conjugate = int(np.sum(self._layout.table[:, 0] != SIMPLEX))
        if not n_conjugate:
            return 0
        failed, counts, exposures = self._estimate_at(values, minibatch)
        if failed < 0:
            self._check_conjugacy(values, minibatch, counts, exposures, SETTINGS.chain_rounding)
        return 1 + n_conjugate

    def _check_conjugacy(
        self,
        values: np.ndarray,
        minibatch: int,
        counts: np.ndarray,
        exposures: np.ndarray,
        rounding: float,
    ) -> None:
        """Check that neither counts nor exposures of a variable depend on its value."""
        for variable, entry in zip(self._variables, self._layout.table, strict=True):
            kind, start, rows, width = entry
            if kind == SIMPLEX:
                continue
            part = slice(start, start + rows * width)
            scaled = values.copy()
            scaled[part] *= SETTINGS.trial_scale
            failed, new_counts, new_exposures = self._estimate_at(scaled, minibatch)
            unit = 1.0 if kind == LOG_NORMAL else scaled[part]
            size = 1.0 + np.abs(counts[part]) + np.abs(exposures[part]) * unit
            deviation = np.abs(new_counts[part] - counts[part])
            deviation += np.abs(new_exposures[part] - exposures[part]) * unit
            if failed >= 0 or np.any(deviation > rounding * size):
                raise ValueError(
                    _not_conjugate(self._sampler, variable.name, is_log_normal=kind == LOG_NORMAL)
                )

    def describe_negative(self, index: int, count: float, exposure: float) -> str:
        """Error message for a negative estimate.

        Parameters
        ----------
        index : int
            Coordinate in the vector of all variables.
        count, exposure : float
            Estimates for this coordinate.
        """
        table = self._layout.table
        ends = table[:, 1] + table[:, 2] * table[:, 3]
        number = int(np.searchsorted(ends, index, side="right"))
        name, component = self._variables[number].name, index - int(table[number, 1])
        if table[number, 0] == LOG_NORMAL:
            return see(
                f"{self._sampler} cannot sample {name!r}: at its component {component} the "
                f"likelihood of its logarithm has the negative precision {exposure:.3g}. Sample it "
                f"with SGGMC, GMC or NUTS, and pass the other variables to {self._sampler} by name",
                "not-conjugate",
            )
        found = f"count is {count:.3g}" if not count >= 0.0 else f"exposure is {exposure:.3g}"
        return see(
            f"{self._sampler} cannot sample {name!r}: at its component {component} the estimated "
            f"{found}, and a gamma distribution has no negative parameter. The counts are "
            "ω ∂ log p / ∂ω, so that the likelihood must increase in every component, as that of "
            "Categorical, Multinomial and Poisson data and of their mixtures does (write it with "
            f"the probabilities themselves, not with 1 − {name}). Sample {name!r} with SGRLD, "
            f"SGGMC, GMC or NUTS, and pass the other variables to {self._sampler} by name",
            "not-conjugate",
        )


def _differ(trials: np.ndarray) -> bool:
    """Whether any element differs from that of the first trial, beyond rounding."""
    with np.errstate(invalid="ignore"):
        return not np.allclose(trials[1:], trials[:1], rtol=1e-6, atol=1e-9)


def _not_conjugate(sampler: str, name: str, *, is_log_normal: bool) -> str:
    """Error message for a likelihood that is not conjugate to the prior of a variable."""
    form = (
        "exp(A log θ − B (log θ)²/2), the form for log-normal data"
        if is_log_normal
        else "θⁿ exp(−cθ), the form for Poisson rates, precisions and exponential rates"
    )
    return see(
        f"{sampler} cannot sample {name!r}: its likelihood is not of the form {form}, so that its "
        "conditional distribution is not in the family of its prior. Sample it with SGGMC, GMC or "
        f"NUTS, and pass the other variables to {sampler} by name",
        "not-conjugate",
    )
