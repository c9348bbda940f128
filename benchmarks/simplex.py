"""Square-root sphere and flat simplex with reflection, compared by GMC on Dirichlet posteriors.

Prints, for dense and sparse posteriors, the effective sample size per 1,000 gradients and per
second, and the error of the posterior mean in posterior standard deviations. Runs alternate, so
that changes of the load of the machine affect both.
"""

import argparse
import logging

import arviz as az
import numpy as np
import pymc as pm

import pymc_geodesic as pg
from pymc_geodesic.manifolds import FlatSimplex, Simplex

TARGETS = {
    "dense, K=20, alpha=10": np.full(20, 10.0),
    "paper's theta, K=20, alpha=10, peaked": np.full(20, 10.0) + np.r_[200.0, np.zeros(19)],
    "flat, K=20, alpha=1": np.full(20, 1.0),
    "sparse, K=20, alpha=0.5": np.full(20, 0.5),
    "mixed, K=10, alpha=0.6 and counts": np.full(10, 0.6) + np.r_[800.0, 100, 100, np.zeros(7)],
}


def measure(concentration: np.ndarray, manifold: type, draws: int, seed: int) -> tuple[float, ...]:
    """Effective sample size per 1,000 gradients, per second, and the worst error of the mean."""
    with pm.Model():
        pm.Dirichlet("w", concentration)
        step = pg.GMC(manifolds={"w": manifold})
        idata = pm.sample(
            draws, tune=1000, chains=2, cores=1, step=step, random_seed=seed,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    ess = float(az.ess(idata, var_names=["w"]).to_dataset()["w"].min())
    gradients = float(idata.sample_stats["n_grad"].sum())
    seconds = float(idata.posterior.attrs["sampling_time"])
    mean = concentration / concentration.sum()
    sd = np.sqrt(mean * (1 - mean) / (concentration.sum() + 1))
    error = np.abs((idata.posterior["w"].mean(("chain", "draw")).values - mean) / sd).max()
    return 1e3 * ess / gradients, ess / seconds, float(error)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=4000)
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    print("| posterior | manifold | ESS / 1,000 gradients | ESS / s | worst error of mean (sd) |")
    print("|---|---|---|---|---|")
    for name, concentration in TARGETS.items():
        for manifold in (Simplex, FlatSimplex):
            per_gradient, per_second, error = measure(concentration, manifold, arguments.draws, 5)
            print(
                f"| {name} | {manifold.__name__} | {per_gradient:.1f} | {per_second:.0f} "
                f"| {error:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
