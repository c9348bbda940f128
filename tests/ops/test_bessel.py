"""The von Mises–Fisher constant against 60-digit arithmetic, on every backend."""

import cloudpickle
import mpmath
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_geodesic.ops import bessel, bessel_ops

GRID = [(d, kappa) for d in (2, 3, 10, 100, 5000, 10**5) for kappa in (0, 1e-6, 1, 1e3, 3e4, 1e8)]
OFF_GRID = [(d, kappa) for d in (4, 17, 33, 740) for kappa in (0.02, 0.9, 14.0, 260.0, 5200.0)]
POINTS = GRID + OFF_GRID
D, KAPPA = np.array(POINTS, dtype=float).T


def bessel_ratio_and_log(order, x):
    below = mpmath.besseli(order, x, maxterms=10**6)
    return mpmath.besseli(order + 1, x, maxterms=10**6) / below, mpmath.log(below)


def exact(d, kappa):
    """Return log c, A and A' of one dimension and concentration."""
    order = mpmath.mpf(d) / 2 - 1
    if kappa == 0:
        log_area = mpmath.log(2) + d * mpmath.log(mpmath.pi) / 2 - mpmath.loggamma(order + 1)
        return -log_area, mpmath.mpf(0), 1 / mpmath.mpf(d)
    kappa = mpmath.mpf(kappa)
    ratio, log_bessel = bessel_ratio_and_log(order, kappa)
    log_c = order * mpmath.log(kappa) - (order + 1) * mpmath.log(2 * mpmath.pi) - log_bessel
    return log_c, ratio, 1 - ratio**2 - (d - 1) / kappa * ratio


@pytest.fixture(scope="module")
def reference():
    with mpmath.workdps(60):
        return np.array([[float(v) for v in exact(d, kappa)] for d, kappa in POINTS]).T


@pytest.mark.parametrize(
    ("function", "row", "tolerance"),
    [
        (bessel.log_vmf_normalizer, 0, 1e-13),
        (bessel.mean_resultant_length, 1, 1e-13),
        (bessel.mean_resultant_length_slope, 2, 1e-12),
    ],
)
def test_numpy_functions_match_reference(reference, function, row, tolerance):
    np.testing.assert_allclose(function(D, KAPPA), reference[row], rtol=tolerance, atol=0)


@pytest.mark.parametrize("mode", ["NUMBA", "CVM", "JAX", "FAST_COMPILE"])
def test_symbolic_value_and_derivatives_match_reference(reference, mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    d, kappa = pt.dvector("d"), pt.dvector("kappa")
    value = bessel_ops.log_vmf_normalizer(d, kappa)
    slope = pt.grad(value.sum(), kappa)
    curvature = pt.grad(slope.sum(), kappa)
    evaluate = pytensor.function([d, kappa], [value, slope, curvature], mode=mode)
    found = evaluate(D, KAPPA)
    np.testing.assert_allclose(found[0], reference[0], rtol=1e-13, atol=0)
    np.testing.assert_allclose(found[1], -reference[1], rtol=1e-13, atol=0)
    np.testing.assert_allclose(found[2], -reference[2], rtol=1e-12, atol=0)


def test_absolute_error_where_the_constant_crosses_one():
    """Near log c = 0 the absolute accuracy is that of the terms."""
    with mpmath.workdps(40):
        root = float(
            mpmath.findroot(lambda kappa: exact(20, kappa)[0], (40, 60), solver="anderson")
        )
        found = bessel.log_vmf_normalizer(20, root)
        assert abs(found - float(exact(20, root)[0])) < 5e-14
    assert abs(found) < 1e-12


@pytest.mark.parametrize(("d", "kappa"), [(2, 0.7), (3, 5.0), (10, 40.0), (400, 90.0), (5, 2e3)])
def test_third_derivative_of_the_constant(d, kappa):
    x = pt.dscalar("x")
    third = pt.grad(pt.grad(bessel_ops.mean_resultant_length(d, x), x), x)
    with mpmath.workdps(40):
        exact_third = float(mpmath.diff(lambda k: exact(d, k)[2], kappa))
    assert third.eval({x: kappa}, mode="FAST_COMPILE") == pytest.approx(exact_third, rel=1e-8)


def test_odd_derivatives_vanish_at_zero():
    x = pt.dscalar("x")
    length = bessel_ops.mean_resultant_length(7, x)
    second = pt.grad(pt.grad(length, x), x)
    assert [float(f.eval({x: 0.0}, mode="FAST_COMPILE")) for f in (length, second)] == [0.0, 0.0]


def test_dimension_may_be_symbolic():
    x, kappa = pt.dmatrix("x"), pt.dscalar("kappa")
    value = bessel_ops.log_vmf_normalizer(x.shape[-1], kappa)
    found = pytensor.function([x, kappa], [value, pt.grad(value, kappa)], mode="FAST_COMPILE")(
        np.zeros((2, 6)), 3.0
    )
    expected = [bessel.log_vmf_normalizer(6, 3.0), -bessel.mean_resultant_length(6, 3.0)]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_constant_arguments_are_folded_and_graph_is_one_node():
    folded = pytensor.function([], bessel_ops.log_vmf_normalizer(5, 2.0))
    assert not any("log_normalizer" in str(node) for node in folded.maker.fgraph.toposort())
    kappa = pt.dvector("kappa")
    value = bessel_ops.log_vmf_normalizer(5, kappa)
    compiled = pytensor.function([kappa], [value, pt.grad(value.sum(), kappa)])
    assert len(compiled.maker.fgraph.toposort()) <= 3
    assert len(pytensor.dprint(value, file="str").splitlines()) < 10


def test_symbolic_functions_survive_pickling():
    kappa = pt.dscalar("kappa")
    value = bessel_ops.log_vmf_normalizer(4, kappa)
    inputs, output = cloudpickle.loads(cloudpickle.dumps(([kappa], value)))
    assert output.owner.op == value.owner.op
    found = pt.grad(output, inputs[0]).eval({inputs[0]: 1.5}, mode="FAST_COMPILE")
    assert found == pytest.approx(-bessel.mean_resultant_length(4, 1.5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bessel.log_vmf_normalizer(1, 1.0), "d must be at least 2"),
        (lambda: bessel.mean_resultant_length(3, -1.0), "kappa must not be negative"),
        (lambda: bessel.mean_resultant_length_slope(3, np.nan), "kappa must not be negative"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
