"""What a load gives: a target with its drafters, ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from specdec_tui.backends.model import LoadedDrafter
from specdec_tui.backends.pair import PairInfo
from specdec_tui.backends.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from specdec_tui.backends.causal_lm import TransformersModel
    from specdec_tui.backends.encoder_decoder import EncoderDecoderModel
    from specdec_tui.backends.lean.model import LeanModel
    from specdec_tui.backends.remote.model import RemoteModel

Runnable: TypeAlias = "TransformersModel | LeanModel | EncoderDecoderModel | RemoteModel"


@dataclass(frozen=True)
class Pair:
    """A loaded target with its drafters. `asked`: what the target's files ask of a text, by setting."""

    target: Runnable
    drafters: tuple[LoadedDrafter, ...]
    tokenizer: PromptTokenizer
    end_ids: frozenset[int]
    info: PairInfo
    asked: Mapping[str, Any] = field(default_factory=dict)
