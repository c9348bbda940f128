"""Remedies of warnings: a run with the warning, and the run repeated after each remedy.

``python -m benchmarks.remedies`` samples a small model for each warning about draws, applies each
change that the warning recommends, samples again and prints a table in Markdown. Errors are in
standard deviations of the posterior, which is known in closed form or from a long run of NUTS or
`GMC`. ``--only NAME`` selects cases by a part of their name, ``--list`` prints the names.

A remedy works if the warning is gone and the error is at most that of `ACCEPTED`; otherwise the
last column says what is left.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr

from benchmarks.remedy_cases import CASES, Attempt, Case
from benchmarks.remedy_models import Problem
from benchmarks.sampling_warnings import GENERAL_ADVICE, SamplingWarnings

CHAINS, TUNE, DRAWS = 2, 1000, 1000
N_ERRORS = 3.5


@dataclass(frozen=True)
class Bounds:
    """Bounds of draws that count as right; errors are those beyond Monte Carlo error.

    Attributes
    ----------
    mean : float
        Largest error of a mean, in posterior standard deviations.
    sd : float
        Largest relative error of a standard deviation.
    ess : float
        Smallest effective sample size, below which errors cannot be measured.
    """

    mean: float = 0.1
    sd: float = 0.1
    ess: float = 100.0


ACCEPTED = Bounds()


@dataclass(frozen=True)
class Result:
    """A run, compared with its reference.

    Attributes
    ----------
    messages : list of str
        Warnings of the package and of PyMC.
    mean_error : float
        Largest error of a mean, in posterior standard deviations.
    sd_ratio : float
        Standard deviation with the largest relative error, divided by that of the posterior.
    ess, rhat : float
        Smallest bulk effective sample size of a coordinate, both chains together; largest R-hat.
    temperature : float
        Mean kinetic temperature; NaN where the sampler has none.
    seconds : float
        Time of the sampling, without compilation of the model where it was compiled before.
    """

    messages: list[str] = field(default_factory=list)
    mean_error: float = np.nan
    sd_ratio: float = np.nan
    ess: float = np.nan
    rhat: float = np.nan
    temperature: float = np.nan
    seconds: float = np.nan

    def has(self, text: str) -> bool:
        """Whether a warning contains a text."""
        return any(text in message for message in self.messages)

    @property
    def is_right(self) -> bool:
        """Whether means and standard deviations are right up to `ACCEPTED` and chance."""
        if not self.ess >= ACCEPTED.ess:
            return False
        chance = N_ERRORS / np.sqrt(self.ess)
        is_mean_right = self.mean_error <= ACCEPTED.mean + chance
        return bool(is_mean_right and abs(self.sd_ratio - 1.0) <= ACCEPTED.sd + chance)


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Record the warnings that PyMC or the package logs, and those of `warnings`."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught, SamplingWarnings("pymc") as logged:
        warnings.simplefilter("always")
        yield found
    ours = [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
    found += [each for each in [*logged.messages, *ours] if not each.startswith(GENERAL_ADVICE)]


def measure(problem: Problem, attempt: Attempt, seed: int) -> Result:
    """Sample, and compare with the reference."""
    begin = time.perf_counter()
    with recorded() as messages, problem.model:
        arguments = {"tune": TUNE, "draws": DRAWS, "chains": CHAINS, "cores": 1} | attempt.arguments
        if "initvals" in arguments and arguments["initvals"] is None:
            arguments["initvals"] = problem.start
        try:
            idata = pm.sample(
                step=attempt.step(problem), random_seed=seed, progressbar=False, **arguments
            )
        except pm.exceptions.SamplingError as error:
            return Result([f"[error]: {error}"])
    z = problem.standardize(idata.posterior)
    z = z.reshape(*z.shape[:2], -1)
    coordinates = [z[..., i] for i in range(z.shape[-1])]
    everything = z.reshape(-1, z.shape[-1])
    ratios = everything.std(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a chain that does not move has no R-hat
        ess = min(float(az.ess(each)) for each in coordinates)
        rhat = max(float(az.rhat(each)) for each in coordinates)
    stats: Mapping[str, xr.DataArray] = idata.sample_stats
    return Result(
        messages,
        float(np.abs(everything.mean(axis=0)).max()),
        float(ratios[np.argmax(np.abs(np.log(np.maximum(ratios, 1e-300))))]),
        ess,
        rhat,
        float(stats["temperature"].mean()) if "temperature" in stats else np.nan,
        time.perf_counter() - begin,
    )


def verdict(case: Case, result: Result) -> str:
    """Return what is left of a warning after the remedy, or "works"."""
    own = [text for text in result.messages if "[" in text.split(":")[0]]  # SGGMC[b]: ...
    if result.has(case.warning):
        return "warning remains" + (", draws right" if result.is_right else "")
    if own and own[0].startswith("[error]"):
        return "error"
    if own:
        words = own[0].split(":")[1].split(" is ")[0].strip()
        return f"another warning: {words}"
    return "works" if result.is_right else "no warning, draws wrong"


def row(*cells: Any) -> str:
    """One line of a table in Markdown."""
    return "| " + " | ".join(map(str, cells)) + " |"


def numbers(result: Result) -> list[str]:
    """Cells of the measured values."""
    if np.isnan(result.mean_error):
        return [""] * 5
    temperature = "" if np.isnan(result.temperature) else f"{result.temperature:.2f}"
    mean = f"{result.mean_error:.2f}" if result.mean_error < 100 else f"{result.mean_error:.2g}"
    ratio = f"{result.sd_ratio:.2f}" if result.sd_ratio > 0.01 else f"{result.sd_ratio:.1g}"
    return [mean, ratio, temperature, f"{result.ess:,.0f}", f"{result.rhat:.2f}"]


def run(case: Case, *, verbose: bool) -> Iterator[str]:
    """Rows of the table of one case: the run with the warning, and each remedy."""
    made: dict[Callable[[], Problem], Problem] = {}
    for attempt in (case.before, *case.remedies):
        make = attempt.problem or case.problem
        if make not in made:
            made[make] = make()
        result = measure(made[make], attempt, case.seed)
        if attempt is case.before:
            last = "" if result.has(case.warning) else "no warning"
            yield row(case.name, attempt.change, *numbers(result), last)
        else:
            yield row("", attempt.change, *numbers(result), verdict(case, result))
        if verbose:
            for message in result.messages:
                print(f"    {result.seconds:.0f} s: {message}", flush=True)


def main() -> None:
    """Run the cases that the command line selects."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names of cases")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--verbose", action="store_true", help="print the warnings")
    chosen = parser.parse_args()
    cases = [case for case in CASES if any(part in case.name for part in chosen.only)]
    if chosen.list:
        print("\n".join(case.name for case in cases))
        return
    columns = ["Warning", "Run", "mean", "sd ratio", "temperature", "ESS", "R-hat", "Result"]
    print(row(*columns) + "\n" + row(*["---"] * len(columns)), flush=True)
    begin = time.perf_counter()
    for case in cases:
        for line in run(case, verbose=chosen.verbose):
            print(line, flush=True)
    print(f"\n{len(cases)} warnings, {(time.perf_counter() - begin) / 60.0:.0f} min")


if __name__ == "__main__":
    main()
