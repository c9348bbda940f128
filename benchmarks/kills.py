"""Kill test: runs killed at random times and resumed give the draws of uninterrupted runs.

``python -m benchmarks.kills [--kills 50] [--spawned 3] [--seed 1] [--only NAME] [--json FILE]``

For each run of `benchmarks.kill_cases` the expected draws are those of `pymc.sample` without a
trace. The same run with frequent checkpoints is killed with SIGKILL: all its processes at once, its
main process alone, or the process of one chain. Its files are read during sampling.
`pymc_geodesic.resume` continues in another process with any number of cores, and some of these runs
are killed again. The test checks that

- all draws and sample stats, tuning included, are bit-identical to those expected;
- draws that were read before the kill are on disk afterwards, and in the result.

It prints a line for each kill, and JSON at the end.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import argparse
import json
import logging
import shutil
import signal
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import pymc_geodesic as pg
from benchmarks.kill_cases import CASES
from benchmarks.kill_runs import EVERY, PATIENCE, Expected, Runner, kill_process
from pymc_geodesic.runs.reading import RunFiles

EARLY, TWICE = 0.5, 0.4
"""Fraction of second kills during the start of the resumed run, and of runs with a second kill."""

GROUPS = ("posterior", "sample_stats", "warmup_posterior", "warmup_sample_stats")
NOT_COMPARED = {"process_time_diff", "perf_counter_diff", "perf_counter_start", "divergences"}
"""Times, and a count of `pymc.NUTS` that is not reset between chains nor in its sampling state."""


@dataclass
class Kill:
    """A kill and its result.

    Attributes
    ----------
    case, whom : str
        Name of the run, and the killed process.
    chains, cores : int
    start_method : str
    when : float
        Fraction of all draws written before the kill.
    phases : list of str
        Phase of each chain when it was killed: not started, tuning, sampling, or done.
    reported, after : list of int
        Draws of each chain read before and after the kill.
    differences : list of str
        Differences between the result and the expected draws; empty on success.
    """

    case: str
    whom: str
    chains: int
    cores: int
    start_method: str
    when: float
    phases: list[str]
    reported: list[int]
    after: list[int]
    differences: list[str]


def differences(expected: Any, found: Any) -> list[str]:
    """Return the variables that are not bit-identical in two trees."""
    names = []
    for group in GROUPS:
        if group not in found.children:
            names.append(group)
            continue
        for name, values in expected[group].data_vars.items():
            if name in NOT_COMPARED or name == "warning" or values.dtype == object:
                continue
            if name not in found[group] or not np.array_equal(
                values.values, found[group][name].values, equal_nan=values.dtype.kind == "f"
            ):
                names.append(f"{group}.{name}")
    return names


def written(path: Path, chains: int) -> list[int]:
    """Count the draws of each chain on disk by file names."""
    return [
        max((int(p.stem.split("-")[1]) for p in path.glob(f"chain-{chain}/state-*.npz")), default=0)
        for chain in range(chains)
    ]


def read(path: Path, chains: int) -> list[dict[str, np.ndarray]]:
    """Read the draws of each chain from disk."""
    run = RunFiles(path)
    return [run.chain(chain).read(warn=False).values for chain in range(chains)]


def lengths(chains: list[dict[str, np.ndarray]]) -> list[int]:
    return [len(next(iter(values.values()), ())) for values in chains]


def lost(expected: Any, chains: list[dict[str, np.ndarray]]) -> list[str]:
    """Return variables whose draws on disk differ from those of the result."""
    names = []
    for chain, values in enumerate(chains):
        for name, draws in values.items():
            result = np.concatenate(
                [expected[group][name].values[chain] for group in ("warmup_posterior", "posterior")]
            )
            if not np.array_equal(draws, result[: len(draws)]):
                names.append(f"chain {chain}: {name}")
    return names


def wait_for(process: Any, path: Path, chains: int, n: float) -> bool:
    """Wait until ``n`` draws are written; return whether the process is still running."""
    until = time.monotonic() + PATIENCE
    while process.is_alive() and (not path.exists() or sum(written(path, chains)) < n):
        if time.monotonic() > until:
            os.killpg(process.pid, signal.SIGKILL)
            raise TimeoutError(path.with_suffix(".log").read_text()[-2000:])
        time.sleep(0.005)
    return process.is_alive()


def phase(n: int, case: Any) -> str:
    if n == 0:
        return "not started"
    if n < case.tune:
        return "tuning"
    return "sampling" if n < case.tune + case.draws else "done"


def kill_once(
    runner: Runner, process: Any, path: Path, cores: int, whom: str, when: float, expected: Any,
    rng: np.random.Generator,
) -> Kill | None:  # fmt: skip
    """Kill a process after a fraction of all draws; return None if it has ended."""
    n = runner.chains * runner.n_draws
    if not wait_for(process, path, runner.chains, max(1.0, when * n)):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pg.open_run(path)
    reported = read(path, runner.chains)
    time.sleep(float(rng.uniform(0.0, 2.0 * EVERY)))
    if not process.is_alive() or sum(written(path, runner.chains)) == n:
        return None
    whom = kill_process(process, whom, rng)
    after = read(path, runner.chains)
    found = [f"lost: {name}" for name in lost(expected, reported)]
    if any(now < before for now, before in zip(lengths(after), lengths(reported), strict=True)):
        found.append("fewer draws on the disk than were read before")
    return Kill(
        runner.name, whom, runner.chains, cores, runner.start_method, round(when, 3),
        [phase(n, runner.case) for n in lengths(after)], lengths(reported), lengths(after), found,
    )  # fmt: skip


def killed_and_resumed(
    runner: Runner, path: Path, expected: Any, rng: np.random.Generator, whens: list[float]
) -> list[Kill]:
    """Start a run, kill and resume it repeatedly, and complete it."""
    cores = int(rng.integers(1, runner.chains + 1))
    process = runner.start(runner.begin, path, cores)
    kills: list[Kill] = []
    for when in whens:
        if when == 0.0:  # while it constructs the step and reads the files
            time.sleep(float(rng.uniform(0.0, 2.0)))
        whom = str(rng.choice(["all", "main", "chain"] if cores > 1 else ["all"]))
        found = kill_once(runner, process, path, cores, whom, when, expected, rng)
        if found is None:
            break
        kills.append(found)
        cores = int(rng.integers(1, runner.chains + 1))
        resume = partial(runner.resume, with_step=bool(rng.random() < 0.5))
        process = runner.start(resume, path, cores)
    process.join(PATIENCE)
    if process.exitcode != 0:
        wrong = [f"exit {process.exitcode}: " + path.with_suffix(".log").read_text()[-1500:]]
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            wrong = differences(expected, pg.open_run(path))
    for each in kills:
        each.differences += wrong
    return kills


def all_kills(
    n_kills: int, n_spawned: int, seed: int, names: list[str], folder: Path,
    compile_kwargs: dict | None = None,
) -> list[Kill]:  # fmt: skip
    """Kill runs of all cases, with one chain and with two, until ``n`` were killed."""
    rng = np.random.default_rng(seed)
    known = Expected(compile_kwargs)
    kills: list[Kill] = []
    print(f"{'':>3} {'run':<21} {'processes':<23} {'killed':<6} {'read':>10} {'there':>10}  result")
    for turn in count():
        left = n_kills - len(kills)
        if left == 0:
            return kills
        name, chains = names[turn % len(names)], 1 + (turn + turn // len(names)) % 2
        method = "spawn" if left <= n_spawned else "fork"
        chains = 2 if method == "spawn" else chains
        whens = [0.2 * (turn % 4 + rng.random())]
        if left > 1 and rng.random() < TWICE:
            whens.append(0.0 if rng.random() < EARLY else float(rng.uniform(whens[0], 0.9)))
        path = folder / f"run-{turn}"
        expected = known.draws(name, chains)
        runner = known.runner(name, chains, method)
        for kill in killed_and_resumed(runner, path, expected, rng, whens):
            kills.append(kill)
            print(line(len(kills), kill), flush=True)
        shutil.rmtree(path)
    raise AssertionError


def line(number: int, kill: Kill) -> str:
    """Format a kill as one line."""
    processes = f"{kill.chains} chain{'s' * (kill.chains > 1)}, {kill.cores} at once"
    processes += ", spawn" * (kill.start_method == "spawn")
    counts = [" ".join(map(str, each)) for each in (kill.reported, kill.after)]
    result = "equal" if not kill.differences else "NOT EQUAL: " + "; ".join(kill.differences)
    return (
        f"{number:>3} {kill.case:<21} {processes:<23} {kill.whom:<6} {counts[0]:>10} "
        f"{counts[1]:>10}  {result} ({', '.join(kill.phases)})"
    )


def summary(kills: list[Kill], seconds: float) -> dict[str, Any]:
    return {
        "kills": len(kills),
        "not equal": sum(bool(kill.differences) for kill in kills),
        "cases": len({kill.case for kill in kills}),
        "killed": Counter(kill.whom for kill in kills),
        "phases of chains": Counter(phase for kill in kills for phase in kill.phases),
        "chains": Counter(f"{kill.chains}, {kill.start_method}" for kill in kills),
        "draws read before a kill": sum(sum(kill.reported) for kill in kills),
        "seconds": round(seconds),
    }


def main() -> None:
    """Kill runs and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--spawned", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=CASES, nargs="+", default=list(CASES))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        kills = all_kills(given.kills, given.spawned, given.seed, given.only, Path(folder))
    found = summary(kills, time.perf_counter() - began)
    print(json.dumps(found, indent=1))
    if given.json:
        given.json.write_text(json.dumps(found | {"each": [asdict(k) for k in kills]}, indent=1))
    raise SystemExit(bool(found["not equal"]))


if __name__ == "__main__":
    main()
