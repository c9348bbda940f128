"""Inventories of other projects, made of a list of the names that the documentation links to."""

from __future__ import annotations

import zlib
from pathlib import Path

Names = dict[str, tuple[str, list[str]]]


def read_names(path: Path) -> Names:
    """Address and lines of every project in a list of names.

    Parameters
    ----------
    path : Path
        Sections ``[project] address``, with lines ``kind name page title``.
    """
    found: Names = {}
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith("["):
            project, address = line[1:].split("] ")
            lines = []
            found[project] = address, lines
        elif line and not line.startswith("#"):
            kind, name, page, *title = line.split(" ", 3)
            lines.append(f"{name} {kind} 1 {page} {title[0] if title else '-'}")
    return found


def write_inventories(path: Path, folder: Path) -> dict[str, tuple[str, str]]:
    """Write an inventory for each project; return what ``intersphinx_mapping`` wants to know."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for project, (address, lines) in read_names(path).items():
        inventory = folder / f"{project}.inv"
        header = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        header += "# The remainder of this file is compressed using zlib.\n"
        inventory.write_bytes(header.encode() + zlib.compress("\n".join(lines).encode() + b"\n"))
        mapping[project] = address, str(inventory)
    return mapping
