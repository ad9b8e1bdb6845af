"""How torch's CPU threads wait, chosen before torch is imported.

OpenMP threads spin for a while after each parallel region by default. Between two small kernels
that saves a wake-up, but it also takes the core on which the app paints and on which a second
process measures. Waiting passively costs nothing measurable in a quiet decode loop, and keeps
both the screen and the figures steady when something else runs.
"""

from __future__ import annotations

import os


def prepare_threads() -> None:
    """Let OpenMP wait passively unless the user's environment decides. No effect once torch is imported."""
    if "GOMP_SPINCOUNT" not in os.environ:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
