"""A target on a server, as decoding sees it: questions in place of passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from specdec_tui.backends.answering import Answered, Drawing, Told
from specdec_tui.backends.model import ModelContext
from specdec_tui.backends.remote.capabilities import Capabilities, is_same
from specdec_tui.backends.remote.completions import Completions
from specdec_tui.backends.remote.errors import OtherModel

_PINGS = 3
_PIECE = 32  # places of a text that are asked for in one call, where its prompts' log-probabilities are of no use
_OTHER_MODEL = "the server now answers as another model does: connect again"


class RemoteModel:
    """A model behind a completions API. It satisfies `CausalModel` as far as that can be, and `Answering`.

    `fingerprint`: what it told at connecting of the place behind `probe`; another answer is another model's.
    """

    def __init__(
        self,
        completions: Completions,
        capabilities: Capabilities,
        context_length: int | None,
        probe: Sequence[int],
        fingerprint: Told,
    ) -> None:
        self.completions, self.capabilities = completions, capabilities
        self._context_length, self._probe, self._fingerprint = context_length, tuple(probe), fingerprint
        self._reconnects = completions.client.reconnects
        self.round_trip = 0.0

    @property
    def vocab_size(self) -> int:
        return self.completions.vocab_size

    @property
    def context_length(self) -> int | None:
        return self._context_length

    @property
    def device(self) -> torch.device:
        """Where what it tells is: here."""
        return torch.device("cpu")

    @property
    def dtype(self) -> None:
        """Not known of a server."""
        return None

    @property
    def alternatives(self) -> int:
        return self.capabilities.alternatives

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> ModelContext:
        raise ValueError("a target on a server keeps no context here: it is asked round by round")

    def close(self) -> None:
        """End what is at work, and its connections. It cannot be asked again."""
        self.completions.client.close()

    def synchronize(self) -> None:
        return None

    def refusal(self, drawing: Drawing) -> str:
        needed = {name for name in ("top_k", "top_p", "min_p") if getattr(drawing, name) != getattr(Drawing(), name)}
        if lacking := {"temperature", *needed} - self.capabilities.draws if drawing.temperature else set():
            names = ", ".join(sorted(lacking)).replace("_", "-")
            return f"the server's own draws do not follow {names}, and its alternatives are too few to draw here"
        return ""

    @property
    def added_latency(self) -> float:
        return self.completions.client.added_latency

    @property
    def tells_plainly(self) -> bool:
        return self.capabilities.plain

    def ping(self, cancelled: Callable[[], bool]) -> float:
        return self.completions.client.ping(cancelled)

    def begin(self, added_latency: float, cancelled: Callable[[], bool]) -> None:
        """The round trip is measured anew, and the model told from another one by what it says of the probe."""
        self.completions.client.added_latency = added_latency
        self._refuse_another(cancelled)
        self.round_trip = min(self.completions.client.ping(cancelled) for _ in range(_PINGS))

    def ask(
        self,
        text: Sequence[int],
        drafts: Sequence[int],
        drawing: Drawing,
        alternatives: int,
        draws: bool,
        cancelled: Callable[[], bool],
    ) -> Answered:
        by_prefixes = self.capabilities.prefixes_seconds is not None and (
            draws or self.capabilities.faster == "prefixes"
        )
        way = self.completions.prefixes if by_prefixes else self.completions.scores
        told, reply = way(text, drafts, drawing, min(alternatives, self.alternatives), cancelled)
        return Answered(told, min(reply.seconds, self.round_trip), reply.tries)

    def stream(
        self, text: Sequence[int], drawing: Drawing, alternatives: int, most: int, cancelled: Callable[[], bool]
    ) -> Iterator[tuple[float, tuple[Told, ...]]]:
        return self.completions.stream(text, drawing, min(alternatives, self.alternatives), most, cancelled)

    def reference(
        self, prompt_ids: Sequence[int], ids: Sequence[int], cancelled: Callable[[], bool]
    ) -> Iterator[torch.Tensor]:
        """What the server tells before each of `ids` as logits [vocab_size], float32: minus infinity where nothing."""
        self._refuse_another(cancelled)  # it would be no yardstick
        text, first = [*prompt_ids, *ids], len(prompt_ids)
        if self.capabilities.scores_seconds is not None:
            told: Sequence[Told] = self.completions.whole(text, first, self.alternatives, cancelled)
        else:
            told = [
                one
                for begin in range(first, len(text), _PIECE)
                for one in self.completions.prefixes(
                    text[:begin],
                    text[begin : min(begin + _PIECE, len(text)) - 1],
                    Drawing(),
                    self.alternatives,
                    cancelled,
                )[0]
            ]
        for one in told:
            row = torch.full((self.vocab_size,), -torch.inf)
            row[list(one.known)] = torch.tensor(list(one.known.values()))
            yield row

    def check(self, cancelled: Callable[[], bool], *, anyway: bool = False) -> None:
        """A server that was away may have come back as another one."""
        if anyway or self._reconnects != self.completions.client.reconnects:
            self._refuse_another(cancelled)

    def _refuse_another(self, cancelled: Callable[[], bool]) -> None:
        told, _ = self.completions.prefixes(self._probe, (), Drawing(), min(10, self.alternatives), cancelled)
        self._reconnects = self.completions.client.reconnects
        if not is_same(told[0], self._fingerprint):
            raise OtherModel(_OTHER_MODEL, "answer")

    def notices(self) -> tuple[str, ...]:
        notices = self.completions.client.notices
        told = tuple(notices)
        notices.clear()
        return told
