"""The contract between the decoding loop and whatever computes logits.

Structural types only: a backend need not import anything to satisfy them, and the scripted
models of the tests are as good as a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from typing import Self

    import torch

    from specdec_tui.backends.cards import Card
    from specdec_tui.backends.tokenizer import PromptTokenizer
    from specdec_tui.backends.translation import Translation

# A short chat should not pay for attention over a long context, nor each length for a program of its own.
_SMALLEST, _STEP = 256, 2048


def bucket(length: int) -> int:
    """The capacity for a text of `length` tokens: 256 and its doubles up to 2,048, then multiples of that."""
    if length > _STEP:
        return -(-length // _STEP) * _STEP
    return max(_SMALLEST, 1 << (length - 1).bit_length())


class ModelContext(Protocol):
    """One sequence inside a model: its cached tokens, extended and rewound exactly."""

    @property
    def length(self) -> int:
        """Tokens held."""
        ...

    @property
    def recomputes(self) -> bool:
        """Whether every extension computes the whole sequence again, because nothing of it is kept."""
        ...

    def extend(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        """Append `ids` and return the logits after each of the last `keep` of them.

        Shape [keep, vocab_size], float32, on the model's device; keep <= len(ids).
        The caller may not modify the result, and may keep it: it never changes afterwards.
        Raises ValueError past the context length.
        """
        ...

    def rewind(self, length: int) -> None:
        """Forget all tokens from index `length` on, as if they had never been fed."""
        ...


class CausalModel(Protocol):
    """A causal language model at batch size 1."""

    @property
    def vocab_size(self) -> int:
        """Width of the logits (padding rows included)."""
        ...

    @property
    def context_length(self) -> int | None:
        """Most tokens a context can hold; None when unbounded. See `longest_text`."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the logits are."""
        ...

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> ModelContext:
        """A new empty context. `capacity` is a hint of the tokens it will hold.

        With `use_cache=False` every extension recomputes the whole sequence: the same logits,
        slower, to show what the cache buys. (What an encoder made of the prompt is no cache: `generate` keeps it too.)
        """
        ...

    def synchronize(self) -> None:
        """Wait for the device, so that a clock reading is honest. Cheap on the CPU."""
        ...


@dataclass(frozen=True, eq=False)
class OtherTokenizer:
    """A tokenizer that is not the target's: its model's tokens as the target's, and what it takes to run that alone."""

    translation: Translation
    tokenizer: PromptTokenizer
    end_ids: frozenset[int]


@dataclass(frozen=True, eq=False)
class LoadedDrafter:
    """A model loaded to draft for a target, and how its tokens are the target's.

    `shared_ids`: bool [target vocabulary] on the target's device, False for ids that no draft may have; None: no
    such id. `other`: None where the tokenizer is the target's, so that an id means the same on both sides.
    """

    model: CausalModel
    shared_ids: torch.Tensor | None = None
    other: OtherTokenizer | None = None


@dataclass(frozen=True, slots=True)
class PassCost:
    """`weight_bytes`, each read once in a pass over however many tokens; `multiply_adds` of one token.

    `integer_adds` of these are of whole numbers of 8 bits, the others of float32.
    """

    weight_bytes: int
    multiply_adds: int
    integer_adds: int = 0


@runtime_checkable
class Costing(Protocol):
    """A model on the CPU that says what bounds its passes."""

    @property
    def pass_cost(self) -> PassCost:
        """With the output matrix, of which a pass that verifies reads and multiplies all rows."""
        ...


@runtime_checkable
class ReadingApart(Protocol):
    """A model that reads the prompt in one place and writes in another, each with a length of its own.

    Its `context_length` is that of the place where it writes.
    """

    @property
    def begin(self) -> tuple[int, ...]:
        """What stands there before the new tokens."""
        ...

    def longest_text(self, prompt_length: int) -> int | None:
        """See `longest_text`; less than the prompt's own length where that is too long."""
        ...


def longest_text(model: CausalModel, prompt_length: int) -> int | None:
    """Most tokens, the prompt's included, of a text that begins with a prompt of so many; None when unbounded."""
    return model.longest_text(prompt_length) if isinstance(model, ReadingApart) else model.context_length


def begin_of(model: CausalModel) -> tuple[int, ...] | None:
    """What a text begins with where its prompt is read apart; None where it begins with the prompt."""
    return model.begin if isinstance(model, ReadingApart) else None


