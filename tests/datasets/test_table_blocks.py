"""Arrays of a model that follow from the columns of a table."""

import numpy as np
import pandas as pd
import pytest

from pymc_geodesic.datasets import table_blocks

pytest.importorskip("pyarrow")

N, SAMPLE = 1000, 200
RNG = np.random.default_rng(1)
TABLE = pd.DataFrame(
    {
        "age": RNG.normal(50, 10, N),
        "weight": RNG.normal(70, 5, N),
        "year": RNG.integers(2000, 2010, N),
        "city": RNG.choice(["Ulm", "Bonn", "Trier"], N),
        "answer": RNG.choice([0, 1], N),
    }
)
TABLE["state"] = TABLE["city"].map({"Ulm": "BW", "Bonn": "NRW", "Trier": "RP"})
LIKE = TABLE.head(SAMPLE)


@pytest.fixture
def path(tmp_path):
    """A folder of two files."""
    TABLE[:300].to_parquet(tmp_path / "0.parquet", row_group_size=70)
    TABLE[300:].to_parquet(tmp_path / "1.parquet")
    return tmp_path


def read(source, arrays, like=LIKE, **options):
    """Arrays of all rows of a table; those of the sample are derived."""
    options = {"block_size": 150} | options
    blocks = list(table_blocks(source, like=like, **options).for_arrays(arrays))
    return {name: np.concatenate([np.asarray(each[name]) for each in blocks]) for name in arrays}


def standardized(frame, name):
    return ((frame[name] - LIKE[name].mean()) / LIKE[name].std()).to_numpy()


CITIES = sorted(LIKE["city"].unique())
DERIVED = {
    "column": lambda frame: frame["age"].to_numpy(),
    "single precision": lambda frame: frame["age"].to_numpy("float32"),
    "centered": lambda frame: (frame["age"] - LIKE["age"].mean()).to_numpy(),
    "standardized": lambda frame: standardized(frame, "weight"),
    "integers": lambda frame: frame["year"].to_numpy() - 2000,
    "codes of text": lambda frame: pd.Categorical(frame["city"], CITIES).codes.astype(int),
    "codes of integers": lambda frame: np.argsort([3, 1, 4, 0, 2, 9, 5, 6, 8, 7])[
        frame["year"] - 2000
    ],
    "indicator": lambda frame: (frame["city"] == "Ulm").to_numpy(float),
    "covariate of groups": lambda frame: frame["city"].map(len).to_numpy() ** 2.0,
    "intercept": lambda frame: np.ones(len(frame)),
    "matrix": lambda frame: np.column_stack(
        [np.ones(len(frame)), standardized(frame, "age"), frame["year"], frame["city"] == "Bonn"]
    ),
}
FEW = ["age", "weight", "year", "city", "answer"]


@pytest.mark.parametrize("kind", list(DERIVED))
def test_arrays_that_follow_from_columns(path, kind):
    array = DERIVED[kind]
    found = read(path, {"constant 1": array(LIKE)}, like=LIKE[FEW])["constant 1"]
    assert found.dtype == array(LIKE).dtype
    np.testing.assert_allclose(found, array(TABLE), rtol=1e-6, atol=1e-8)


def test_blocks_of_many_stretches_have_all_rows(path):
    for stretches in (1, 7):
        blocks = table_blocks(path, like=LIKE, block_size=130, stretches=stretches)
        found = blocks.for_arrays({"x": LIKE["age"].to_numpy()})
        ages = np.concatenate([np.asarray(block["x"]) for block in found])
        assert sorted(ages) == sorted(TABLE["age"])
        assert (ages[:20] == TABLE["age"][:20]).all() == (stretches == 1)


def test_categories_keep_their_codes(path):
    like = LIKE.assign(city=pd.Categorical(LIKE["city"], ["Kiel", "Ulm", "Trier", "Bonn"]))
    found = read(path, {"index": like["city"].cat.codes.to_numpy()}, like=like)["index"]
    expected = pd.Categorical(TABLE["city"], ["Kiel", "Ulm", "Trier", "Bonn"]).codes
    np.testing.assert_array_equal(found, expected)


