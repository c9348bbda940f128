"""Table and figures of the README: group effects by three samplers, and a direction near a pole.

``python -m benchmarks.readme`` prints the table and writes ``readme_hierarchy.png`` and
``readme_pole.png`` to ``docs/figures``. Each run has one thread.

**Group effects.** Logistic regression with 200,000 rows, three covariates and 500 groups of unequal
size, intercepts of the groups with unknown standard deviation. ``pm.sample()`` (nutpie, if it is
installed), ``GMC()`` and ``SGGMC(batch_size=1000)`` sample the same model alternately, two chains
each. ``pm.sample()`` also samples the model with `pymc.ZeroSumNormal` effects, which are hardly
correlated with the intercept; the intercept is then that of the average group.

- *Seconds* are processor time of the constructor of the step and of the call of `pymc.sample`:
  warm-up, draws, and reading or compiling code. A short run of each sampler before fills the
  compilation caches.
- *ESS* is the bulk effective sample size, of the worst coordinate of each sampler, all effects
  included, and of ``sd``, the standard deviation of the groups. All samplers have as many tuning
  draws as draws. The second table has the ratios to NUTS.
- The *errors* of the last table compare means and standard deviations of all coordinates with those
  of ``GMC()``; Monte Carlo errors of both runs are part of them.
- The *joint Laplace approximation* is a normal distribution at a local mode of all unconstrained
  coordinates, found from zero, with the inverse of the negative Hessian as covariance. The joint
  density is unbounded as ``sd`` → 0 with effects of zero, so it has no global mode.

**Direction near a pole.** Thirty unit vectors about a direction five degrees from the pole at
longitude 180°, four chains each: NUTS in longitude and colatitude, NUTS and ``GMC`` for a unit
vector.

``--quick`` runs small versions that test the script.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.timing import use_one_core

use_one_core()

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from arviz_stats.base import array_stats
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.stats import norm

import pymc_geodesic as pg

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
BLUE, ORANGE, GREEN, RED, GRAY = "#2a7f9e", "#d9622b", "#5a8f3c", "#a8324a", "#7c868c"
QUIET = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}

Draws = dict[str, np.ndarray]
"""Draws of each variable by name, shape (chains, draws, ...)."""


class Sampler(NamedTuple):
    """Call of `pymc.sample` that is measured.

    Attributes
    ----------
    label, color : str
    make_step : callable
        Arguments of `pymc.sample` of this sampler only; called within the model.
    sums_to_zero : bool
        Whether the effects sum to zero.
    """

    label: str
    color: str
    make_step: Callable[[], dict[str, Any]]
    sums_to_zero: bool = False


SAMPLERS = (
    Sampler("pm.sample(), NUTS", GRAY, dict),
    Sampler("NUTS, ZeroSumNormal effects", GREEN, dict, sums_to_zero=True),
    Sampler("GMC()", BLUE, lambda: {"step": pg.GMC()}),
    Sampler("SGGMC(batch_size=1000)", ORANGE, lambda: {"step": pg.SGGMC(batch_size=1000)}),
)
N_DRAWS = 1000
"""Draws and tuning draws of a chain."""

# --- group effects ------------------------------------------------------------------------------


def simulate(n_rows: int, n_groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate a logistic regression with intercepts of groups.

    Returns
    -------
    x : ndarray, shape (n_rows, 3)
    group, y : ndarray of int, shape (n_rows,)
    """
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n_rows, 3))
    share = rng.gamma(1.0, size=n_groups)
    group = rng.choice(n_groups, n_rows, p=share / share.sum())
    effect = rng.normal(0.0, 0.5, size=n_groups)
    logit = -1.0 + x @ [0.5, -0.3, 0.1] + effect[group]
    return x, group, (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-logit))).astype(int)


