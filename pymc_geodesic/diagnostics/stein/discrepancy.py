"""How far draws are from a posterior, by its gradients alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import xarray as xr
from rich.progress import track

from pymc_geodesic.arguments import check_count
from pymc_geodesic.diagnostics.autocorrelation import autocorrelation_times
from pymc_geodesic.diagnostics.stein.bootstrap import LENGTHS, multipliers
from pymc_geodesic.diagnostics.stein.sample import SteinSample, stein_sample
from pymc_geodesic.gradients.scores import Model, PosteriorScore

ROWS = 128
"""Rows of the matrix of pairs that are in memory at the same time."""


@dataclass(frozen=True)
class KernelSteinDiscrepancy:
    """Kernel Stein discrepancy of draws, and a test that they come from the posterior.

    Attributes
    ----------
    statistic : float
        KSD², the mean of k_π over pairs of draws. A U-statistic has mean zero for independent draws
        of the posterior and may be negative.
    p_value : float
        How often the wild bootstrap gave as large a statistic.
    kind : {"U", "V"}
        Without or with the pairs of a draw and itself.
    n_draws : int
        Draws that were used.
    thin : int
        Every how manieth draw of a chain that is.
    bandwidth : float
        ℓ of the kernel.
    beta : float
        β of the kernel.
    metric : {"dense", "diag", None}
        Units of Euclidean variables.
    dependence : float
        Correlation length of the bootstrap, in draws that were used.
    bootstrap : ndarray, shape (n_bootstrap,)
        The statistic in the wild bootstrap.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import KernelSteinDiscrepancy
    >>> print(
    ...     KernelSteinDiscrepancy(
    ...         0.0012, 0.21, "U", 2000, 2, 1.7, -0.5, "dense", 0.0, np.zeros(100)
    ...     )
    ... )
    KSD² = 0.0012 (U-statistic), p = 0.21 from 2000 draws (one of 2)
    """

    statistic: float
    p_value: float
    kind: str
    n_draws: int
    thin: int
    bandwidth: float
    beta: float
    metric: str | None
    dependence: float
    bootstrap: np.ndarray = field(repr=False)

    def __str__(self) -> str:
        thinned = "" if self.thin == 1 else f" (one of {self.thin})"
        return (
            f"KSD² = {self.statistic:.3g} ({self.kind}-statistic), p = {self.p_value:.3g} from "
            f"{self.n_draws} draws{thinned}"
        )


def ksd(
    idata: xr.DataTree,
    model: Model | None = None,
    *,
    var_names: Sequence[str] | str | None = None,
    statistic: Literal["U", "V"] = "U",
    metric: Literal["auto", "dense", "diag"] | None = "auto",
    bandwidth: float | Literal["median"] = "median",
    beta: float = -0.5,
    n_bootstrap: int = 1000,
    dependence: float | None = None,
    max_draws: int | None = 2000,
    batch_size: int | None = None,
    minibatch: Sequence[str] | str | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = False,
) -> KernelSteinDiscrepancy:
    r"""Kernel Stein discrepancy of draws from the posterior of a model.

    It compares draws with the gradient of the log-density where they are, so that it sees what
    R-hat and the temperature of a sampler cannot: means and variances that are wrong in all chains
    alike.

    .. math::

        \mathrm{KSD}^2 = \mathbb{E}\, k_\pi(x, y), \qquad
        k_\pi(x, y) = \sum_a \bigl(b^a(x) + \nabla^a_x\bigr) \bigl(b^a(y) + \nabla^a_y\bigr)
            \varphi(|x - y|^2), \qquad
        \varphi(r^2) = (1 + r^2 / \ell^2)^\beta,

    where ∇ are tangential gradients in the ambient coordinates a, b = ∇log π − H, and H is 0 in
    flat space, (d − 1)x on the sphere in ℝᵈ and (n − (p + 1)/2)X for frames of p vectors in ℝⁿ.
    Its expectation is zero for draws of π, and positive for any other law of a density.

    The null hypothesis that the draws have the law π is tested by a wild bootstrap, which allows
    for draws that depend on each other.

    Parameters
    ----------
    idata : xarray.DataTree
        With all free variables of the model in its posterior.
    model : pymc.Model, optional
        Taken from the context by default.
    var_names : str or sequence of str, optional
        Test these variables, the others being what they are in each draw. All continuous free
        variables by default. Unit vectors and frames are compared on their manifolds, others in
        PyMC's unconstrained values.
    statistic : {"U", "V"}
        Without or with the pairs of a draw and itself, whose mean is never zero.
    metric : {"auto", "dense", "diag", None}
        Units of Euclidean variables: by the covariance of the draws, by their standard deviations,
        or those of the model; a discrepancy without units of its own depends on those of the model.
        ``"auto"`` is dense where there are five draws for each coordinate. Spheres and Stiefel
        manifolds have one unit for each variable.
    bandwidth : float or "median"
        ℓ, in these units; by default the median distance of the draws.
    beta : float
        β, between −1 and 0.
    n_bootstrap : int
        Repetitions of the bootstrap.
    dependence : float, optional
        Correlation length ℓ_W of the bootstrap, in draws that are used; 0 says that they are
        independent. By default eight times the excess of the largest integrated
        autocorrelation time over 1.
    max_draws : int or None
        Draws are thinned to at most as many: time grows with their square. None uses all.
    batch_size, minibatch
        Estimate each gradient from a minibatch of its own, as its difference to the gradient of all
        rows at one draw (control variates); see `SGGMC`. All rows by default. The U-statistic
        keeps its mean.
    random_seed : int or numpy.random.Generator, optional
        Of bootstrap and minibatches.
    progressbar : bool
        Whether to show how far the pairs have been summed.

    Returns
    -------
    KernelSteinDiscrepancy

    Raises
    ------
    ValueError
        For arguments that contradict each other, a posterior that does not fit the model, or
        gradients that are not finite.

    Notes
    -----
    Memory grows with n(n_bootstrap + 128), time with n²(size + n_bootstrap). The test knows
    nothing of modes that no draw is near, nor of how much weight far modes have. A sample that is
    large enough rejects any sampler with a bias; look at `step_halving` for its size.

    References
    ----------
    Liu, Lee, Jordan (2016), A kernelized Stein discrepancy for goodness-of-fit tests;
    Gorham, Mackey (2017), Measuring sample quality with kernels;
    Xu, Matsuda (2021), Interpretable Stein goodness-of-fit tests on Riemannian manifolds;
    Chwialkowski, Sejdinovic, Gretton (2014), A wild bootstrap for degenerate kernel tests;
    Gorham, Raj, Mackey (2020), Stochastic Stein discrepancies.

    Examples
    --------
    Draws of the right law, and of one that is 20 % too wide:

    >>> import arviz as az
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.diagnostics import ksd
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x", shape=2)
    >>> draws = np.random.default_rng(1).normal(size=(2, 500, 2))
    >>> right = ksd(az.from_dict({"posterior": {"x": draws}}), model, random_seed=1)
    >>> wide = ksd(az.from_dict({"posterior": {"x": 1.2 * draws}}), model, random_seed=1)
    >>> right.p_value > 0.05, wide.p_value < 0.01
    (True, True)
    """
    score = PosteriorScore(model, var_names=var_names, batch_size=batch_size, minibatch=minibatch)
    return discrepancy_of(
        idata,
        score,
        statistic=statistic,
        metric=metric,
        bandwidth=bandwidth,
        beta=beta,
        n_bootstrap=n_bootstrap,
        dependence=dependence,
        max_draws=max_draws,
        random_seed=random_seed,
        progressbar=progressbar,
    )


def discrepancy_of(
    idata: xr.DataTree,
    score: PosteriorScore,
    *,
    statistic: str = "U",
    metric: str | None = "auto",
    bandwidth: float | str = "median",
    beta: float = -0.5,
    n_bootstrap: int = 1000,
    dependence: float | None = None,
    max_draws: int | None = 2000,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = False,
) -> KernelSteinDiscrepancy:
    """Discrepancy by gradients that are compiled already; see `ksd`."""
    if statistic not in ("U", "V"):
        raise ValueError(f'statistic={statistic!r} is unknown; choose "U" or "V"')
    check_count("n_bootstrap", n_bootstrap)
    if dependence is not None and not 0.0 <= dependence < np.inf:
        raise ValueError(f"dependence is a number of draws and not negative, got {dependence}")
    rng = np.random.default_rng(random_seed)
    sample = stein_sample(
        idata,
        score,
        metric=metric,
        bandwidth=bandwidth,
        beta=beta,
        max_draws=max_draws,
        seed=int(rng.integers(2**31)),
    )
    if dependence is None:
        n_chains = int(sample.chains[-1]) + 1
        series = np.concatenate([sample.positions, sample.fields], axis=1)
        times = autocorrelation_times(series.reshape(n_chains, len(sample) // n_chains, -1))
        dependence = LENGTHS * (float(times.max()) - 1.0)
    weights = multipliers(sample.chains, dependence, n_bootstrap, rng)
    value, repeated = statistics_of(sample, weights, statistic, progressbar=progressbar)
    return KernelSteinDiscrepancy(
        statistic=value,
        p_value=p_value_of(value, repeated),
        kind=statistic,
        n_draws=len(sample),
        thin=sample.thin,
        bandwidth=sample.length,
        beta=beta,
        metric=sample.units.metric,
        dependence=dependence,
        bootstrap=repeated,
    )


def p_value_of(value: float, repeated: np.ndarray) -> float:
    """How often the bootstrap is as large as the statistic, which counts as one of its own."""
    return float(1 + np.count_nonzero(repeated >= value)) / (1 + repeated.size)


def statistics_of(
    sample: SteinSample, weights: np.ndarray, kind: str, *, progressbar: bool = False
) -> tuple[float, np.ndarray]:
    """Statistic of the draws, and with each process of weights."""
    n = len(sample)
    total, repeated = 0.0, np.zeros(weights.shape[1])
    starts = range(0, n, ROWS)
    for first in track(starts, description="Stein discrepancy", disable=not progressbar):
        rows = sample.kernel_rows(first, min(ROWS, n - first))
        if kind == "U":
            rows[np.arange(len(rows)), first + np.arange(len(rows))] = 0.0
        total += float(rows.sum())
        repeated += np.sum(weights[first : first + len(rows)] * (rows @ weights), axis=0)
    pairs = n * (n - 1) if kind == "U" else n * n
    return total / pairs, repeated / pairs