def test_columns_of_categories_in_the_files(tmp_path):
    TABLE.assign(city=TABLE["city"].astype("category")).to_parquet(tmp_path / "rows.parquet")
    codes = DERIVED["codes of text"]
    np.testing.assert_array_equal(read(tmp_path, {"i": codes(LIKE)}, LIKE[FEW])["i"], codes(TABLE))


def test_columns_argument_resolves_ambiguity(path):
    table = TABLE.assign(copy=TABLE["age"])
    table.to_parquet(path / "2.parquet")
    like = table.head(SAMPLE)
    arrays = {"copy": like["copy"].to_numpy()}
    (path / "0.parquet").unlink()
    (path / "1.parquet").unlink()
    np.testing.assert_array_equal(read(path, arrays, like)["copy"], table["copy"])
    arrays = {"constant 1": arrays["copy"]}
    with pytest.raises(ValueError, match=r"in several ways .* as 'age' and as 'copy'\. Choose one"):
        read(path, arrays, like)
    found = read(path, arrays, like, columns={"constant 1": "copy"})
    np.testing.assert_array_equal(found["constant 1"], table["copy"])


def test_factors_with_the_same_groups(path):
    codes = pd.factorize(LIKE["city"])[0]
    with pytest.raises(ValueError, match=r"'i' follows in several ways .*'city' and as .* 'state'"):
        read(path, {"i": codes})
    found = read(path, {"i": codes}, columns={"i": "state"})["i"]
    np.testing.assert_array_equal(found, pd.factorize(TABLE["city"])[0])


def test_functions_of_the_data_frame(path):
    def polynomial(frame):
        return np.column_stack([frame["age"], frame["age"] ** 2])

    found = read(path, {"X": polynomial(LIKE)}, columns={"X": polynomial})["X"]
    np.testing.assert_allclose(found, polynomial(TABLE))
    with pytest.raises(ValueError, match=r"column 1 of 'X' does not follow .* columns={'X': func"):
        read(path, {"X": polynomial(LIKE)})
    with pytest.raises(ValueError, match=r"returns .* for row .* and the model has"):
        read(path, {"X": polynomial(LIKE)}, columns={"X": lambda frame: 2 * polynomial(frame)})
    centered = {"x": (LIKE["age"] - LIKE["age"].mean()).to_numpy()}
    with pytest.raises(
        ValueError, match=r"'x', .* depends on other rows: .*sample\['x'\]\.mean\(\)"
    ):
        read(path, centered, columns={"x": lambda frame: frame["age"] - frame["age"].mean()})


def test_constant_columns(path):
    like = LIKE.assign(year=1)
    ones = np.ones(SAMPLE)
    with pytest.raises(ValueError, match=r"is 1.0 in each row, and column 'year' of like= has one"):
        read(path, {"constant 1": ones}, like)
    found = read(path, {"constant 1": ones}, like, columns={"constant 1": 1.0})["constant 1"]
    np.testing.assert_array_equal(found, np.ones(N))
    found = read(path, {"constant 1": ones}, like, columns={"constant 1": "year"})["constant 1"]
    np.testing.assert_array_equal(found, TABLE["year"])


AGE = {"x": LIKE["age"].to_numpy()}
CITY = {"i": DERIVED["codes of text"](LIKE)}


def broken(change):
    return lambda: change(TABLE.copy())


def with_value(name, row, value):
    def change(table):
        table[name] = table[name].astype(object if isinstance(value, str) else table[name].dtype)
        table.loc[row, name] = value
        return table

    return change


TABLES = {
    "no column": (AGE, lambda t: t.rename(columns={"age": "Age"}), r"'age'.* mean 'Age'\? Rename"),
    "text": (AGE, lambda t: t.assign(age=t["age"].astype(str)), r"type (large_)?string.*Convert"),
    "numbers": (CITY, lambda t: t.assign(city=1.0), "type double.* built on text"),
    "missing": (
        AGE,
        with_value("age", 7, np.nan),
        r"'age' has no value in 1 rows of .*\. Drop or impute",
    ),
    "level": (
        CITY,
        with_value("city", 700, "Kiel"),
        r"'city' has 'Kiel' in row 700 of .*head\(20\)",
    ),
    "floats": (
        {"i": LIKE["year"].to_numpy()},
        lambda t: t.assign(year=t["year"] + 0.5),
        r"'year'.* built on integers.*astype\(\{'year': float\}\)",
    ),
}


