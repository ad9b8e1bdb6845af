"""From launch to a usable screen (prompt drawn), and to models ready, in a pseudo-terminal.

    python benchmarks/launch.py [--repeat 5]

The first run is not counted: it fills the file cache. The demo pair must be in the cache already.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from statistics import median

USABLE, READY = b"Ask something", b"ready"
WAIT_SECONDS = 120


def launch() -> tuple[float, float]:
    """Seconds until the prompt is drawn, and until the header says ready."""
    begin = time.monotonic()
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(sys.executable, [sys.executable, "-m", "specdec_tui"], os.environ | {"TERM": "xterm-256color"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    seen: dict[bytes, float] = {}
    screen = b""
    while len(seen) < 2:
        if time.monotonic() - begin > WAIT_SECONDS:
            raise TimeoutError("the app did not become ready")
        if select.select([terminal], [], [], 0.02)[0]:
            screen += os.read(terminal, 65536)
        for mark in (USABLE, READY):
            if mark not in seen and mark in screen:
                seen[mark] = time.monotonic() - begin
    os.write(terminal, b"\x11")
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # the terminal closes with the app
    os.waitpid(process, 0)
    return seen[USABLE], seen[READY]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    runs = [launch() for _ in range(repeat + 1)][1:]
    for name, times in (("usable screen", [a for a, _ in runs]), ("models ready", [b for _, b in runs])):
        print(f"{name:<14} median {median(times):5.2f} s  (lowest {min(times):.2f}, highest {max(times):.2f})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
