"""Where a model's texts end: where `generate` ends them, and where a turn of the chat template does."""

from __future__ import annotations

from collections.abc import Collection

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specdec_tui.backends.pair import LoadError
from specdec_tui.doors.characters import named

# Tokens that end a turn in a chat template although some models' files do not name them as ends.
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")
_NAMED = 5  # tokens that a sentence names
_NO_ID = 1 << 31


def end_ids(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> tuple[frozenset[int], tuple[str, ...]]:
    """The ids that end a text, and sentences on those that do not end one for `generate`, or end none here.

    `generate` asks the generation config alone, which transformers makes of the config where a model has none:
    what only the config or the tokenizer names ends no text. Template's turns end on purpose: an answer is over there.
    LoadError, naming the place, where one of them is no id.
    """
    config = model.config.get_text_config(decoder=True)
    used = _ids(name, "generation config", model.generation_config)
    named_elsewhere = _ids(name, "config", config) | _ids(name, "tokenizer", tokenizer)
    turns = _turn_ends(tokenizer)
    notes = []
    if more := turns - used:
        notes.append(f"{name}: its texts end at {_listed(more, tokenizer)} too, as chat turns do; generate goes on.")
    if passed := named_elsewhere - used - turns:
        notes.append(
            f"{name}: its texts go on after {_listed(passed, tokenizer)}, as those of generate do: "
            "its config or tokenizer calls it an end, its generation config does not."
        )
    return frozenset(used | turns), tuple(notes)


def ends_elsewhere(name: str, model: PreTrainedModel, ends: frozenset[int]) -> tuple[str, ...]:
    """A sentence on a drafter whose texts, written by itself, end at the target's `ends`, which are not its own."""
    used = _ids(name, "generation config", model.generation_config)
    if used == ends:
        return ()
    return (f"{name}: its texts end where the target's do, {_at(ends)}; those of generate end {_at(used)}.",)


def _at(ids: Collection[int]) -> str:
    return f"at {_listed(ids)}" if ids else "at no token"


def _turn_ends(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    template = tokenizer.chat_template
    if not template:
        return set()
    text = "".join(template.values()) if isinstance(template, dict) else template
    vocabulary = tokenizer.get_vocab()
    return {vocabulary[token] for token in _TURN_ENDS if token in text and token in vocabulary}


def _ids(name: str, place: str, source: object) -> set[int]:
    """The end ids that one place names, but for numbers that no token has, as -1 where there is no end."""
    value = getattr(source, "eos_token_id", None)
    ids = value if isinstance(value, list | tuple) else [value]
    if not all(id is None or type(id) is int for id in ids):
        raise LoadError(
            f"{name}: eos_token_id in its {place} must be a whole number or a list of them, not {value!r:.60}."
        )
    return {id for id in ids if id is not None and 0 <= id < _NO_ID}


def _listed(ids: Collection[int], tokenizer: PreTrainedTokenizerBase | None = None) -> str:
    """`token 3 (<|im_end|>)`, or the first few of several."""
    vocabulary = {} if tokenizer is None else tokenizer.get_vocab()
    tokens = {token: text for text, token in vocabulary.items() if token in ids}
    shown = [f"{id} ({named(tokens[id])})" if id in tokens else str(id) for id in sorted(ids)]
    more = f" and {len(shown) - _NAMED:,} more" if len(shown) > _NAMED else ""
    return ("token " if len(shown) == 1 else "tokens ") + ", ".join(shown[:_NAMED]) + more
