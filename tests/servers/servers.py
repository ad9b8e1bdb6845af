"""Real servers on loopback: vLLM's CPU build, as `make test-servers` installs it, over a model's folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PYTHON = Path(os.environ.get("SERVERS", Path(__file__).parents[2] / ".venv-servers")) / "bin" / "python"
KEY = "sk-of-the-tests"
_PATIENCE = 240.0  # seconds that a start may take
_ARGUMENTS = (
    *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "40", "--max-logprobs", "50"),
    *("--block-size", "32", "--enable-prefix-caching"),
)


@contextmanager
def vllm(folder: Path, name: str, length: int, *more: str) -> Iterator[str]:
    """The address of a server of this model; it is gone afterwards. What it says is in build/vllm-NAME.log."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--served-model-name", name]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(length), "--api-key", KEY]
    log = Path("build") / f"vllm-{name}.log"
    log.parent.mkdir(exist_ok=True)
    # Its threads are its own affair, not those of the tests.
    own = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "PYTHONPATH"))}
    with log.open("w") as said:
        server = subprocess.Popen(
            [*map(str, command), *_ARGUMENTS, *more], env=own | quiet, stdout=said, stderr=said, start_new_session=True
        )
    try:
        _wait(server, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            server.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


def _wait(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while server.poll() is None and time.monotonic() < end:
        with suppress(OSError), urllib.request.urlopen(address, timeout=5):
            return
        time.sleep(0.5)
    pytest.fail(f"vLLM did not start: see {log}\n{log.read_text()[-2000:]}")
