"""Speed of one commit after another, kept in `benchmarks/history/`: `make bench-history`.

    python -m benchmarks.speed_history record [COMMIT ...]   measure and keep; HEAD by default
    python -m benchmarks.speed_history check                 is the newest slower than those before?
    python -m benchmarks.speed_history compare [COMMIT]      is HEAD slower, measured together?
    python -m benchmarks.speed_history draw                  the figure of docs/speed_history.md

`check` and `compare` end with status 1 where something takes over 20 % longer. The module
`benchmarks.measured_speed` says what is measured; it runs in a process of its own for each commit,
with no compiled code from before.
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
"""How many times the time before is too slow."""

BEFORE = 3
"""Commits before the newest whose median it is compared with."""

PROCESSES = 4
"""Of each of two commits that are compared."""

Entry = dict[str, Any]


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@contextmanager
def sources_of(commit: str) -> Iterator[Path]:
    """Check a commit out into a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sources")
        git("worktree", "add", "--detach", str(path), commit)
        try:
            yield path
        finally:
            git("worktree", "remove", "--force", str(path))


@contextmanager
def measuring(commit: str) -> Iterator[Callable[[int], Entry]]:
    """Make a function that measures a commit in so many rounds, in a process of its own.

    What the first process compiled is there for the next ones.
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
    """Join measurements of one commit: of each figure the least, for other work only adds to it."""
    figures = {
        name: min((each["figures"][name] for each in entries), key=lambda one: one["ratio"])
        for name in entries[0]["figures"]
    }
    return entries[0] | {"figures": figures}


def history() -> list[Entry]:
    """Entries, the oldest commit first."""
    entries = [json.loads(path.read_text()) for path in HISTORY.glob("*.json")]
    return sorted(entries, key=lambda entry: entry["date"])


def keep(entry: Entry) -> Path:
    """Write an entry to a file of its own."""
    HISTORY.mkdir(exist_ok=True)
    path = HISTORY / f"{entry['date'][:10]}-{entry['commit'][:8]}.json"
    path.write_text(json.dumps(entry, indent=1) + "\n")
    return path


def slower(new: Entry, before: Sequence[Entry]) -> list[str]:
    """Say what takes too long in one entry, beside the median of some others.

    Where the middle half of the new figures reaches down to what is allowed, it is not said: a
    machine that did other work may have made it.
    """
    said = []
    for name, figures in new["figures"].items():
        known = [each["figures"][name]["ratio"] for each in before if name in each["figures"]]
        if not known:
            continue
        times = figures["ratio"] / median(known)
        if times > SLOWER and figures["lower"] > SLOWER * median(known):
            said.append(
                f"{name}: {times:.2f} times what it was ({figures['ratio']:.3g} after "
                f"{median(known):.3g})"
            )
    return said


def report(said: Sequence[str], new: Entry) -> int:
    """Print what is slower and return the status of the process."""
    title = f"{new['commit'][:8]} ({new['subject']})"
    print(f"{title} is slower:" if said else f"{title}: nothing takes over 20 % longer")
    for line in said:
        print(f"  {line}")
    return int(bool(said))


def check() -> int:
    """Compare the newest entry with those before it of the same processor, if there are any."""
    *before, new = history()
    alike = [entry for entry in before if entry["processor"] == new["processor"]]
    return report(slower(new, (alike or before)[-BEFORE:]), new)


def compare(commit: str | None, rounds: int) -> int:
    """Measure HEAD and another commit in turns, the newest that was kept by default.

    How a process lies in memory changes what a draw takes by a fifth, so that there are several.
    """
    other = commit or history()[-1]["commit"]
    with measuring(other) as measure_other, measuring("HEAD") as measure_head:
        turns = [(measure_other(rounds), measure_head(rounds)) for _ in range(PROCESSES)]
    old, new = (quickest(entries) for entries in zip(*turns, strict=True))
    return report(slower(new, [old]), new)


def draw() -> None:
    """Draw a curve for each figure, over the first commit that has it."""
    import matplotlib.pyplot as plt

    entries = history()
    names = list(dict.fromkeys(name for entry in entries for name in entry["figures"]))
    columns = 3
    rows = -(-len(names) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(10, 2.1 * rows), sharex=True, layout="constrained", squeeze=False
    )
    for axes, name in zip(grid.flat, names, strict=False):
        places = [i for i, entry in enumerate(entries) if name in entry["figures"]]
        values = {
            key: [entries[i]["figures"][name][key] for i in places]
            for key in ("ratio", "lower", "upper")
        }
        axes.fill_between(places, values["lower"], values["upper"], alpha=0.25, linewidth=0)
        axes.plot(places, values["ratio"], marker="o", markersize=3)
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
    figure.supylabel("time over that of the fixed loop, or of the import of PyMC", fontsize=9)
    figure.savefig(FIGURE, dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked and return the status of the process."""
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
