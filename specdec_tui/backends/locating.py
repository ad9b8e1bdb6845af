"""Where the files of a model that was asked for are: the built-in pair's, or what `hub` finds."""

from __future__ import annotations

from specdec_tui.backends import demo, hub
from specdec_tui.backends.pair import ReportProgress
from specdec_tui.backends.presets import DEMO_DRAFTER, DEMO_TARGET, ModelSpec


def locate(spec: ModelSpec, progress: ReportProgress) -> hub.Location:
    """Its location; what is not there yet is fetched. LoadError."""
    if spec.source == DEMO_TARGET:
        file = demo.target_file(progress)
        return hub.Location(spec.source, file.parent, gguf_file=file.name)
    if spec.source == DEMO_DRAFTER:
        file = demo.drafter_file()
        return hub.Location(spec.source, file.parent, gguf_file=file.name)
    return hub.locate(spec.source, progress)
