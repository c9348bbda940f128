"""Command-line options and figure output of the example scripts."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

N_COLORS = 128


def options_parser(description: str, quick: str) -> argparse.ArgumentParser:
    """Return a parser of ``--data``, ``--output`` and ``--quick``, whose help text is ``quick``."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--data", help="data folder; PYMC_GEODESIC_DATA by default")
    parser.add_argument("--output", type=Path, default=Path("example_output"))
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def parse_options(
    parser: argparse.ArgumentParser, arguments: list[str] | None = None, **quick: Any
) -> argparse.Namespace:
    """Parse the command line, with ``--quick`` for a short run.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    arguments : list of str, optional
        The command line; by default ``sys.argv``.
    **quick
        Defaults of other options under ``--quick``; explicit options take precedence.
    """
    changed = ", ".join(f"{name.replace('_', '-')} {value}" for name, value in quick.items())
    parser.add_argument("--quick", action="store_true", help=f"short run: {changed}")
    options = parser.parse_args(arguments)
    if options.quick:
        parser.set_defaults(**quick)
        options = parser.parse_args(arguments)
    return options


def save_figure(figure: Figure, folder: Path, name: str) -> Path:
    """Write a figure into a folder, which is created if necessary, and close it.

    A palette of `N_COLORS` colors makes files of line plots about three times smaller.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    with io.BytesIO() as drawn:
        figure.savefig(drawn, format="png", dpi=120)
        plt.close(figure)
        picture = Image.open(drawn).convert("RGB")
    picture.quantize(N_COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    return path
