"""From launch to a usable screen (prompt drawn), and to models ready, in a pseudo-terminal.

    python benchmarks/launch.py [--repeat 5]

The first run is not counted: it fills the file cache, compiles what is not compiled yet and tries the fast passes. The
demo target must be in the cache already. Beside the time stands the processor time of the app until then (Linux), which
neighbours on a busy machine disturb less.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from pathlib import Path
from statistics import median

MARKS = {"usable screen": b"Ask something", "models ready": "● ready".encode()}
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""What stands between the letters: the cursor lies on the first one, in colours of its own while it does not blink."""
WAIT_SECONDS = 600  # the very first launch compiles
_TICKS = os.sysconf("SC_CLK_TCK")


def launch() -> dict[str, tuple[float, float]]:
    """Seconds, and seconds of processor time, until each of the marks is drawn."""
    begin = time.monotonic()
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(sys.executable, [sys.executable, "-m", "specdec_tui"], os.environ | {"TERM": "xterm-256color"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    seen: dict[str, tuple[float, float]] = {}
    screen = b""
    while len(seen) < len(MARKS):
        if time.monotonic() - begin > WAIT_SECONDS:
            raise TimeoutError("the app did not become ready")
        if select.select([terminal], [], [], 0.02)[0]:
            screen += os.read(terminal, 65536)
        shown = CONTROL.sub(b"", screen)
        for name, mark in MARKS.items():
            if name not in seen and mark in shown:
                seen[name] = time.monotonic() - begin, processor_seconds(process)
    os.write(terminal, b"\x11")
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # the terminal closes with the app
    os.waitpid(process, 0)
    return seen


def processor_seconds(process: int) -> float:
    """Of all its threads so far; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    runs = [launch() for _ in range(repeat + 1)][1:]
    for name in MARKS:
        times, processor = zip(*(run[name] for run in runs), strict=True)
        within = f"lowest {min(times):.2f}, highest {max(times):.2f}"
        print(f"{name:<14} median {median(times):5.2f} s  ({within}), processor {median(processor):.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
