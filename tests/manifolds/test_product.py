"""The packed state of several variables and its compiled functions."""

import pickle

import numba
import numpy as np
import pytensor.tensor as pt
import pytest
from numba.core.errors import TypingError

from pymc_geodesic.manifolds import (
    Euclidean,
    FlatSimplex,
    HalfLine,
    Product,
    Simplex,
    Sphere,
    Stiefel,
    product,
)
from pymc_geodesic.manifolds.product_flows import address_of
from pymc_geodesic.runtime.jit import borrow

COMPONENTS = [
    ("weights", Euclidean(4), 1),
    ("scale", HalfLine(2), 2),
    ("direction", Sphere(3), 5),
    ("topics", Simplex(4), 2),
    ("shares", FlatSimplex(3), 2),
    ("frame", Stiefel(4, 2), 3),
    ("offset", Euclidean(1), 1),
]


@pytest.fixture(scope="module")
def joint():
    return Product(COMPONENTS)


@pytest.fixture
def values():
    rng = np.random.default_rng(1)
    return {name: manifold.random_point(rng, rows) for name, manifold, rows in COMPONENTS}


def test_table_of_blocks(joint):
    assert joint.names == tuple(name for name, _, _ in COMPONENTS)
    assert joint.blocks.dtype == np.int64
    assert joint.blocks.tolist() == [
        [Euclidean.code, 0, 1, 4, 4, 1],
        [HalfLine.code, 4, 2, 2, 2, 1],
        [Sphere.code, 8, 5, 3, 3, 1],
        [Simplex.code, 23, 2, 4, 4, 1],
        [FlatSimplex.code, 31, 2, 3, 3, 1],
        [Stiefel.code, 37, 3, 8, 4, 2],
        [Euclidean.code, 61, 1, 1, 1, 1],
    ]
    assert joint.slices["direction"] == slice(8, 23)
    assert joint.dims.tolist() == [4.0, 4.0, 10.0, 6.0, 4.0, 15.0, 1.0]
    assert joint.dim == joint.dims.sum()
    assert joint.size == 62


def test_pack_and_unpack_are_inverse(joint, values):
    unpacked = joint.unpack(joint.pack(values))
    assert list(unpacked) == list(joint.names)
    for name, value in values.items():
        np.testing.assert_allclose(unpacked[name], value, atol=1e-15)


def test_pack_by_name_with_charts(joint, values):
    shuffled = {"not a variable": np.zeros(3), **dict(reversed(values.items()))}
    packed = joint.pack(shuffled)
    np.testing.assert_array_equal(packed, joint.pack(values))
    np.testing.assert_array_equal(packed[joint.slices["weights"]], values["weights"].ravel())
    np.testing.assert_allclose(
        packed[joint.slices["topics"]], np.sqrt(values["topics"]).ravel(), rtol=1e-15
    )


def test_pack_takes_any_shape_of_the_same_rows(joint, values):
    reshaped = values | {"frame": values["frame"].reshape(3, 1, 4, 2), "offset": 0.5}
    packed = joint.pack(reshaped)
    np.testing.assert_array_equal(packed[joint.slices["frame"]], values["frame"].ravel())
    assert packed[joint.slices["offset"]] == 0.5


def test_unpacked_values_share_no_memory(joint, values):
    packed = joint.pack(values)
    for value in joint.unpack(packed).values():
        assert not np.shares_memory(value, packed)


def test_compiled_flow_and_projection_agree_with_components(joint, values):
    rng = np.random.default_rng(2)
    x = joint.pack(values)
    noise = rng.standard_normal(joint.size)
    v = noise.copy()
    product.project(joint.blocks, x, v)
    end, velocity = x.copy(), v.copy()
    product.geodesic(joint.blocks, end, velocity, 0.4)
    for name, manifold, rows in COMPONENTS:
        part, shape = joint.slices[name], (rows, *manifold.shape)
        points, vectors = x[part].reshape(shape), v[part].reshape(shape)
        expected = manifold.project(points, noise[part].reshape(shape))
        np.testing.assert_array_equal(vectors, expected, err_msg=name)
        for array, wanted in zip(
            (end, velocity), manifold.geodesic(points, vectors, 0.4), strict=True
        ):
            np.testing.assert_array_equal(array[part].reshape(shape), wanted, err_msg=name)


def test_log_volume_is_the_sum_over_points(joint, values):
    q = joint.pack(values)
    assert joint.log_volume(q) == pytest.approx(0.5 * np.log(values["topics"]).sum(), rel=1e-13)


def test_symbolic_charts_agree_with_numeric_ones(joint, values):
    q = joint.pack(values)
    symbol = pt.constant(q)
    for chart in (joint.from_coordinates, joint.log_volume):
        np.testing.assert_allclose(chart(symbol, pt).eval(), chart(q), rtol=1e-14)


def test_pickles(joint, values):
    copy = pickle.loads(pickle.dumps(joint))
    np.testing.assert_array_equal(copy.blocks, joint.blocks)
    np.testing.assert_array_equal(copy.pack(values), joint.pack(values))


def test_check_names_the_variable(joint, values):
    value = np.concatenate([values[name].ravel() for name in joint.names])
    joint.check("state", value)
    value[joint.slices["direction"]] *= 2
    with pytest.raises(ValueError, match=r"5 of the 5 points of state: direction are not on"):
        joint.check("state", value)


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ([], "components is empty"),
        ([("a", Sphere(3), 1), ("a", Sphere(3), 1)], "the name 'a' twice"),
        ([("a", Sphere(3), 0)], "rows of a must be an integer of at least 1"),
    ],
)
def test_impossible_products_raise(components, message):
    with pytest.raises(ValueError, match=message):
        Product(components)


def test_pack_errors_name_the_variable(joint, values):
    with pytest.raises(ValueError, match="do not contain the variable 'frame'"):
        joint.pack({name: value for name, value in values.items() if name != "frame"})
    with pytest.raises(
        ValueError, match=r"direction has 3 elements, but 5 points on Sphere\(n=3\)"
    ):
        joint.pack(values | {"direction": np.zeros(3)})


@pytest.mark.parametrize(
    ("flat", "message"),
    [(np.zeros(4, np.float32), "array of float64"), (np.zeros(8)[::2], "contiguous vector")],
    ids=["type", "layout"],
)
def test_rows_of_the_wrong_array_do_not_compile(flat, message):
    @numba.njit
    def first(flat):
        return numba.carray(address_of(flat, 0), (2, 2))[0, 0]

    with pytest.raises(TypingError, match=message):
        first(flat)


def test_borrowed_arrays_and_their_rows_are_views():
    @numba.njit
    def write(flat):
        numba.carray(address_of(borrow(flat), 2), (2, 3))[1, 2] = 5.0

    flat = np.zeros(10)
    write(flat)
    assert flat.tolist() == [0.0] * 7 + [5.0] + [0.0] * 2
