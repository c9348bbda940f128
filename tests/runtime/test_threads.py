"""Interrupts are not lost between machine code and Python functions that it calls."""

import ctypes
import signal
import threading

import numpy as np
import pymc as pm
import pytest
from numba import njit

import pymc_geodesic as pg
from pymc_geodesic.runtime.gradient_functions import evaluate, python_function
from pymc_geodesic.runtime.threads import defer_interrupts

interrupt = ctypes.CDLL(None)["raise"]
interrupt.argtypes, interrupt.restype = [ctypes.c_int], ctypes.c_int
SIGINT = int(signal.SIGINT)


@pytest.fixture(autouse=True)
def in_the_main_thread():
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are seen by the main thread alone")


@njit
def interrupted_between_calls(function, position, argument, context, output):
    """Interrupt compiled code, which then calls an interpreted function."""
    interrupt(SIGINT)
    return evaluate(function, position, argument, context, output)


def call(function, output):
    return interrupted_between_calls(
        function.address, np.ones(2), 0, np.zeros(1, dtype=int), output
    )


def negated(position, argument, context, output):
    np.ctypeslib.as_array(output, (2,))[:] = -np.ctypeslib.as_array(position, (2,))
    return -1.0


def test_machine_code_ends_before_the_interrupt_is_raised():
    function, output, value = python_function(negated), np.zeros(2), 0.0
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        value = call(function, output)
    assert value == -1.0
    np.testing.assert_array_equal(output, -1.0)
    assert signal.getsignal(signal.SIGINT) is handler
    assert function.error is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupt_is_lost_without_deferral():
    function, output = python_function(negated), np.zeros(2)
    call(function, output)
    assert np.isnan(output[0])
    assert function.error is None


def test_simultaneous_error_is_the_context():
    def fail():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("at the same time")

    with pytest.raises(KeyboardInterrupt) as caught, defer_interrupts():
        fail()
    assert isinstance(caught.value.__context__, ValueError)


def test_other_threads_and_processes_that_ignore_interrupts_are_left_alone():
    handler = signal.getsignal(signal.SIGINT)
    seen = []

    def read_handler():
        with defer_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=read_handler)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with defer_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert seen == [handler, signal.SIG_IGN]


def test_steps_with_interpreted_gradients_are_interrupted_between_draws():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        step = pg.SGGMC(step_size=0.1, metric=None, compile_kwargs={"mode": "FAST_COMPILE"})
    assert step.estimator.logp_grad.interpreted
    point = model.initial_point()
    step.setup_chain(np.random.default_rng(1), tune=0, draws=2)
    step.step(point)
    function, output = step.estimator.logp_grad, np.zeros(2)
    with pytest.raises(KeyboardInterrupt), step.estimator.draw_context():
        interrupted_between_calls(function.address, np.ones(2), 0, function.context, output)
    np.testing.assert_allclose(output, -1.0)
