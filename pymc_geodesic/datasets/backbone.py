"""Backbones of proteins in files of the Protein Data Bank, and their torsion angles."""

import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ATOMS = ("N", "CA", "C")
LONGEST_BOND = 2.0
"""Ångström. A peptide bond has 1.33, and atoms without a bond are 3 apart."""

SAME = {"MSE": "MET"}
"""Residues that are named after another one: selenium in the place of sulphur."""


@dataclass
class Residue:
    """Amino acid of a chain, with the places of its backbone atoms in ångström.

    Examples
    --------
    >>> from pymc_geodesic.datasets.backbone import Residue
    >>> Residue("GLY", 7).places
    {}
    """

    name: str
    number: int
    places: dict[str, NDArray[np.float64]] = field(default_factory=dict)


def dihedral(
    a: NDArray[np.floating],
    b: NDArray[np.floating],
    c: NDArray[np.floating],
    d: NDArray[np.floating],
) -> NDArray[np.float64]:
    r"""Return the angle about the line from b to c by which a must turn to be over d.

    With :math:`u = b - a`, :math:`v = c - b`, :math:`w = d - c`,

    .. math::

        \tan \theta = \frac{\|v\|\, u \cdot (v \times w)}{(u \times v) \cdot (v \times w)} .

    Parameters
    ----------
    a, b, c, d : ndarray, shape (..., 3)
        Places of four atoms.

    Returns
    -------
    ndarray, shape (...)
        Degrees, between −180 and 180; positive where, seen along the line, a turns clockwise, the
        sign of IUPAC-IUB (1970), Biochemistry 9, rule 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets.backbone import dihedral
    >>> x, y, z = np.eye(3)
    >>> float(dihedral(x, 0 * x, z, z + y))
    90.0
    """
    u, v, w = b - a, c - b, d - c
    before, after = np.cross(u, v), np.cross(v, w)
    sine = np.linalg.norm(v, axis=-1) * np.sum(u * after, axis=-1)
    return np.degrees(np.arctan2(sine, np.sum(before * after, axis=-1)))


def find_structure(source: str | os.PathLike, entry: str, chain: str, *, remedy: str) -> Path:
    """Return the file of an entry, under one of the names that archives give it.

    Raises
    ------
    FileNotFoundError
        If there is none; the message ends with `remedy`.

    Examples
    --------
    >>> from pymc_geodesic.datasets.backbone import find_structure
    >>> find_structure("nowhere", "1ahs", "A", remedy="Look elsewhere.")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file of the entry '1ahs' in the folder 'nowhere'. Look ...
    """
    folder = Path(source)
    stems = (f"{entry}{chain}.pdb", f"{entry}.pdb", f"pdb{entry}.ent")
    for name in (f"{stem}{suffix}" for stem in stems for suffix in ("", ".gz")):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"There is no file of the entry {entry!r} in the folder {os.fspath(source)!r}. {remedy}"
    )


def read_chain(path: Path, chain: str) -> list[Residue]:
    r"""Read the residues of a chain that have all three atoms N, CA and C, in order.

    Parameters
    ----------
    path : pathlib.Path
        File in PDB format, plain or compressed (``.gz``).
    chain : str
        Name of the chain, one letter.

    Returns
    -------
    list of Residue

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from pymc_geodesic.datasets.backbone import read_chain
    >>> line = "ATOM      1  N   THR A 126      45.850  10.934  17.530\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "part.pdb"
    ...     _ = path.write_text(line + line.replace("N ", "CA") + line.replace("N ", "C "))
    ...     [(each.name, each.number) for each in read_chain(path, "A")]
    [('THR', 126)]
    """
    residues: dict[str, Residue] = {}
    for line in _first_model(path):
        atom = line[12:16].strip()
        if line[:6] not in ("ATOM  ", "HETATM") or line[21] != chain or atom not in ATOMS:
            continue
        name = line[17:20].strip()
        residue = residues.setdefault(line[22:27], Residue(SAME.get(name, name), int(line[22:26])))
        place = np.array([float(line[k : k + 8]) for k in (30, 38, 46)])
        residue.places.setdefault(atom, place)
    return [each for each in residues.values() if len(each.places) == len(ATOMS)]


def _first_model(path: Path) -> Iterator[str]:
    """Yield the lines of a file up to the end of its first model."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            if line.startswith("ENDMDL"):
                return
            yield line


def torsion_rows(residues: list[Residue]) -> list[tuple[Residue, float, float]]:
    """Return residues that are bound to both neighbours, with their angles φ and ψ in degrees.

    Parameters
    ----------
    residues : list of Residue
        A chain, in order.

    Returns
    -------
    list of tuple of Residue, float, float

    Examples
    --------
    >>> from pymc_geodesic.datasets.backbone import torsion_rows
    >>> torsion_rows([])
    []
    """
    if len(residues) < 3:
        return []
    n, ca, c = (np.array([each.places[atom] for each in residues]) for atom in ATOMS)
    phi = dihedral(c[:-2], n[1:-1], ca[1:-1], c[1:-1])
    psi = dihedral(n[1:-1], ca[1:-1], c[1:-1], n[2:])
    bound = np.linalg.norm(n[1:] - c[:-1], axis=1) < LONGEST_BOND
    return [
        (residue, float(phi[i]), float(psi[i]))
        for i, (residue, bonds) in enumerate(zip(residues[1:-1], pairwise(bound), strict=True))
        if all(bonds)
    ]
