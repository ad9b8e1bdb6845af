"""Traces for tests: one that uses every field, and ones of any length as an engine makes them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from specdec_tui.backends.pair import ModelInfo, PairInfo
from specdec_tui.decoding.form_distance import FormDistance
from specdec_tui.decoding.records import (
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
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.settings import Settings
from specdec_tui.traces.format import Trace, new_header

PAIR = PairInfo(
    ModelInfo("a/target", "cpu", "float32", "none", 135_000_000, 540_000_000, 2048),
    (ModelInfo("a/drafter", "cpu", "float32", "int8", 16_000_000, 16_000_000, None),),
    True,
    ("vocabularies are padded",),
)
INSIGHT = Insight(0.1 + 0.2, 1e-17, ((7, 0.6), (8, 1 / 3)), ((8, 0.5),))


def drafts(status: list[Status], position: int = 1) -> tuple[Token, ...]:
    return tuple(
        Token(7 + i, fate, position + i, 0.1 * (i + 1), 1 / 3, 0.30000000000000004, draw, INSIGHT if i == 0 else None)
        for i, fate in enumerate(status)
        for draw in [0.9 if fate is Status.REJECTED else 1e-9]
    )


def full_events(strategy: str = "speculative") -> tuple[Event, ...]:
    """Every kind of record, every field with a value that is not its default."""
    fates = [Status.ACCEPTED, Status.REJECTED, Status.UNVERIFIED]
    return (
        Step(strategy, RunStarted(strategy, 12, 3, 64, alone=True), prompt_text="<user>Why?\n"),
        Step(strategy, Capturing()),
        Step(strategy, Notice("fewer drafts: [/b] the drafter's context is full")),
        Step(
            strategy,
            PrefillDone(
                Token(5, Status.SAMPLED, 0, p=1.0),
                0.123456789012345,
                2.5,
                True,
                True,
                passes=((1, 0.5), (9, 0.75)),
                by_calls=True,
                wire_seconds=0.0625,
                calls=2,
                pass_limit=PassLimit(269_000_000, 134_500_000, 3.1e10, 1.18e11, 2, 130_000_000),
            ),
            ("Since",),
        ),
        Step(strategy, DraftsProposed(0, drafts([Status.PENDING] * 3)), (" the", "\u2028x", "")),
        Step(
            strategy,
            RoundVerified(
                0, drafts(fates), Token(9, Status.RESAMPLED, 2, 0.5), 0.001, 0.05, 1e-5, wire_seconds=0.03, calls=1
            ),
            (" the", "\u2028x", "", "雲\n"),
        ),
        Step(strategy, DraftsProposed(1, drafts([Status.PENDING], 3)), (" end",)),
        Step(
            strategy,
            RoundVerified(1, drafts([Status.ACCEPTED], 3), None, 0.002, 0.06, 2e-5),
            (" end",),
            alternatives=((7, " the"), (8, "\ud83d")),
        ),
        Step(
            strategy, RunEnded(EndReason.CONTEXT, "the context is full"), ("\N{REPLACEMENT CHARACTER}",), answer="Since"
        ),
        Checked(
            strategy,
            Lossless(LosslessStatus.NEAR_TIES, 2, 3, 0.0625, "half precision", FormDistance(40, 0.003, 0.02, 0.975)),
        ),
        Finished(cancelled=True),
    )


def search_events(strategy: str = "beam") -> tuple[Event, ...]:
    """A search that settles nothing, then two tokens, then the rest; every field that a search alone has."""
    best = tuple(Token(20 + place, Status.PENDING, place) for place in range(3))
    settled = tuple(Token(20 + place, Status.SAMPLED, place, 0.25, insight=INSIGHT) for place in range(4))
    beams = (Beam((20, 21), -0.5), Beam((30, 31), -0.75, ended=True))
    return (
        Step(strategy, RunStarted(strategy, 12, 3, 4, beams=2, own_tokens=True), prompt_text="Why?"),
        Step(
            strategy,
            PrefillDone(None, 0.25, beams=(Beam((20,), -0.25), Beam((30,), -0.5))),
            alternatives=((20, " The"), (30, " A")),
        ),
        Step(strategy, DraftsProposed(0, best[:1]), (" The",)),
        Step(
            strategy,
            RoundVerified(0, (), None, 0.0, 0.05, 1e-5, (), beams),
            alternatives=((21, " sky"), (31, " blue")),
        ),
        Step(strategy, DraftsProposed(1, best[1:2], kept=1), (" sky",)),
        Step(
            strategy,
            RoundVerified(1, (), None, 0.0, 0.05, 1e-5, settled[:2], (Beam((22,), -0.5, 0), Beam((), -0.75, 1))),
            (" The", " sky"),
            alternatives=((22, " is"), (7, "x"), (8, "y")),
        ),
        Step(strategy, DraftsProposed(2, best[2:]), (" is",)),
        Step(strategy, RoundVerified(2, (), None, 0.0, 0.05, 1e-5, settled[2:]), (" is", " blue")),
        Step(strategy, RunEnded(EndReason.LENGTH), answer="The sky is blue"),
        Checked(strategy, Lossless(LosslessStatus.NOT_APPLICABLE, detail="a search")),
    )


def served_events(strategy: str = "vllm") -> tuple[Event, ...]:
    """A server's own run: a round of which two drafts are untold, and one of which nothing is."""
    draft = Token(7, Status.PENDING, 1)
    kept = replace(draft, status=Status.ACCEPTED)
    return (
        Step(strategy, RunStarted(strategy, 12, 3, 4, alone=True, served=True), prompt_text="Why?"),
        Step(strategy, PrefillDone(Token(5, Status.SAMPLED, 0), 0.5), ("The",)),
        Step(strategy, DraftsProposed(0, (draft,)), (" sky",)),
        Step(
            strategy,
            RoundVerified(0, (kept,), Token(8, Status.RESAMPLED, 2), 0.0, 0.25, 0.0, untold=2),
            (" sky", " is"),
        ),
        Step(strategy, RoundVerified(1, (), Token(9, Status.SAMPLED, 3), 0.0, 0.25, 0.0, untold=None), (" blue",)),
        Step(strategy, RunEnded(EndReason.LENGTH, unplaced=(1, 3)), answer="The sky is blue"),
    )


