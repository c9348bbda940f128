r"""Kernel Stein discrepancy between draws and a posterior, with a wild bootstrap test.

Under the null hypothesis n²V = Σ h(x_i, x_j) is a sum of weighted squares. Multiplied by a process
W with mean 0, variance 1 and a correlation length above that of the draws, Σ W_i W_j h(x_i, x_j)
has the same distribution (Leucht and Neumann), while under an alternative it stays small. The
process is W_t = e^{−1/ℓ} W_{t−1} + √(1 − e^{−2/ℓ}) ε_t in each chain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import xarray as xr
from rich.progress import track
from scipy.signal import lfilter

from pymc_geodesic.arguments import check_count
from pymc_geodesic.diagnostics.posterior_draws import autocorrelation_times
from pymc_geodesic.diagnostics.stein_kernel import SteinSample, stein_sample
from pymc_geodesic.gradients.scores import Model, PosteriorScore

ROWS = 128
"""Rows of the kernel matrix that are in memory at the same time."""

DEPENDENCE_FACTOR = 8.0
"""Correlation length ℓ of the bootstrap process, in units of τ − 1, with τ the autocorrelation
time. With half of it, exact draws of autoregressive processes were rejected too
often, with twice of it too rarely."""


def bootstrap_weights(
    chains: np.ndarray, dependence: float, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw the processes W of the wild bootstrap, independent between chains.

    Parameters
    ----------
    chains : ndarray of int, shape (n_draws,)
        Chain of each draw, in order.
    dependence : float
        ℓ, in draws; 0 for independent numbers.
    n : int
        Number of processes.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, shape (n_draws, n)
    """
    noise = rng.standard_normal((len(chains), n))
    if dependence <= 0.0:
        return noise
    decay = math.exp(-1.0 / dependence)
    for chain in np.unique(chains):
        inside = chains == chain
        innovations = math.sqrt(1.0 - decay**2) * noise[inside]
        innovations[0] = noise[inside][0]
        noise[inside] = lfilter([1.0], [1.0, -decay], innovations, axis=0)
    return noise


