"""The contract between the decoding loop and a target on a server: asked by calls, it tells its best alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from specdec_tui.backends.model import CausalModel

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Drawing:
    """How a server is to draw a token: temperature 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 leave all."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


@dataclass(frozen=True, slots=True)
class Calls:
    """How a run asks a server. `added_latency`: seconds that each call is made to take longer, to stand for a distance.

    `stretch`: most tokens of a stream, where nothing is drafted; 0: all that are to come.
    """

    stretch: int = 0
    added_latency: float = 0.0


AT_ONCE = Calls()
"""In one stream, and as fast as the way is."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a server tells of the next token at one place of a text.

    The most probable `ids`, the best first, with their log-probabilities (natural, of the plain softmax): a known part
    of the distribution, of which nothing is left out that is more probable than the last of them. Behind them, in
    `others`, ids that are known without that. `drawn`: the token that the server itself drew there, by the `Drawing`
    that was asked, by its own chance; None where it was not asked to.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    drawn: int | None = None
    others: tuple[tuple[int, float], ...] = ()

    @property
    def known(self) -> dict[int, float]:
        """Log-probabilities by id, of all that is known."""
        return dict(zip(self.ids, self.logprobs, strict=True)) | dict(self.others)


@dataclass(frozen=True, slots=True)
class Answered:
    """A server's answer for the places behind a text and behind each draft, [drafts + 1].

    `wire_seconds` of the call's time were on the way; `calls` round trips were made.
    """

    told: tuple[Told, ...]
    wire_seconds: float
    calls: int = 1


@runtime_checkable
class Answering(Protocol):
    """A model on a server: it is asked by calls, keeps no context, and tells only its best alternatives.

    Calls raise `in_time.Stopped` once `cancelled`, and `remote.client.ServerError` where no answer can be had.
    """

    @property
    def alternatives(self) -> int:
        """Most alternatives that it tells of a place."""
        ...

    @property
    def added_latency(self) -> float:
        """Seconds that each call is made to take longer."""
        ...

    @property
    def tells_plainly(self) -> bool:
        """Whether what it tells is of the plain softmax, however it is asked to draw."""
        ...

    @property
    def round_trip(self) -> float:
        """Seconds to the server and back, as measured last."""
        ...

    def close(self) -> None:
        """End its connections: it is not asked any more."""
        ...

    def ping(self, cancelled: Callable[[], bool]) -> float:
        """Seconds to the server and back, now."""
        ...

    def refusal(self, drawing: Drawing) -> str:
        """Why it cannot draw so, exactly; empty where it can."""
        ...

    def begin(self, added_latency: float, cancelled: Callable[[], bool]) -> None:
        """Before the clock of a run: is it there, is it still the model that was connected to, how far is it?

        From here on each call takes `added_latency` seconds longer.
        """
        ...

    def check(self, cancelled: Callable[[], bool], *, anyway: bool = False) -> None:
        """Behind a call, with the clock stopped: where the connection is a new one, or `anyway`: the same model?

        `remote.errors.OtherModel` where it is not.
        """
        ...

    def notices(self) -> tuple[str, ...]:
        """What a reader should know of the calls since this was asked last: each try that failed."""
        ...

    def reference(
        self, prompt_ids: Sequence[int], ids: Sequence[int], cancelled: Callable[[], bool]
    ) -> Iterator[torch.Tensor]:
        """As `Referenced`: what it tells before each of `ids`, minus infinity where it tells nothing."""
        ...

    def ask(
        self,
        text: Sequence[int],
        drafts: Sequence[int],
        drawing: Drawing,
        alternatives: int,
        draws: bool,
        cancelled: Callable[[], bool],
    ) -> Answered:
        """One call for all places of a round. `draws`: the server is to draw at each of them, independently."""
        ...

    def stream(
        self, text: Sequence[int], drawing: Drawing, alternatives: int, most: int, cancelled: Callable[[], bool]
    ) -> Iterator[tuple[float, tuple[Told, ...]]]:
        """The server writes on by itself, at most `most` tokens: when each piece of it came, and its tokens.

        The time is that of `time.perf_counter`, in seconds. Closed, the server stops.
        """
        ...


@runtime_checkable
class AnsweringModel(CausalModel, Answering, Protocol):
    """What a run on a server is over: its context cannot be opened, it is asked."""
