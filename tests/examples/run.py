"""Run the examples in subprocesses, and print a table of seconds and results.

``python -m tests.examples.run`` runs them in full, ``--quick`` their short versions; names of
examples choose some of them. The data are those of the folder that PYMC_GEODESIC_DATA names, and
generated ones of the same shape where there is none.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from matplotlib.image import imread

from tests.examples.generated import write_data
from tests.examples.scripts import ROOT, script_paths

VARIABLE = "PYMC_GEODESIC_DATA"
SCRIPTS = {path.stem: path for path in script_paths("examples") if "__main__" in path.read_text()}


class Result(NamedTuple):
    """Time and output of an example.

    Attributes
    ----------
    seconds, processor_seconds : float
    error : str
        The last line of the traceback; empty where there is none.
    figures : list of Path
    clipped : list of str
        Names of the figures that have ink at their border, where a label is cut off.
    """

    seconds: float
    processor_seconds: float
    error: str
    figures: list[Path]
    clipped: list[str]


def data_folder(generated: Path) -> Path:
    """Return the folder of real data, or write generated data if none is named."""
    named = os.environ.get(VARIABLE)
    return Path(named).resolve() if named else write_data(generated)


def has_ink_at_border(figure: Path) -> bool:
    """Whether the pixels at the border of a picture have more than one color."""
    pixels = imread(figure)[..., :3]
    sides = [pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]
    return any(bool((side != pixels[0, 0]).any()) for side in sides)


def run_example(name: str, folder: Path, data: Path, *, quick: bool) -> Result:
    """Run an example in a new process, in an empty folder that receives its output."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(SCRIPTS[name]), *(["--quick"] if quick else [])]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {VARIABLE: str(data), "PYTHONPATH": os.pathsep.join(paths)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    (folder / "stdout.txt").write_text(done.stdout)
    (folder / "stderr.txt").write_text(done.stderr)
    error = ""
    if done.returncode:
        error = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    figures = sorted(folder.rglob("*.png"))
    return Result(
        seconds,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        error,
        figures,
        [figure.name for figure in figures if has_ink_at_border(figure)],
    )


def main() -> int:
    """Run all examples; return the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="examples; all by default")
    parser.add_argument("--quick", action="store_true", help="short versions")
    parser.add_argument("--output", type=Path, help="folder for output; discarded by default")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in SCRIPTS]:
        parser.error(f"no example {unknown[0]!r}; there are {', '.join(SCRIPTS)}")
    n_failed = 0
    print("| example | seconds | processor | result |\n|---|---:|---:|---|")
    with tempfile.TemporaryDirectory() as temporary:
        data = data_folder(Path(temporary) / "data")
        for name in options.names or SCRIPTS:
            folder = (options.output or Path(temporary)) / name
            result = run_example(name, folder.resolve(), data, quick=options.quick)
            outcome = f"passed, {len(result.figures)} figures" if not result.error else result.error
            if result.clipped:
                outcome += f"; labels cut off in {', '.join(result.clipped)}"
            n_failed += bool(result.error or result.clipped)
            row = f"{result.seconds:.0f} | {result.processor_seconds:.0f} | {outcome}"
            print(f"| `{name}` | {row} |", flush=True)
    return n_failed


if __name__ == "__main__":
    sys.exit(main())
