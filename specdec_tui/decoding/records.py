"""The one vocabulary: immutable records that every pane, figure, trace and benchmark consumes.

`decoding.loop.decode` yields the records of one run; `session` wraps each of them in a
`Step` (which strategy, and the text of its tokens) and adds `Checked` and `Finished`.
Nothing here imports torch, so a screen or a trace reader can use it without a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdec_tui.decoding.form_distance import FormDistance


class Status(StrEnum):
    """The fate of a token."""

    PENDING = "pending"  # drafted, not yet verified
    ACCEPTED = "accepted"  # draft token the target kept
    REJECTED = "rejected"  # draft token the target refused
    UNVERIFIED = "unverified"  # draft token behind a rejection: never judged
    RESAMPLED = "resampled"  # the correction emitted in place of the rejected draft
    BONUS = "bonus"  # extra token of a round whose drafts were all accepted
    SAMPLED = "sampled"  # plain draw: the prefill step, or a round without drafts


EMITTED = frozenset({Status.ACCEPTED, Status.RESAMPLED, Status.BONUS, Status.SAMPLED})


class EndReason(StrEnum):
    """Why a run ended."""

    END_TOKEN = "end_token"
    LENGTH = "length"  # max_new_tokens emitted
    CONTEXT = "context"  # the target's context is full
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Insight:
    """What both models thought at one position; computed with the clock paused, on request.

    Entropies in nats, of the processed distributions; under greedy sampling, where those are one-hot,
    of the plain softmax (`chances` tells which). Alternatives: (token id, probability), the ten most
    probable in order, and behind them the drafted and the drawn token where they are not among these.
    `residual_top`: of the normalised residual that a correction was drawn from; empty where no
    token was resampled, or the rule in force draws from no residual.
    """

    target_entropy: float | None = None
    drafter_entropy: float | None = None
    target_top: tuple[tuple[int, float], ...] = ()
    drafter_top: tuple[tuple[int, float], ...] = ()
    residual_top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a round.

    `position` counts new tokens from 0: the place the token holds (or would have held).
    `p` and `q` are the processed probabilities of this id under target and drafter,
    `acceptance` the probability with which the rule accepts it, `draw` the uniform number
    it was compared with. Each is None where the method has no such number.
    """

    id: int
    status: Status
    position: int
    p: float | None = None
    q: float | None = None
    acceptance: float | None = None
    draw: float | None = None
    insight: Insight | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Of a what-if: the run it is a child of, and what is other in it.

    `parent` is the name of that run (of its steps), of which the child keeps the first `position` new tokens: 0 where
    the whole text is decoded anew. `token`: the id that it has at that place in place of the parent's; None where only
    settings differ, `changes`, each by its name and its value as it is typed. `swept`: it is a run of a sweep over γ.
    """

    parent: str
    position: int
    token: int | None = None
    changes: tuple[tuple[str, str], ...] = ()
    swept: bool = False

    @property
    def given(self) -> int:
        """New tokens that the child's own decoding begins behind."""
        return self.position + (self.token is not None)


CHILD = "~"
"""Stands in the name of a child behind that of the strategy it runs: `speculative~1`."""


def strategy_of(name: str) -> str:
    """The strategy of a run of this name."""
    return name.partition(CHILD)[0]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run begins: nothing was computed yet. `alone`: no other run's rounds come between its own.

    `beams`: of a search, the texts that each of its passes goes on with; 0 where there is one text. `own_tokens`: its
    tokens are those of another tokenizer than the target's, and no measure of it. `origin`: it is a what-if, whose
    prompt is the parent's and the text that it was given; the places of its tokens go on from there. `served`: a server
    drafted and checked by itself, and this is what it told: of a round its whole seconds, as `verify_seconds`, and of
    its drafts those that were accepted.
    """

    strategy: str
    prompt_tokens: int
    gamma: int
    max_new_tokens: int
    alone: bool = False
    beams: int = 0
    own_tokens: bool = False
    origin: Origin | None = None
    served: bool = False


@dataclass(frozen=True, slots=True)
class Capturing:
    """The run's programs are being made, before its prefill; not sent where there are some already."""


