"""What else of a request changes the text: fields that the settings of a trace have no place for. Pure functions.

Names, and values that change nothing, are those of vLLM (`CompletionRequest`) and of llama.cpp's `/completion`. A field
that neither is known to have counts as one that changes the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec_tui.doors.characters import named
from specdec_tui.traces.values import shown

ANSWERS = "n", "best_of", "n_cmpl"
"""Fields that ask for several answers where they are above 1."""
_MOST_TOLD = 8
_HARMLESS = frozenset(
    {
        *("model", "user", "request_id", "priority", "id_slot", "cache_prompt", "cache_salt", "n_cache_reuse"),
        *("stream", "stream_options", "logprobs", "prompt_logprobs", "n_probs", "post_sampling_probs"),
        *("return_token_ids", "return_tokens_as_token_ids", "return_tokens", "return_progress"),
        *("timings_per_token", "response_fields", "kv_transfer_params"),
    }
)
_DRAFTING = "speculative"  # how names begin that say how to draft: no text depends on it
_NEUTRAL = {
    **dict.fromkeys(("repetition_penalty", "repeat_penalty", "typical_p", "dynatemp_exponent", "length_penalty"), 1),
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens", "add_special_tokens"), True),
}


def changes_of(request: Mapping[str, Any], held: tuple[str, ...]) -> dict[str, Any]:
    """The fields beyond those that are `held` elsewhere whose values change the text."""
    beyond = {name: value for name, value in request.items() if name not in _HARMLESS.union(held, ANSWERS)}
    return {
        name: value
        for name, value in beyond.items()
        if not name.startswith(_DRAFTING) and value is not None and not _is_neutral(name, value)
    }


def sentence_of(changes: Mapping[str, Any]) -> str:
    """For a person."""
    told = [f"{named(name)} {shown(value)}" for name, value in changes.items()]
    more = f" and {len(told) - _MOST_TOLD:,} more" if len(told) > _MOST_TOLD else ""
    return f"it was asked for more than the settings here tell: {', '.join(told[:_MOST_TOLD])}{more}"


def _is_neutral(name: str, value: Any) -> bool:
    return bool(value == _NEUTRAL[name]) if name in _NEUTRAL else not value