def full_trace(prompt: str = "Why is the sky blue?") -> Trace:
    return trace_of(full_events(), prompt)


def trace_of(events: tuple[Event, ...], prompt: str = "Why?", *, second: int = 0) -> Trace:
    created = datetime(2026, 11, 28, 12, 0, second, tzinfo=UTC)
    gamma = next((e.record.gamma for e in events if isinstance(e, Step) and isinstance(e.record, RunStarted)), 4)
    header = new_header(
        prompt, events, pair=PAIR, settings=Settings(gamma=gamma), environment={"threads": 2}, created=created
    )
    return Trace(header, events)


def long_events(strategy: str, rounds: int, gamma: int = 4) -> list[Event]:
    """A run whose rounds accept 0, 1, … γ drafts in turn; the target has no drafts. All write the same text."""
    drafting = 0 if strategy == "target" else gamma
    length = 1 + sum(number % (drafting + 1) + 1 for number in range(rounds))
    events: list[Event] = [Step(strategy, RunStarted(strategy, 12, gamma, length), prompt_text="Why?")]
    events.append(Step(strategy, PrefillDone(Token(1, Status.SAMPLED, 0), 0.2), ("Light",)))
    position = 1
    for number in range(rounds):
        accepted = number % (drafting + 1)
        fates = [Status.ACCEPTED] * accepted + [Status.REJECTED] * (accepted < drafting)
        fates += [Status.UNVERIFIED] * (drafting - len(fates))
        made = tuple(
            Token(100 + (position + i) % 7 + 50 * (i >= accepted), fate, position + i, 0.8, 0.6123456, 0.9, draw)
            for i, fate in enumerate(fates)
            for draw in [0.95 if fate is Status.REJECTED else 0.25]
        )
        words = tuple(f" word{token.id - 100}" for token in made)
        if drafting:
            pending = tuple(Token(token.id, Status.PENDING, token.position) for token in made)
            events.append(Step(strategy, DraftsProposed(number, pending), words))
        fate = Status.SAMPLED if not drafting else Status.BONUS if accepted == drafting else Status.RESAMPLED
        last = Token(100 + (position + accepted) % 7, fate, position + accepted, 0.7)
        texts = (*words, f" word{last.id - 100}")
        events.append(Step(strategy, RoundVerified(number, made, last, 0.002 * drafting, 0.05, 0.001), texts))
        position += accepted + 1
    answer = "Light" + "".join(f" word{place % 7}" for place in range(1, length))
    events.append(Step(strategy, RunEnded(EndReason.LENGTH), answer=answer))
    return events


