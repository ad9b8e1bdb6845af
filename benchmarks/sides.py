"""Sides of a comparison as processes of their own, of which one works at a time, and what else the machine did.

A side is a script that reads requests from standard input and writes answers to standard output, a JSON object a line:
`serve` is its end, `Side` the other one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

STRANGERS = 0.1
"""Cores that processes which are none of ours may take in a turn; more disturbs it."""
SPINNING = 0.03
"""Cores that a side may take while another one works."""
_TICKS = 0.03  # seconds: the kernel counts in hundredths of one, for each of two numbers
_STILL, _LONGEST_WAIT = 0.06, 3.0
_DECIDED_BY_US = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")


class SideFailed(Exception):
    """A side refused a request or ended: one line that says which, and why."""


class Side:
    """A process with a model in it."""

    def __init__(self, name: str, command: Sequence[str], threads: int) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the process
        environment = {key: value for key, value in os.environ.items() if key not in _DECIDED_BY_US}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment | {"OMP_NUM_THREADS": str(threads)},
            text=True,
        )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """The answer to one request. SideFailed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise SideFailed(f"{self.name} ended (status {self.process.wait()}): {self._last_line()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SideFailed(f"{self.name}: {answer['error']}")
        return answer

    def _last_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        """End it. It keeps nothing."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended, and did not read all that it was asked
                self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()


class Turns:
    """All sides of a comparison: asks one, while the others stand still, and says where something else was at work."""

    def __init__(self, sides: dict[str, Side]) -> None:
        self.sides = sides

    def ask(self, name: str, do: str, **request: Any) -> dict[str, Any]:
        """The side's answer, and with it `strangers` and `idle`: cores taken by others meanwhile. SideFailed."""
        self._stand_still()
        before, begin = self._used(), time.perf_counter()
        answer = self.sides[name].ask(do, **request)
        taken = time.perf_counter() - begin
        return answer | at_work(name, before, self._used(), taken)

    def _stand_still(self) -> None:
        """Wait until threads that spin after their work have gone to sleep; no longer than a few seconds."""
        end, since, used = time.perf_counter() + _LONGEST_WAIT, time.perf_counter(), self._of_sides()
        while time.perf_counter() < end and time.perf_counter() - since < _STILL:
            time.sleep(0.01)
            if (now := self._of_sides()) != used:
                since, used = time.perf_counter(), now

    def _of_sides(self) -> dict[str, float]:
        import psutil

        used = {}
        for name, side in self.sides.items():
            times = psutil.Process(side.process.pid).cpu_times()
            used[name] = times.user + times.system
        return used

    def _used(self) -> dict[str, float]:
        """Seconds of all cores so far: of each side, of this process (its name is empty) and of everybody (`*`)."""
        import psutil

        whole, own = psutil.cpu_times(), psutil.Process().cpu_times()
        everybody = sum(whole) - whole.idle - getattr(whole, "iowait", 0.0)
        everybody -= getattr(whole, "guest", 0.0) + getattr(whole, "guest_nice", 0.0)  # part of user and nice
        return self._of_sides() | {"": own.user + own.system, "*": everybody}


def at_work(name: str, before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, Any]:
    """What others than the side `name` took of the cores meanwhile, and whether that disturbs its turn.

    `strangers`: cores of processes that are none of ours; `idle`: cores of each other side. Less than the kernel can
    count is nothing.
    """

    def cores(used: float) -> float:
        return used / seconds if used > _TICKS else 0.0

    spent = {key: after[key] - before[key] for key in before}
    strangers = cores(spent["*"] - sum(used for key, used in spent.items() if key != "*"))
    idle = {key: cores(used) for key, used in spent.items() if key not in ("*", "", name)}
    disturbed = [f"other processes took {strangers:.2f} cores"] * (strangers > STRANGERS)
    disturbed += [f"{key} took {used:.2f} cores while idle" for key, used in idle.items() if used > SPINNING]
    return {"strangers": strangers, "idle": idle, "disturbed": "; ".join(disturbed)}


def memory() -> dict[str, int]:
    """Bytes of this process: `rss_high` its high mark, `rss` and `pss` now (Linux; pss shares what others map too)."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            found["rss_high"] = 1024 * int(line.split()[1])
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        key = {"Rss:": "rss", "Pss:": "pss", "Private_Dirty:": "private"}.get(line.split()[0])
        if key:
            found[key] = 1024 * int(line.split()[1])
    found["rss_high"] = max(found["rss_high"], found["rss"])  # the kernel counts the former in coarser steps
    return found


def serve(answers: Mapping[str, Callable[..., dict[str, Any]]]) -> int:
    """Answer requests until there are no more. What libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout.flush()
    sys.stdout = sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = answers[request.pop("do")](**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        print(json.dumps(answer), file=out, flush=True)
    return 0