@pytest.mark.parametrize("kind", list(TABLES))
def test_inconsistent_tables_raise(tmp_path, kind):
    arrays, change, message = TABLES[kind]
    change(TABLE.copy()).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=message):
        read(tmp_path, arrays, LIKE[FEW])


def test_missing_values_without_file_statistics_raise_while_sampling(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    age = TABLE["age"].to_numpy().copy()
    age[821] = np.nan
    table = pa.table({"age": pa.array(age, from_pandas=False)})
    parquet.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(
        ValueError, match=r"no value in row 821 of .*rows\.parquet\. Drop or impute"
    ):
        read(tmp_path, AGE)


def test_missing_values_without_statistics_raise(tmp_path):
    table = TABLE.assign(age=TABLE["age"].where(TABLE.index != 821))
    table.to_parquet(tmp_path / "rows.parquet", write_statistics=False)
    with pytest.raises(
        ValueError, match=r"no value in row 821 of .*rows\.parquet\. Drop or impute"
    ):
        table_blocks(tmp_path, like=LIKE).for_arrays(AGE)


ARGUMENTS = {
    "rows": (AGE, {"like": TABLE.head(150)}, r"like= has 150 rows and 'x' of the model 200\. Pass"),
    "array": (AGE, {"columns": {"z": "age"}}, r"names 'z', which is not an array .* are \['x'\]"),
    "column": (AGE, {"columns": {"x": "Age"}}, "names 'Age' for 'x', and like= has no such column"),
    "other": (AGE, {"columns": {"x": "weight"}}, r"not that column .* function of the data frame"),
    "width": (AGE, {"columns": {"x": ["age", "year"]}}, "has 2 entries for 'x', which has 1 col"),
}


@pytest.mark.parametrize("kind", list(ARGUMENTS))
def test_inconsistent_arguments_raise(path, kind):
    arrays, options, message = ARGUMENTS[kind]
    with pytest.raises(ValueError, match=message):
        read(path, arrays, **options)


def test_sources_in_memory_raise(path):
    with pytest.raises(TypeError, match=r"got a DataFrame in memory.* batch_size= alone"):
        table_blocks(TABLE, like=LIKE)
    with pytest.raises(TypeError, match=r"like= is the pandas\.DataFrame .* got str"):
        table_blocks(path, like="sample.csv")
    with pytest.raises(TypeError, match=r"SGGMC\(batch_size=500, batches=blocks\)"):
        next(iter(table_blocks(path, like=LIKE)))


def test_rows_of_a_dask_data_frame():
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(TABLE[FEW], npartitions=3)
    arrays = {"x": standardized(LIKE, "age"), "i": DERIVED["codes of text"](LIKE)}
    found = read(frame, arrays, LIKE[FEW])
    np.testing.assert_allclose(found["x"], standardized(TABLE, "age"))
    np.testing.assert_array_equal(found["i"], DERIVED["codes of text"](TABLE))
    broken = TABLE[FEW].copy()
    broken.loc[700, "age"] = np.nan
    with pytest.raises(
        ValueError, match=r"'age' has no value in row 33 of partition 2 of the Dask"
    ):
        table_blocks(dd.from_pandas(broken, npartitions=3), like=LIKE[FEW]).for_arrays(arrays)


def test_files_that_are_not_parquet_raise(tmp_path):
    TABLE.to_csv(tmp_path / "rows.csv")
    with pytest.raises(ValueError, match=r"rows\.csv cannot be read as Parquet\. .*read_csv"):
        table_blocks(tmp_path / "rows.csv", like=LIKE)


@pytest.mark.parametrize("like", [LIKE.head(0), LIKE[["age", "age"]]], ids=["no rows", "two"])
def test_invalid_samples_raise(path, like):
    with pytest.raises(ValueError, match=r"like= has .*\. Pass the data frame"):
        table_blocks(path, like=like)
