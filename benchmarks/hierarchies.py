"""Hierarchical models with default settings: correct draws, or a warning.

``python -m benchmarks.hierarchies`` samples a logistic regression with 1,000 groups, Neal's funnel,
and the 73,421 ratings of lectures in lme4's InstEval with some 4,100 crossed effects, each centered
and non-centered, and compares with NUTS (nutpie), or with the closed form. A run is *right* if
every mean is within 0.1 standard deviations and every standard deviation within 5 %, up to 3.5
Monte Carlo standard errors of both runs, and all effective sample sizes are at least 100; otherwise
there must be a warning. *advised* means a warning that names a scale and the other parametrization.
The last line is all results as JSON.

Draws of the reference are kept in a folder for temporary files, see ``--cache``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

import pymc_geodesic as pg
from benchmarks.sampling_warnings import GENERAL_ADVICE, SamplingWarnings
from pymc_geodesic.datasets.folder import read_arrays

N_GROUPS, ROWS_PER_GROUP = 1000, 20
BATCH_SIZE = 500
CHAINS, TUNE, DRAWS = 2, 1000, 1000
MEAN_BOUND, SD_BOUND, ERRORS, MIN_ESS = 0.1, 0.05, 3.5, 100.0

SAMPLERS: dict[str, Callable[..., Any]] = {
    "GMC": pg.GMC,
    "gSGNHT": pg.gSGNHT,
    "SGGMC": pg.SGGMC,
    "gSGNHT, minibatches": pg.gSGNHT,
    "SGGMC, minibatches": pg.SGGMC,
}

Draws = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Hierarchy:
    """A model and the compared quantities.

    Attributes
    ----------
    name : str
    model : pymc.Model
    rows : list of str
        Data containers with a row per observation.
    quantities : callable
        Function from draws of the variables by name, shape (chains, draws, ...), to draws of the
        compared quantities, which are the same for both parametrizations.
    exact : dict of str to (mean, sd)
        Exact moments if they are known; otherwise NUTS is the reference.
    """

    name: str
    model: pm.Model
    rows: list[str]
    quantities: Callable[[Draws], dict[str, np.ndarray]]
    exact: dict[str, tuple[float, float]] = field(default_factory=dict)


def effects(name: str, size: int, scale: Any, *, centered: bool) -> Any:
    """Effects of groups, centered or non-centered."""
    if centered:
        return pm.Normal(name, 0.0, scale, shape=size)
    return scale * pm.Normal(f"{name}_z", 0.0, 1.0, shape=size)


def effects_of(draws: Draws, name: str) -> np.ndarray:
    """Draws of `effects`."""
    if name in draws:
        return np.asarray(draws[name])
    return np.asarray(draws[f"{name}_sd"])[..., np.newaxis] * draws[f"{name}_z"]


def group_rows(seed: int = 1) -> dict[str, np.ndarray]:
    """Simulate binary outcomes of groups with a covariate."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(N_GROUPS), ROWS_PER_GROUP)
    x = rng.normal(size=group.size)
    score = -0.5 + 0.8 * x + 0.7 * rng.normal(size=N_GROUPS)[group]
    y = (rng.random(group.size) < 1.0 / (1.0 + np.exp(-score))).astype(np.int64)
    return {"group": group, "x": x, "y": y}


def logistic(*, centered: bool) -> Hierarchy:
    """Logistic regression with an effect of every group."""
    rows = group_rows()
    with pm.Model() as model:
        group, x, y = (pm.Data(name, rows[name]) for name in ("group", "x", "y"))
        mu, beta = pm.Normal("mu", 0.0, 5.0), pm.Normal("beta", 0.0, 5.0)
        scale = pm.HalfNormal("group_effect_sd", 2.0)
        effect = effects("group_effect", N_GROUPS, scale, centered=centered)
        pm.Bernoulli("outcome", logit_p=mu + beta * x + effect[group], observed=y)

    def quantities(draws: Draws) -> dict[str, np.ndarray]:
        return {
            "log sd": np.log(draws["group_effect_sd"]),
            "mu": draws["mu"],
            "beta": draws["beta"],
            "effects": effects_of(draws, "group_effect"),
        }

    name = f"logistic, 1,000 groups, {'centered' if centered else 'non-centered'}"
    return Hierarchy(name, model, ["group", "x", "y"], quantities)


def funnel(*, centered: bool) -> Hierarchy:
    """Neal's funnel, v ~ N(0, 3) and nine x ~ N(0, exp(v/2)), without data."""
    with pm.Model() as model:
        v = pm.Normal("v", 0.0, 3.0)
        effects("x", 9, pm.math.exp(0.5 * v), centered=centered)
    name = f"funnel, {'centered' if centered else 'non-centered'}"
    return Hierarchy(name, model, [], lambda draws: {"log sd": draws["v"]}, {"log sd": (0.0, 3.0)})