def hierarchical_model(n_rows: int, n_groups: int, *, sums_to_zero: bool) -> pm.Model:
    """Build the model of the README on simulated rows, or that with effects that sum to zero."""
    x, group, y = simulate(n_rows, n_groups)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 2.0)
        slope = pm.Normal("slope", 0.0, 1.0, shape=3)
        sd = pm.HalfNormal("sd", 1.0)
        if sums_to_zero:
            effect = pm.ZeroSumNormal("effect", sd, shape=n_groups)
        else:
            effect = pm.Normal("effect", 0.0, sd, shape=n_groups)
        pm.Bernoulli("y", logit_p=intercept + x @ slope + effect[group], observed=y)
    return model


def run_chain(model: pm.Model, sampler: Sampler, draws: int, seed: int) -> tuple[Draws, float]:
    """Sample one chain, and return its draws and the processor time in seconds."""
    began = time.process_time()
    with model:
        arguments = sampler.make_step()
        idata = pm.sample(draws, tune=draws, chains=1, random_seed=seed, **arguments, **QUIET)
    seconds = time.process_time() - began
    return {rv.name: idata.posterior[rv.name].values for rv in model.free_RVs}, seconds


class Efficiency(NamedTuple):
    """Convergence of the worst coordinate: smallest bulk ESS, its coordinate, largest R-hat."""

    ess: float
    coordinate: str
    r_hat: float


def efficiency(draws: Draws) -> Efficiency:
    """Compute ESS and R-hat of all coordinates, and return those of the worst."""
    axes = {"chain_axis": 0, "draw_axis": 1}
    names = [
        name + "".join(f"[{i}]" for i in index)
        for name, values in draws.items()
        for index in np.ndindex(values.shape[2:])
    ]
    flat = [values.reshape(*values.shape[:2], -1) for values in draws.values()]
    each = np.concatenate(flat, axis=2)
    ess = array_stats.ess(each, method="bulk", **axes)
    worst = int(np.argmin(ess))
    return Efficiency(
        float(ess[worst]), names[worst], float(np.max(array_stats.rhat(each, **axes)))
    )


def errors(draws: Draws, reference: Draws) -> str:
    """Describe differences of means and standard deviations from those of another sampler."""
    shifts, ratios = {}, {}
    for name in reference:
        scale = reference[name].std(axis=(0, 1))
        shifts[name] = (draws[name].mean(axis=(0, 1)) - reference[name].mean(axis=(0, 1))) / scale
        ratios[name] = draws[name].std(axis=(0, 1)) / scale
    largest = max(np.max(np.abs(each)) for each in shifts.values())
    every = np.concatenate([np.ravel(each) for each in ratios.values()])
    of_sd = f"{shifts['sd']:+.2f}, {ratios['sd']:.3f}"
    return f"{largest:.2f} | {every.min():.2f} to {every.max():.2f} | {of_sd}"


def laplace(model: pm.Model, name: str) -> tuple[float, float, float]:
    """Joint Laplace approximation: mode and sd of the logarithm of a scale, and seconds."""
    began = time.process_time()
    start = model.initial_point()
    names = list(start)
    ends = np.cumsum([np.size(value) for value in start.values()])
    logp = model.logp_dlogp_function(ravel_inputs=True, initial_point=start)

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = logp(flat)
        return -float(value), -np.asarray(gradient)

    mode = minimize(value_and_gradient, np.zeros(ends[-1]), jac=True, method="L-BFGS-B").x
    step, unit = 1e-4, np.eye(ends[-1])
    columns = [
        (value_and_gradient(mode + step * e)[1] - value_and_gradient(mode - step * e)[1])
        / (2.0 * step)
        for e in unit
    ]
    hessian = (np.array(columns) + np.array(columns).T) / 2.0
    at = int(ends[names.index(f"{name}_log__")]) - 1
    sd = float(np.sqrt(np.linalg.inv(hessian)[at, at]))
    return float(mode[at]), sd, time.process_time() - began


