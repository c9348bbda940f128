"""What scripts share: their options, and a folder for figures."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure


def options_parser(description: str, quick: str) -> argparse.ArgumentParser:
    """Parser of ``--data``, ``--output`` and ``--quick``, of which the text says what it leaves."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--data", help="data folder; PYMC_GEODESIC_DATA by default")
    parser.add_argument("--output", type=Path, default=Path("example_output"))
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def save_figure(figure: Figure, folder: Path, name: str) -> Path:
    """Write a figure into a folder, which need not exist, and close it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
