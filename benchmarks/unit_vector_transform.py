"""NUTS on a von Mises–Fisher direction: distributions of the length of y, x = y / |y|.

Stan lets y be standard normal, so that its length has a chi distribution. This script
prints the tables of ``docs/transforms.md``. Seconds are processor time.

    python benchmarks/unit_vector_transform.py [--table stan|candidates] [--draws 4000] [--samplers
    …]
"""

import argparse
import logging
import time
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import arviz as az
import numpy as np
import nutpie
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from pymc_geodesic.distributions import VonMisesFisher
from pymc_geodesic.transforms.unit_vector import UnitVectorTransform, unit_vector

DIMENSIONS = (2, 3, 10, 1000)
CONCENTRATIONS = (1.0, 100.0, 1e4)
CHAINS = 2
TUNE = 1000


class Candidate(UnitVectorTransform):
    """The transform with another distribution of the length.

    Parameters
    ----------
    name : str
        Name of the distribution.
    log_density : callable
        Log-density of y, up to a constant, as a function of the squared length and d.
    """

    def __init__(self, name, log_density):
        self.name = name
        self.log_density = log_density

    def log_jac_det(self, value, *inputs):
        """Return the log-density of y up to a constant."""
        squared = pt.sum(pt.sqr(value), axis=-1)
        return self.log_density(squared, value.type.shape[-1])


def gamma(dof: int) -> Candidate:
    """Squared length Gamma(ν/2, ν/2), ν at least ``dof``: the family of the package."""

    def log_density(squared, dim):
        nu = max(dof, dim)
        return (nu - dim) / 2 * pt.log(squared) - nu / 2 * squared

    return Candidate(f"gamma, ν = {dof}", log_density)


def log_normal(scale: float) -> Candidate:
    """Logarithm of the length normal about 0."""

    def log_density(squared, dim):
        log_length = pt.log(squared) / 2
        return -dim * log_length - (log_length / scale) ** 2 / 2

    return Candidate(f"log-normal, s = {scale}", log_density)


def normal(scale: float) -> Candidate:
    """Length normal about 1."""

    def log_density(squared, dim):
        return -(dim - 1) / 2 * pt.log(squared) - ((pt.sqrt(squared) - 1) / scale) ** 2 / 2

    return Candidate(f"normal, s = {scale}", log_density)


def quartic(scale: float) -> Candidate:
    """Density of y flat near length 1, with steep walls."""

    def log_density(squared, dim):
        return -(((pt.sqrt(squared) - 1) / scale) ** 4) / 4

    return Candidate(f"quartic, s = {scale}", log_density)


STAN = Candidate("Stan", lambda squared, dim: -squared / 2)
CANDIDATES = (
    STAN,
    *(gamma(dof) for dof in (4, 8, 16, 24, 32, 48)),
    *(log_normal(scale) for scale in (0.15, 0.25)),
    *(normal(scale) for scale in (0.15, 0.25)),
    quartic(0.25),
)


class Run(NamedTuple):
    """Results of one run."""

    divergences: int
    smallest_ess: float
    seconds: float
    gradients: float

    @property
    def ess_per_second(self) -> float:
        """Effective sample size of the worst coordinate per second of processor time."""
        return self.smallest_ess / self.seconds

    @property
    def ess_per_gradient(self) -> float:
        """Effective sample size of the worst coordinate per gradient evaluation."""
        return self.smallest_ess / self.gradients


def run(
    transform: UnitVectorTransform, dim: int, kappa: float, sampler: str, draws: int, seed: int
) -> Run:
    mean = np.random.default_rng(dim).standard_normal(dim)
    mean /= np.linalg.norm(mean)
    with pm.Model() as model:
        VonMisesFisher("x", mean, kappa, default_transform=transform)
    sample = {"pymc": sample_by_pymc, "nutpie": sample_by_nutpie}[sampler]
    idata, seconds = sample(model, draws, seed)
    return Run(
        divergences=int(idata.sample_stats["diverging"].sum()),
        smallest_ess=float(az.ess(idata.posterior, method="bulk")["x"].min()),
        seconds=seconds,
        gradients=float(idata.sample_stats["n_steps"].sum()),
    )


def sample_by_pymc(model: pm.Model, draws: int, seed: int) -> tuple[xr.DataTree, float]:
    """Sample; the time is that of the draws after tuning."""
    idata = pm.sample(
        draws,
        tune=TUNE,
        chains=CHAINS,
        cores=1,
        nuts_sampler="pymc",
        random_seed=seed,
        progressbar=False,
        compute_convergence_checks=False,
        model=model,
    )
    return idata, float(idata.sample_stats["process_time_diff"].sum())


def sample_by_nutpie(model: pm.Model, draws: int, seed: int) -> tuple[xr.DataTree, float]:
    """Sample; the time is that of tuning and draws, without compilation."""
    compiled = nutpie.compile_pymc_model(model)
    start = time.process_time()
    idata = nutpie.sample(
        compiled, draws=draws, tune=TUNE, chains=CHAINS, cores=1, seed=seed, progress_bar=False
    )
    return idata, time.process_time() - start


def against_stan(samplers: list[str], draws: int, seed: int) -> Iterator[str]:
    """Yield the rows of the Markdown table of the package's transform as they are measured."""
    yield (
        "| Sampler | d | κ | divergences, Stan | divergences, ours | ESS/s, Stan | ESS/s, ours "
        "| ratio | ratio per gradient |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for sampler in samplers:
        for dim in DIMENSIONS:
            for kappa in CONCENTRATIONS:
                stan = run(STAN, dim, kappa, sampler, draws, seed)
                ours = run(unit_vector, dim, kappa, sampler, draws, seed)
                yield (
                    f"| {sampler} | {dim} | {kappa:g} | {stan.divergences} | {ours.divergences} "
                    f"| {stan.ess_per_second:,.0f} | {ours.ess_per_second:,.0f} "
                    f"| {ours.ess_per_second / stan.ess_per_second:.2f} "
                    f"| {ours.ess_per_gradient / stan.ess_per_gradient:.2f} |"
                )


def among_candidates(samplers: list[str], draws: int, seed: int) -> Iterator[str]:
    """Yield the table of candidates: divergences, ESS per 1,000 gradient evaluations."""
    cells = [(dim, kappa) for dim in (2, 3) for kappa in CONCENTRATIONS]
    yield "| Sampler | Distribution | " + " | ".join(f"d = {d}, κ = {k:g}" for d, k in cells) + " |"
    yield "|---|---|" + "---:|" * len(cells)
    for sampler in samplers:
        for candidate in CANDIDATES:
            runs = [run(candidate, dim, kappa, sampler, draws, seed) for dim, kappa in cells]
            entries = (f"{r.divergences}, {1000 * r.ess_per_gradient:.0f}" for r in runs)
            yield f"| {sampler} | {candidate.name} | " + " | ".join(entries) + " |"


TABLES = {"stan": against_stan, "candidates": among_candidates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--samplers", nargs="+", default=["pymc", "nutpie"])
    parser.add_argument("--table", choices=TABLES, default="stan")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    for row in TABLES[arguments.table](arguments.samplers, arguments.draws, arguments.seed):
        print(row, flush=True)


if __name__ == "__main__":
    main()
