"""Run all benchmarks of speed and write ``benchmarks/results/speed.md``: `make bench`."""

import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "speed.md"
PARTS = {
    "inner_loop": "Time of one inner step",
    "row_count": "Size of the data",
    "overhead": "Overhead of `pymc.sample`",
    "first_draw": "Time to the first draw",
    "import_time": "Time to import",
}
PACKAGES = ("pymc", "pytensor", "numba", "numpy", "blackjax", "jax")


def processor() -> str:
    description = Path("/proc/cpuinfo")
    if description.exists():
        for line in description.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    """Run each part in its own process; stop at the first failure."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    text = [f"# Speed\n\n{processor()}, one core; Python {platform.python_version()}, {versions}."]
    for part, title in PARTS.items():
        print(f"\n## {title}\n", flush=True)
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", f"benchmarks.{part}"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        print(run.stdout, flush=True)
        text.append(f"## {title}\n\n{run.stdout.strip()}")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n\n".join(text) + "\n")
    print(f"Written to {RESULTS}")


if __name__ == "__main__":
    main()