def ratings(*, centered: bool, folder: str | None = None) -> Hierarchy:
    """Ratings of lectures, crossed effects of students, lecturers and departments.

    Raises
    ------
    FileNotFoundError
        If the data folder does not hold the file.
    """
    arrays = read_arrays(
        "insteval.npz", data_home=folder, origin="It holds lme4's InstEval, ratings of lectures."
    )
    with pm.Model() as model:
        codes = {name: pm.Data(name, arrays[name].astype(np.int64)) for name in ("s", "d", "dept")}
        service = pm.Data("service", arrays["service"].astype(float))
        y = pm.Data("y", arrays["y"].astype(float))
        mean = pm.Normal("mu", 3.0, 2.0) + pm.Normal("beta", 0.0, 1.0) * service
        for name, code in codes.items():
            scale = pm.HalfNormal(f"{name}_effect_sd", 1.0)
            size = int(arrays[name].max()) + 1
            mean += effects(f"{name}_effect", size, scale, centered=centered)[code]
        pm.Normal("outcome", mean, pm.HalfNormal("sigma", 2.0), observed=y)

    def quantities(draws: Draws) -> dict[str, np.ndarray]:
        logs = {f"log sd {name}": np.log(draws[f"{name}_effect_sd"]) for name in codes}
        return {
            **logs,
            "log sigma": np.log(draws["sigma"]),
            "mu": draws["mu"],
            "beta": draws["beta"],
            **{f"effects {name}": effects_of(draws, f"{name}_effect") for name in codes},
        }

    name = f"ratings, {'centered' if centered else 'non-centered'}"
    return Hierarchy(name, model, [*codes, "service", "y"], quantities)


CASES: dict[str, Callable[[], Hierarchy]] = {
    f"{kind}-{'centered' if centered else 'noncentered'}": (
        lambda make=make, centered=centered: make(centered=centered)
    )
    for kind, make in (("logistic", logistic), ("funnel", funnel), ("ratings", ratings))
    for centered in (True, False)
}


def flattened(values: np.ndarray) -> np.ndarray:
    """Bring draws of one quantity to shape (chains, draws, size)."""
    return np.asarray(values).reshape(*np.shape(values)[:2], -1)


def summary(quantities: Draws) -> dict[str, np.ndarray]:
    """Mean, sd, and the effective sizes of both, for every coordinate of every quantity."""
    found = {}
    for name, values in quantities.items():
        draws = flattened(values)
        n = min(draws.shape[2], 200)  # of a subset of coordinates, for speed
        some = np.linspace(0, draws.shape[2] - 1, n).astype(int)
        centered = draws[..., some] - draws[..., some].mean(axis=(0, 1))
        sizes = [
            np.min([np.min(az.ess(v[..., i], method="mean")) for i in range(n)])
            for v in (centered, centered**2)
        ]
        found[name] = np.array(
            [
                draws.mean(axis=(0, 1)),
                draws.std(axis=(0, 1)),
                np.full(draws.shape[2], sizes[0]),
                np.full(draws.shape[2], sizes[1]),
            ]
        )
    return found


def reference(kind: str, cache: Path, *, draws: int) -> dict[str, np.ndarray]:
    """Summary of the draws of NUTS, from the cache if it exists."""
    path = cache / f"hierarchies-{kind}-{draws}.npz"
    if not path.exists():
        hierarchy = CASES[f"{kind}-{'noncentered' if kind == 'funnel' else 'centered'}"]()
        with hierarchy.model:
            idata = pm.sample(
                draws=draws,
                tune=1000,
                chains=2,
                cores=1,
                nuts_sampler="nutpie",
                random_seed=7,
                progressbar=False,
            )
        found = summary(hierarchy.quantities(pooled(idata)))
        np.savez(path, **found)
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def pooled(idata: Any) -> dict[str, np.ndarray]:
    """Draws of every variable by name."""
    return {name: idata.posterior[name].values for name in idata.posterior.data_vars}


def compare(found: Draws, known: Draws) -> dict[str, dict[str, float]]:
    """Errors of each quantity, at its worst coordinate.

    Returns
    -------
    dict of str to dict
        ``mean``: error in sds; ``sd``: ratio; ``mean_beyond``, ``sd_beyond``: their
        distances minus Monte Carlo errors; ``ess``.
    """
    errors = {}
    for name, (mean, sd, size, size_of_squares) in known.items():
        here = found[name]
        off = (here[0] - mean) / sd
        ratio = here[1] / sd
        chance = ERRORS * np.sqrt(1.0 / size + 1.0 / here[2])
        of_ratio = ERRORS * np.sqrt(0.5 / size_of_squares + 0.5 / here[3])
        errors[name] = {
            "mean": float(off[np.argmax(np.abs(off))]),
            "sd": float(ratio[np.argmax(np.abs(np.log(ratio)))]),
            "mean_beyond": float(np.max(np.abs(off) - chance)),
            "sd_beyond": float(np.max(np.abs(np.log(ratio)) - of_ratio)),
            "ess": float(np.min(here[2])),
        }
    return errors


