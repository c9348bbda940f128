"""The code in README.md runs as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_the_blocks_run_one_after_the_other(tmp_path):
    script = tmp_path / "readme.py"
    # A guard, because a platform that spawns worker processes imports the script again.
    script.write_text(
        "def main():\n"
        + "".join(f"    {line}\n" for line in "\n".join(BLOCKS).splitlines())
        + "\nif __name__ == '__main__':\n    main()\n"
    )
    environment = os.environ | {"PYTHONPATH": str(README.parent), "MPLBACKEND": "Agg"}
    subprocess.run([sys.executable, script], check=True, cwd=tmp_path, env=environment)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "benchmarks/README.md"])
def test_links_lead_to_files(page):
    path = README.parent / page
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target
