"""Angles by which the backbones of proteins turn."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pymc_geodesic.datasets.backbone import Residue, find_structure, read_chain, torsion_rows
from pymc_geodesic.datasets.folder import read_arrays

FILENAME = "torsions.npz"

NAMES = (
    "1ahsA 1bvyF 1dx5I 1eteA 1h4aX 1i8nA 1lpbA 1mr1D 1or4A 1pdoA 1v7mV 1y1lA 2a2lA 2cayA 2cviA "
    "2fvvA 2gu3A 2i39A 2j49A 2qdlA 2va0A 2xcjA 2xdgA 2xr6A 3a4rA 3aqgA 3e8mA 3ejfA 3fhkA 3gfsA "
    "3gknA 3gwiA 3hklA 3ieyB 3ii2A 3k7pA 3l4rA 3lqcA 3nbkA 3nngA 3ny7A 3nzmA 3on9A 3pivA 3q4oA "
    "3so6A 3t5gB 3vjzA 4dkcA 4gcnA"
)
CHAINS = tuple(NAMES.split())
"""Entries of the Protein Data Bank, each with the name of one chain after it."""

ORIGIN = (
    "It holds backbone torsion angles of 50 chains of the Protein Data Bank "
    "(https://www.wwpdb.org; Berman et al. 2000, doi:10.1093/nar/28.1.235), whose entries are in "
    "the public domain (CC0). To build it, download the entries that "
    "`pymc_geodesic.datasets.torsions.CHAINS` names, in PDB format, into one folder and call "
    "`pymc_geodesic.datasets.build_torsions(that_folder, data_home)`."
)


@dataclass(frozen=True)
class Torsions:
    """Torsion angles φ and ψ of residues of proteins, in the order of their chains.

    φ is the angle about the bond N–Cα and ψ that about Cα–C, with the sign of IUPAC: a right-handed
    α-helix has φ near −60° and ψ near −45°. Rows that follow each other in a chain are neighbours.

    Parameters
    ----------
    entry, chain : numpy.ndarray of str, shape (n,)
        Entry of the Protein Data Bank, as ``"1ahs"``, and chain in it, as ``"A"``.
    number : numpy.ndarray of int, shape (n,)
        Number of the residue in its chain.
    residue : numpy.ndarray of str, shape (n,)
        Which amino acid it is, as ``"GLY"``.
    phi, psi : numpy.ndarray, shape (n,)
        Degrees, between −180 and 180.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import Torsions
    >>> name, five = np.array(["1abc"]), np.array([5])
    >>> one = Torsions(name, np.array(["A"]), five, np.array(["GLY"]), 12.0 * five, 6.0 * five)
    >>> one.phi + one.psi
    array([90.])
    """

    entry: np.ndarray
    chain: np.ndarray
    number: np.ndarray
    residue: np.ndarray
    phi: np.ndarray
    psi: np.ndarray


def load_torsions(data_home: str | os.PathLike | None = None) -> Torsions:
    """Load backbone torsion angles of fifty chains of the Protein Data Bank.

    6,760 residues, all but the ends of the chains, to a tenth of a degree.

    Parameters
    ----------
    data_home : path-like, optional
        Folder that holds ``torsions.npz``; by default the one named by the environment variable
        ``PYMC_GEODESIC_DATA``.

    Returns
    -------
    Torsions
        Angles in degrees and double precision, with the residues that they belong to.

    Raises
    ------
    FileNotFoundError
        If the file is missing; the message says where the data comes from and how to build it.

    References
    ----------
    .. [1] H. M. Berman, J. Westbrook, Z. Feng, G. Gilliland, T. N. Bhat, H. Weissig,
       I. N. Shindyalov, P. E. Bourne. "The Protein Data Bank", Nucleic Acids Research 28, 2000.

    Examples
    --------
    >>> from pymc_geodesic.datasets import load_torsions
    >>> load_torsions("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file 'torsions.npz' in the data folder 'nowhere'. ...
    """
    arrays = read_arrays(FILENAME, data_home=data_home, origin=ORIGIN)
    return Torsions(
        entry=arrays["entry"],
        chain=arrays["chain"],
        number=arrays["number"].astype(int),
        residue=arrays["residue"],
        phi=arrays["phi"].astype(np.float64) / 10.0,
        psi=arrays["psi"].astype(np.float64) / 10.0,
    )


def build_torsions(
    source: str | os.PathLike, data_home: str | os.PathLike, chains: tuple[str, ...] = CHAINS
) -> None:
    """Build the file of `load_torsions` from files of the Protein Data Bank.

    A residue needs both neighbours: bonds from C to N shorter than 2 Å. Where an atom has several
    places, or an entry several models, the first counts. Selenomethionine counts as methionine.

    Parameters
    ----------
    source : path-like
        Folder with a file for each entry, as ``1ahs.pdb``, ``pdb1ahs.ent`` or, with one chain,
        ``1ahsA.pdb``, plain or compressed (``.gz``).
    data_home : path-like
        Folder to write ``torsions.npz`` to.
    chains : tuple of str, optional
        Entries, each with the name of its chain after it, as ``"1ahsA"``; by default the fifty of
        `load_torsions`.

    Raises
    ------
    FileNotFoundError
        If the file of an entry is missing.
    ValueError
        If a file has no residue with both neighbours in that chain.

    Examples
    --------
    >>> from pymc_geodesic.datasets import build_torsions
    >>> build_torsions("nowhere", "nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file of the entry '1ahs' in the folder 'nowhere'. ...
    """
    rows: list[tuple[str, str, Residue, float, float]] = []
    for name in chains:
        entry, chain = name[:4], name[4:]
        path = find_structure(source, entry, chain, remedy=ORIGIN)
        found = torsion_rows(read_chain(path, chain))
        if not found:
            raise ValueError(
                f"The file {os.fspath(path)!r} has no residue with both neighbours in a chain "
                f"{chain!r}; check the name of the chain, whose case counts."
            )
        rows += [(entry, chain, *row) for row in found]
    entries, names, residues, phi, psi = zip(*rows, strict=True)
    target = Path(data_home)
    target.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        target / FILENAME,
        allow_pickle=False,
        entry=np.array(entries),
        chain=np.array(names),
        number=np.array([each.number for each in residues], dtype=np.int16),
        residue=np.array([each.name for each in residues]),
        phi=np.round(10.0 * np.array(phi)).astype(np.int16),
        psi=np.round(10.0 * np.array(psi)).astype(np.int16),
    )
