"""Runs of `benchmarks.kill_cases` in separate processes, and functions that kill them."""

import logging
import multiprocessing
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

import pymc_geodesic as pg
from benchmarks.kill_cases import CASES, Case

EVERY = 0.02
"""Seconds between checkpoints, so frequent that kills during writing are likely."""

PATIENCE = 300.0
"""Seconds without progress after which a run is an error."""

SEED = 11
"""Seed of the runs; that of the kills is an argument."""

QUIET = {
    "progressbar": False,
    "quiet": True,
    "compute_convergence_checks": False,
    "discard_tuned_samples": False,
}


def detached(function: Callable[..., None], log: Path, *arguments: Any) -> None:
    """Run a function in its own process group, with output to a file."""
    os.setsid()
    with log.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class Runner:
    """Starts and resumes the runs of one case in separate processes.

    Parameters
    ----------
    name : str
        Of the case.
    chains : int
    start_method : {"fork", "spawn"}
        With fork, processes share compiled functions; with spawn, each compiles anew.
    compile_kwargs : dict, optional
    """

    def __init__(
        self, name: str, chains: int, start_method: str, compile_kwargs: dict | None = None
    ) -> None:
        self.name, self.chains, self.start_method = name, chains, start_method
        self._compile_kwargs = compile_kwargs
        self._made: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": None}

    @property
    def case(self) -> Case:
        """The case that is run."""
        return CASES[self.name]

    @property
    def made(self) -> Any:
        """Model and step; the step may have sampled before unless the case remembers it."""
        if self._made is None or self.case.remembers:
            self._made = self.case.make(self._compile_kwargs)
        return self._made

    @property
    def n_draws(self) -> int:
        """Draws of a chain, tuning included."""
        return self.case.tune + self.case.draws

    def sample(self, cores: int = 1, **arguments: Any) -> Any:
        """Draw."""
        model, step = self.made
        arguments |= {"mp_ctx": self.start_method} if cores > 1 else {}
        with model:
            return pm.sample(
                step=step, draws=self.case.draws, tune=self.case.tune, chains=self.chains,
                cores=cores, random_seed=SEED, **QUIET, **arguments,
            )  # fmt: skip

    def begin(self, path: Path, cores: int) -> None:
        """Sample with frequent checkpoints."""
        self.sample(cores, trace=pg.CheckpointTrace(path, EVERY, max_overhead=np.inf))

    def resume(self, path: Path, cores: int, *, with_step: bool = False) -> None:
        """Resume, with the step as an argument or constructed from the run."""
        model, step = self.made
        step = step if with_step or self.case.needs_step else None
        context = {"mp_ctx": self.start_method} if cores > 1 else {}
        pg.resume(path, model, step=step, cores=cores, **QUIET, **context)

    def start(self, what: Callable[..., None], path: Path, cores: int) -> Any:
        """Start a process that starts or resumes a run."""
        context: Any = multiprocessing.get_context(self.start_method)
        log = path.with_suffix(".log")
        process = context.Process(target=detached, args=(what, log, path, cores))
        process.start()
        return process


class Expected:
    """Draws of uninterrupted runs, and their compiled models.

    Parameters
    ----------
    compile_kwargs : dict, optional
    """

    def __init__(self, compile_kwargs: dict | None = None) -> None:
        self._compile_kwargs = compile_kwargs
        self._made: dict[str, Any] = {}
        self._draws: dict[tuple[str, int], Any] = {}

    def runner(self, name: str, chains: int, start_method: str = "fork") -> Runner:
        """Return the runner of a case, with compiled functions if processes can share them."""
        made = Runner(name, chains, start_method, self._compile_kwargs)
        if start_method == "fork":
            made._made = self._made.get(name)
            self._made[name] = made.made
        return made

    def draws(self, name: str, chains: int) -> Any:
        """Sample without a trace; the result is cached."""
        if (name, chains) not in self._draws:
            self._draws[name, chains] = self.runner(name, chains).sample()
        return self._draws[name, chains]


def members(group: int) -> list[int]:
    """Return the living processes of a group."""
    found = []
    for folder in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{folder}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            found.append(int(folder))
    return found


def kill_process(process: Any, target: str, rng: np.random.Generator) -> str:
    """Kill processes of a run, and wait until none is left; return which were killed."""
    group = process.pid
    others = sorted(set(members(group)) - {group})
    if target == "chain" and not others:
        target = "all"
    if target == "all":
        os.killpg(group, signal.SIGKILL)
    else:
        os.kill(group if target == "main" else int(rng.choice(others)), signal.SIGKILL)
    process.join(PATIENCE)
    until = time.monotonic() + PATIENCE
    while left := members(group):
        if time.monotonic() > until:
            os.killpg(group, signal.SIGKILL)
            raise TimeoutError(f"processes {left} outlive the one that was killed")
        time.sleep(0.02)
    return target
