"""Models of PyMC's gallery and of PyMC-Marketing, unchanged except for ``step=``.

``python -m benchmarks.models_as_they_are`` samples each model of `benchmarks.gallery_models` by the
recommended step, ``GMC()`` or, with many rows, ``SGGMC(batch_size=...)``, and by nutpie at its own
defaults, 4 chains of 1,000 draws one after another, and writes the rows of the table in
`docs/any_model.md`. Rows of models that were not selected stay as they are. Models whose rows
depend on each other are also given to SGGMC, which must raise an error.

*agrees*: every mean differs from that of nutpie by at most 0.1 standard deviations plus 4 Monte
Carlo standard errors of the difference, every standard deviation by at most 5 % plus the same, and
the smallest effective sample size is at least 100. *too few draws*: it is smaller. *no reference*:
R-hat of nutpie is above 1.05, and nothing is compared. Effective draws per second count processor
time of warm-up and draws, without compilation.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import nutpie
import pymc as pm
from arviz_stats.base import array_stats
from pymc.stats.convergence import log_warnings, run_convergence_checks

import pymc_geodesic as pg
from benchmarks.gallery_models import MODELS, GalleryModel
from benchmarks.large_hierarchy_runs import CompilationClock
from benchmarks.sampling_warnings import GENERAL_ADVICE, SamplingWarnings

DRAWS = 1000
MEAN_BOUND, SD_BOUND, ERRORS, LEAST_ESS = 0.1, 0.05, 4.0, 100.0
GREATEST_RHAT = 1.05
"""Of nutpie, as a reference."""
PAGE = Path(__file__).parents[1] / "docs" / "any_model.md"
BEGIN, END = "% begin models_as_they_are", "% end models_as_they_are"
HEADER = (
    "| Model | Rows | Call | Result | Mean, in sd | sd ratio | R-hat (nutpie) "
    "| Minimum ESS (nutpie) | ESS/s relative to nutpie | with compilation |\n"
    "|---|---:|---|---|---:|---|---|---|---:|---:|\n"
)


@dataclass(frozen=True)
class Run:
    """Draws of a run, and what it cost.

    Attributes
    ----------
    draws : mapping
        Draws of each variable by name, shape (chains, draws, ...).
    sampling, compilation : float
        Processor time in seconds. To make a step, or nutpie's model, counts as compilation.
    messages : list of str
        Warnings.
    """

    draws: Mapping[str, np.ndarray]
    sampling: float
    compilation: float
    messages: list[str]

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Mean, standard deviation, effective sample size and R-hat of each coordinate."""
        flat = np.concatenate(
            [values.reshape(*values.shape[:2], -1) for values in self.draws.values()], axis=2
        )
        ess = array_stats.ess(flat, chain_axis=0, draw_axis=1, method="bulk")
        rhat = array_stats.rhat(flat, chain_axis=0, draw_axis=1)
        return flat.mean(axis=(0, 1)), flat.std(axis=(0, 1)), np.asarray(ess), np.asarray(rhat)


