"""The session with captured rounds; on the CPU the program is the step itself."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_session import ALL, FOUR, HashModel, TinyPair, checks_of, ids_of, never

from specdec_tui.backends.cards import Card
from specdec_tui.backends.model import nothing
from specdec_tui.backends.pair import LoadError, Progress
from specdec_tui.decoding import device_run
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.records import (
    Capturing,
    Event,
    LosslessStatus,
    Notice,
    PrefillDone,
    RoundVerified,
    Step,
    tokens_of,
)
from specdec_tui.loaded import Loaded, captured_on_gpus
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

IN_TURN = replace(FOUR, schedule="sequential")


class HashSequence:
    """A `StaticSequence` with the logits of the model's own contexts."""

    card = Card(torch.device("cpu"))

    def __init__(self, model: HashModel, capacity: int) -> None:
        self.context = model.open()
        self.capacity = capacity

    def prefill(self, ids: torch.Tensor, between: Callable[[], None] = nothing) -> torch.Tensor:
        return self.extend(ids, torch.zeros(1, dtype=torch.int64), 1)

    def extend(self, ids: torch.Tensor, begin: torch.Tensor, keep: int) -> torch.Tensor:
        self.context.rewind(int(begin))
        return self.context.extend(ids.tolist(), keep)


class StaticHashModel(HashModel):
    static_note = ""

    def open_static(self, capacity: int) -> HashSequence:
        return HashSequence(self, capacity)


class StaticPair(TinyPair):
    def __init__(self) -> None:
        super().__init__()
        self.target, self.drafter = StaticHashModel(1), StaticHashModel(2)


