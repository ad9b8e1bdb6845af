"""How CPU threads wait for their next share of a product, chosen before torch is imported.

OpenMP threads may sleep between parallel regions, which costs a wake-up for each of the hundred
regions of a pass (a small drafter's step takes twice as long), or spin, which takes the core on
which the app paints and on which another process measures. Spinning for about a millisecond
bridges the gaps within a pass and no more.
"""

from __future__ import annotations

import os

SPINS = 20_000


def prepare_threads() -> None:
    """Let OpenMP threads spin shortly unless the user's environment decides. No effect once torch is imported."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
