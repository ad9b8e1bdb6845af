"""What traces say of the machine that they were made on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from specdec_tui.session import Elsewhere, Engine


def environment_of(engine: Engine) -> Mapping[str, Any]:
    """That of the process in which the engine computes."""
    if isinstance(engine, Elsewhere):
        return engine.environment()
    if "torch" not in sys.modules:  # nothing is loaded, and importing it would hold the screen up
        return {}
    from specdec_tui.benchmark.environment import describe_environment

    return describe_environment()
