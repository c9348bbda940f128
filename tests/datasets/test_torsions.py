"""Torsion angles: of four points in closed form, and of chains in files."""

import gzip

import numpy as np
import pytest

from pymc_geodesic.datasets import build_torsions, load_torsions
from pymc_geodesic.datasets.backbone import dihedral
from pymc_geodesic.datasets.torsions import CHAINS

AMINO_ACIDS = "ALA ARG ASN ASP CYS GLN GLU GLY HIS ILE LEU LYS MET PHE PRO SER THR TRP TYR VAL"
BONDS = {"N": 1.46, "CA": 1.52, "C": 1.33}
"""Ångström, from this atom to the next one of the backbone."""


def turned(angle):
    """Four points: the first is over the last after a clockwise turn by this angle, in degrees."""
    angle = np.radians(angle)
    last = [np.cos(angle), np.sin(angle), 3.0]
    return [np.array(place) for place in ([2.0, 0.0, 0.5], np.zeros(3), [0.0, 0.0, 2.0], last)]


@pytest.mark.parametrize("angle", [-179.0, -120.0, -60.0, -1e-5, 0.0, 45.0, 90.0, 179.9])
def test_the_angle_of_four_points_is_that_of_the_turn(angle):
    np.testing.assert_allclose(dihedral(*turned(angle)), angle, atol=1e-12)


def test_a_mirror_changes_the_sign_and_the_other_end_nothing():
    a, b, c, d = np.random.default_rng(1).normal(size=(4, 50, 3))
    angle = dihedral(a, b, c, d)
    np.testing.assert_allclose(dihedral(-a, -b, -c, -d), -angle, rtol=1e-12)
    np.testing.assert_allclose(dihedral(d, c, b, a), angle, rtol=1e-12)
    assert (angle > 0).any()
    assert (angle < 0).any()


def chain_of(phi, psi):
    """Places of N, CA and C with these angles in flat peptides; shape (n, 3, 3).

    Every valence angle is 110°. The angles at the ends, without a neighbour, do not count.
    """
    atoms = [np.array([0.0, 1.4, 0.0]), np.zeros(3), np.array([1.5, 0.0, 0.0])]
    turns = np.column_stack([psi[:-1], np.full(len(phi) - 1, 180.0), phi[1:]]).ravel()
    lengths = np.tile([BONDS["C"], BONDS["N"], BONDS["CA"]], len(phi) - 1)
    for length, turn in zip(lengths, np.radians(turns), strict=True):
        a, b, c = atoms[-3:]
        along = (c - b) / np.linalg.norm(c - b)
        normal = np.cross(b - a, along) / np.linalg.norm(np.cross(b - a, along))
        side = np.cos(turn) * np.cross(normal, along) + np.sin(turn) * normal
        bend = np.radians(70.0)
        atoms.append(c + length * (np.cos(bend) * along + np.sin(bend) * side))
    return np.reshape(atoms, (-1, 3, 3))


def lines_of(places, names, chain, *, place=" ", record="ATOM"):
    """Lines of a file in PDB format; residues are numbered from 5."""
    return [
        f"{record:6}{i + 1:5}  {atom:3}{place}{name:>3} {chain}{number:4}    "
        + "".join(f"{x:8.3f}" for x in xyz)
        for number, (name, residue) in enumerate(zip(names, places, strict=True), start=5)
        for i, (atom, xyz) in enumerate(zip(BONDS, residue, strict=True))
    ]


PHI = np.array([0.0, -63.0, -120.0, 55.0, -64.0, 179.0, 0.0])
PSI = np.array([0.0, -42.0, 130.0, 40.0, -41.0, -178.0, 0.0])
NAMES = ["ALA", "LEU", "VAL", "ASN", "MSE", "GLY", "SER"]


def load_built(folder, text, name="1abcA", filename="1abc.pdb"):
    """Angles of a file with this text."""
    path = folder / filename
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    build_torsions(folder, folder / "made", chains=(name,))
    return load_torsions(folder / "made")


@pytest.mark.parametrize("filename", ["1abcA.pdb", "1abc.pdb", "1abc.pdb.gz", "pdb1abc.ent"])
def test_angles_of_a_chain_are_those_that_it_was_made_with(tmp_path, filename):
    lines = lines_of(chain_of(PHI, PSI), NAMES, "A")
    data = load_built(tmp_path, "\n".join(lines), filename=filename)
    np.testing.assert_allclose(data.phi, PHI[1:-1], atol=0.15)
    np.testing.assert_allclose(data.psi, PSI[1:-1], atol=0.15)
    np.testing.assert_array_equal(data.number, [6, 7, 8, 9, 10])
    assert data.residue.tolist() == ["LEU", "VAL", "ASN", "MET", "GLY"]
    assert set(zip(data.entry, data.chain, strict=True)) == {("1abc", "A")}


def test_other_chains_models_and_places_of_atoms_do_not_count(tmp_path):
    places = chain_of(PHI, PSI)
    lines = lines_of(places, NAMES, "A", record="HETATM")
    lines += lines_of(places + 0.5, NAMES, "A", place="B")
    lines += lines_of(chain_of(-PHI, PSI), NAMES, "a")
    lines += ["ENDMDL", *lines_of(chain_of(PHI, -PSI), NAMES, "A")]
    data = load_built(tmp_path, "\n".join(lines))
    np.testing.assert_allclose(data.phi, PHI[1:-1], atol=0.15)
    np.testing.assert_allclose(data.psi, PSI[1:-1], atol=0.15)
    mirrored = load_built(tmp_path, "\n".join(lines), name="1abca")
    np.testing.assert_allclose(mirrored.phi, -PHI[1:-1], atol=0.15)


def test_residues_at_a_gap_have_no_angles(tmp_path):
    places = chain_of(PHI, PSI)
    places[4:] += 3.0
    data = load_built(tmp_path, "\n".join(lines_of(places, NAMES, "A")))
    np.testing.assert_array_equal(data.number, [6, 7, 10])


def test_a_residue_without_an_atom_breaks_the_chain(tmp_path):
    lines = lines_of(chain_of(PHI, PSI), NAMES, "A")
    lines = [line for line in lines if not (" CA " in line and "VAL" in line)]
    np.testing.assert_array_equal(load_built(tmp_path, "\n".join(lines)).number, [9, 10])


def test_a_chain_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="'B'; check the name"):
        load_built(tmp_path, "\n".join(lines_of(chain_of(PHI, PSI), NAMES, "A")), name="1abcB")


def test_torsions(data_home):
    if not (data_home / "torsions.npz").is_file():
        pytest.skip("the data folder has no torsions.npz; see `build_torsions`")
    data = load_torsions(data_home)
    assert len({len(each) for each in vars(data).values()}) == 1
    chains = dict.fromkeys(map("".join, zip(data.entry, data.chain, strict=True)))
    assert tuple(chains) == CHAINS
    assert len(data.phi) == 6760
    assert set(data.residue) == set(AMINO_ACIDS.split())
    for angle in (data.phi, data.psi):
        assert (np.abs(angle) <= 180.0).all()
        np.testing.assert_allclose(10.0 * angle, np.round(10.0 * angle), atol=1e-10)
    # A side chain is in the way of a positive φ, and glycine has none.
    glycine = data.residue == "GLY"
    assert np.mean(data.phi[glycine] > 0.0) > 0.5
    assert np.mean(data.phi[~glycine] > 0.0) < 0.05
