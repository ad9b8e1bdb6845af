"""Whatever a run is like, its trace can be read again: no check of a trace refuses what the product itself writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import pytest
from test_session import ALL, HashModel, Letters, TinyPair
from test_session_programs import Recorder, StaticHashModel

from specdec_tui.backends.in_time import Stopped
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.records import EndReason, Event, RunEnded, RunStarted, Step
from specdec_tui.loaded import Loaded
from specdec_tui.session import LocalEngine
from specdec_tui.settings import PROCESSORS, RULES, ModelChoice, Settings
from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import Trace, new_header
from specdec_tui.traces.journal import Journal
from specdec_tui.traces.store import TraceStore

CASES = 120
BREAKS = (Stopped("stopped while the tokenizer was at work"), ValueError("the tokenizer cannot write"))
STOPS = (0, 1, 2, 3, 5, 8, 13, 21, 34)


class BreakingLetters(Letters):
    """After so many records that became text, the tokenizer breaks."""

    def __init__(self, after: int, how: Exception) -> None:
        super().__init__()
        self.after, self.how = after, how

    def spell(self, work: Callable[[], Step], cancelled: Callable[[], bool]) -> Step:
        self.after -= 1
        if self.after == 0:
            raise self.how
        return work()


def some_settings(dice: Random) -> Settings:
    return replace(
        ALL,
        rule=dice.choice(RULES),
        processor=dice.choice(("greedy", *PROCESSORS)),
        temperature=dice.choice((0.3, 1.0, 2.0)),
        gamma=dice.choice((0, 1, 3, 7)),
        max_new_tokens=dice.choice((1, 2, 5, 24)),
        schedule=dice.choice(("sequential", "interleaved")),
        cache=dice.random() < 0.8,
        insight=dice.random() < 0.4,
        ignore_eos=dice.random() < 0.3,
        seed=dice.randrange(1000),
        strategies=tuple(name for name in ALL.strategies if dice.random() < 0.8) or ("speculative",),
    )


def some_pair(dice: Random) -> TinyPair:
    """Models with or without programs, that agree or not, whose context is soon full, that fail or end their texts."""
    pair = TinyPair(same=dice.random() < 0.3)
    kind = dice.choice((HashModel, StaticHashModel))
    drafter = kind(1 if dice.random() < 0.3 else 2, dice.choice((200, 200, 9)))
    pair.target, pair.drafter = kind(1, dice.choice((200, 200, 12, 5, 4))), drafter if dice.random() < 0.9 else None
    if dice.random() < 0.2:
        pair.target.fails_after = dice.randrange(40)
    if dice.random() < 0.5:
        pair.end_ids = frozenset(dice.sample(range(11), 3))
    if dice.random() < 0.2:
        pair.tokenizer = BreakingLetters(dice.randrange(1, 60), dice.choice(BREAKS))
    return pair


def run_of(
    pair: TinyPair, settings: Settings, stop: int | None, patch: pytest.MonkeyPatch, programs: Programs | None
) -> tuple[Event, ...]:
    patch.setattr("specdec_tui.backends.loading.load_pair", lambda choice, progress: pair)
    engine = LocalEngine(Loaded(lambda pair: programs))
    engine.load(ModelChoice(), lambda progress: None)
    asked = count()
    return tuple(engine.run("abca", settings, lambda: stop is not None and next(asked) >= stop))


@pytest.mark.parametrize("seed", range(CASES))
def test_every_trace_of_a_run_is_read_again(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = Random(seed)
    settings, pair = some_settings(dice), some_pair(dice)
    stop = dice.choice(STOPS) if dice.random() < 0.3 else None
    programs = Recorder() if isinstance(pair.target, StaticHashModel) and dice.random() < 0.8 else None
    events = run_of(pair, settings, stop, monkeypatch, programs)
    trace = Trace(new_header("abca", events, settings=settings), events)
    store = TraceStore(tmp_path)
    assert read_trace(store.save(trace)) == trace
    check_broken_off(store, settings, events, dice.randrange(len(events)))


def check_broken_off(store: TraceStore, settings: Settings, events: tuple[Event, ...], place: int) -> None:
    """What is left of a run whose process was killed, and what was recorded of one up to some event."""
    started = {e.strategy for e in events[:place] if isinstance(e, Step) and isinstance(e.record, RunStarted)}
    part = Trace(new_header("abca", events[:place], settings=settings), events[:place])
    assert started == set(part.strategies) and read_trace(store.save(part)) == part
    failed: list[str] = []
    journal = Journal(store, new_header("abca", ()), settings.strategies, failed.append)
    before = {entry.path for entry in store.entries()}
    for event in events[:place]:
        journal.take(event)
    for entry in store.entries():
        if entry.path not in before:
            assert set(read_trace(entry.path).strategies) <= started
    assert not failed


def test_the_runs_above_end_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would prove little."""
    ends: set[EndReason] = set()
    for seed in range(40):
        dice = Random(seed)
        settings, pair = some_settings(dice), some_pair(dice)
        stop = dice.choice(STOPS) if dice.random() < 0.3 else None
        events = run_of(pair, settings, stop, monkeypatch, None)
        ends |= {e.record.reason for e in events if isinstance(e, Step) and isinstance(e.record, RunEnded)}
    assert ends == set(EndReason)
