"""The makers of valid inputs are those of the other tests."""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
sys.path += [str(_TESTS / room) for room in ("backends", "traces", "tui")]
