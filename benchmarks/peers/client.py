"""Client of the process that runs other libraries in their own environment."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SAMPLERS = ("sgnht", "sghmc")


class PeerProcess:
    """A process that runs `benchmarks.peers.worker`.

    Raises
    ------
    RuntimeError
        If the environment cannot be created or the process ends.
    """

    def __init__(self) -> None:
        setup = subprocess.run([HERE / "setup.sh"], stdout=subprocess.PIPE, text=True, check=False)
        if setup.returncode:
            raise RuntimeError(
                "its environment could not be created, see the message of benchmarks/peers/setup.sh"
            )
        self._process = subprocess.Popen(
            [setup.stdout.strip(), "-m", "benchmarks.peers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=HERE.parent.parent,
        )

    def prepare(self, name: str, *arguments: Any, steps: int) -> dict[str, Callable[[], float]]:
        """Return timed runs by name of the sampler, for a problem of `benchmarks.problems`."""
        self._ask(prepare=name, arguments=arguments, samplers=SAMPLERS, steps=steps)
        return {sampler: lambda sampler=sampler: self._ask(run=sampler) for sampler in SAMPLERS}

    def _ask(self, **order: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of the other libraries ended during {order}")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
