"""A Bambi model with 200,000 rows and 200 groups by `SGGMC`, `GMC` and nutpie.

    python -m benchmarks.bambi_model

``y ~ x + z + (1 | g)`` with Bambi's default priors and non-centered effects. `SGGMC` and `GMC` make
four chains of 1,000 draws with default settings, nutpie with a ``low_rank`` metric two of 400 after
400 of tuning. Seconds are processor time with warm-up and without the compilation for nutpie.
Needs bambi and nutpie.
"""

from __future__ import annotations

import time

import arviz as az
import bambi
import numpy as np
import nutpie
import pandas as pd
import pymc as pm

import pymc_geodesic as pg

N_ROWS, N_GROUPS, BATCH_SIZE = 200_000, 200, 500
NAMES = ["Intercept", "x", "z", "sigma", "1|g_sigma", "1|g"]


def model() -> pm.Model:
    """Build the PyMC model of Bambi."""
    rng = np.random.default_rng(0)
    g = rng.integers(N_GROUPS, size=N_ROWS)
    x, z = rng.normal(size=(2, N_ROWS))
    effects = 0.4 * rng.normal(size=N_GROUPS)
    y = 1.0 + 0.5 * x - 0.3 * z + effects[g] + rng.normal(size=N_ROWS)
    table = pd.DataFrame({"y": y, "x": x, "z": z, "g": pd.Categorical(g)})
    bambi_model = bambi.Model("y ~ x + z + (1 | g)", table)
    bambi_model.build()
    return bambi_model.backend.model


def main() -> None:
    """Print a table."""
    print("| sampler | draws | CPU s | worst ESS | R-hat | ESS/s |\n|---|---:|---:|---:|---:|---:|")
    for name in ("SGGMC", "GMC", "nutpie"):
        built = model()
        if name == "nutpie":
            compiled = nutpie.compile_pymc_model(built, var_names=NAMES)
            start = time.process_time()
            idata = nutpie.sample(
                compiled, draws=400, tune=400, chains=2, cores=1, seed=1, progress_bar=False,
                low_rank_modified_mass_matrix=True,
            )  # fmt: skip
        else:
            start = time.process_time()
            with built:
                idata = pm.sample(
                    chains=4, cores=1, random_seed=1, progressbar=False, var_names=NAMES,
                    step=pg.GMC() if name == "GMC" else pg.SGGMC(batch_size=BATCH_SIZE),
                )  # fmt: skip
        seconds = time.process_time() - start
        draws = idata.posterior.sizes["chain"] * idata.posterior.sizes["draw"]
        ess = min(float(each.min()) for each in az.ess(idata, var_names=NAMES).values())
        r_hat = max(float(each.max()) for each in az.rhat(idata, var_names=NAMES).values())
        print(
            f"| {name} | {draws:,} | {seconds:.0f} | {ess:,.0f} | {r_hat:.3f} "
            f"| {ess / seconds:.3g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
