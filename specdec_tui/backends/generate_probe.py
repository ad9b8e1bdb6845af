"""What `generate` gives a model beside the text: asked, because a model's class may prepare its inputs as it likes.

Most classes are given the tokens of the text and nothing that changes what they say. RoBERTa and its kin
begin to number tokens behind their padding id, and `generate` numbers them from 0; XLM is given a mask token
behind the text, XLNet a dummy token and a permutation. A decoder with an encoder begins with a token of its
own. Whether and how depends on the version of transformers, and its text is what ours is held against. So a
short text is gone on with, and the logits are held against those of passes over the text.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel

from specdec_tui.backends.errors import is_out_of_memory, plainly

_PROMPT, _STEPS = 20, 2  # tokens
# Where classes say what `generate` gives them.
_HOOKS = (
    "prepare_inputs_for_generation",
    "_update_model_kwargs_for_generation",
    "_prepare_position_ids_for_generation",
)
# A difference that rounding can make, as a share of the logits' size: passes have the same shapes, but not the same
# kernels where a mask is given. In half precision experts change with them, and bitsandbytes rounds by the block.
_EXACT, _HALF, _QUANTIZED = 1e-3, 0.05, 0.2
_CACHED = 0.3  # where passes have other shapes, in half precision


@dataclass(frozen=True)
class Inputs:
    """What a model must be given: `numbered` tokens (from 0) or just the text.

    `refused`: why no pass over the text gives the logits of `generate`; `unknown`: why it could not be asked.
    """

    numbered: bool = False
    refused: str = ""
    unknown: str = ""


@torch.inference_mode()
def inputs_of_generate(model: PreTrainedModel, room: int | None) -> Inputs:
    """How the logits of `generate`, which goes on with a text, are had. `room`: the model's context, in tokens."""
    text = _text_for(model, _PROMPT if room is None else max(1, min(_PROMPT, room - _STEPS)))
    own = [name for name in _HOOKS if getattr(type(model), name, None) is not getattr(GenerationMixin, name, None)]
    told: list[tuple[tuple[torch.Tensor, ...], float]] = []
    fault = ""
    for use_cache in (False, True):  # what a class adds may depend on it
        if use_cache and told and not own:
            break
        try:
            told.append((_told(model, text, use_cache), _bound(model, use_cache)))
            fault = ""
        except Exception as error:  # a model's own code, or one that `generate` has no use for
            if is_out_of_memory(error):
                raise
            fault = plainly(error)
    if all(_are_of(model, text, rows, bound, numbered=False) for rows, bound in told):
        return Inputs(unknown=fault)
    try:
        if "position_ids" in inspect.signature(type(model).forward).parameters and all(
            _are_of(model, text, rows, bound, numbered=True) for rows, bound in told
        ):
            return Inputs(numbered=True, unknown=fault)
    except Exception as error:
        if is_out_of_memory(error):
            raise
    if not _varies(model, text):
        theirs = f"its own {own[0]}" if own else "its logits are others"
        return Inputs(refused=f"generate does not give it the text as it is ({theirs})")
    return Inputs(refused="its scores for the same text vary from pass to pass")


def input_device(model: PreTrainedModel) -> torch.device:
    """Where a model takes its ids."""
    place: torch.device = next(model.get_input_embeddings().parameters()).device
    if place.type != "meta":
        return place
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")  # offloaded: accelerate's hook moves them


def start_id(model: PreTrainedModel) -> int | None:
    """What `generate` gives a decoder with an encoder before its text; None where no file names that."""
    config = model.generation_config
    named = getattr(config, "decoder_start_token_id", None)
    named = getattr(config, "bos_token_id", None) if named is None else named
    return named[0] if isinstance(named, list) and len(named) == 1 else named


