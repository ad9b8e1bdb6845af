"""Can a drafter's ids be given to a target? Decided from configs and tokenizers alone, before any weights.

Vocabulary *sizes* say little: they are padded to different multiples within one family. What counts is
that an id means the same string on both sides; where it does not, whether one can read what the other writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from specdec_tui.backends.context_lengths import context_length_of
from specdec_tui.backends.description import ModelDescription
from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.token_bytes import spelling_of
from specdec_tui.backends.translation import Translation, can_write, translate
from specdec_tui.doors.characters import named

_SHOWN = 3


@dataclass(frozen=True)
class Compatibility:
    """`only_one_side`: ids with a token on one side alone, or with two, which no draft may have. `notes` for the user.

    `translation`: None where the tokenizers are the same, as far as ids have a token on both sides.
    """

    only_one_side: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    translation: Translation | None = None

    def shared_ids(self, vocab_size: int) -> torch.Tensor | None:
        """Bool [vocab_size], False for ids that only one side has; None when all are shared."""
        excluded = [token for token in self.only_one_side if token < vocab_size]
        if not excluded:
            return None
        mask = torch.ones(vocab_size, dtype=torch.bool)
        mask[excluded] = False
        return mask


def check(target: ModelDescription, drafter: ModelDescription) -> Compatibility:
    """Compare two models' tokens id by id, and where an id means two things, by the text they stand for.

    LoadError for tokenizers of which neither can write what the other's tokens stand for, and
    for a pair of which only one has an encoder: the other's drafts would answer another question.
    """
    if target.is_encoder_decoder != drafter.is_encoder_decoder:
        one, other = (target, drafter) if target.is_encoder_decoder else (drafter, target)
        raise LoadError(
            f"{target.spec.name} and {drafter.spec.name} do not go together: {one.spec.name} is an encoder-decoder "
            f"model ({one.config.model_type}), {other.spec.name} is decoder-only ({other.config.model_type})."
        )
    ours, theirs = known_tokens(target), known_tokens(drafter)
    differing = sorted(token for token in ours.keys() & theirs.keys() if ours[token] != theirs[token])
    lengths = context_length_of(target.text_config), context_length_of(drafter.text_config)
    shorter = []
    if lengths[1] is not None and (lengths[0] is None or lengths[1] < lengths[0]):
        shorter = [f"The drafter's context ends at {lengths[1]:,} tokens: from there on nothing is drafted by it."]
    added = target.tokenizer.added_tokens_decoder.keys() & drafter.tokenizer.added_tokens_decoder.keys()
    examples = ", ".join(
        f"id {token} is {named(repr(ours[token]))} in the target and {named(repr(theirs[token]))} in the drafter"
        for token in differing[:_SHOWN]
    )
    if not added.issuperset(differing):
        translation = _translation(target, drafter)
        both = len(translation.to_drafter)
        notes = [
            f"The drafter has another tokenizer than the target: {len(differing):,} of {len(ours):,} ids "
            f"differ ({examples}); {both:,} tokens stand for the same text in both."
        ]
        return Compatibility(notes=(*notes, *shorter), translation=translation)
    notes = []
    if differing:
        plural = "token means two things and is" if len(differing) == 1 else "tokens mean two things and are"
        notes.append(f"{len(differing):,} added {plural} never drafted: {examples}.")
    target_only, drafter_only = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
    for ids, tokens, side in ((target_only, ours, "target"), (drafter_only, theirs, "drafter")):
        if ids:
            are = "token is" if len(ids) == 1 else "tokens are"
            notes.append(f"{len(ids):,} {are} known to the {side} only and never drafted: {_some(ids, tokens)}.")
    sizes = target.text_config.vocab_size, drafter.text_config.vocab_size
    if sizes[0] != sizes[1]:
        notes.append(f"Vocabularies padded to different sizes: target {sizes[0]:,}, drafter {sizes[1]:,}.")
    return Compatibility(frozenset(target_only | drafter_only | set(differing)), (*notes, *shorter))


def _translation(target: ModelDescription, drafter: ModelDescription) -> Translation:
    ours, theirs = (spelling_of(model.tokenizer, model.text_config.vocab_size) for model in (target, drafter))
    for model, spelling in ((target, ours), (drafter, theirs)):
        if not spelling.bytes_of:
            raise LoadError(
                f"{target.spec.name} and {drafter.spec.name} do not share a tokenizer, and no token of "
                f"{model.spec.name}'s stands for text. Choose a drafter of the target's family."
            )
    translation = translate(ours, theirs, drafter.is_encoder_decoder)
    if not translation.to_drafter and not (can_write(ours, theirs) or can_write(theirs, ours)):
        raise LoadError(
            f"{target.spec.name} and {drafter.spec.name} do not share a tokenizer, have no token in common, and "
            "neither can write what the other does: nothing could be drafted. Choose a drafter of the target's family."
        )
    return translation


def known_tokens(model: ModelDescription) -> dict[int, str]:
    """The strings of the ids that a model has logits for; LoadError when its tokenizer is another model's.

    A few added tokens beyond the vocabulary are common and harmless; a hundredth of all is a mistake.
    """
    tokens, size = tokens_by_id(model.tokenizer), model.text_config.vocab_size
    known = {token: text for token, text in tokens.items() if token < size}
    if len(tokens) - len(known) > len(tokens) // 100:
        raise LoadError(
            f"{model.spec.name}: its vocabulary has {size:,} ids, but its tokenizer makes {len(tokens):,} "
            f"(up to id {max(tokens):,}): the tokenizer belongs to another model."
        )
    return known


def tokens_by_id(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Every token's string, added and special tokens included."""
    return {token: text for text, token in tokenizer.get_vocab().items()}


def _some(ids: Iterable[int], tokens: dict[int, str]) -> str:
    ordered = sorted(ids)
    shown = ", ".join(f"{token} {named(repr(tokens[token]))}" for token in ordered[:_SHOWN])
    return shown + (" …" if len(ordered) > _SHOWN else "")
