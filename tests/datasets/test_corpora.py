import numpy as np
import pytest
from scipy import sparse

from pymc_geodesic.datasets import (
    build_20news_different,
    hold_out_words,
    load_20news_different,
    load_directional,
    load_wikipedia,
)

LOADERS = [
    (load_20news_different, "20news_different_tfidf.npz", "changliu/sggmcmc-sam"),
    (load_directional, "directional.npz", "sphunif"),
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
def test_argument_takes_precedence_over_environment_variable(
    loader, filename, origin, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYMC_GEODESIC_DATA", "another")
    with pytest.raises(FileNotFoundError, match="no file") as caught:
        loader(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "another" not in str(caught.value)


def test_unknown_features_raise():
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


def test_20news_different_is_built_from_the_archive(data_home, tmp_path):
    with np.load(data_home / "20news_bow_61188.npz") as archive:
        for part, prefix in (("train", "tr"), ("test", "te")):
            rows = sparse.csr_matrix(
                tuple(archive[f"X{prefix}_{name}"] for name in ("data", "indices", "indptr")),
                shape=tuple(archive[f"X{prefix}_shape"]),
            )
            label = archive[f"y{prefix}"].astype(int)
            # A few other groups, which must be dropped; writing text is slow.
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


def test_missing_source_file_raises(tmp_path):
    (tmp_path / "train.data").touch()
    with pytest.raises(FileNotFoundError, match=r"'train\.label'.*qwone\.com"):
        build_20news_different(tmp_path, tmp_path)


def test_held_out_words_of_wikipedia_are_not_in_the_observed_words(tmp_path):
    """The file contains whole pages as X, of which H is a part."""
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


def test_every_word_is_in_one_part():
    counts = sparse.random_array((200, 30), density=0.2, rng=np.random.default_rng(1))
    counts.data = np.floor(20 * counts.data)
    observed, held_out = hold_out_words(counts, 0.25, random_seed=1)
    np.testing.assert_array_equal((observed + held_out).toarray(), counts.toarray())
    n = counts.sum()
    assert abs(held_out.sum() - 0.25 * n) < 5 * np.sqrt(n * 0.25 * 0.75)
    assert observed.data.min() > 0
    assert held_out.data.min() > 0


@pytest.mark.parametrize(
    ("counts", "share", "message"),
    [([[0.5, 1.0]], 0.5, "integers"), ([[-1, 1]], 0.5, "integers"), ([[1, 1]], 1.5, "share")],
)
def test_invalid_input_raises(counts, share, message):
    with pytest.raises(ValueError, match=message):
        hold_out_words(counts, share)