@dataclass(frozen=True, slots=True)
class Beam:
    """One of the texts of a search behind the settled one: its last tokens (`LONGEST_BEAM` at most).

    `before`: how many tokens stand between the settled text and these. `score`: its log-probability, divided by its
    length as the search ranks it. `ended`: it is over, and waits for whether a better one is found.
    """

    ids: tuple[int, ...]
    score: float
    before: int = 0
    ended: bool = False


LONGEST_BEAM = 12


PassSeconds = tuple[tuple[int, float], ...]
"""Of passes of a model: how many tokens, and the seconds that one over so many takes."""


@dataclass(frozen=True, slots=True)
class PassLimit:
    """What no pass of a model on a machine can be below: its weights are read once, and multiplied with each token.

    `weight_bytes` of them; `multiply_adds` of one token, of which `integer_adds` are of whole numbers of 8 bits and the
    others of float32; the most that `threads` threads of the machine do of either in a second, as it was measured: of
    both kinds of multiply-adds, in this mixture. `passes` says what follows.
    """

    weight_bytes: int
    multiply_adds: int
    bytes_per_second: float
    multiply_adds_per_second: float
    threads: int
    integer_adds: int = 0


@dataclass(frozen=True, slots=True)
class PassTimes:
    """What passes of a model take, and what they would at least; nothing of either where it was not measured."""

    seconds: PassSeconds = ()
    limit: PassLimit | None = None


NOT_MEASURED = PassTimes()


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """Prompt processed by target and drafter, first token drawn (None when there was no room for it).

    `seconds` is the whole prefill, target and drafter. `capture_seconds` is what making the run's
    programs took before the clock ran, now or ahead: 0 where there are none, or a run had them already.
    `captured`: rounds are played as programs, whose passes are over γ+1 tokens however few drafts there
    are. `recomputes`: every pass of the target computes the whole text again. `beams`: of a search, whose first
    token a later round settles. `passes`: what passes of the run's model took, measured once for all runs before their
    clocks ran; none where they were not, or are not the passes of its rounds. `pass_limit`: what these would be at
    least, where it is known. `by_calls`: the target is on a server,
    and each of its passes a call: `calls` that the prefill took, and `wire_seconds` of `seconds` on the way.
    """

    token: Token | None
    seconds: float
    capture_seconds: float = 0.0
    captured: bool = False
    recomputes: bool = False
    beams: tuple[Beam, ...] = ()
    passes: PassSeconds = ()
    by_calls: bool = False
    wire_seconds: float = 0.0
    calls: int = 0
    pass_limit: PassLimit | None = None


@dataclass(frozen=True, slots=True)
class DraftsProposed:
    """Drafts of a round, all pending. Not sent for rounds without drafts.

    Of a search: its best text behind the settled one, which is no draft, and is told as far as it is new. The first
    `kept` tokens of what was pending before, and was not settled since, stand before it.
    """

    round: int
    drafts: tuple[Token, ...]
    kept: int = 0


@dataclass(frozen=True, slots=True)
class RoundVerified:
    """One finished round, counted from 0.

    `drafts` carry their fate; `emitted` is the token after the accepted drafts (resampled,
    bonus or sampled), None where the run ended on an accepted draft. Clock readings in
    seconds: drafting, the target pass, and the rest (verification draws, rewinds, storage updates).

    A step of a search has neither: its pass goes on with several texts, `beams` (the best first; none once the search
    is over), and adds to the text what they all share from then on, `settled`: nothing, or many tokens.

    Where the target is on a server `verify_seconds` is the server's time, `wire_seconds` that of the way there and
    back, and `calls` counts round trips: 0 for a token of a stream that is open already.

    `untold`: of a `served` run, how many drafts were refused or never judged, whose ids nobody knows; None where even
    their number was not told, and so not whether `emitted` stands in the place of one.
    """

    round: int
    drafts: tuple[Token, ...]
    emitted: Token | None
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    settled: tuple[Token, ...] = ()
    beams: tuple[Beam, ...] = ()
    wire_seconds: float = 0.0
    calls: int = 0
    untold: int | None = 0

    @property
    def seconds(self) -> float:
        return self.draft_seconds + self.verify_seconds + self.other_seconds + self.wire_seconds

    @property
    def new_tokens(self) -> tuple[Token, ...]:
        """The tokens this round added to the text."""
        kept = (*(t for t in self.drafts if t.status is Status.ACCEPTED), *self.settled)
        return kept if self.emitted is None else (*kept, self.emitted)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a reader must know, e.g. fewer drafts because the drafter's context is full."""

    message: str


