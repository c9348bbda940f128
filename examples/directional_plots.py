"""Figures of the documentation page on plots of directions.

Winds at one location are directions in space with an unknown mean and concentration, sampled with
minibatches. The other draws are simulated: a heading, fold axes, two poles, and vote shares of
three parties. Run it with ``python examples/directional_plots.py``; it takes about a minute.
"""

import argparse
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib
import numpy as np
import pymc as pm
import xarray as xr
from script_parts import parse_options

import pymc_geodesic as pg

SEED = 1


def sampled_winds(draws: int) -> xr.DataTree:
    """Sample mean and concentration of 5,000 winds, with the warm-up and predictions."""
    winds, _ = pg.datasets.make_vmf_mixture([[0.6, 0.0, 0.8]], 20.0, 5000, random_seed=SEED)
    with pm.Model():
        x = pm.Data("x", winds)
        mu = pg.UniformSphere("mu", shape=3)
        kappa = pm.HalfNormal("kappa", 100.0)
        pg.VonMisesFisher("wind", mu=mu, kappa=kappa, observed=x)
        idata = pm.sample(
            draws,
            tune=draws,
            chains=2,
            cores=1,
            step=pg.SGGMC(batch_size=100, minibatch=["x"]),
            random_seed=SEED,
            progressbar=False,
            discard_tuned_samples=False,
        )
        few = idata.isel(draw=slice(None, None, draws // 10))
        predicted = pm.sample_posterior_predictive(few, progressbar=False, random_seed=SEED)
    idata["posterior_predictive"] = predicted["posterior_predictive"]
    return idata


def simulated_draws() -> xr.DataTree:
    """Simulate draws of a heading, fold axes, a bimodal pole, and shares of three parties."""
    rng = np.random.default_rng(SEED)
    size = (2, 1000)
    heading = np.radians(75.0) + rng.vonmises(0.0, 6.0, size=size)
    flight = rng.normal([0.5, -0.2, 0.4], [0.35, 0.1, 0.15], size=(*size, 3))
    which = rng.random((*size, 1)) < 0.6
    poles = np.where(which, [0.3, 0.2, 0.9], [-0.8, 0.5, 0.2]) + 0.15 * rng.normal(size=(*size, 3))
    return az.from_dict(
        {
            "posterior": {
                "heading": np.stack([np.cos(heading), np.sin(heading)], axis=-1),
                "axis": unit(rng.choice([-1.0, 1.0], size=(*size, 1)) * flight),
                "pole": unit(poles),
                "votes": rng.dirichlet([18.0, 12.0, 5.0], size=size),
            }
        },
        dims={"votes": ["party"]},
        coords={"party": ["red", "green", "blue"]},
    )


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def figures(draws: int) -> dict[str, Any]:
    """Make every plot of the page."""
    made, winds = simulated_draws(), sampled_winds(draws)
    print(pg.directional.summary(made, axial="axis", round_to=2).T)
    return {
        "rose": pg.directional.plot_rose(made, compass=True),
        "circular_density": pg.directional.plot_circular_density(made),
        "sphere_equal_area": pg.directional.plot_sphere(made, "pole", extent=120),
        "sphere_axes": pg.directional.plot_sphere(
            made, "axis", axial=True, lower_hemisphere="east_north_up"
        ),
        "sphere_mollweide": pg.directional.plot_sphere(made, "pole", projection="mollweide"),
        "sphere_globe": pg.directional.plot_sphere(
            made, "pole", projection="3d", center=[0, 1, 0.3]
        ),
        "ternary": pg.directional.plot_ternary(made),
        "trace": pg.directional.plot_trace(winds),
        "warmup": pg.diagnostics.plot_warmup(winds),
        "ppc_dist": pg.directional.plot_ppc_dist(winds),
    }


def main() -> None:
    """Write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=500, help="of each of two chains")
    parser.add_argument("--output", type=Path, default=Path("docs/figures"))
    options = parse_options(parser, draws=100)
    matplotlib.use("Agg")
    options.output.mkdir(parents=True, exist_ok=True)
    for name, collection in figures(options.draws).items():
        collection.savefig(options.output / f"plot_{name}.png", dpi=80)


if __name__ == "__main__":
    main()
