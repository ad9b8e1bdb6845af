"""How far a model whose activations are rounded is from the exact one over the same weights, told over a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import torch

    from specdec_tui.backends.model import CausalModel

EXACT, ROUNDED = "packed", "packed-int8"
OWN = f"checked against {ROUNDED} itself, another model by a hair"
"""What the verdict of a lossless check says of such a model's run."""
_PASS = 128  # tokens: their rows over 150 thousand ids are 77 MB
_MOST = 512


@dataclass(frozen=True, slots=True)
class FormDistance:
    """`mean` and `most`: KL(exact ‖ rounded), in nats, at one of `tokens` places of a text; `agreement`: the share of
    them at which both have the same first choice."""

    tokens: int
    mean: float
    most: float
    agreement: float

    def in_words(self) -> str:
        return (
            f"KL(exact ‖ int8) {self.mean:.2g} on average, {self.most:.2g} at most; the same first choice at "
            f"{self.agreement:.1%} of {self.tokens:,} tokens"
        )


_KNOWN: WeakKeyDictionary[object, tuple[tuple[int, ...], FormDistance]] = WeakKeyDictionary()


def form_distance(model: CausalModel, ids: Sequence[int]) -> FormDistance | None:
    """The distance over a text, by one pass of each form, at its last 512 tokens. None for a model that is exact.

    What was measured last of a model is kept: several runs write the same text.
    """
    from specdec_tui.backends.model import WeightForms

    if not isinstance(model, WeightForms) or model.form != ROUNDED or not ids:
        return None
    text = tuple(ids)
    known = _KNOWN.get(model)
    if known is None or known[0] != text:
        known = _KNOWN[model] = (text, _measured(model.in_form(EXACT), model, text))
    return known[1]


def _measured(exact: CausalModel, rounded: CausalModel, text: tuple[int, ...]) -> FormDistance:
    total = most = 0.0
    agreed = count = 0
    for one, other in zip(_rows(exact, text), _rows(rounded, text), strict=True):
        expected, got = one.log_softmax(-1), other.log_softmax(-1)
        # Of an id that both give no chance nothing is added.
        apart = (expected.exp() * (expected - got)).nan_to_num(nan=0.0).sum(-1).clamp(min=0.0)
        total += float(apart.double().sum())
        most = max(most, float(apart.max()))
        agreed += int((one.argmax(-1) == other.argmax(-1)).sum())
        count += len(one)
    return FormDistance(count, total / count, most, agreed / count)


def _rows(model: CausalModel, text: tuple[int, ...]) -> Iterator[torch.Tensor]:
    """Logits after each of the last tokens, by passes of a context of their own."""
    context, unread = model.open(capacity=len(text)), max(0, len(text) - _MOST)
    if unread:
        context.extend(text[:unread], 1)
    for begin in range(unread, len(text), _PASS):
        part = text[begin : begin + _PASS]
        yield context.extend(part, len(part)).float()


def together(found: Iterable[FormDistance | None]) -> FormDistance | None:
    """The distance over several texts; None over none."""
    known = [one for one in found if one is not None]
    if not known:
        return None
    tokens = sum(one.tokens for one in known)
    mean, agreement = (
        sum(n * one.tokens for n, one in zip(ns, known, strict=True)) / tokens
        for ns in ([one.mean for one in known], [one.agreement for one in known])
    )
    return FormDistance(tokens, mean, max(one.most for one in known), agreement)
