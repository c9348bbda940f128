import numpy as np
import pytest
from scipy import sparse

from pymc_geodesic.datasets import (
    build_20news_different,
    document_frequency,
    load_20news_different,
    load_directional,
    load_household,
    load_mcmurdo,
    load_torsions,
    load_wikipedia,
    tf_idf,
)

LOADERS = [
    (load_20news_different, "20news_different_tfidf.npz", "changliu/sggmcmc-sam"),
    (load_directional, "directional.npz", "sphunif"),
    (load_household, "household.npz", "HSAUR3"),
    (load_mcmurdo, "paleomagnetic.npz", "Lawrence"),
    (load_torsions, "torsions.npz", "Berman"),
    (load_wikipedia, "wiki_bow_7702.npz", "Patterson"),
]


@pytest.mark.parametrize(("loader", "filename", "origin"), LOADERS)
def test_without_a_folder_the_error_names_file_variable_and_origin(
    loader, filename, origin, no_data
):
    with pytest.raises(FileNotFoundError) as caught:
        loader()
    for part in (filename, "PYMC_GEODESIC_DATA", "data_home", origin):
        assert part in str(caught.value)


@pytest.mark.parametrize(("loader", "filename", "origin"), LOADERS)
def test_the_argument_goes_before_the_environment_variable(
    loader, filename, origin, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYMC_GEODESIC_DATA", "another")
    with pytest.raises(FileNotFoundError, match="no file") as caught:
        loader(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "another" not in str(caught.value)


def test_features_must_be_known():
    with pytest.raises(ValueError, match="'tfidf' or 'counts', not 'binary'"):
        load_20news_different("nowhere", features="binary")


def test_20news_different(data_home):
    corpus = load_20news_different(data_home)
    assert corpus.train.shape == (1666, 5000)
    assert corpus.test.shape == (1107, 5000)
    for rows in (corpus.train, corpus.test):
        np.testing.assert_allclose(rows.multiply(rows).sum(axis=1), 1.0, rtol=1e-14)
    groups, sizes = np.unique(corpus.train_titles, return_counts=True)
    assert dict(zip(groups, sizes, strict=True)) == {
        "alt.atheism": 480,
        "rec.sport.baseball": 593,
        "sci.space": 593,
    }


def test_tf_idf_reproduces_the_features_of_the_authors(data_home):
    counts = load_20news_different(data_home, features="counts")
    features = load_20news_different(data_home)
    # 1,667 documents before one without any word of the vocabulary was dropped.
    for mine, theirs, size in (
        (counts.train, features.train, 1667),
        (counts.test, features.test, 1107),
    ):
        assert abs(tf_idf(mine, n_documents=size) - theirs).max() < 5e-8


def test_20news_different_is_built_from_the_archive(data_home, tmp_path):
    with np.load(data_home / "20news_bow_61188.npz") as archive:
        for part, prefix in (("train", "tr"), ("test", "te")):
            rows = sparse.csr_matrix(
                tuple(archive[f"X{prefix}_{name}"] for name in ("data", "indices", "indptr")),
                shape=tuple(archive[f"X{prefix}_shape"]),
            )
            label = archive[f"y{prefix}"].astype(int)
            # Only a few other groups: they must be left out, and writing text is slow.
            few = np.isin(label, (1, 2, 10, 15))
            rows, label = rows[few].tocoo(), label[few]
            lines = np.column_stack([rows.row + 1, rows.col + 1, rows.data])
            np.savetxt(tmp_path / f"{part}.data", lines, fmt="%d")
            np.savetxt(tmp_path / f"{part}.label", label, fmt="%d")
        (tmp_path / "vocabulary.txt").write_text("\n".join(archive["vocab"]))
    build_20news_different(tmp_path, tmp_path / "built")
    for features, tolerance in (("counts", 0.0), ("tfidf", 5e-8)):
        built = load_20news_different(tmp_path / "built", features=features)
        theirs = load_20news_different(data_home, features=features)
        np.testing.assert_array_equal(built.vocabulary, theirs.vocabulary)
        np.testing.assert_array_equal(built.train_titles, theirs.train_titles)
        np.testing.assert_array_equal(built.test_titles, theirs.test_titles)
        assert abs(built.train - theirs.train).max() <= tolerance
        assert abs(built.test - theirs.test).max() <= tolerance


def test_building_names_the_missing_file(tmp_path):
    (tmp_path / "train.data").touch()
    with pytest.raises(FileNotFoundError, match=r"'train\.label'.*qwone\.com"):
        build_20news_different(tmp_path, tmp_path)


def test_directional(data_home):
    data = load_directional(data_home)
    assert data.comets.shape == (3798, 3)
    assert data.planets.shape == (9, 3)
    assert data.wind.shape == (310, 2)
    for points in (data.comets, data.planets, data.wind):
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1.0, rtol=1e-14)
    # Mercury's orbit: inclination 7.005 degrees, ascending node at 48.33 degrees.
    i, node = np.deg2rad([7.005, 48.33])
    mercury = np.array([np.sin(i) * np.sin(node), -np.sin(i) * np.cos(node), np.cos(i)])
    np.testing.assert_allclose(data.planets[0], mercury, atol=1e-4)


def test_household(data_home):
    data = load_household(data_home)
    assert data.direction.shape == (40, 4)
    np.testing.assert_allclose(np.linalg.norm(data.direction, axis=1), 1.0, rtol=1e-14)
    assert list(data.goods) == ["housing", "food", "goods", "service"]
    assert sorted(set(data.gender)) == ["female", "male"]


def test_mcmurdo(data_home):
    data = load_mcmurdo(data_home)
    assert data.direction.shape == (133, 3)
    np.testing.assert_allclose(np.linalg.norm(data.direction, axis=1), 1.0, rtol=1e-14)
    names, sizes = np.unique(data.polarity, return_counts=True)
    assert dict(zip(names, sizes, strict=True)) == {"n": 75, "r": 46, "t": 12}
    # At 78 degrees south the field of a reversed dipole points down, that of a normal one up.
    assert (data.direction[data.polarity == "r", 2] > 0.7).all()
    assert (data.direction[data.polarity == "n", 2] < -0.7).all()


def test_mcmurdo_points_north_east_and_down(tmp_path):
    arrays = dict.fromkeys(("k", "age", "lat", "lon"), np.ones(3))
    arrays |= {"dec": np.array([0.0, 90.0, 10.0]), "inc": np.array([0.0, 0.0, 90.0])}
    arrays |= {"n": np.full(3, 5.0), "polarity": np.array(["n", "r", "t"])}
    np.savez(tmp_path / "paleomagnetic.npz", **{f"mcmurdo_{key}": arrays[key] for key in arrays})
    np.testing.assert_allclose(load_mcmurdo(tmp_path).direction, np.eye(3), atol=1e-15)


def test_document_frequency_ignores_stored_zeros():
    counts = sparse.csr_matrix(np.array([[2.0, 1.0], [1.0, 0.0]]))
    counts.data[0] = 0.0
    np.testing.assert_array_equal(document_frequency(counts), [1, 1])


def test_held_out_words_of_wikipedia_are_not_seen(tmp_path):
    """The file has whole pages as X, of which H is a part."""
    whole = np.array([[12, 8, 0], [0, 15, 6], [1, 0, 0]])
    part = np.array([[2, 0, 0], [0, 1, 2], [1, 0, 0]])
    arrays = {}
    for name, matrix in (("X", whole), ("H", part)):
        rows = sparse.csr_matrix(matrix)
        arrays |= {f"{name}_data": rows.data, f"{name}_indices": rows.indices}
        arrays |= {f"{name}_indptr": rows.indptr}
    arrays |= {"X_shape": np.array(whole.shape), "vocab": np.array(["a", "b", "c"])}
    np.savez(tmp_path / "wiki_bow_7702.npz", **arrays)
    corpus = load_wikipedia(tmp_path, n_test=1)
    seen, held_out = corpus.observed.toarray()[0], corpus.held_out.toarray()[0]
    row = int(np.flatnonzero((part == held_out).all(axis=1))[0])
    np.testing.assert_array_equal(seen, whole[row] - part[row])
    np.testing.assert_array_equal(corpus.train.toarray()[0], whole[1 - row])


def test_wikipedia(data_home):
    corpus = load_wikipedia(data_home)
    assert corpus.observed.shape == corpus.held_out.shape == (1000, 7702)
    assert corpus.train.shape == (144_471, 7702)
    length = np.asarray((corpus.observed + corpus.held_out).sum(axis=1)).ravel()
    assert length.min() >= 20
    assert np.asarray(corpus.train.sum(axis=1)).min() >= 20
    held_out = np.asarray(corpus.held_out.sum(axis=1)).ravel()
    np.testing.assert_array_equal(held_out, np.ceil(length / 10))
    assert corpus.observed.data.min() > 0
    frequency = np.asarray(corpus.train.sum(axis=0)).ravel() + 1.0
    words = np.asarray(corpus.held_out.sum(axis=0)).ravel()
    unigram = np.exp(-words @ np.log(frequency / frequency.sum()) / words.sum())
    assert 2000 < unigram < 3500
    with pytest.raises(ValueError, match="145471 pages"):
        load_wikipedia(data_home, n_test=10**6)