@runtime_checkable
class Expecting(Protocol):
    """A context whose logits depend on how long its prompt is, not only on what it holds.

    While it holds less than that it may give rows that are no numbers.
    """

    def expect(self, length: int) -> None:
        """Before anything is held: the prompt will have `length` tokens, in however many pieces it comes."""
        ...


@runtime_checkable
class ReadAtOnce(Protocol):
    """A context of which it may be that only its first pass takes in many tokens as fast as one pass can."""

    @property
    def at_once(self) -> bool:
        """Whether it is so: a later extension costs as many passes as it has tokens."""
        ...


def reads_at_once(context: ModelContext) -> bool:
    return isinstance(context, ReadAtOnce) and context.at_once


class Branches(Protocol):
    """Several texts with one beginning, of equal length."""

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        """Go on with texts, each a token behind the one at its place of `parents`.

        The logits behind each: [len(tokens), vocab_size], float32. Raises ValueError past the context length.
        """
        ...


@runtime_checkable
class Branching(Protocol):
    """A context that can go on with several texts in one pass."""

    def branches(self) -> Branches | None:
        """Those that go on from what it holds, one at first. It is not used itself from then on.

        None where that cannot be done, and it is as before.
        """
        ...


@runtime_checkable
class Copying(Protocol):
    """A context that can take over what another one of the same model has read."""

    def take(self, other: ModelContext, begin: int) -> None:
        """Hold all that `other` holds; the first `begin` tokens of both are the same."""
        ...


@runtime_checkable
class Referenced(Protocol):
    """A model that can say without its contexts what follows: the yardstick they are checked against."""

    def reference(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> Iterator[torch.Tensor]:
        """Logits [vocab_size], float32, before each of `ids`, the new tokens of a text.

        From transformers' own layers and the whole text at once, without a cache; where their logits depend on how
        a text is cut, from passes cut as its `generate` cuts them.
        """
        ...


@runtime_checkable
class Rounding(Protocol):
    """A model that can say how far its own rounding goes."""

    def rounding(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> float | None:
        """How far apart two of the ten best tokens come, in logits, when a text is cut into other passes.

        The furthest before any of `ids`, its new tokens. None for a model whose dtype tells enough.
        """
        ...


@runtime_checkable
class WeightForms(Protocol):
    """A model whose weights can be held in other forms, each a value of the setting `weights`."""

    @property
    def form(self) -> str:
        """The one that this instance computes with."""
        ...

    @property
    def forms(self) -> tuple[str, ...]:
        """All that it can be held in, this one among them."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Bytes of its weights in this form."""
        ...

    def in_form(self, form: str) -> Self:
        """The same model over another form of the same weights, kept while both are used.

        LoadError, in one line, where that cannot be.
        """
        ...


def nothing() -> None:
    """What is done between the parts of something that nobody wants to break off."""


class StaticSequence(Protocol):
    """One sequence in memory of a fixed place and size, for programs that a CUDA graph holds.

    It keeps no length of its own: a pass is told where it begins, and what lay there and behind is forgotten.
    """

    @property
    def card(self) -> Card:
        """Where it takes ids and leaves logits."""
        ...

    @property
    def capacity(self) -> int:
        """Tokens it has room for."""
        ...

    def prefill(self, ids: torch.Tensor, between: Callable[[], None] = nothing) -> torch.Tensor:
        """Take in a text int64 [n] from its beginning: logits [1, vocab_size], float32, after its last token.

        What `between` raises, which is called every so many tokens, breaks it off.
        """
        ...

    def extend(self, ids: torch.Tensor, begin: torch.Tensor, keep: int) -> torch.Tensor:
        """Logits [keep, vocab_size], float32, after each of the last `keep` of `ids`, at places from `begin` on.

        ids int64 [m] and begin int64 [1] are on its card, and so is the result, which no later pass overwrites. Never
        waits for the device.
        """
        ...


@runtime_checkable
class StaticModel(CausalModel, Protocol):
    """A `CausalModel` that can also be run as a `StaticSequence`.

    `static_note` is what a person should know of how that is done, once it was; empty for nothing.
    """

    static_note: str

    def open_static(self, capacity: int) -> StaticSequence:
        """A sequence of at least `capacity` tokens. ValueError, with the reason, when the model cannot be run so."""
        ...