class Recorder(Programs):
    """Programs that count what is made and may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(self._capture)
        self.made = 0
        self.error = error

    def _capture(self, step: Callable[[], None], state: list[torch.Tensor]) -> Callable[[], None]:
        self.made += 1
        if self.error is not None:
            raise self.error
        return step


MakeEngine = Callable[..., LocalEngine]


@pytest.fixture
def make_engine(monkeypatch: pytest.MonkeyPatch) -> MakeEngine:
    def make(programs: Programs | None, pair: TinyPair | None = None) -> LocalEngine:
        loaded = pair or StaticPair()
        monkeypatch.setattr("specdec_tui.backends.loading.load_pair", lambda choice, progress: loaded)
        engine = LocalEngine(Loaded(lambda pair: programs))
        engine.load(ModelChoice(), lambda progress: None)
        return engine

    return make


def prepare(engine: LocalEngine, settings: Settings, cancelled: Callable[[], bool] = never) -> list[Progress]:
    steps: list[Progress] = []
    engine.prepare(settings, cancelled, steps.append)
    return steps


def of_kind(events: Sequence[Event], kind: type) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for event in events:
        if isinstance(event, Step) and isinstance(event.record, kind):
            found.setdefault(event.strategy, []).append(event.record)
    return found


def without_numbers(event: Event) -> Any:
    if isinstance(event, Step) and isinstance(event.record, PrefillDone | RoundVerified):
        tokens = [(token.id, token.status, token.position) for token in tokens_of(event.record)]
        return (event.strategy, type(event.record), tokens, event.texts)
    return event


@pytest.mark.each_value
@pytest.mark.parametrize("schedule", ["sequential", "interleaved"])
@pytest.mark.parametrize("processor", ["greedy", "multinomial"])
def test_captured_rounds_tell_the_same_events(make_engine: MakeEngine, schedule: str, processor: str) -> None:
    settings = replace(ALL, schedule=schedule, processor=processor, temperature=1.0, rule="coupled")
    programs = Recorder()
    captured = make_engine(programs)
    prepare(captured, settings)
    made = programs.made
    assert made == (5 if schedule == "interleaved" else 4)
    plain = make_engine(None)
    for prompt in ("hello", "more"):
        events = [[without_numbers(e) for e in engine.run(prompt, settings, never)] for engine in (plain, captured)]
        assert events[0] == events[1]
    assert programs.made == made


def test_a_program_made_ahead_is_told_by_the_first_run_alone(make_engine: MakeEngine) -> None:
    engine = make_engine(Recorder())
    prepare(engine, IN_TURN)
    first, second = (list(engine.run("hello", IN_TURN, never)) for _ in range(2))
    assert not of_kind(first, Capturing) and not of_kind(first, Notice)
    made = {name: records[0].capture_seconds > 0 for name, records in of_kind(first, PrefillDone).items()}
    assert made == {"target": True, "speculative": True, "ngram": True, "lookup": False}  # the last two share one
    assert not any(records[0].capture_seconds for records in of_kind(second, PrefillDone).values())


def test_what_was_not_made_ahead_is_made_by_the_run_which_says_so(make_engine: MakeEngine) -> None:
    events = list(make_engine(Recorder()).run("hello", IN_TURN, never))
    assert set(of_kind(events, Capturing)) == {"target", "speculative", "ngram"}
    assert set(checks_of(events).values()) == {LosslessStatus.IDENTICAL}


def test_making_a_program_is_no_round_of_an_interleaved_schedule(make_engine: MakeEngine) -> None:
    settings = replace(FOUR, schedule="interleaved")
    plain, captured = (
        [
            without_numbers(event)
            for event in make_engine(programs).run("hello", settings, never)
            if not (isinstance(event, Step) and isinstance(event.record, Capturing))
        ]
        for programs in (None, Recorder())
    )
    assert captured == plain


def test_preparing_reports_each_program_once_and_only_what_is_missing(make_engine: MakeEngine) -> None:
    engine = make_engine(programs := Recorder())
    assert [step.fraction for step in prepare(engine, IN_TURN)] == [0, pytest.approx(1 / 3), pytest.approx(2 / 3)]
    assert prepare(engine, IN_TURN) == []
    assert prepare(engine, replace(IN_TURN, temperature=0.1, rule="block", seed=3, theme="specdec-light")) == []
    assert prepare(engine, replace(IN_TURN, insight=not IN_TURN.insight)) == [], (
        "figures with insight are those without"
    )
    assert len(prepare(engine, replace(IN_TURN, gamma=5))) == 2  # the target alone drafts nothing
    assert programs.made == 5


def test_preparing_ends_between_two_programs_and_goes_on_later(make_engine: MakeEngine) -> None:
    engine = make_engine(programs := Recorder())
    prepare(engine, IN_TURN, lambda: programs.made == 1)
    assert programs.made == 1
    assert len(prepare(engine, IN_TURN)) == 2
    assert programs.made == 3


def test_preparing_makes_room_for_the_conversation(make_engine: MakeEngine) -> None:
    engine = make_engine(programs := Recorder(), pair := StaticPair())
    pair.target.context_length = pair.drafter.context_length = None
    settings = replace(IN_TURN, strategies=("target",))
    prepare(engine, settings)
    list(engine.run("hello" * 40, settings, never))
    before = programs.made
    assert len(prepare(engine, settings)) == 1
    assert not of_kind(list(engine.run("hello", settings, never)), Capturing)
    assert programs.made == before + 1


@pytest.mark.parametrize("changes", [{"capture": False}, {"cache": False}])
def test_without_capture_or_cache_the_rounds_go_step_by_step(make_engine: MakeEngine, changes: dict[str, Any]) -> None:
    engine = make_engine(programs := Recorder())
    settings = replace(IN_TURN, **changes)
    assert prepare(engine, settings) == []
    events = list(engine.run("hello", settings, never))
    assert programs.made == 0 and not of_kind(events, Capturing)
    told = [records[0].message for records in of_kind(events, Notice).values()]
    assert told == ([] if "capture" in changes else ["step by step, not captured: the cache is off"] * 4)


def test_a_refused_capture_is_tried_once_told_by_each_run_and_warmed_up(make_engine: MakeEngine) -> None:
    engine = make_engine(programs := Recorder(RuntimeError("no graph\nat all")), pair := StaticPair())
    assert len(prepare(engine, IN_TURN)) == 3
    pair.target.passes.clear()
    events = list(engine.run("hello", IN_TURN, never))
    assert [r[0].message for r in of_kind(events, Notice).values()] == ["step by step, not captured: no graph"] * 4
    assert not of_kind(events, Capturing) and programs.made == 3
    assert [len(ids) for ids in pair.target.passes[:5]] == [8, 1, 2, 3, 4]
    assert set(checks_of(events).values()) == {LosslessStatus.IDENTICAL}


def test_captured_rounds_are_not_warmed_up_step_by_step(make_engine: MakeEngine) -> None:
    engine = make_engine(Recorder(), pair := StaticPair())
    list(engine.run("hello", replace(IN_TURN, strategies=("target",)), never))
    assert [len(ids) for ids in pair.target.passes[:2]] == [5, 1]


def test_memory_that_was_short_is_asked_for_again(make_engine: MakeEngine) -> None:
    engine = make_engine(programs := Recorder(torch.OutOfMemoryError("CUDA out of memory")))
    events = list(engine.run("hello", IN_TURN, never))
    assert [r[0].message for r in of_kind(events, Notice).values()] == ["step by step, not captured: out of memory"] * 4
    programs.error = None
    assert not of_kind(list(engine.run("hello", IN_TURN, never)), Notice)


def test_a_new_pair_frees_the_old_one_and_its_programs_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [StaticPair(), StaticPair()]
    old = weakref.ref(pairs[0].target)
    programs: list[weakref.ref[Programs]] = []
    alive: list[bool] = []

    def load(choice: ModelChoice, progress: object) -> TinyPair:
        alive.extend(known() is not None for known in programs)
        if choice.target:
            raise LoadError("no such model")
        return pairs.pop(0)

    def programs_of(pair: object) -> Programs:
        made = Recorder()
        programs.append(weakref.ref(made))
        return made

    monkeypatch.setattr("specdec_tui.backends.loading.load_pair", load)
    engine = LocalEngine(Loaded(programs_of))
    engine.load(ModelChoice(), lambda progress: None)
    prepare(engine, IN_TURN)
    with pytest.raises(LoadError):
        engine.load(ModelChoice(target="x"), lambda progress: None)
    assert len(ids_of(list(engine.run("hello", IN_TURN, never)))["target"]) == 20
    engine.load(ModelChoice(), lambda progress: None)
    assert alive == [False] * 3, "programs must be gone while a pair is loaded"
    assert old() is None
    assert len(ids_of(list(engine.run("hello", IN_TURN, never)))["target"]) == 20


def test_rounds_are_captured_where_a_model_is_on_a_gpu() -> None:
    """Whether one program can hold both models is found when it is needed, and then told in the pane."""
    pair = StaticPair()
    assert captured_on_gpus(pair) is None  # type: ignore[arg-type]
    for places in (("cuda:0", "cuda:0"), ("cuda:0", "cuda:1"), ("cuda:0", "cpu"), ("cpu", "cuda:0")):
        pair.target.device, pair.drafter.device = map(torch.device, places)
        assert captured_on_gpus(pair) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schedule", "strategies", "insight", "held", "ahead"),
    [
        ("sequential", ("target", "speculative"), False, False, True),
        ("sequential", ("target", "speculative"), False, True, False),
        ("sequential", ("target", "speculative"), True, False, False),
        ("interleaved", ("target", "speculative"), False, False, False),
        ("interleaved", ("target",), False, False, True),
    ],
)
def test_rounds_are_under_way_while_others_are_told_only_where_no_other_run_has_a_turn(
    schedule: str,
    strategies: tuple[str, ...],
    insight: bool,
    held: bool,
    ahead: bool,
    make_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_run, "SLOW", float("inf"))
    played: list[None] = []
    programs = Programs(lambda step, state: lambda: (played.append(None), step())[1])
    settings = replace(FOUR, schedule=schedule, strategies=strategies, insight=insight, max_new_tokens=60)
    engine = make_engine(programs)
    engine.alone = not held
    for event in engine.run("hello", settings, never):
        if isinstance(event, Step) and isinstance(event.record, RoundVerified):
            break
    assert len(played) == device_run.STEPS * (1 + ahead)
