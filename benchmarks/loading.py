"""What watching the recording costs a load: seconds until the models are ready, with it and without it in turn.

    python benchmarks/loading.py [--repeat 5]

The app runs in a terminal of its own, 120×40, whose output is read and thrown away.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import signal
import statistics
import struct
import sys
import termios
import time

LAUNCH = "from specdec_tui.tui.app import first_minute\n{}\nfrom specdec_tui.cli import main\nmain(['run'])"
WITHOUT = "first_minute.WAIT_SECONDS = float('inf')"
PATIENCE = 300.0


def until_ready(before: str) -> tuple[float, float]:
    """Seconds on the wall and seconds of processor time."""
    begun = time.monotonic()
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", LAUNCH.format(before)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    seen = b""
    while "● ready".encode() not in seen:
        if time.monotonic() - begun > PATIENCE:
            raise SystemExit("the models never became ready")
        seen = seen[-20:] + os.read(terminal, 65536)
    waited = time.monotonic() - begun
    with open(f"/proc/{child}/stat", encoding="ascii") as file:
        ticks = file.read().rpartition(")")[2].split()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(terminal)
    return waited, (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    until_ready(WITHOUT)  # files come into the memory
    found: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
    for _ in range(repeat):
        found["without"].append(until_ready(WITHOUT))
        found["with"].append(until_ready(""))
    for name, times in found.items():
        walls, works = zip(*times, strict=True)
        told = " ".join(f"{wall:.1f}" for wall in walls)
        print(f"{name:8} {statistics.median(walls):.2f} s, processor {statistics.median(works):.2f} s  ({told})")


if __name__ == "__main__":
    main()
