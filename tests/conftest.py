"""Fixtures that several test modules share."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytensor
import pytest


@pytest.fixture(autouse=True)
def restore_pymc_warnings() -> None:
    """Restore warnings and logs that imported benchmarks disable, so that tests are independent."""
    logging.getLogger("pymc").setLevel(logging.INFO)


@pytest.fixture
def interpreted() -> Iterator[None]:
    """Disable compilation, for tests that do not depend on the backend."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


@pytest.fixture(scope="session")
def data_home() -> Path:
    """Return the folder of real data, or skip the test if there is none."""
    folder = os.environ.get("PYMC_GEODESIC_DATA")
    if not folder:
        pytest.skip("needs real data: the environment variable PYMC_GEODESIC_DATA names no folder")
    return Path(folder)


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the data folder from the loaders."""
    monkeypatch.delenv("PYMC_GEODESIC_DATA", raising=False)
