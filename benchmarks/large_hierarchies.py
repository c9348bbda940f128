"""Hierarchical models with up to a million rows and 22,000 effects, compared with nutpie and Gibbs.

``python -m benchmarks.large_hierarchies`` samples each of `benchmarks.large_hierarchy_models` by
`GMC` with nothing set, one also by ``SGGMC(batch_size=...)``, by nutpie with a diagonal and a
``low_rank`` metric, and normal models by the Gibbs sampler of `benchmarks.crossed_gibbs`. Each run
has a process and one thread of its own; the samplers of a model take turns.

- **Seconds** are processor time. *compilation* is that of PyTensor and Numba, and all of
  `nutpie.compile_pymc_model`; *construction* is the rest of the time before the call of
  `pymc.sample`; *warm-up* begins with that call. The code of each model is compiled anew, that of
  the package has been compiled before; with ``--warm`` all is read from the caches in use.
- **Effective draws** are those of the worst coordinate (ESS bulk) among all effects, coefficients,
  log scales and Fisher-transformed correlations. Convergence checks of `pymc.sample` are left out.
- **nutpie** makes fewer draws, with warm-up as by its defaults (``--nutpie-draws``,
  ``--nutpie-tune``). Its rates are those with as many draws as the others: effective draws and
  time of draws are multiplied by the ratio. Warm-up and draws share its time in proportion to their
  gradients.
- **Above 100,000 rows nutpie is extrapolated**: gradients per effective draw, and gradients of the
  warm-up, are those of a tenth of the rows and groups, where all samplers run, and the time of a
  gradient is measured by nutpie on all rows. Efficiency falls with the number of groups, so that
  this flatters nutpie. Its memory is that of the measurement, without draws.
- **Agreement** is with the run of nutpie, or of the Gibbs sampler, that has the most effective
  draws of the worst coordinate: the largest distance of means in posterior standard deviations and
  the standard deviation farthest from it, as a ratio. *beyond* is what remains of the two after
  3.5 Monte Carlo standard errors of both runs.
- **Squared error** needs no other sampler: the mean of ((true effect − posterior mean) / posterior
  sd)² over all simulated effects, which is about 1 ± √(2 / number of effects) for the posterior.

``--quick`` runs small versions; they test the script; their times are not meaningful.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.large_hierarchy_models import CASES
from benchmarks.large_hierarchy_runs import GRADIENTS, METRICS, RunSettings, Summary

MOST_ROWS_OF_NUTPIE = 100_000
SMALLER = 10
"""Ratio of rows between the model and the smaller one from which nutpie is extrapolated."""
ERRORS = 3.5
"""Monte Carlo standard errors that are no error."""

# --- processes ----------------------------------------------------------------------------------

THREADS = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON")
}


def environment(caches: Path | None) -> dict[str, str]:
    """Environment of a run: one thread, and these folders for compiled code."""
    variables = os.environ | THREADS
    if caches is not None:
        variables["NUMBA_CACHE_DIR"] = str(caches / "numba")
        flags = [variables.get("PYTENSOR_FLAGS", ""), f"base_compiledir={caches / 'pytensor'}"]
        variables["PYTENSOR_FLAGS"] = ",".join(flag for flag in flags if flag)
    return variables


def run_process(
    settings: RunSettings, output: Path, caches: Path | None, timeout: float
) -> str | None:
    """Make a run in another process, and return the error if there is one."""
    module = "benchmarks.large_hierarchy_runs"
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, settings.to_json(), str(output)],
            env=environment(caches),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return f"stopped after {timeout:,.0f} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return None


@contextmanager
def compiled_package(asked: argparse.Namespace) -> Iterator[Path | None]:
    """Folder of caches in which the package and what all models share are compiled, or None."""
    if asked.warm or asked.quick:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        caches = Path(folder)
        settings = RunSettings("", 200, "", draws=20, tune=60, chains=1, seed=1)
        error = run_process(settings, caches / "none", caches, asked.timeout)
        if error is not None:
            raise RuntimeError(error)
        yield caches


def run_in_process(
    settings: RunSettings, base: Path | None, timeout: float
) -> tuple[dict[str, Any], Summary]:
    """Make a run in another process, with a copy of these caches."""
    result = asdict(settings)
    with tempfile.TemporaryDirectory() as folder:
        caches = None if base is None else Path(folder) / "caches"
        if base is not None and caches is not None:
            shutil.copytree(base, caches)
        output = Path(folder) / "run.npz"
        error = run_process(settings, output, caches, timeout)
        if error is not None:
            return result | {"error": error}, {}
        with np.load(output) as stored:
            figures = json.loads(str(stored["figures"]))
            return result | figures, {key: stored[key] for key in stored.files if key != "figures"}


# --- results ------------------------------------------------------------------------------------


def add_rates(result: dict[str, Any], summary: Summary, n_draws: int) -> None:
    """Add the worst coordinates, and rates with this number of draws per chain."""
    lowest, tail, highest = (
        int(index)
        for index in (
            np.argmin(summary["bulk"]), np.argmin(summary["tail"]), np.argmax(summary["rhat"]),
        )
    )  # fmt: skip
    result |= {
        "worst": str(summary["name"][lowest]),
        "ess_bulk": float(summary["bulk"][lowest]),
        "worst_of_tail": str(summary["name"][tail]),
        "ess_tail": float(summary["tail"][tail]),
        "worst_of_rhat": str(summary["name"][highest]),
        "rhat": float(summary["rhat"][highest]),
        "gradients_per_draw": result["gradients"] / (result["chains"] * result["draws"]),
    }
    more = n_draws / result["draws"]
    seconds = result["construction_s"] + result["warm_up_s"] + more * result["draws_s"]
    result["ess_per_s"] = more * result["ess_bulk"] / seconds
    result["ess_per_s_with_compilation"] = (
        more * result["ess_bulk"] / (seconds + result["compilation_s"])
    )


def extrapolated(
    smaller: Mapping[str, Any], timing: Mapping[str, Any], n_draws: int
) -> dict[str, Any]:
    """Figures of nutpie on all rows, from a run on fewer rows and the time of a gradient."""
    more, second = n_draws / smaller["draws"], timing["gradient_s"]
    result = {
        **{key: timing[key] for key in ("model", "rows", "seed", "coordinates", "compilation_s")},
        **{key: smaller[key] for key in ("method", "chains", "draws", "tune")},
        **{key: smaller[key] for key in ("ess_bulk", "warm_up_gradients", "gradients")},
        "gradients_per_draw": smaller["gradients_per_draw"],
        "memory_mb": timing["memory_mb"],
        "memory_of_model_mb": timing["memory_of_model_mb"],
        "extrapolated_from_rows": smaller["rows"],
        "gradient_s": second,
        "construction_s": 0.0,
        "warm_up_s": second * smaller["warm_up_gradients"],
        "draws_s": second * smaller["gradients"],
    }
    seconds = result["warm_up_s"] + more * result["draws_s"]
    result["ess_per_s"] = more * smaller["ess_bulk"] / seconds
    result["ess_per_s_with_compilation"] = (
        more * smaller["ess_bulk"] / (seconds + timing["compilation_s"])
    )
    return result


def compare(summary: Summary, reference: Summary) -> dict[str, Any]:
    """Errors of means, in standard deviations of the reference, and ratios of these.

    Returns
    -------
    dict
        ``mean``, ``sd`` of the worst coordinate with its name, the same of those that are no group
        effects, and ``mean_beyond``, ``sd_beyond``: the largest rest after Monte Carlo errors.
    """
    off = (summary["mean"] - reference["mean"]) / reference["sd"]
    log_ratio = np.log(summary["sd"] / reference["sd"])
    error = ERRORS * np.sqrt(1.0 / summary["bulk"] + 1.0 / reference["bulk"])
    error_of_sd = ERRORS * np.sqrt(0.5 / summary["of_sd"] + 0.5 / reference["of_sd"])
    mean, sd = int(np.argmax(np.abs(off))), int(np.argmax(np.abs(log_ratio)))
    others = ~reference["is_effect"].astype(bool)
    ratios = np.exp(log_ratio)
    return {
        "mean": float(off[mean]),
        "worst_mean": str(reference["name"][mean]),
        "mean_beyond": float(max(np.max(np.abs(off) - error), 0.0)),
        "sd": float(ratios[sd]),
        "worst_sd": str(reference["name"][sd]),
        "sd_beyond": float(max(np.max(np.abs(log_ratio) - error_of_sd), 0.0)),
        "mean_of_others": float(np.max(np.abs(off[others]))),
        "sd_of_others": [float(ratios[others].min()), float(ratios[others].max())],
        "root_mean_square": float(np.sqrt(np.mean(off**2))),
    }


HEAD = (
    "| model | rows | coordinates | sampler | ESS bulk | coordinate | ESS tail | R-hat | ESS/s "
    "| with compilation | compilation, construction, warm-up, draws, s | gradients/draw "
    "| memory, MB | mean, sds | sd ratio | beyond | squared error |"
)


def line(result: Mapping[str, Any]) -> str:
    """Row of the table."""
    head = f"| {CASES[result['model']].title} | {result['rows']:,} |"
    if "error" in result:
        return f"{head} | {result['method']} | error: {result['error']} |" + " |" * 12
    if "extrapolated_from_rows" in result:
        name = f"{result['method']}, extrapolated from {result['extrapolated_from_rows']:,} rows"
        worst = f"{result['ess_bulk']:,.0f} in {result['draws']} draws | | | "
    else:
        name, worst = result["method"], f"{result['ess_bulk']:,.0f} | {result['worst']} "
        worst += f"| {result['ess_tail']:,.0f} | {result['rhat']:.3f} "
    agreement = " | | "
    if (found := result.get("agreement")) is not None:
        agreement = f"{found['mean']:+.2f} {found['worst_mean']} | {found['sd']:.2f} "
        agreement += f"{found['worst_sd']} | {found['mean_beyond']:.2f}, {found['sd_beyond']:.2f}"
    times = (result[f"{key}_s"] for key in ("compilation", "construction", "warm_up", "draws"))
    return (
        f"{head} {result['coordinates']:,} | {name} | {worst}"
        f"| {result['ess_per_s']:.3g} | {result['ess_per_s_with_compilation']:.3g} "
        f"| {', '.join(f'{each:.1f}' for each in times)} | {result['gradients_per_draw']:.1f} "
        f"| {result['memory_mb']:,.0f} | {agreement} "
        f"| {result.get('squared_error', math.nan):.3f} |"
    )


def methods_of(model: str, n_rows: int, methods: list[str]) -> list[str]:
    """Samplers that run on a model with this number of rows."""
    case = CASES[model]
    names = ["GMC", *(["SGGMC"] if case.batch_size is not None else [])]
    names += METRICS if n_rows <= MOST_ROWS_OF_NUTPIE else [GRADIENTS]
    names += ["Gibbs"] if model in ("insteval", "crossed-normal") else []
    return [name for name in names if name in methods or name == GRADIENTS]


def report(result: Mapping[str, Any]) -> None:
    """Print the row of a run, and its warnings."""
    print(line(result), flush=True)
    for message in result.get("warnings", []):
        print(f"    {' '.join(message.split())}", flush=True)


def run_model(
    model: str, n_rows: int, asked: argparse.Namespace, base: Path | None
) -> list[dict[str, Any]]:
    """Run all samplers alternately on one model with this number of rows, and compare them."""
    results: list[dict[str, Any]] = []
    for turn in range(asked.rounds):
        summaries: dict[str, Summary] = {}
        of_turn: dict[str, dict[str, Any]] = {}
        for method in methods_of(model, n_rows, asked.methods):
            draws, tune = asked.draws, asked.tune
            if method in METRICS:
                draws, tune = asked.nutpie_draws, asked.nutpie_tune
            settings = RunSettings(model, n_rows, method, draws, tune, asked.chains, seed=turn + 1)
            result, summary = run_in_process(settings, base, asked.timeout)
            of_turn[method] = result
            if summary:
                add_rates(result, summary, asked.draws)
                summaries[method] = summary
        exact = [name for name in summaries if name in METRICS or name == "Gibbs"]
        if exact:
            longest = max(exact, key=lambda name: of_turn[name]["ess_bulk"])
            for name in set(summaries) - {longest}:
                agreement = compare(summaries[name], summaries[longest])
                of_turn[name] |= {"agreement": agreement, "reference": longest}
        for method, result in of_turn.items():
            if method != GRADIENTS or "error" in result:
                report(result)
        results += of_turn.values()
    return results


def run_case(model: str, asked: argparse.Namespace, base: Path | None) -> list[dict[str, Any]]:
    """Run one line of the table, where nutpie is extrapolated also with fewer rows."""
    case = CASES[model]
    n_rows = case.n_quick_rows if asked.quick else case.n_rows
    if n_rows <= MOST_ROWS_OF_NUTPIE:
        results = run_model(model, n_rows, asked, base)
    else:
        smaller = run_model(model, n_rows // SMALLER, asked, base)
        results = run_model(model, n_rows, asked, base)
        timings = {r["seed"]: r for r in results if r["method"] == GRADIENTS and "error" not in r}
        for one in smaller:
            if one["method"] in METRICS and "error" not in one and one["seed"] in timings:
                results.append(extrapolated(one, timings[one["seed"]], asked.draws))
                report(results[-1])
        results = smaller + [r for r in results if r["method"] != GRADIENTS]
    for text in ratios([r for r in results if r["rows"] == n_rows]):
        print(f"    {text}", flush=True)
    return results


def ratios(results: list[dict[str, Any]]) -> list[str]:
    """Describe rates over the better nutpie, and over Gibbs, as medians over the rounds."""
    rates: dict[str, dict[str, float]] = {}
    for key in ("ess_per_s", "ess_per_s_with_compilation"):
        found: dict[str, list[float]] = {}
        for result in results:
            if key in result:
                found.setdefault(result["method"], []).append(result[key])
        rates[key] = {name: median(values) for name, values in found.items()}
    texts = []
    ours = [name for name in rates["ess_per_s"] if name in ("GMC", "SGGMC")]
    for rivals, title in ((list(METRICS), "the better nutpie"), (["Gibbs"], "Gibbs")):
        for name in ours:
            found_ratios = [
                of[name] / max(of[rival] for rival in rivals if rival in of)
                for of in rates.values()
                if any(rival in of for rival in rivals)
            ]
            if found_ratios:
                without, with_compilation = found_ratios
                texts.append(
                    f"{name} over {title}: {without:.3g} effective draws per second, "
                    f"{with_compilation:.3g} with compilation"
                )
    return texts


def main() -> None:
    """Run what the command line asks for."""
    names = ["GMC", "SGGMC", *METRICS, "Gibbs"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", nargs="+", choices=list(CASES), help="all by default")
    parser.add_argument("--methods", nargs="+", choices=names, default=names)
    parser.add_argument("--draws", type=int)
    parser.add_argument("--tune", type=int)
    parser.add_argument("--chains", type=int)
    parser.add_argument("--nutpie-draws", type=int)
    parser.add_argument("--nutpie-tune", type=int, help="nutpie's own default by default")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--warm", action="store_true", help="use the caches of compiled code")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds of one run")
    parser.add_argument("--results", type=Path, help="JSON file of all figures")
    asked = parser.parse_args()
    defaults = (200, 200, 2, 200) if asked.quick else (1000, 1000, 4, 300)
    for name, default in zip(("draws", "tune", "chains", "nutpie_draws"), defaults, strict=True):
        if getattr(asked, name) is None:
            setattr(asked, name, default)
    if asked.quick and asked.nutpie_tune is None:
        asked.nutpie_tune = 200
    print(HEAD + "\n" + "|---" * HEAD.count(" | ") + "|---|", flush=True)
    results: list[dict[str, Any]] = []
    with compiled_package(asked) as base:
        for model in asked.model or CASES:
            results += run_case(model, asked, base)
            if asked.results is not None:
                asked.results.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