def failures(errors: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return descriptions of quantities outside the bounds, allowing for Monte Carlo errors."""
    failed = []
    for name, e in errors.items():
        if e["mean_beyond"] > MEAN_BOUND:
            failed.append(f"mean of {name}")
        if e["sd_beyond"] > np.log1p(SD_BOUND):
            failed.append(f"sd of {name} ({e['sd']:.2f})")
        if e["ess"] < MIN_ESS:
            failed.append(f"ESS of {name} ({e['ess']:.0f})")
    return failed


def measure(
    hierarchy: Hierarchy, sampler: str, known: Draws, *, draws: int, tune: int, cores: int
) -> dict[str, Any]:
    """Sample once with default settings, and compare."""
    began = time.perf_counter()
    result: dict[str, Any] = {"model": hierarchy.name, "sampler": sampler}
    with SamplingWarnings() as caught, hierarchy.model:
        rows: dict[str, Any] = {}
        if "minibatches" in sampler:
            rows = {"batch_size": BATCH_SIZE, "minibatch": hierarchy.rows}
        try:
            idata = pm.sample(
                draws=draws,
                tune=tune,
                chains=CHAINS,
                cores=cores,
                step=SAMPLERS[sampler](**rows),
                random_seed=1,
                progressbar=False,
            )
        except pm.exceptions.SamplingError as error:
            return result | {"error": str(error), "right": False, "warned": True, "warnings": []}
    seconds = time.perf_counter() - began
    messages = [m for m in caught.messages if not m.startswith(GENERAL_ADVICE)]
    quantities = hierarchy.quantities(pooled(idata))
    errors = compare(summary(quantities), known)
    rhats = {
        name: max(
            float(az.rhat(flattened(v)[..., i])) for i in range(min(flattened(v).shape[2], 200))
        )
        for name, v in quantities.items()
    }
    stats = idata.sample_stats
    return result | {
        "errors": errors,
        "rhat": rhats,
        "failures": failures(errors),
        "right": not failures(errors),
        "warned": bool(messages),
        "advised": any("non-centered" in message for message in messages),
        "warnings": messages,
        "step_size": float(stats["step_size"].values[:, -1].mean()),
        "n_grad": float(stats["n_grad"].values.mean()),
        "noise_ratio": float(stats["noise_ratio"].mean()) if "noise_ratio" in stats else 1.0,
        "diverging": int(stats["diverging"].values.sum()),
        "seconds": seconds,
    }


def lines(result: Mapping[str, Any]) -> list[str]:
    """Rows of the table: one for the run, followed by its warnings."""
    head = f"| {result['model']} | {result['sampler']} |"
    if "error" in result:
        return [f"{head} stopped: {result['error'].splitlines()[0]} |"]
    errors, rhat = result["errors"], result["rhat"]
    verdict = (
        "right" if result["right"] else "wrong, warned" if result["warned"] else "WRONG, SILENT"
    )
    verdict += ", advised" if result["advised"] else ""
    verdict += "".join(f"; {failure}" for failure in result["failures"])
    scale = max(
        (name for name in errors if name.startswith("log")),
        key=lambda name: max(abs(errors[name]["mean"]), abs(np.log(errors[name]["sd"]))),
    )
    worst = max(errors, key=lambda name: abs(errors[name]["mean"]))
    return [
        f"{head} {errors[scale]['mean']:+.2f} | {errors[scale]['sd']:.3f} "
        f"| {errors[worst]['mean']:+.2f} ({worst}) | {max(rhat.values()):.3f} "
        f"| {min(e['ess'] for e in errors.values()):,.0f} | {result['n_grad']:.1f} "
        f"| {result['step_size']:.2f} | {result['seconds']:.0f} "
        f"| {verdict} |",
        *(f"    {message}" for message in result["warnings"]),
    ]


HEAD = (
    "| model | sampler | log sd: mean, sds | log sd: sd ratio | worst mean | R-hat | ESS "
    "| grad/draw | step | s | |"
)


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--samplers", nargs="+", choices=list(SAMPLERS), default=list(SAMPLERS))
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--tune", type=int, default=TUNE)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--reference-draws", type=int, default=2000)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()))
    asked = parser.parse_args()
    print(HEAD + "\n" + "|---" * 11 + "|", flush=True)
    results = []
    for case in asked.cases:
        hierarchy = CASES[case]()
        known = {
            name: np.array([[mean], [sd], [np.inf], [np.inf]])
            for name, (mean, sd) in hierarchy.exact.items()
        } or reference(case.split("-")[0], asked.cache, draws=asked.reference_draws)
        for sampler in asked.samplers:
            if "minibatches" in sampler and not hierarchy.rows:
                continue
            results.append(
                measure(
                    hierarchy,
                    sampler,
                    known,
                    draws=asked.draws,
                    tune=asked.tune,
                    cores=asked.cores,
                )
            )
            print("\n".join(lines(results[-1])), flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