@dataclass(frozen=True)
class _Text:
    """Ids [1, n], of which the last are what `generate` is made to write; `read` [1, m] is the encoder's, if any."""

    ids: torch.Tensor
    read: torch.Tensor | None = None

    @property
    def begin(self) -> torch.Tensor:
        """What `generate` is given."""
        return self.ids[:, :-_STEPS] if self.read is None else self.read

    def until(self, place: int) -> dict[str, torch.Tensor]:
        """What a pass over the text before a place is given."""
        ids = self.ids[:, :place]
        return {"input_ids": ids} if self.read is None else {"input_ids": self.read, "decoder_input_ids": ids}


def _text_for(model: PreTrainedModel, length: int) -> _Text:
    plain = torch.tensor([plain_ids(model, length + _STEPS)], device=input_device(model))
    if not model.config.is_encoder_decoder:
        return _Text(plain)
    written = torch.cat((plain.new_full((1, 1), start_id(model) or 0), plain[:, -_STEPS:]), 1)
    return _Text(written, plain[:, :length])


def _told(model: PreTrainedModel, text: _Text, use_cache: bool) -> tuple[torch.Tensor, ...]:
    """The logits [vocabulary] that `generate`, made to write a text, has before each of its last 2 tokens.

    Without the model's generation config: its penalties and end ids say nothing of the inputs.
    """

    def force(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scores, -torch.inf).index_fill(1, text.ids[0, ids.shape[1]].to(scores.device), 0.0)

    begin = text.begin
    config = GenerationConfig(
        max_new_tokens=_STEPS,
        do_sample=False,
        use_cache=use_cache,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
        decoder_start_token_id=None if text.read is None else int(text.ids[0, 0]),
    )
    kept, model.generation_config = model.generation_config, GenerationConfig()
    try:
        found = model.generate(
            begin, attention_mask=torch.ones_like(begin), generation_config=config, logits_processor=[force]
        )
    finally:
        model.generation_config = kept
    if found.sequences.shape != text.ids.shape or len(found.logits) != _STEPS:
        raise ValueError(f"it makes {list(found.sequences.shape)} tokens of {list(begin.shape)}")
    return tuple(row[0].float() for row in found.logits)


def _are_of(model: PreTrainedModel, text: _Text, rows: Sequence[torch.Tensor], bound: float, *, numbered: bool) -> bool:
    """Whether passes over the text alone give these logits before its last tokens."""
    last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(type(model).forward).parameters else {}
    for place, told in enumerate(rows, text.ids.shape[1] - len(rows)):
        count = torch.arange(place, device=text.ids.device)[None]
        places = {"position_ids": count} if numbered else {}
        ours = (
            model(**text.until(place), use_cache=False, return_dict=True, **last, **places)
            .logits[0, -1]
            .float()
            .to(told.device)
        )
        if ours.shape != told.shape:
            return False
        apart = torch.where(ours == told, 0.0, (ours - told).abs()).max()  # infinite ones may be equal
        scale = torch.where(told.isfinite(), told.abs(), 0.0).max().clamp(min=1e-6)
        if apart > bound * scale:  # False for NaN, which others tell of
            return False
    return True


def _varies(model: PreTrainedModel, text: _Text) -> bool:
    given = text.until(text.ids.shape[1])
    one, other = (model(**given, use_cache=False, return_dict=True).logits[0, -1].float() for _ in range(2))
    return float((one - other).abs().max()) > _EXACT * float(one.abs().max())


def _bound(model: PreTrainedModel, use_cache: bool) -> float:
    quantized = getattr(model, "is_quantized", False)
    if model.dtype in (torch.float32, torch.float64) and not quantized:
        return _EXACT
    return _CACHED if use_cache else _QUANTIZED if quantized else _HALF


def plain_ids(model: PreTrainedModel, length: int) -> list[int]:
    """Ids without those that a config has a use for: padding changes what a model is given, whoever gives it."""
    config = model.config.get_text_config(decoder=True)
    used: set[object] = set()
    for name, value in vars(config).items():
        if name.endswith(("_id", "_index")):
            used |= set(value) if isinstance(value, list | tuple) else {value}
    size = max(2, int(config.vocab_size))
    free = [token for token in range(min(size, 200)) if token not in used] or [0]
    return [free[(7 * place + 3) % len(free)] for place in range(length)]