def hierarchy(n_rows: int, n_groups: int, rounds: int, quick: bool) -> Figure:
    """Sample by all samplers alternately, print the table, and draw the figure."""
    models = {
        kind: hierarchical_model(n_rows, n_groups, sums_to_zero=kind) for kind in (True, False)
    }
    for sampler in SAMPLERS:
        run_chain(models[sampler.sums_to_zero], sampler, 20, seed=9)
    chains: dict[str, list[Draws]] = {sampler.label: [] for sampler in SAMPLERS}
    seconds = dict.fromkeys(chains, 0.0)
    for seed in range(rounds):
        for sampler in SAMPLERS:
            n_draws = 50 if quick else N_DRAWS
            draws, spent = run_chain(models[sampler.sums_to_zero], sampler, n_draws, seed)
            chains[sampler.label].append(draws)
            seconds[sampler.label] += spent
    log_mode, log_sd, spent = laplace(models[False], "sd")

    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 2.7), layout="constrained")
    print(f"{n_rows:,} rows, {n_groups:,} groups, {rounds} chains, processor time\n")
    print("| | draws | s | ESS | of | ESS/s | ESS of `sd` | ESS/s of `sd` | R-hat | `sd` |")
    print("|---|---:|---:|---:|---|---:|---:|---:|---:|---:|")
    rates: list[tuple[float, float]] = []
    joined = {
        label: {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for label, parts in chains.items()
    }
    for row, sampler in enumerate(SAMPLERS):
        draws = joined[sampler.label]
        worst, of_sd = efficiency(draws), efficiency({"sd": draws["sd"]})
        time_of, sd = seconds[sampler.label], draws["sd"].ravel()
        rates.append((worst.ess / time_of, of_sd.ess / time_of))
        print(
            f"| `{sampler.label}` | {sd.size:,} | {time_of:.0f} | {worst.ess:,.0f} | "
            f"`{worst.coordinate}` | {rates[-1][0]:.2f} | {of_sd.ess:,.0f} | {rates[-1][1]:.2f} | "
            f"{worst.r_hat:.3f} | {sd.mean():.4f} ± {sd.std():.4f} |"
        )
        for rate, shift, opacity in zip(rates[-1], (0.18, -0.18), (1.0, 0.45), strict=True):
            y = shift - row
            left.barh(y, rate, color=sampler.color, alpha=opacity, height=0.34)
            of = f"worst of {5 + n_groups:,}" if shift > 0 else "sd"
            number = f"{rate:.2g}" if rate < 10.0 else f"{rate:.0f}"
            left.text(rate, y, f" {number}, {of}", va="center", fontsize=8)
        right.hist(
            sd, 30, density=True, histtype="step", color=sampler.color, linewidth=1.4,
            label=sampler.label,
        )  # fmt: skip
    print("\n| ESS/s relative to NUTS | worst coordinate | `sd` |\n|---|---:|---:|")
    for sampler, (rate, rate_of_sd) in zip(SAMPLERS[1:], rates[1:], strict=True):
        print(f"| `{sampler.label}` | {rate / rates[0][0]:.1f} | {rate_of_sd / rates[0][1]:.1f} |")
    print("\n| compared with GMC | largest error of a mean, in sd | sd ratios | of `sd` |")
    print("|---|---:|---:|---:|")
    for sampler in SAMPLERS:
        if not sampler.sums_to_zero and sampler.label != "GMC()":
            print(f"| `{sampler.label}` | {errors(joined[sampler.label], joined['GMC()'])} |")
    mean = np.exp(log_mode + log_sd**2 / 2.0)
    print(
        f"\njoint Laplace approximation: local mode {np.exp(log_mode):.4f}, "
        f"{mean:.4f} ± {mean * log_sd:.4f}, {spent:.0f} s\n"
    )
    low, high = right.get_xlim()
    grid = np.linspace(min(low, mean * (1.0 - 3.0 * log_sd)), high, 200)
    density = norm.pdf(np.log(grid), log_mode, log_sd) / grid
    right.plot(grid, density, color=RED, linestyle="--", label="joint Laplace approximation")
    left.set_yticks(
        [-row for row in range(len(SAMPLERS))], [sampler.label for sampler in SAMPLERS], fontsize=9
    )
    left.set_xlim(0.0, 1.45 * left.get_xlim()[1])
    left.set_title("ESS per second, worst coordinate and sd", fontsize=10)
    right.set_title("sd, standard deviation of the groups", fontsize=10)
    right.set_yticks([])
    right.legend(fontsize=7, frameon=False, loc="upper left")
    right.set_ylim(0.0, 1.5 * right.get_ylim()[1])
    for axes in (left, right):
        axes.spines[["right", "top"]].set_visible(False)
    right.spines["left"].set_visible(False)
    return figure


# --- direction near a pole ----------------------------------------------------------------------


def pole(draws: int) -> Figure:
    """Draw traces of a direction near a pole, in two angles and as a unit vector."""
    tilt = np.deg2rad(5.0)
    center = [-np.sin(tilt), 0.0, np.cos(tilt)]
    rows, _ = pg.datasets.make_vmf_mixture([center], 30.0, 30, random_seed=1)
    settings: dict[str, Any] = {"tune": draws, "chains": 4, "random_seed": 1, **QUIET}
    with pm.Model():
        longitude = pm.Uniform("longitude", -np.pi, np.pi)
        colatitude = pm.Uniform("colatitude", 0.0, np.pi)
        pm.Potential("area", pt.log(pt.sin(colatitude)))
        ring = [pt.sin(colatitude) * f(longitude) for f in (pt.cos, pt.sin)]
        mu = pm.Deterministic("mu", pt.stack([*ring, pt.cos(colatitude)]))
        kappa = pm.HalfNormal("kappa", 100.0)
        pg.VonMisesFisher("y", mu=mu, kappa=kappa, observed=rows)
        in_angles = pm.sample(draws, **settings)
    with pm.Model():
        mu = pg.UniformSphere("mu", shape=3)
        kappa = pm.HalfNormal("kappa", 100.0)
        pg.VonMisesFisher("y", mu=mu, kappa=kappa, observed=rows)
        on_sphere = pm.sample(draws, step=pg.GMC(), **settings)
        by_transform = pm.sample(draws, **settings)
    runs = {
        "NUTS, longitude and colatitude": in_angles,
        "NUTS, unit vector": by_transform,
        "GMC, unit vector": on_sphere,
    }
    figure, panels = plt.subplots(
        1, 3, figsize=(9.6, 2.6), sharex=True, sharey=True, layout="constrained"
    )
    for axes, (label, idata) in zip(panels, runs.items(), strict=True):
        mu = idata.posterior["mu"].values
        worst = efficiency({"mu": mu})
        divergences = int(idata.sample_stats["diverging"].sum())
        print(f"{label}: ESS {worst.ess:,.0f}, R-hat {worst.r_hat:.3f}, {divergences} divergences")
        for chain, color in zip(mu[:2], (BLUE, ORANGE), strict=True):
            axes.plot(np.degrees(chain[:, 1]), color=color, linewidth=0.6)
        axes.axhline(0.0, color="black", linewidth=0.8, linestyle=":")
        axes.set_title(f"{label}\nESS {worst.ess:,.0f}, R-hat {worst.r_hat:.2f}", fontsize=10)
        axes.set(xlabel="draw", xlim=(0, len(chain)))
        axes.spines[["right", "top"]].set_visible(False)
    panels[0].set_ylabel("degrees of arc from\nthe meridian 180°")
    return figure


def main() -> None:
    """Make both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small versions, for tests")
    parser.add_argument("--output", type=Path, default=FIGURES)
    asked = parser.parse_args()
    matplotlib.use("Agg")
    asked.output.mkdir(parents=True, exist_ok=True)
    began = time.process_time()
    figure = pole(100 if asked.quick else 1000)
    figure.savefig(asked.output / "readme_pole.png", dpi=130, bbox_inches="tight")
    rows, groups = (2_000, 20) if asked.quick else (200_000, 500)
    figure = hierarchy(rows, groups, rounds=2, quick=asked.quick)
    figure.savefig(asked.output / "readme_hierarchy.png", dpi=130, bbox_inches="tight")
    print(f"processor time of all: {(time.process_time() - began) / 60.0:.1f} minutes")


if __name__ == "__main__":
    main()
