"""llama.cpp as a side of `llama_cpp.py`: run by the interpreter that has llama-cpp-python, which needs nothing of ours.

Through the library's own functions, with its default settings but for threads and the context's length: the wrapper's
`Llama` class copies logits and samples in Python. A step is `llama_decode` of one token and the first of the highest
logits.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import ctypes  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import llama_cpp as lib  # noqa: E402
import numpy as np  # noqa: E402

# Behind the import above: this folder has a module of the library's name.
sys.path.append(str(Path(__file__).resolve().parent))
from sides import memory, serve  # noqa: E402

READY = time.perf_counter() - STARTED


class Peer:
    """A model with a context."""

    def load(self, file: str, threads: int, context: int) -> dict[str, Any]:
        before, begin = memory(), time.perf_counter()
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(file.encode(), lib.llama_model_default_params())
        if not self.model:
            raise ValueError(f"it cannot load {file}")
        settings = lib.llama_context_default_params()
        settings.n_ctx, settings.n_threads, settings.n_threads_batch = context, threads, threads
        self.batch = int(settings.n_batch)
        self.context = lib.llama_init_from_model(self.model, settings)
        if not self.context:
            raise ValueError("it cannot make a context")
        taken = time.perf_counter() - begin
        self.width = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        return {
            "ready_seconds": READY,
            "load_seconds": taken,
            "memory_before": before,
            "version": lib.__version__,
            "built_for": lib.llama_print_system_info().decode(),
            "flash_attention": int(settings.flash_attn_type),
            "batch": [self.batch, int(settings.n_ubatch)],
        }

    def run(self, ids: list[int], count: int) -> dict[str, Any]:
        """Read `ids`, then make `count` steps; the text is one token longer, which the prefill gives."""
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)
        begin = time.perf_counter()
        for place in range(0, len(ids), self.batch):
            self.feed(ids[place : place + self.batch])
        made = [self.highest()]
        read = time.perf_counter()
        for _ in range(count):
            self.feed(made[-1:])
            made.append(self.highest())
        end = time.perf_counter()
        return {"prefill_seconds": read - begin, "decode_seconds": end - read, "ids": made}

    def feed(self, ids: list[int]) -> None:
        held = (ctypes.c_int32 * len(ids))(*ids)  # the batch points into it
        status = lib.llama_decode(self.context, lib.llama_batch_get_one(held, len(ids)))
        if status != 0:
            raise ValueError(f"llama_decode says {status}")

    def highest(self) -> int:
        place = ctypes.addressof(lib.llama_get_logits_ith(self.context, -1).contents)
        return int(np.frombuffer((ctypes.c_float * self.width).from_address(place), np.float32).argmax())


if __name__ == "__main__":
    peer = Peer()
    raise SystemExit(serve({"load": peer.load, "run": peer.run, "memory": memory}))
