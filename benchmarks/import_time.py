"""Time to import the package in a fresh process, compared with PyMC.

    python -m benchmarks.import_time [--rounds 7]

``from pymc_geodesic import SGGMC`` loads Numba, which PyMC itself loads when it first compiles.
"""

import argparse
import subprocess
import sys
from statistics import median

from benchmarks.timing import measure_alternately

IMPORTS = {
    "import pymc": "import pymc",
    "import pymc, pymc_geodesic": "import pymc, pymc_geodesic",
    "from pymc_geodesic import SGGMC": "from pymc_geodesic import SGGMC",
    "import pymc, numba": "import pymc, numba",
}


def processor_time_of(statement: str) -> float:
    code = f"import time\n{statement}\nprint(time.process_time())"
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> list[str]:
    """Measure and return the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    functions = {
        name: lambda statement=statement: processor_time_of(statement)
        for name, statement in IMPORTS.items()
    }
    times = measure_alternately(functions, rounds)
    base = median(times["import pymc"])
    lines = ["| statement | processor time, s | beyond `import pymc` |", "|---|---:|---:|"]
    for name in IMPORTS:
        seconds = median(times[name])
        lines.append(f"| `{name}` | {seconds:.2f} | {seconds - base:+.2f} |")
    print("\n".join(lines), flush=True)
    return lines


if __name__ == "__main__":
    main()