def comparison(rounds: int = 40) -> Trace:
    """Target and two strategies, checked."""
    events = [*long_events("target", rounds * 3), *long_events("speculative", rounds), *long_events("ngram", rounds)]
    for name in ("target", "speculative", "ngram"):
        events.append(Checked(name, Lossless(LosslessStatus.IDENTICAL)))
    return trace_of((*events, Finished()))


def slower(trace: Trace, strategy: str, factor: float) -> Trace:
    """The trace as if the machine had been slower while this strategy ran."""

    def changed(event: Event) -> Event:
        if not isinstance(event, Step) or event.strategy != strategy or not isinstance(event.record, RoundVerified):
            return event
        seconds = [factor * value for value in (event.record.draft_seconds, event.record.verify_seconds)]
        return replace(event, record=replace(event.record, draft_seconds=seconds[0], verify_seconds=seconds[1]))

    return Trace(trace.header, tuple(changed(event) for event in trace.events))


def with_changed_pace(trace: Trace, tokens: int = 60) -> Trace:
    """The trace as if the machine had been six times slower until each run had so many tokens."""
    written: dict[str, int] = {}

    def changed(event: Event) -> Event:
        if not isinstance(event, Step) or not isinstance(event.record, RoundVerified):
            return event
        record, before = event.record, written.get(event.strategy, 0)
        written[event.strategy] = before + len(record.new_tokens)
        pace = 6 if before < tokens else 1
        seconds = (pace * part for part in (record.draft_seconds, record.verify_seconds, record.other_seconds))
        return replace(event, record=RoundVerified(record.round, record.drafts, record.emitted, *seconds))

    return Trace(trace.header, tuple(changed(event) for event in trace.events))


def _moved(token: Token | None, by: int) -> Token | None:
    return None if token is None else replace(token, position=token.position + by)


def child_events(origin: Origin, name: str = "speculative~1", by: int | None = None) -> list[Event]:
    """The events of a run, told as a child of another that begins `by` tokens on."""
    by = origin.given if by is None else by
    told: list[Event] = []
    for event in full_events():
        if not isinstance(event, Step):
            continue
        match event.record:
            case RunStarted() as record:
                told.append(replace(event, strategy=name, record=replace(record, origin=origin)))
            case PrefillDone() as record:
                told.append(replace(event, strategy=name, record=replace(record, token=_moved(record.token, by))))
            case DraftsProposed() as record:
                drafts = tuple(replace(t, position=t.position + by) for t in record.drafts)
                told.append(replace(event, strategy=name, record=replace(record, drafts=drafts)))
            case RoundVerified() as record:
                drafts = tuple(replace(t, position=t.position + by) for t in record.drafts)
                round_ = replace(record, drafts=drafts, emitted=_moved(record.emitted, by))
                told.append(replace(event, strategy=name, record=round_))
            case _:
                told.append(replace(event, strategy=name))
    return told
