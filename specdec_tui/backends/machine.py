"""What this machine can do at most: bytes read from memory and multiply-adds in a second, on all threads.

They bound every pass of a model on a CPU: its weights are read once, and each of its tokens is multiplied with all of
them (the roofline of Williams et al. 2009, doi 10.1145/1498765.1498785). `decoding.passes` says what follows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from time import perf_counter

from specdec_tui.backends.pages import roomy

READ_BYTES = 256 << 20
"""Of the buffer that is read: far more than a last-level cache holds."""
PIECES = 4  # of it, each read by itself: short enough that other work on the machine does not fall into all of them
_ADDS = 1 << 20  # steps of a thread's multiply-adds: some milliseconds
_TRIES = 7
_MOST_SECONDS = 0.25  # of all tries together, unless they are too few
_LEAST_TRIES = 3


@dataclass(frozen=True, slots=True)
class Machine:
    """The best that was measured of `threads` threads at once, each a second; multiply-adds of float32."""

    read_bytes_per_second: float
    multiply_adds_per_second: float
    threads: int


@cache
def machine(threads: int) -> Machine | None:
    """Measured once in a process, in less than 0.4 s; None where numba does not work. Not in a thread that paints.

    The first one on a machine compiles as well, for about two seconds.
    """
    try:
        return _measured(threads)
    except Exception:  # its compiler is a native library, which may fail in many ways: then nothing is told
        return None


@cache
def integer_adds_per_second(threads: int) -> float | None:
    """Multiply-adds of 8 bits each, as products with rounded inputs make them; otherwise as `machine`."""
    try:
        from specdec_tui.backends.lean import int8_adding as kernels
        from specdec_tui.backends.lean.int8_blocks import PATHS

        add = kernels.ADDING[PATHS[0]]
        add(0)
        found: list[float] = []
        begin = perf_counter()
        while len(found) < _LEAST_TRIES or (len(found) < _TRIES and perf_counter() - begin < _MOST_SECONDS):
            found.append(_together(lambda part: add(_ADDS), threads))
        return threads * _ADDS * kernels.SUMS * kernels.COLUMNS / min(found)
    except Exception:
        return None


def _measured(threads: int) -> Machine:
    import torch

    from specdec_tui.backends import machine_kernels as kernels

    words = roomy((READ_BYTES // 8,), torch.int64)
    words.fill_(1)  # what was never written is one page of zeros, and always in the cache
    array, lines = words.numpy(), READ_BYTES // PIECES // 64

    def read(piece: int) -> Callable[[int], None]:
        bounds = [(piece * lines + lines * part // threads) * 8 for part in range(threads + 1)]
        return lambda part: kernels.read(array, bounds[part], bounds[part + 1])

    def add(lanes: int) -> Callable[[int], None]:
        return lambda part: kernels.ADDING[lanes](_ADDS)

    for run in (read(0), *map(add, kernels.ADDING)):
        run(0)  # compiled, and the clock of the core is up
    begin = perf_counter()
    reading, adding = [], []
    for tried in range(_TRIES):
        if tried >= _LEAST_TRIES and perf_counter() - begin > _MOST_SECONDS:
            break
        reading += [_together(read(piece), threads) for piece in range(PIECES)]
        adding += [(_together(add(lanes), threads), lanes) for lanes in kernels.ADDING]
    adds = max(threads * _ADDS * kernels.SUMS * lanes / seconds for seconds, lanes in adding)
    return Machine(READ_BYTES // PIECES / min(reading), adds, threads)


def _together(work: Callable[[int], None], threads: int) -> float:
    """Seconds until all threads have done their part, all of them begun."""
    ready = threading.Barrier(threads)
    begun, ended = [0.0] * threads, [0.0] * threads

    def one(part: int) -> None:
        ready.wait()
        begun[part] = perf_counter()
        work(part)
        ended[part] = perf_counter()

    others = [threading.Thread(target=one, args=(part,), daemon=True) for part in range(1, threads)]
    for thread in others:
        thread.start()
    one(0)
    for thread in others:
        thread.join()
    return max(ended) - min(begun)
