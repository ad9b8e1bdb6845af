"""A model's weights by the card that they lie on: the passes go from one to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from specdec_tui.backends.cards import Card
from specdec_tui.backends.decoder import Decoder
from specdec_tui.backends.gpu.tiles import Tiles
from specdec_tui.backends.gpu.weights import NONE, Affine, Norms, Weights, module_at


@dataclass(frozen=True, slots=True)
class Where:
    """The cards of a model's embedding, with its learned positions, of its layers, and of its head."""

    embedding: Card
    layers: tuple[Card, ...]
    head: Card


@dataclass(frozen=True, slots=True)
class Laid:
    """Weights as a `whole`, and its `parts` in the order of a pass: neighbours lie on different `cards`.

    The embedding lies on the card `embedded`, and with the first part where that is the same one; a part may be the
    head alone. `tiles` of each part.
    """

    whole: Weights
    embedded: Card
    cards: tuple[Card, ...]
    parts: tuple[Weights, ...]
    tiles: tuple[Tiles, ...]


def where_of(model: PreTrainedModel, decoder: Decoder) -> Where:
    """ValueError where one layer lies on several devices."""
    layers = module_at(model, decoder.family.layers)
    return Where(
        _card_of(model.get_input_embeddings()), tuple(map(_card_of, layers)), _card_of(model.get_output_embeddings())
    )


def _card_of(module: Any) -> Card:
    devices = {tensor.device for tensor in (*module.parameters(), *module.buffers())}
    if len(devices) != 1:
        raise ValueError("its layers lie on several devices each")
    return Card(devices.pop())


def parted(weights: Weights, where: Where) -> tuple[tuple[Card, ...], tuple[Weights, ...]]:
    """The parts of weights, and their cards, with copies of what a card needs of others: norms and rotations."""
    count = len(weights.layers)
    runs = [(card, [*numbers]) for card, numbers in groupby(range(count), lambda index: where.layers[index])]
    if where.head != runs[-1][0]:
        runs.append((where.head, []))
    found, begin = [], 0
    for place, (card, numbers) in enumerate(runs):
        end, here = begin + len(numbers), where.embedding == card

        def there(tensor: Tensor, card: Card = card, here: bool = here) -> Tensor:
            return tensor if here else tensor.to(card.device, copy=True)

        after: Norms = weights.layers[end].norms if end < count else (weights.last_norm, None, None, None)
        first, second = (norm and _copied(norm, card, copy=end < count) for norm in after[::2])
        found.append(
            replace(
                weights,
                decoder=replace(weights.decoder, layers=weights.decoder.layers[begin:end]),
                layers=weights.layers[begin:end],
                embedding=weights.embedding if here and not place else there(weights.embedding[:0]),
                places=weights.places if place else there(weights.places),
                last_norm=first,
                other_last=second,
                head=weights.head if place == len(runs) - 1 else Affine(NONE, NONE),
                cosines=tuple(map(there, weights.cosines)),
                sines=tuple(map(there, weights.sines)),
            )
        )
        begin = end
    return tuple(card for card, _ in runs), tuple(found)


def _copied(norm: Affine, card: Card, copy: bool) -> Affine:
    """On a card; `copy`: it is of another one."""
    weight, bias = (tensor.to(card.device, copy=copy) for tensor in (norm.weight, norm.bias))
    return replace(norm, weight=weight, bias=bias)


def whole(weights: Weights, tiles: Tiles) -> Laid:
    """All on the card of the embedding."""
    card = Card(weights.embedding.device)
    return Laid(weights, card, (card,), (weights,), (tiles,))
