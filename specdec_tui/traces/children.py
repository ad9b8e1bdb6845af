"""The what-ifs of a trace: what each keeps of the run that it is a child of, and how further ones are added."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from specdec_tui.decoding.records import (
    CHILD,
    EMITTED,
    Event,
    Finished,
    Origin,
    RunStarted,
    Step,
    strategy_of,
    tokens_of,
)
from specdec_tui.settings import SettingError, Settings, parse_value, quoted
from specdec_tui.traces.bounds import MOST_STRATEGIES
from specdec_tui.traces.format import Trace
from specdec_tui.traces.summary import summarise

WEIGHTS = "weights"
"""The one change of a what-if that is no setting of a run but one of its models."""


@dataclass(frozen=True, slots=True)
class Line:
    """A run of a trace with what it goes back to: the prompt that its whole line began with, and its text so far.

    `prompt_text` and `prompt_tokens` are of the run without an origin that it descends from, `ids` all new tokens
    behind that prompt, those that it was given among them. `changes`: its settings that differ from the header's.
    """

    name: str
    prompt_text: str
    prompt_tokens: int
    ids: tuple[int, ...]
    changes: tuple[tuple[str, str], ...] = ()
    own_from: int = 0
    """Where the tokens begin that it decoded itself."""


def line_of(trace: Trace, name: str) -> Line:
    """KeyError where the trace has no such run."""
    begun: dict[str, Step] = {}
    own: dict[str, list[int]] = {}
    for event in trace.events:
        if isinstance(event, Step):
            if isinstance(event.record, RunStarted):
                begun[event.strategy] = event
            own.setdefault(event.strategy, []).extend(
                token.id for token in tokens_of(event.record) if token.status in EMITTED
            )

    def of(name: str) -> Line:
        step = begun[name]
        record = step.record
        assert isinstance(record, RunStarted)
        if (origin := record.origin) is None:
            return Line(name, step.prompt_text, record.prompt_tokens, tuple(own[name]))
        parent = of(origin.parent)
        given = parent.ids[: origin.position] + (() if origin.token is None else (origin.token,))
        ids = given + tuple(own[name])
        return Line(name, parent.prompt_text, parent.prompt_tokens, ids, origin.changes, len(given))

    return of(name)


def settings_of(trace: Trace, changes: Iterable[tuple[str, str]]) -> Settings:
    """What a what-if with these changes runs with. SettingError where one is not known or not valid here."""
    changes = tuple(changes)
    known = {field.name for field in fields(Settings)} | {WEIGHTS}
    for name, _ in changes:
        if name not in known:
            raise SettingError(f"it was made with {quoted(name)}, a setting that this version does not know")
    values = {name: parse_value(name, value) for name, value in changes}
    values.pop(WEIGHTS, None)
    return replace(trace.header.run_settings(), **values)


def weights_of(trace: Trace, changes: Iterable[tuple[str, str]]) -> str:
    """The form that the target's weights have in a what-if with these changes; empty where that is not told."""
    made = trace.header.pair()
    return dict(changes).get(WEIGHTS, "" if made is None else made.target.weights)


def next_name(trace: Trace, parent: str) -> str:
    """A name for another child of this run, by a number that no what-if of the trace has; empty where it is full."""
    if len(trace.strategies) >= MOST_STRATEGIES:
        return ""
    numbers = [int(number) for name in trace.strategies if (number := name.partition(CHILD)[2]).isdecimal()]
    return f"{strategy_of(parent)}{CHILD}{max(numbers, default=0) + 1}"


def with_children(trace: Trace, events: Iterable[Event]) -> Trace:
    """The trace with the events of further what-ifs before its end, and their figures in its header.

    Not those of a sweep: each is one of many points of a curve, and nothing to be listed by itself.
    """
    added = tuple(event for event in events if not isinstance(event, Finished))
    steps = [event for event in added if isinstance(event, Step)]
    begun = [(step.strategy, step.record.origin) for step in steps if isinstance(step.record, RunStarted)]
    names = {step.strategy for step in steps} - {name for name, origin in begun if origin is not None and origin.swept}
    over = [event for event in trace.events if isinstance(event, Finished)]
    whole = (*(event for event in trace.events if not isinstance(event, Finished)), *added, *over)
    figures = {name: own for name, own in summarise(added).items() if name in names}
    of_runs = trace.header.strategies
    if any(own.get("finish_reason") is None for own in of_runs.values()):  # the run was cut off: nobody summed it up
        of_runs = {name: own for name, own in summarise(trace.events).items() if name in of_runs}
    header = replace(trace.header, strategies={**of_runs, **figures})
    return Trace(header, whole)


def origins(trace: Trace) -> dict[str, Origin]:
    """The origin of each what-if of a trace."""
    steps = (event for event in trace.events if isinstance(event, Step))
    return {
        step.strategy: step.record.origin
        for step in steps
        if isinstance(step.record, RunStarted) and step.record.origin is not None
    }