def sample(
    model: pm.Model, names: list[str], make_step: Callable[[], Any], chains: int, seed: int
) -> Run:
    """Sample by a step of this package; PyMC's convergence checks need the free variables."""
    kept = sorted({*names, *(rv.name for rv in model.free_RVs)})
    began = time.process_time()
    with (
        model,
        CompilationClock() as compilation,
        SamplingWarnings() as logged,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", UserWarning)
        step = make_step()
        preparation, compiled_before = time.process_time() - began, compilation.seconds
        idata = pm.sample(
            DRAWS, chains=chains, cores=1, step=step, random_seed=seed, var_names=kept,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
        preparation += compilation.seconds - compiled_before
        sampling = time.process_time() - began - preparation
        log_warnings(run_convergence_checks(idata, model))
    messages = [str(each.message) for each in caught if "pymc_geodesic" in str(each.filename)]
    messages += [each for each in logged.messages if not each.startswith(GENERAL_ADVICE)]
    draws = {name: idata.posterior[name].values for name in names}
    return Run(draws, sampling, preparation, messages)


def sample_by_nutpie(model: pm.Model, names: list[str], chains: int, seed: int) -> Run:
    """Sample by nutpie, at its defaults."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = nutpie.compile_pymc_model(model, var_names=names)
        compilation = time.process_time() - began
        idata = nutpie.sample(
            compiled, draws=DRAWS, chains=chains, cores=1, seed=seed, progress_bar=False
        )
    sampling = time.process_time() - began - compilation
    draws = {name: idata.posterior[name].values for name in names}
    return Run(draws, sampling, compilation, [])


def compare(run: Run, reference: Run) -> str:
    """Describe a run by its result and figures, as cells of the table."""
    mean, sd, ess, rhat = run.columns()
    mean_0, sd_0, ess_0, rhat_0 = reference.columns()
    distance, ratio = np.abs(mean - mean_0) / sd_0, sd / sd_0
    error = np.sqrt(1.0 / ess + 1.0 / ess_0)
    is_close = np.all(distance <= MEAN_BOUND + ERRORS * error) and np.all(
        np.abs(np.log(ratio)) <= SD_BOUND + ERRORS * error
    )
    if rhat_0.max() > GREATEST_RHAT:
        result = "no reference"
    elif not is_close:
        result = "**different**"
    else:
        result = "agrees" if ess.min() >= LEAST_ESS else "too few draws"
    if run.messages:
        result += ", warned"
    convergence = f"{rhat.max():.3f} ({rhat_0.max():.3f}) | {ess.min():,.0f} ({ess_0.min():,.0f})"
    if rhat_0.max() > GREATEST_RHAT:
        return f"{result} | – | – | {convergence} | – | – |"
    relative = ess.min() / ess_0.min() * reference.sampling / run.sampling
    total = (reference.sampling + reference.compilation) / (run.sampling + run.compilation)
    total *= ess.min() / ess_0.min()
    return (
        f"{result} | {distance.max():.2f} | {ratio.min():.2f}–{ratio.max():.2f} | "
        f"{convergence} | {relative:.2g} | {total:.2g} |"
    )


def recommended_step(gallery: GalleryModel, n_rows: int) -> tuple[str, Callable[[], Any]]:
    """Choose the step that the documentation recommends."""
    if n_rows == gallery.n_rows[0] or gallery.is_hierarchy:
        return "`GMC()`", lambda: pg.GMC()
    size = gallery.batch_size
    return f"`SGGMC(batch_size={size})`", lambda: pg.SGGMC(batch_size=size)


def run_model(gallery: GalleryModel, n_rows: int, chains: int, seed: int) -> str:
    """Sample a model by both and return the row of the table."""
    names = list(gallery.compared) or [rv.name for rv in gallery.build(n_rows).free_RVs]
    call, make_step = recommended_step(gallery, n_rows)
    run = sample(gallery.build(n_rows), names, make_step, chains, seed)
    for message in run.messages:
        print(f"  {gallery.title}: {message}", flush=True)
    reference = sample_by_nutpie(gallery.build(n_rows), names, chains, seed)
    print(
        f"  {gallery.title}: processor time of sampling {run.sampling:.1f} s, compilation "
        f"{run.compilation:.1f} s; nutpie {reference.sampling:.1f} s, {reference.compilation:.1f} s"
    )
    return f"| {gallery.title} | {n_rows:,} | {call} | {compare(run, reference)}"


def print_error(gallery: GalleryModel) -> None:
    """Print the error of a step with minibatches where rows depend on each other."""
    try:
        with gallery.build(gallery.n_rows[0]):
            pg.SGGMC(batch_size=gallery.batch_size)
    except ValueError as error:
        print(f"  {gallery.title}, SGGMC: {' '.join(str(error).split())}")
    else:
        print(f"  {gallery.title}, SGGMC: no error")


def write_row(row: str) -> None:
    """Replace or append a row of the table in the documentation."""
    before, rest = PAGE.read_text().split(f"{BEGIN}\n")
    table, after = rest.split(END)
    rows = {tuple(line.split(" | ")[:2]): line for line in table.strip().splitlines()[2:]}
    rows[tuple(row.split(" | ")[:2])] = row
    order = [f"| {gallery.title}" for gallery in MODELS]
    lines = sorted(rows.items(), key=lambda item: order.index(item[0][0]))
    table = "".join(f"{line}\n" for _, line in lines)
    PAGE.write_text(f"{before}{BEGIN}\n\n{HEADER}{table}\n{END}{after}")


def main() -> None:
    """Sample models and write their rows of the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="functions of benchmarks.gallery_models")
    parser.add_argument("--original", action="store_true", help="the original numbers of rows only")
    parser.add_argument("--large", action="store_true", help="the larger numbers of rows only")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    for gallery in MODELS:
        if chosen.names and gallery.build.__name__ not in chosen.names:
            continue
        if not gallery.is_divisible:
            print_error(gallery)
        sizes = gallery.n_rows[:1] if chosen.original else gallery.n_rows
        for n_rows in sizes[1:] if chosen.large else sizes:
            row = run_model(gallery, n_rows, chosen.chains, chosen.seed)
            print(row, flush=True)
            write_row(row)


if __name__ == "__main__":
    main()
