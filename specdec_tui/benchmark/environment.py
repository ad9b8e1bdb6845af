"""What a measurement was made on: versions, processor, threads, devices, memory."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specdec_tui import __version__
from specdec_tui.doors.reading import MEGABYTE, read_text

PACKAGES = ("torch", "numba", "transformers", "accelerate", "bitsandbytes", "textual", "rich")


def installed_versions() -> dict[str, str | None]:
    """Versions of the packages that matter to a figure; None where one is missing."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def describe_environment() -> dict[str, Any]:
    """JSON-ready description of this machine; imports torch. Memory in bytes."""
    import psutil
    import torch

    return {
        "specdec_tui": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": psutil.virtual_memory().total,
        "cuda_devices": [
            {"name": torch.cuda.get_device_name(i), "memory_bytes": torch.cuda.get_device_properties(i).total_memory}
            for i in range(torch.cuda.device_count())
        ],
        "versions": installed_versions(),
    }


def _processor() -> str:
    try:
        for line in read_text(Path("/proc/cpuinfo"), most=4 * MEGABYTE).splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
