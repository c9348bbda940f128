"""Unchanged models of PyMC's example gallery and of PyMC-Marketing, sampled with ``step=``.

``python -m benchmarks.models_as_they_are`` samples each of `benchmarks.gallery_models` by `GMC` if
it has at most 8,000 rows, by ``SGGMC(batch_size=...)`` if it has more than 4,000, and by nutpie,
and prints a Markdown table. Models whose rows depend on each other are also given to SGGMC, which
must raise an error. The seconds are wall time of `pymc.sample` and of making the step, compilation
included, for 2 chains of 1,000 draws after 1,000 tuning draws, sequentially on one core.

*right*: every mean is within 0.1 standard deviations of that of nutpie and every standard deviation
within 5 %, up to 4 Monte Carlo standard errors of both runs, and all effective sample sizes are at
least 100; *too few draws* if only this fails. *warned* is followed by the first warning. Names of
models as arguments select some of them.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

import pymc_geodesic as pg
from benchmarks.gallery_models import MODELS, GalleryModel
from benchmarks.sampling_warnings import GENERAL_ADVICE, SamplingWarnings

CHAINS, TUNE, DRAWS = 2, 1000, 1000
MAX_ROWS_OF_GMC, MIN_ROWS_OF_SGGMC = 8_000, 4_000
MEAN_BOUND, SD_BOUND, ERRORS, MIN_ESS = 0.1, 0.05, 4.0, 100.0


@dataclass(frozen=True)
class Run:
    """Draws of the compared variables by name, and the cost of the run."""

    draws: Mapping[str, np.ndarray]
    seconds: float
    messages: list[str]

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Mean, standard deviation, effective size and R-hat of each coordinate that varies."""
        flat = np.concatenate(
            [values.reshape(CHAINS, DRAWS, -1) for values in self.draws.values()], axis=2
        )
        size = np.array([float(az.ess(flat[..., i])) for i in range(flat.shape[2])])
        rhat = np.array([float(az.rhat(flat[..., i])) for i in range(flat.shape[2])])
        return flat.mean(axis=(0, 1)), flat.std(axis=(0, 1)), size, rhat


def sample(model: pm.Model, names: list[str], make_step: Callable[[], Any] | None) -> Run:
    """Sample by a step, or by nutpie without one."""
    began = time.perf_counter()
    with model, SamplingWarnings() as logged, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        given = {"nuts_sampler": "nutpie"} if make_step is None else {"step": make_step()}
        idata = pm.sample(
            DRAWS, tune=TUNE, chains=CHAINS, cores=1, random_seed=1, progressbar=False,
            var_names=names, **given,
        )  # fmt: skip
    seconds = time.perf_counter() - began
    messages = [str(each.message) for each in caught if "pymc_geodesic" in str(each.filename)]
    messages += [each for each in logged.messages if not each.startswith(GENERAL_ADVICE)]
    return Run({name: idata.posterior[name].values for name in names}, seconds, messages)


def compare(run: Run, reference: Run) -> str:
    """Return the cells of a run: verdict, errors, R-hat, ESS per second and seconds."""
    mean, sd, size, rhat = run.columns()
    mean_0, sd_0, size_0, _ = reference.columns()
    distance, ratio = np.abs(mean - mean_0) / sd_0, sd / sd_0
    error = np.sqrt(1.0 / size + 1.0 / size_0)
    is_right = np.all(distance <= MEAN_BOUND + ERRORS * error) and np.all(
        np.abs(np.log(ratio)) <= SD_BOUND + ERRORS * error
    )
    has_enough = size.min() >= MIN_ESS
    verdict = ("right" if has_enough else "too few draws") if is_right else "**wrong**"
    if run.messages:
        verdict += f", warned: {run.messages[0].split('. ')[0][:150]}"
    return (
        f"{verdict} | {distance.max():.2f} | {ratio.min():.2f}–{ratio.max():.2f} | "
        f"{rhat.max():.3f} | {size.min() / run.seconds:.1f} | {run.seconds:.0f}"
    )


def steps_of(gallery: GalleryModel, n_rows: int) -> dict[str, Callable[[], Any]]:
    """Return the calls that the documentation recommends, and the one that must raise an error."""
    steps: dict[str, Callable[[], Any]] = {}
    if n_rows <= MAX_ROWS_OF_GMC:
        steps["GMC()"] = lambda: pg.GMC()
    if n_rows > MIN_ROWS_OF_SGGMC or not gallery.is_divisible:
        size = gallery.batch_size
        steps[f"SGGMC(batch_size={size})"] = lambda: pg.SGGMC(batch_size=size)
    return steps


def rows_of_table(gallery: GalleryModel, n_rows: int) -> None:
    """Print the lines of a model with this number of rows."""
    model = gallery.build(n_rows)
    names = list(gallery.compared) or [rv.name for rv in model.free_RVs]
    start = f"| {gallery.title} | {n_rows:,} |"
    reference = sample(model, names, None)
    _, _, size, rhat = reference.columns()
    print(
        f"{start} nutpie | reference | | | {rhat.max():.3f} | {size.min() / reference.seconds:.1f} "
        f"| {reference.seconds:.0f} |",
        flush=True,
    )
    for call, make_step in steps_of(gallery, n_rows).items():
        try:
            run = sample(model, names, make_step)
        except (ValueError, TypeError, pm.exceptions.SamplingError) as error:
            message = " ".join(str(error).split(". See ")[0].split())
            print(f"{start} `{call}` | error: {message} | | | | | |", flush=True)
            continue
        print(f"{start} `{call}` | {compare(run, reference)} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="functions of benchmarks.gallery_models")
    parser.add_argument("--original", action="store_true", help="the original numbers of rows only")
    chosen = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    print("| Model | Rows | Call | Verdict | Mean, in sd | sd ratio | R-hat | ESS/s | s |")
    print("|---|---:|---|---|---:|---|---:|---:|---:|")
    for gallery in MODELS:
        if chosen.names and gallery.build.__name__ not in chosen.names:
            continue
        for n_rows in gallery.n_rows[: 1 if chosen.original else None]:
            rows_of_table(gallery, n_rows)


if __name__ == "__main__":
    main()
