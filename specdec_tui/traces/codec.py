"""Events from the lines of a trace, one JSON object each; `encoding` writes them.

A step is written flat: `event` is the kind of its record, beside it stand the strategy, the record's
own fields under their names, and the step's texts. What a line must hold to be read is declared in
the structs below, which msgspec checks; fields that they do not have are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec

from specdec_tui.decoding.form_distance import FormDistance
from specdec_tui.decoding.records import (
    LONGEST_BEAM,
    Beam,
    Capturing,
    Checked,
    DraftsProposed,
    EndReason,
    Event,
    Finished,
    Insight,
    Lossless,
    LosslessStatus,
    Notice,
    Origin,
    PassLimit,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
    tokens_of,
)
from specdec_tui.traces.bounds import (
    LONGEST_ANSWER,
    LONGEST_MESSAGE,
    LONGEST_NAME,
    LONGEST_PIECE,
    LONGEST_PROMPT,
    MOST_ALTERNATIVES,
    MOST_BEAMS,
    MOST_CHANGES,
    MOST_DRAFTS,
    MOST_LENGTHS,
    MOST_TOKENS,
)
from specdec_tui.traces.encoding import KINDS
from specdec_tui.traces.values import BadField, shown

# What a file can hold has the bounds of what the app can make: beyond them is damage, and would break what shows it.
_SLACK = 0.001  # what rounding may add to a probability, or take from an entropy
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Some = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Drafts = Annotated[int, msgspec.Meta(ge=0, le=MOST_DRAFTS)]
Length = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]
Position = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS + MOST_DRAFTS)]
Chance = Annotated[float, msgspec.Meta(ge=0, le=1 + _SLACK)]
Score = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
Nats = Annotated[float, msgspec.Meta(ge=-_SLACK, le=1000)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e6)] | None  # null where what was measured is no number: read as 0
PassTime = tuple[Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)], Annotated[float, msgspec.Meta(ge=0, le=1e6)]]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e18)]
Passes = Annotated[tuple[PassTime, ...], msgspec.Meta(max_length=MOST_LENGTHS)]
Top = Annotated[tuple[tuple[Count, Chance], ...], msgspec.Meta(max_length=MOST_ALTERNATIVES)]
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
Piece = Annotated[str, msgspec.Meta(max_length=LONGEST_PIECE)]
Message = Annotated[str, msgspec.Meta(max_length=LONGEST_MESSAGE)]
Answer = Annotated[str, msgspec.Meta(max_length=LONGEST_ANSWER)]
_Texts = Annotated[tuple[Piece, ...], msgspec.Meta(max_length=MOST_TOKENS + MOST_DRAFTS + 1)]
Prompt = Annotated[str, msgspec.Meta(max_length=LONGEST_PROMPT)]


class _Insight(msgspec.Struct, gc=False):
    target_entropy: Nats | None = None
    drafter_entropy: Nats | None = None
    target_top: Top = ()
    drafter_top: Top = ()
    residual_top: Top = ()


class _Token(msgspec.Struct, gc=False):
    id: Count
    status: Status
    position: Position
    p: Chance | None = None
    q: Chance | None = None
    acceptance: Chance | None = None
    draw: Chance | None = None
    insight: _Insight | None = None

    def token(self) -> Token:
        seen = self.insight
        return Token(
            self.id,
            self.status,
            self.position,
            self.p,
            self.q,
            self.acceptance,
            self.draw,
            None if seen is None else Insight(*msgspec.structs.astuple(seen)),
        )


class _Beam(msgspec.Struct, gc=False):
    ids: Annotated[tuple[Count, ...], msgspec.Meta(max_length=LONGEST_BEAM)]
    score: Score
    before: Length = 0
    ended: bool = False

    def beam(self) -> Beam:
        return Beam(self.ids, self.score, self.before, self.ended)


_Beams = Annotated[tuple[_Beam, ...], msgspec.Meta(max_length=MOST_BEAMS)]
_Settled = Annotated[tuple[_Token, ...], msgspec.Meta(max_length=MOST_TOKENS)]
_Drafted = Annotated[tuple[_Token, ...], msgspec.Meta(max_length=MOST_DRAFTS)]


class _Distance(msgspec.Struct):
    tokens: Count
    mean: Nats
    most: Nats
    agreement: Chance


class _Verdict(msgspec.Struct):
    status: LosslessStatus
    ties: Count = 0
    first_divergence: Count | None = None
    gap: Annotated[float, msgspec.Meta(ge=0)] | None = None
    detail: Message = ""
    distance: _Distance | None = None

    def lossless(self) -> Lossless:
        told = self.distance
        distance = None if told is None else FormDistance(*msgspec.structs.astuple(told))
        return Lossless(self.status, self.ties, self.first_divergence, self.gap, self.detail, distance)


class _Line(msgspec.Struct, tag_field="event"):
    """One line of a trace."""

    def event(self) -> Event:
        raise NotImplementedError


class _StepLine(_Line, kw_only=True):
    strategy: Name
    texts: Annotated[tuple[Piece, ...], msgspec.Meta(max_length=MOST_DRAFTS + 1)] = ()
    prompt_text: Prompt = ""
    answer: Answer = ""
    alternatives: Annotated[dict[Count, Piece], msgspec.Meta(max_length=3 * MOST_ALTERNATIVES * (MOST_DRAFTS + 1))] = {}

    def record(self) -> Record:
        raise NotImplementedError

    def event(self) -> Step:
        record = self.record()
        return Step(self.strategy, record, self.texts, self.prompt_text, self.answer, tuple(self.alternatives.items()))


class _TokensLine(_StepLine, kw_only=True):
    def event(self) -> Step:
        step = super().event()
        if len(step.texts) != (count := len(tokens_of(step.record))):
            raise BadField("texts", f"must hold one text for each of the {count} tokens, not {len(step.texts)}")
        return step


class _Origin(msgspec.Struct, gc=False):
    parent: Name
    position: Length
    token: Count | None = None
    changes: Annotated[dict[Name, Name], msgspec.Meta(max_length=MOST_CHANGES)] = {}
    swept: bool = False

    def origin(self) -> Origin:
        return Origin(self.parent, self.position, self.token, tuple(self.changes.items()), self.swept)


class _Started(_StepLine, tag="run_started", kw_only=True):
    run: Name | None = None
    prompt_tokens: Count
    gamma: Drafts
    max_new_tokens: Length
    alone: bool = False
    beams: Annotated[int, msgspec.Meta(ge=0, le=MOST_BEAMS)] = 0
    own_tokens: bool = False
    origin: _Origin | None = None
    served: bool = False

    def record(self) -> RunStarted:
        origin = None if self.origin is None else self.origin.origin()
        name, how = self.run or self.strategy, (self.alone, self.beams, self.own_tokens, origin, self.served)
        return RunStarted(name, self.prompt_tokens, self.gamma, self.max_new_tokens, *how)


class _Capturing(_StepLine, tag="capturing"):
    def record(self) -> Capturing:
        return Capturing()


class _PassLimit(msgspec.Struct, gc=False):
    weight_bytes: Some
    multiply_adds: Some
    bytes_per_second: Rate
    multiply_adds_per_second: Rate
    threads: Some
    integer_adds: Count = 0

    def limit(self) -> PassLimit:
        return PassLimit(*msgspec.structs.astuple(self))


class _Prefill(_TokensLine, tag="prefill_done", kw_only=True):
    token: _Token | None = None
    seconds: Seconds
    capture_seconds: Seconds = 0.0
    captured: bool = False
    recomputes: bool = False
    beams: _Beams = ()
    passes: Passes = ()
    by_calls: bool = False
    wire_seconds: Seconds = 0.0
    calls: Count = 0
    pass_limit: _PassLimit | None = None

    def record(self) -> PrefillDone:
        seconds = self.seconds or 0.0, self.capture_seconds or 0.0
        return PrefillDone(
            _token(self.token),
            *seconds,
            self.captured,
            self.recomputes,
            _beams(self.beams),
            self.passes,
            self.by_calls,
            self.wire_seconds or 0.0,
            self.calls,
            None if self.pass_limit is None else self.pass_limit.limit(),
        )


class _Proposed(_TokensLine, tag="drafts_proposed", kw_only=True):
    round: Length
    drafts: _Settled
    kept: Length = 0
    texts: _Texts = ()

    def record(self) -> DraftsProposed:
        return DraftsProposed(self.round, tuple([draft.token() for draft in self.drafts]), self.kept)


class _Verified(_TokensLine, tag="round_verified", kw_only=True):
    round: Length
    drafts: _Drafted
    emitted: _Token | None = None
    draft_seconds: Seconds
    verify_seconds: Seconds
    other_seconds: Seconds
    settled: _Settled = ()
    beams: _Beams = ()
    wire_seconds: Seconds = 0.0
    calls: Count = 0
    untold: Drafts | None = 0
    texts: _Texts = ()
    alternatives: dict[Count, Piece] = {}

    def record(self) -> RoundVerified:
        seconds = (self.draft_seconds or 0.0, self.verify_seconds or 0.0, self.other_seconds or 0.0)
        drafts = tuple([draft.token() for draft in self.drafts])
        settled = tuple([token.token() for token in self.settled])
        emitted, beams, wire = _token(self.emitted), _beams(self.beams), self.wire_seconds or 0.0
        untold = self.untold
        return RoundVerified(self.round, drafts, emitted, *seconds, settled, beams, wire, self.calls, untold)


class _Notice(_StepLine, tag="notice", kw_only=True):
    message: Message

    def record(self) -> Notice:
        return Notice(self.message)


class _Ended(_StepLine, tag="run_ended", kw_only=True):
    reason: EndReason
    message: Message
    unplaced: tuple[Length, Count] | None = None

    def record(self) -> RunEnded:
        return RunEnded(self.reason, self.message, self.unplaced)


class _Checked(_Line, tag="checked"):
    strategy: Name
    lossless: _Verdict

    def event(self) -> Checked:
        return Checked(self.strategy, self.lossless.lossless())


class _Finished(_Line, tag="finished"):
    cancelled: bool

    def event(self) -> Finished:
        return Finished(self.cancelled)


def _token(found: _Token | None) -> Token | None:
    return None if found is None else found.token()


def _beams(found: tuple[_Beam, ...]) -> tuple[Beam, ...]:
    return tuple([beam.beam() for beam in found])


_Lines = _Started | _Capturing | _Prefill | _Proposed | _Verified | _Notice | _Ended | _Checked | _Finished
_DECODER: msgspec.json.Decoder[_Lines] = msgspec.json.Decoder(_Lines)


def decode_event(line: str, parsed: Callable[[], Any]) -> Event:
    """The event of a line. BadField says what is missing or wrong.

    Half a character (a lone surrogate) is no JSON to msgspec: `parsed` is what another parser makes of the line, or
    raises why it is none.
    """
    try:
        found = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise bad_field(str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        return _convert_event(parsed())
    return found.event()


def _convert_event(table: Any) -> Event:
    try:
        found = msgspec.convert(table, _Lines, str_keys=True)
    except msgspec.ValidationError as error:
        raise bad_field(str(error)) from None
    except UnicodeEncodeError:
        raise BadField("event", "must be whole: a name in it, or a status, is half a character") from None
    return found.event()


def bad_field(message: str) -> BadField:
    """What msgspec found, in the words of this project: which field, and what is allowed there."""
    fault, _, place = message.rpartition(" - at `") if message.endswith("`") else (message, "", "")
    fault, place = (fault, place) if fault else (message, "")
    is_key, path = place.startswith("key` in `"), place.removeprefix("key` in `").rstrip("`").lstrip("$.")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", fault):
        return BadField(f"{path}.{missing[1]}".lstrip("."), "is missing")
    if not path:
        return BadField("event", "is missing: a line must be a JSON object")
    if "out of range" in fault:
        return BadField(path, "must be a finite number")
    if found := re.fullmatch(r"Invalid (?:enum )?value '(.*)'", fault, re.DOTALL):
        names = _CHOICES.get(path) or _CHOICES[path.rpartition(".")[2]]
        return BadField(path, f"must be one of {', '.join(names)}, not {shown(found[1])}")
    if long := re.fullmatch(r"Expected `(\w+)` of length <= (\d+)", fault):
        return BadField(path, f"must be {_WORDS[long[1]]} of at most {int(long[2]):,} {_PARTS[long[1]]}")
    words = re.sub("`([^`]*)`", lambda types: " or ".join(_WORDS.get(t, t) for t in types[1].split(" | ")), fault)
    words = re.sub(" >= (\\S+)", lambda bound: f" from {float(bound[1]):.0f} on".replace("-0", "0"), words)
    words = re.sub(" <= (\\S+)", lambda bound: f" of at most {float(bound[1]):.0f}", words)
    words = words.replace("Expected", "must be").replace(", got", ", not")
    words = words.replace(", not a number", ", not a decimal number")
    return BadField(path, f"has a key that {words}" if is_key else words)


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_PARTS = {"str": "characters", "array": "entries", "object": "entries"}
_CHOICES: dict[str, Sequence[str]] = {
    "event": (*KINDS.values(), "checked", "finished"),
    "reason": tuple(EndReason),
    "status": tuple(Status),
    "lossless.status": tuple(LosslessStatus),
}
