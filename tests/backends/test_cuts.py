"""However a text is cut into passes, logits are those of `generate`: the probe of all families, on one of each kind."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from specdec_tui.backends.cache import RewindableCache
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.contexts import RecomputedContext


@cache
def probe() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "cuts.py"
    spec = importlib.util.spec_from_file_location("cuts", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


FAMILIES = [
    "llama",
    "llama + yarn",
    "mistral",  # a sliding window
    "gemma3_text",  # windows in some layers, two rotations
    "llama4_text",  # chunks, and temperatures by position
    "gpt_oss",  # sinks, experts
    "deepseek_v3",  # latent keys
    "mpt",  # positions as a bias of attention
    "opt",  # a table of positions with an offset
    "xglm",  # positions of sines
    "mamba",  # a state
    "recurrent_gemma",  # a state and windows
    "qwen3_next",  # a state in some layers
    "lfm2",  # convolutions in some layers
]
LENGTH_DEPENDENT = ["llama + dynamic", "llama + longrope", "phi3 + longrope", "phimoe + longrope"]


@pytest.mark.parametrize("family", FAMILIES + LENGTH_DEPENDENT)
def test_pieces_and_rewinds_give_the_logits_of_generate(family: str) -> None:
    found = probe().look(family)
    assert max(found.cached, found.recomputed, found.reference) < probe().TOLERANCE, found
    # The probe must be able to tell: a whole text in one pass is another one where rotations depend on its length.
    assert (found.whole > 0.01) == (family in LENGTH_DEPENDENT), found


@pytest.mark.parametrize("way", ["cached", "recomputed", "reference"])
def test_each_way_to_the_logits_is_looked_at_for_itself(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong in one of them is found in that one."""
    made = TransformersModel.__init__

    def faulty(self: TransformersModel, model: Any) -> None:
        made(self, model)  # its own trial is before the fault
        if way == "cached":
            monkeypatch.setattr(RewindableCache, "rewind", lambda self, length: None)
        elif way == "recomputed":
            extend = RecomputedContext.extend
            monkeypatch.setattr(RecomputedContext, "extend", lambda self, ids, keep: extend(self, [7, *ids[1:]], keep))
        else:
            forward = self._whole
            monkeypatch.setattr(self, "_whole", lambda text, begin, end: forward(text[::-1], begin, end))

    monkeypatch.setattr(TransformersModel, "__init__", faulty)
    found = probe().look("llama")
    wrong = {name for name in ("cached", "recomputed", "reference") if getattr(found, name) > probe().TOLERANCE}
    assert wrong == {way}
