"""Machine code of a function is not used again once a function that it calls has changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pymc_geodesic.runtime import jit
from tests.grids import slow

KERNEL = """
from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.helper import helper


@compiled
def kernel(x):
    return 10.0 * helper(x)
"""
HELPER = """
from pymc_geodesic.runtime.jit import compiled


@compiled(inline="{inline}")
def helper(x):
    return x + {shift}
"""
PROGRAM = """
import sys
from pathlib import Path
import pymc_geodesic
from pymc_geodesic.runtime import jit

jit._PACKAGE = Path(sys.argv[1])
pymc_geodesic.__path__.append(sys.argv[1])
from pymc_geodesic.kernel import kernel

print(kernel(1.0), sum(kernel.stats.cache_hits.values()))
"""


@pytest.mark.parametrize("inline", ["always", slow("never")])
def test_a_changed_helper_is_compiled_again(tmp_path, inline):
    """Numba's cache only checks the file of the function itself. Without the stamp that `compiled`
    writes to ``_cache._cache_file._source_stamp``, outdated code of called functions would be used.
    """
    package = tmp_path / "package"
    package.mkdir()
    (package / "kernel.py").write_text(KERNEL)
    (package / "helper.py").write_text(HELPER.format(inline=inline, shift=1.0))
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(Path(jit.__file__).parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def run():
        command = [sys.executable, "-c", PROGRAM, str(package)]
        return subprocess.run(
            command, check=True, env=environment, capture_output=True, text=True
        ).stdout.split()

    assert run() == ["20.0", "0"]
    assert run() == ["20.0", "1"]
    (package / "helper.py").write_text(HELPER.format(inline=inline, shift=2.0))
    assert run() == ["30.0", "0"]
