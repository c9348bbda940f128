"""History of speed by commit, stored in `benchmarks/history/`: `make bench-history`.

    python -m benchmarks.speed_history record [COMMIT ...]   measure and store; HEAD by default
    python -m benchmarks.speed_history check                 compare the newest with earlier ones
    python -m benchmarks.speed_history compare [COMMIT]      measure HEAD and COMMIT alternately
    python -m benchmarks.speed_history draw                  the figure of docs/speed_history.md

`check` and `compare` exit with status 1 if an operation takes over 20 % longer. The operations are
those of `benchmarks.measured_speed`, which runs in a separate process for each commit, with empty
compilation caches.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.run import processor

ROOT = Path(__file__).parents[1]
HISTORY = Path(__file__).parent / "history"
MEASURE = Path(__file__).with_name("measured_speed.py")
FIGURE = ROOT / "docs" / "figures" / "speed_history.png"
SLOWER = 1.2
"""Ratio of times above which an operation counts as slower."""

BEFORE = 3
"""Number of earlier commits whose median is the reference."""

PROCESSES = 4
"""Number of processes for each of two compared commits."""

Entry = dict[str, Any]


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@contextmanager
def sources_of(commit: str) -> Iterator[Path]:
    """Check out a commit into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sources")
        git("worktree", "add", "--detach", str(path), commit)
        try:
            yield path
        finally:
            git("worktree", "remove", "--force", str(path))


@contextmanager
def measuring(commit: str) -> Iterator[Callable[[int], Entry]]:
    """Yield a function that measures a commit in a separate process, for a number of rounds.

    Later processes use the compilation cache of the first.
    """
    with sources_of(commit) as sources, tempfile.TemporaryDirectory() as cache:

        def measure(rounds: int) -> Entry:
            run = subprocess.run(
                [sys.executable, "-P", "-W", "ignore", str(MEASURE), str(rounds)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                cwd=sources,
                env=os.environ | {"PYTHONPATH": str(sources), "NUMBA_CACHE_DIR": cache},
            )
            return {
                "commit": git("rev-parse", commit),
                "date": git("show", "--no-patch", "--format=%cI", commit),
                "subject": git("show", "--no-patch", "--format=%s", commit),
                "processor": processor(),
                "python": sys.version.split()[0],
                "figures": json.loads(run.stdout.splitlines()[-1]),
            }

        yield measure


def measured(commit: str, rounds: int) -> Entry:
    """Measure a commit."""
    with measuring(commit) as measure:
        return measure(rounds)


def quickest(entries: Sequence[Entry]) -> Entry:
    """Merge measurements of one commit: the minimum of each ratio."""
    figures = {
        name: min((each["figures"][name] for each in entries), key=lambda one: one["ratio"])
        for name in entries[0]["figures"]
    }
    return entries[0] | {"figures": figures}


def history() -> list[Entry]:
    """Return all entries, the oldest commit first."""
    entries = [json.loads(path.read_text()) for path in HISTORY.glob("*.json")]
    return sorted(entries, key=lambda entry: entry["date"])


def keep(entry: Entry) -> Path:
    """Write an entry to a file."""
    HISTORY.mkdir(exist_ok=True)
    path = HISTORY / f"{entry['date'][:10]}-{entry['commit'][:8]}.json"
    path.write_text(json.dumps(entry, indent=1) + "\n")
    return path


def slower(new: Entry, before: Sequence[Entry]) -> list[str]:
    """Return operations of an entry that are slower than the median of other entries.

    An operation is not listed if the interquartile range of its new ratios reaches the allowed
    ratio, since load on the machine may be the cause.
    """
    slower_operations = []
    for name, figures in new["figures"].items():
        known = [each["figures"][name]["ratio"] for each in before if name in each["figures"]]
        if not known:
            continue
        times = figures["ratio"] / median(known)
        if times > SLOWER and figures["lower"] > SLOWER * median(known):
            slower_operations.append(
                f"{name}: {times:.2f} times as long ({figures['ratio']:.3g} after "
                f"{median(known):.3g})"
            )
    return slower_operations


def report(slower_operations: Sequence[str], new: Entry) -> int:
    """Print slower operations; return the exit status."""
    title = f"{new['commit'][:8]} ({new['subject']})"
    print(
        f"{title} is slower:" if slower_operations else f"{title}: nothing takes over 20 % longer"
    )
    for line in slower_operations:
        print(f"  {line}")
    return int(bool(slower_operations))


def check() -> int:
    """Compare the newest entry with earlier ones of the same processor, if there are any."""
    *before, new = history()
    alike = [entry for entry in before if entry["processor"] == new["processor"]]
    return report(slower(new, (alike or before)[-BEFORE:]), new)


def compare(commit: str | None, rounds: int) -> int:
    """Measure HEAD and another commit alternately, by default the newest stored one.

    The memory layout of a process changes the time of a draw by up to 20 %, hence several
    processes.
    """
    other = commit or history()[-1]["commit"]
    with measuring(other) as measure_other, measuring("HEAD") as measure_head:
        turns = [(measure_other(rounds), measure_head(rounds)) for _ in range(PROCESSES)]
    old, new = (quickest(entries) for entries in zip(*turns, strict=True))
    return report(slower(new, [old]), new)


def draw() -> None:
    """Plot the time of each operation, relative to the first commit that has it."""
    import matplotlib.pyplot as plt

    entries = history()
    names = list(dict.fromkeys(name for entry in entries for name in entry["figures"]))
    columns = 3
    rows = -(-len(names) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(10, 2.1 * rows), sharex=True, layout="constrained", squeeze=False
    )
    for axes, name in zip(grid.flat, names, strict=False):
        positions = [i for i, entry in enumerate(entries) if name in entry["figures"]]
        values = {
            key: [entries[i]["figures"][name][key] for i in positions]
            for key in ("ratio", "lower", "upper")
        }
        axes.fill_between(positions, values["lower"], values["upper"], alpha=0.25, linewidth=0)
        axes.plot(positions, values["ratio"], marker="o", markersize=3)
        axes.set_ylim(0.0, 1.25 * max(values["upper"]))
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xticks(
            range(len(entries)),
            [entry["commit"][:8] for entry in entries],
            rotation=60,
            ha="right",
            rotation_mode="anchor",
        )
    figure.supylabel("time relative to the fixed loop, or to the import of PyMC", fontsize=9)
    figure.savefig(FIGURE, dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["record", "check", "compare", "draw"])
    parser.add_argument("commits", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    if options.action == "record":
        for commit in options.commits or ["HEAD"]:
            print(keep(measured(commit, options.rounds)), flush=True)
    elif options.action == "draw":
        draw()
    elif options.action == "compare":
        return compare(*options.commits or [None], options.rounds)
    else:
        return check()
    return 0


if __name__ == "__main__":
    sys.exit(main())
