"""NUTS on a von Mises–Fisher direction: our law for the length of y against Stan's.

Both samplers move y in R^d, x = y / |y|. Stan lets y be standard normal, so that |y| has a chi
distribution; the table in ``docs/transforms.md`` is what this script prints.

    python benchmarks/unit_vector_transform.py [--draws 4000] [--samplers pymc nutpie]
"""

import argparse
import logging
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_geodesic.distributions import VonMisesFisher
from pymc_geodesic.transforms.unit_vector import UnitVectorTransform, unit_vector

DIMENSIONS = (2, 3, 10, 1000)
CONCENTRATIONS = (1.0, 100.0, 1e4)
CHAINS = 2
TUNE = 1000


class StanUnitVector(UnitVectorTransform):
    """The transform with a standard normal law for y."""

    name = "stan_unit_vector"

    def log_jac_det(self, value, *inputs):
        """Return the log-density of y up to a constant."""
        return -pt.sum(pt.sqr(value), axis=-1) / 2


class Run(NamedTuple):
    """What one run measured."""

    divergences: int
    smallest_ess: float
    seconds: float
    gradients: float

    @property
    def ess_per_second(self) -> float:
        """Effective sample size of the worst coordinate per second."""
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
    with pm.Model():
        VonMisesFisher("x", mean, kappa, default_transform=transform)
        idata = pm.sample(
            draws,
            tune=TUNE,
            chains=CHAINS,
            cores=1,
            nuts_sampler=sampler,
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
        )
    stats = idata.sample_stats
    # PyMC times each draw; nutpie only tuning and sampling together.
    if "perf_counter_diff" in stats:
        seconds = float(stats["perf_counter_diff"].sum())
    else:
        seconds = float(idata.posterior.attrs["sampling_time"])
    return Run(
        divergences=int(stats["diverging"].sum()),
        smallest_ess=float(az.ess(idata.posterior, method="bulk")["x"].min()),
        seconds=seconds,
        gradients=float(stats["n_steps"].sum()),
    )


def rows(samplers: list[str], draws: int, seed: int) -> Iterator[str]:
    """Yield the table in Markdown, one row as soon as it is measured."""
    yield (
        "| Sampler | d | κ | divergences, Stan | divergences, ours | ESS/s, Stan | ESS/s, ours "
        "| ratio | ratio per gradient |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for sampler in samplers:
        for dim in DIMENSIONS:
            for kappa in CONCENTRATIONS:
                stan = run(StanUnitVector(), dim, kappa, sampler, draws, seed)
                ours = run(unit_vector, dim, kappa, sampler, draws, seed)
                yield (
                    f"| {sampler} | {dim} | {kappa:g} | {stan.divergences} | {ours.divergences} "
                    f"| {stan.ess_per_second:,.0f} | {ours.ess_per_second:,.0f} "
                    f"| {ours.ess_per_second / stan.ess_per_second:.2f} "
                    f"| {ours.ess_per_gradient / stan.ess_per_gradient:.2f} |"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--samplers", nargs="+", default=["pymc", "nutpie"])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    for row in rows(arguments.samplers, arguments.draws, arguments.seed):
        print(row, flush=True)


if __name__ == "__main__":
    main()