@dataclass(frozen=True)
class KernelSteinDiscrepancy:
    """Kernel Stein discrepancy of draws, and a test that they come from the posterior.

    Attributes
    ----------
    statistic : float
        KSD², the mean of k_π over pairs of draws. The U-statistic has mean zero for independent
        draws of the posterior, and may be negative.
    p_value : float
        Fraction of bootstrap statistics that are at least as large.
    kind : {"U", "V"}
        Whether pairs of a draw with itself are included ("V").
    n_draws : int
        Number of draws.
    thin : int
        Thinning interval.
    bandwidth : float
        ℓ of the kernel.
    beta : float
        β of the kernel.
    metric : {"dense", "diag", None}
        Whitening of Euclidean variables.
    dependence : float
        Correlation length of the bootstrap, in (thinned) draws.
    bootstrap : ndarray, shape (n_bootstrap,)
        Statistics of the wild bootstrap.

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

    It compares the draws with the gradients of the log-density at them. It therefore detects errors
    of means and variances that are common to all chains, which R-hat and the temperature do not.

    .. math::

        \mathrm{KSD}^2 = \mathbb{E}\, k_\pi(x, y), \qquad
        k_\pi(x, y) = \sum_a \bigl(b^a(x) + \nabla^a_x\bigr) \bigl(b^a(y) + \nabla^a_y\bigr)
            \varphi(|x - y|^2), \qquad
        \varphi(r^2) = (1 + r^2 / \ell^2)^\beta,

    where ∇ are tangential gradients in the ambient coordinates a, b = ∇log π − H, and H is 0 in
    Euclidean space, (d − 1)x on the sphere in ℝᵈ and (n − (p + 1)/2)X for frames of p vectors in
    ℝⁿ. For independent x and y of the same distribution the expectation is zero if that is π, and
    positive for any other; autocorrelated draws of π have a positive mean.

    The null hypothesis that π is the distribution of the draws is tested by a wild bootstrap, which
    allows for autocorrelation.

    Parameters
    ----------
    idata : xarray.DataTree
        With all free variables of the model in its posterior.
    model : pymc.Model, optional
        Taken from the context by default.
    var_names : str or sequence of str, optional
        Test the conditional distribution of these variables given the others. By default all
        continuous free variables. Unit vectors and frames are compared on their manifolds, others
        in PyMC's unconstrained values.
    statistic : {"U", "V"}
        Whether to include pairs of a draw with itself ("V"), whose mean is positive.
    metric : {"auto", "dense", "diag", None}
        Whitening of Euclidean variables: by the covariance of the draws, by their standard
        deviations, or none, in which case the discrepancy depends on the units of the model.
        ``"auto"`` is dense from five draws per coordinate. Variables on spheres and Stiefel
        manifolds are scaled as a whole.
    bandwidth : float or "median"
        ℓ, in whitened coordinates; by default the median distance of the draws.
    beta : float
        β, between −1 and 0.
    n_bootstrap : int
        Repetitions of the bootstrap.
    dependence : float, optional
        Correlation length of the bootstrap, in (thinned) draws; 0 for independent draws. By default
        eight times τ − 1, with τ the largest integrated autocorrelation time.
    max_draws : int or None
        Maximum number of draws after thinning, as time grows with its square. None uses all.
    batch_size, minibatch
        Estimate the gradient at each draw from its own minibatch, with control variates at one
        draw; see `SGGMC`. By default all rows. The U-statistic stays unbiased.
    random_seed : int or numpy.random.Generator, optional
        Of bootstrap and minibatches.
    progressbar : bool
        Whether to show a progress bar.

    Returns
    -------
    KernelSteinDiscrepancy

    Raises
    ------
    ValueError
        If arguments are inconsistent, the posterior does not match the model, or gradients are not
        finite.

    Notes
    -----
    Memory grows with n(n_bootstrap + 128), time with n²(size + n_bootstrap). The test does not
    detect modes without draws near them, nor wrong weights of distant modes. A large enough sample
    rejects any biased sampler; `step_halving` estimates the bias.

    References
    ----------
    Liu, Lee, Jordan (2016), A kernelized Stein discrepancy for goodness-of-fit tests;
    Gorham, Mackey (2017), Measuring sample quality with kernels;
    Xu, Matsuda (2021), Interpretable Stein goodness-of-fit tests on Riemannian manifolds;
    Chwialkowski, Sejdinovic, Gretton (2014), A wild bootstrap for degenerate kernel tests;
    Gorham, Raj, Mackey (2020), Stochastic Stein discrepancies.

    Examples
    --------
    Draws of the posterior, and draws with standard deviations that are 20 % too large:

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
    return compute_discrepancy(
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


def compute_discrepancy(
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
    """Discrepancy with a compiled gradient; see `ksd`."""
    if statistic not in ("U", "V"):
        raise ValueError(f'statistic={statistic!r} is unknown; choose "U" or "V"')
    check_count("n_bootstrap", n_bootstrap)
    if dependence is not None and not 0.0 <= dependence < np.inf:
        raise ValueError(
            f"dependence={dependence} is not a nonnegative number of draws. Use 0 for "
            "independent draws, or omit it."
        )
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
        dependence = DEPENDENCE_FACTOR * (float(times.max()) - 1.0)
    weights = bootstrap_weights(sample.chains, dependence, n_bootstrap, rng)
    value, repeated = compute_statistics(sample, weights, statistic, progressbar=progressbar)
    return KernelSteinDiscrepancy(
        statistic=value,
        p_value=compute_p_value(value, repeated),
        kind=statistic,
        n_draws=len(sample),
        thin=sample.thin,
        bandwidth=sample.length,
        beta=beta,
        metric=sample.whitening.metric,
        dependence=dependence,
        bootstrap=repeated,
    )


def compute_p_value(value: float, repeated: np.ndarray) -> float:
    """Fraction of statistics at least as large, with the observed one counted among them."""
    return float(1 + np.count_nonzero(repeated >= value)) / (1 + repeated.size)


def compute_statistics(
    sample: SteinSample, weights: np.ndarray, kind: str, *, progressbar: bool = False
) -> tuple[float, np.ndarray]:
    """Statistic of the draws, and bootstrap statistics for each process of weights."""
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