STOP_STRING = "a stop string ended the text"
"""The message of a text that ended at its last token without that being an end token."""
_END_WORDS = {
    EndReason.END_TOKEN: "end token",
    EndReason.LENGTH: "length reached",
    EndReason.CONTEXT: "context full",
    EndReason.CANCELLED: "stopped",
    EndReason.ERROR: "failed",
}


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Always the last record of a run. `message` explains an error, a full context or an end without an end token.

    `unplaced`: of a `served` run, (rounds, drafts): so many of the rounds without a number of drafts had so many of
    them, and kept none. It is not told which rounds; None: nor how many.
    """

    reason: EndReason
    message: str = ""
    unplaced: tuple[int, int] | None = None

    @property
    def words(self) -> str:
        """The reason in two words, for a person."""
        return "stop string" if self.message == STOP_STRING else _END_WORDS[self.reason]


Record = RunStarted | Capturing | PrefillDone | DraftsProposed | RoundVerified | Notice | RunEnded


def tokens_of(record: Record) -> tuple[Token, ...]:
    """The tokens a record carries, in order: drafts, what was settled, then the emitted one."""
    match record:
        case PrefillDone(token=token) if token is not None:
            return (token,)
        case DraftsProposed(drafts=drafts):
            return drafts
        case RoundVerified(drafts=drafts, settled=settled, emitted=emitted):
            return (*drafts, *settled) if emitted is None else (*drafts, *settled, emitted)
    return ()


def beams_of(record: Record) -> tuple[Beam, ...]:
    """The texts that a search has behind the settled one."""
    return record.beams if isinstance(record, PrefillDone | RoundVerified) else ()


class LosslessStatus(StrEnum):
    IDENTICAL = "identical"
    NEAR_TIES = "near_ties"
    DIFFERENT = "different"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True)
class Lossless:
    """How one strategy's output compares with the target's own.

    `ties`: positions where the output is not the target's first choice but within the stated
    bound of it; `first_divergence`: first new-token index that differs from the target's run
    (None: none, or no such run); `gap`: the largest score gap met, in logits; `detail`: one
    sentence for a person, e.g. why the check does not apply; `distance`: of a model that rounds its activations to
    the exact one, over this text (in a trace it is told by `detail` alone).
    """

    status: LosslessStatus
    ties: int = 0
    first_divergence: int | None = None
    gap: float | None = None
    detail: str = ""
    distance: FormDistance | None = None


def first_difference(ids: Sequence[int], reference_ids: Sequence[int], cut_short: bool = False) -> int | None:
    """Index of the first token that differs (or that only one side has); None when there is none."""
    for index, (own, other) in enumerate(zip(ids, reference_ids, strict=False)):
        if own != other:
            return index
    return None if cut_short or len(ids) == len(reference_ids) else min(len(ids), len(reference_ids))


@dataclass(frozen=True, slots=True)
class Step:
    """A record of one strategy's run, with the text of each of `tokens_of(record)`.

    `texts` are the pieces that each token adds to the text before it; a token that ends inside
    a character has an empty piece, and the token that completes it carries the character.
    `prompt_text` is set on the step of `RunStarted` alone: the exact text given to the model.
    `answer` is set on the step of `RunEnded` alone: the whole text, special tokens left out; that
    step's `texts` holds the replacement characters of an unfinished last character, if there is one.
    `alternatives` are (token id, text) of the ids that the insight of the record, or a beam, names, each only
    once in a run: with the step where it is named first.
    """

    strategy: str
    record: Record
    texts: tuple[str, ...] = ()
    prompt_text: str = ""
    answer: str = ""
    alternatives: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """The lossless check of one strategy, sent after all runs of a prompt have ended."""

    strategy: str
    lossless: Lossless


@dataclass(frozen=True, slots=True)
class Finished:
    """All strategies of one prompt have run and been checked (or the prompt was cancelled)."""

    cancelled: bool = False


Event = Step | Checked | Finished
