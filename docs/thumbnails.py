"""Make the pictures of the gallery: ``python docs/thumbnails.py [NAME ...]``.

Each notebook runs, and one of its figures is made small for `docs/figures/gallery`. Without names
all of `PICTURES` run.
"""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path

import nbclient
from myst_nb.core.read import read_myst_markdown_notebook
from nbformat import NotebookNode
from PIL import Image

DOCS = Path(__file__).parent

PICTURES = {
    "paleomagnetic_sites": 0,
    "wind_at_night": 0,
    "million_rows": 0,
    "topics_with_labels": 0,
    "mixture_of_machines": 0,
    "bayesian_network": 2,
    "lectures": 1,
    "docstring_clusters": 1,
    "engel_quantiles": 0,
    "elk": 0,
    "sungrazers": 1,
    "backbone_torsions": 2,
    "numpy_or_scipy": 0,
    "spherical_topics": 0,
    "bayesian_pca": 0,
    "matrix_factorization": 0,
}
"""Which figure of a notebook stands for it."""


def figures(notebook: NotebookNode) -> list[bytes]:
    """Return the PNG figures among the outputs of a notebook, in order."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output.get("data", {}).get("image/png") for output in outputs]
    return [base64.b64decode(picture) for picture in pictures if picture]


def thumbnail(png: bytes, width: int = 480, height: int = 360) -> Image.Image:
    """Return the picture in the middle of a white one of this size, shrunk to fit into it."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.thumbnail((width, height))
    small = Image.new("RGB", (width, height), "white")
    small.paste(picture, ((width - picture.width) // 2, (height - picture.height) // 2))
    return small


def main() -> None:
    """Run notebooks and write their pictures."""
    for name in sys.argv[1:] or PICTURES:
        path = DOCS / "notebooks" / f"{name}.md"
        notebook = read_myst_markdown_notebook(path.read_text("utf8"), path=path)
        nbclient.NotebookClient(notebook, kernel_name="python3").execute(cwd=path.parent)
        picture = thumbnail(figures(notebook)[PICTURES[name]])
        target = DOCS / "figures" / "gallery" / f"{name}.png"
        target.parent.mkdir(exist_ok=True)
        picture.quantize(64).save(target, optimize=True)


if __name__ == "__main__":
    main()
