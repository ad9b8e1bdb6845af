"""The session on tiny models: order, schedule, cancel, history, warm-up, and the lossless check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch

from specdec_tui.backends.in_time import Stopped
from specdec_tui.backends.model import LoadedDrafter
from specdec_tui.backends.pair import LoadError, ModelInfo, PairInfo, PromptError
from specdec_tui.backends.tokenizer import Prompt
from specdec_tui.decoding.records import (
    EMITTED,
    Checked,
    DraftsProposed,
    EndReason,
    Event,
    Finished,
    LosslessStatus,
    Notice,
    PassSeconds,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    tokens_of,
)
from specdec_tui.playing import NO_SERVER
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.summary import figures_of
from specdec_tui.warming import MOST_AHEAD, MOST_SECONDS, pass_seconds

VOCABULARY = 12
END = 11


class HashContext:
    """Logits that depend on the whole text, so that a wrong rewind shows; extensions are counted."""

    def __init__(self, model: HashModel, recomputes: bool = False) -> None:
        self.model, self.recomputes = model, recomputes
        self.ids: list[int] = []

    @property
    def length(self) -> int:
        return len(self.ids)

    def extend(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        self.model.passes.append(list(ids))
        if self.model.context_length is not None and len(self.ids) + len(ids) > self.model.context_length:
            raise ValueError("past the context length")
        if self.model.fails_after is not None and len(self.model.passes) > self.model.fails_after:
            raise RuntimeError("kernel [/x] failed")
        rows = []
        for token in ids:
            self.ids.append(token)
            generator = torch.Generator().manual_seed(hash((self.model.seed, tuple(self.ids[-3:]))) & 0xFFFFFFFF)
            row = torch.randn(VOCABULARY, generator=generator) * 2
            row[END] = -9.0
            rows.append(row)
        return torch.stack(rows[-keep:])

    def rewind(self, length: int) -> None:
        del self.ids[length:]


class HashModel:
    vocab_size = VOCABULARY
    device = torch.device("cpu")
    dtype = torch.float32

    def __init__(self, seed: int, context_length: int | None = 200) -> None:
        self.seed = seed
        self.context_length = context_length
        self.passes: list[list[int]] = []
        self.fails_after: int | None = None

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> HashContext:
        return HashContext(self, recomputes=not use_cache)

    def synchronize(self) -> None:
        pass


class Letters:
    """One letter an id; the prompt is its own text, the history comes before it."""

    def __init__(self) -> None:
        self.histories: list[tuple[tuple[str, str], ...]] = []

    def encode(
        self, prompt: str, history: Sequence[tuple[str, str]] = (), chat: bool = True, cancelled: object = None
    ) -> Prompt:
        self.histories.append(tuple(history))
        text = "".join(q + a for q, a in history) + prompt
        return Prompt([ord(letter) % VOCABULARY for letter in text], text)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return "".join(chr(97 + i) for i in ids if not (skip_special_tokens and i == END))

    def spell(self, work: Callable[[], Step], cancelled: Callable[[], bool]) -> Step:
        return work()

    def piece(self, token: int) -> str:
        return chr(97 + token)

    def stream(self) -> Letters:
        return self

    def push(self, ids: Iterable[int]) -> tuple[str, ...]:
        return tuple(chr(97 + i) for i in ids)

    peek = push

    def rest(self) -> str:
        return ""


class TinyPair:
    def __init__(self, *, drafter: bool = True, same: bool = False) -> None:
        self.target = HashModel(1)
        self.drafter = HashModel(1 if same else 2) if drafter else None
        self.tokenizer = Letters()
        self.end_ids = frozenset({END})
        self.asked: dict[str, object] = {}
        model = ModelInfo("tiny", "cpu", "float32", "none", 1, 4, 200)
        self.info = PairInfo(model, (model,) if drafter else (), True)

    @property
    def drafters(self) -> tuple[LoadedDrafter, ...]:
        return () if self.drafter is None else (LoadedDrafter(self.drafter),)


@pytest.fixture
def make_engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[TinyPair], LocalEngine]:
    def make(pair: TinyPair) -> LocalEngine:
        monkeypatch.setattr("specdec_tui.backends.loading.load_pair", lambda choice, progress: pair)
        monkeypatch.setattr("specdec_tui.loaded.pass_seconds", partial(undisturbed, pair))
        engine = LocalEngine()
        assert engine.load(ModelChoice(), lambda progress: None) is pair.info
        return engine

    return make


def undisturbed(
    pair: TinyPair,
    model: HashModel,
    lengths: Sequence[int],
    cancelled: Callable[[], bool],
    most_seconds: float,
) -> PassSeconds:
    """What its passes take by a clock of their tokens alone: one that a busy machine disturbs tells nothing."""
    each = 0.002 if model is pair.target else 0.001
    return pass_seconds(model, lengths, cancelled, most_seconds, lambda: each * sum(map(len, model.passes)))


FOUR = Settings(max_new_tokens=20, gamma=3)
ALL = replace(FOUR, strategies=("target", "drafter", "speculative", "ngram", "lookup"))


def ids_of(events: Sequence[Event]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in events:
        if isinstance(event, Step):
            kept = found.setdefault(event.strategy, [])
            if isinstance(event.record, PrefillDone | RoundVerified):
                kept += [t.id for t in tokens_of(event.record) if t.status in EMITTED]
    return found


def checks_of(events: Sequence[Event]) -> dict[str, LosslessStatus]:
    return {event.strategy: event.lossless.status for event in events if isinstance(event, Checked)}


def never() -> bool:
    return False


def test_every_strategy_is_identical_to_the_target_and_checked(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    events = list(make_engine(TinyPair()).run("hello", ALL, never))
    ids = ids_of(events)
    assert len(ids["target"]) == 20
    assert ids["speculative"] == ids["ngram"] == ids["lookup"] == ids["target"] != ids["drafter"]
    checks = checks_of(events)
    assert checks.pop("drafter") is LosslessStatus.NOT_APPLICABLE
    assert set(checks.values()) == {LosslessStatus.IDENTICAL}
    assert events[-1] == Finished()


def test_a_corrupted_strategy_is_called_different(
    make_engine: Callable[[TinyPair], LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec_tui.decoding.run.kept_length", lambda base, accepted: base + accepted)
    checks = checks_of(list(make_engine(TinyPair()).run("hello", FOUR, never)))
    assert checks["target"] is LosslessStatus.IDENTICAL
    assert checks["speculative"] is LosslessStatus.DIFFERENT


def test_coupled_sampling_is_identical_and_other_rules_say_not_applicable(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    engine = make_engine(TinyPair())
    sampled = replace(FOUR, processor="multinomial", temperature=1.0)
    events = list(engine.run("hello", replace(sampled, rule="coupled"), never))
    assert set(checks_of(events).values()) == {LosslessStatus.IDENTICAL}
    assert len(set(map(tuple, ids_of(events).values()))) == 1
    checks = checks_of(list(engine.run("hello", sampled, never)))
    assert set(checks.values()) == {LosslessStatus.NOT_APPLICABLE}


def test_the_same_seed_gives_the_same_run_and_another_seed_another(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    engine = make_engine(TinyPair())
    sampled = replace(FOUR, processor="multinomial", temperature=1.0, chat=False)
    first, second, other = (ids_of(list(engine.run("hello", replace(sampled, seed=seed), never))) for seed in (1, 1, 2))
    assert first == second != other


def test_sequential_runs_one_strategy_after_another(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    events = list(make_engine(TinyPair()).run("hello", replace(FOUR, schedule="sequential"), never))
    order = [e.strategy for e in events if isinstance(e, Step)]
    assert order == sorted(order, key=FOUR.strategies.index)


def test_interleaved_plays_the_round_of_the_strategy_that_has_the_fewest_tokens(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    engine = make_engine(TinyPair())
    in_turn = list(engine.run("hello", replace(FOUR, schedule="sequential"), never))
    alternating = list(engine.run("hello", replace(FOUR, schedule="interleaved"), never, again=True))
    assert ids_of(alternating) == ids_of(in_turn)
    for events, alone in ((alternating, False), (in_turn, True)):
        begun = [event.record for event in events if isinstance(event, Step) and isinstance(event.record, RunStarted)]
        assert [record.alone for record in begun] == [alone] * 4
    tokens, ended, lead = dict.fromkeys(FOUR.strategies, 0), set[str](), 0
    for event in alternating:
        if not isinstance(event, Step):
            continue
        if isinstance(event.record, RoundVerified):
            assert tokens[event.strategy] == min(n for name, n in tokens.items() if name not in ended)
        if isinstance(event.record, RunEnded):
            ended.add(event.strategy)
        tokens[event.strategy] += sum(t.status in EMITTED for t in tokens_of(event.record))
        lead = max(lead, max(tokens.values()) - min(tokens.values()))
    assert len(ended) == len(FOUR.strategies) and 1 < lead <= FOUR.gamma + 1


def test_the_first_record_carries_the_prompt_text_and_the_last_the_answer(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    events = [e for e in make_engine(TinyPair()).run("hello", FOUR, never) if isinstance(e, Step)]
    for strategy in FOUR.strategies:
        own = [e for e in events if e.strategy == strategy]
        assert isinstance(own[0].record, RunStarted) and own[0].prompt_text == "hello"
        assert isinstance(own[-1].record, RunEnded) and own[-1].answer == own[-1].answer.strip() != ""
        texts = [
            text
            for e in own
            if isinstance(e.record, PrefillDone | RoundVerified)
            for token, text in zip(tokens_of(e.record), e.texts, strict=True)
            if token.status in EMITTED
        ]
        assert "".join(texts) == own[-1].answer


def test_each_token_has_its_own_text_also_when_it_was_refused(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    refused = 0
    for event in make_engine(TinyPair()).run("hello", FOUR, never):
        if isinstance(event, Step) and isinstance(event.record, DraftsProposed | RoundVerified):
            assert event.texts == tuple(chr(97 + t.id) for t in tokens_of(event.record))
            refused += sum(t.status in (Status.REJECTED, Status.UNVERIFIED) for t in tokens_of(event.record))
    assert refused > 0


@pytest.mark.parametrize("cache", [True, False])
def test_runs_without_a_cache_say_that_they_recompute(
    make_engine: Callable[[TinyPair], LocalEngine], cache: bool
) -> None:
    figures = figures_of(make_engine(TinyPair()).run("hello", replace(FOUR, cache=cache), never))
    assert [run.recomputes for run in figures.values()] == [not cache] * 4


def test_a_distance_that_is_simulated_changes_nothing_without_a_server_and_each_run_says_so(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    def notices(added_latency: float) -> list[tuple[str, str]]:
        settings = replace(FOUR, strategies=("target", "speculative"), added_latency=added_latency)
        events = make_engine(TinyPair()).run("hello", settings, never)
        told = ((e.strategy, e.record) for e in events if isinstance(e, Step))
        return [(name, record.message) for name, record in told if isinstance(record, Notice)]

    assert notices(0.0) == []
    assert notices(30.0) == [("target", NO_SERVER), ("speculative", NO_SERVER)]


def test_insight_brings_the_text_of_every_alternative_once(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    settings = replace(FOUR, strategies=("target", "speculative"), insight=True)
    told: dict[str, list[tuple[int, str]]] = {"target": [], "speculative": []}
    for event in make_engine(TinyPair()).run("hello", settings, never):
        if isinstance(event, Step):
            told[event.strategy] += event.alternatives
            known = dict(told[event.strategy])
            for token in tokens_of(event.record):
                if token.insight is not None:
                    assert {i for i, _ in (*token.insight.target_top, *token.insight.drafter_top)} <= known.keys()
    for pairs in told.values():
        assert pairs and len(pairs) == len(dict(pairs))
        assert all(text == chr(97 + token) for token, text in pairs)
    plain = list(make_engine(TinyPair()).run("hello", replace(FOUR, insight=False), never))
    assert not any(event.alternatives for event in plain if isinstance(event, Step))


def test_cancel_stops_between_rounds_keeps_the_text_and_ends_every_run(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    engine = make_engine(TinyPair())
    seen: list[Event] = []
    for event in engine.run("hello", FOUR, lambda: sum(isinstance(e, Step) for e in seen) > 12):
        seen.append(event)
    ends = {e.strategy: e.record.reason for e in seen if isinstance(e, Step) and isinstance(e.record, RunEnded)}
    assert set(ends) == set(FOUR.strategies) and set(ends.values()) == {EndReason.CANCELLED}
    assert 0 < len(ids_of(seen)["target"]) < 20
    assert seen[-1] == Finished(cancelled=True)
    assert LosslessStatus.DIFFERENT not in checks_of(seen).values()


def test_the_targets_answer_joins_the_history_and_a_new_chat_forgets_it(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    events = list(engine.run("one", ALL, never))
    answer = pair.tokenizer.decode(ids_of(events)["target"], True)
    list(engine.run("two", FOUR, never))
    assert pair.tokenizer.histories[-1] == (("one", answer),)
    engine.new_chat()
    list(engine.run("three", FOUR, never))
    assert pair.tokenizer.histories[-1] == ()


def test_half_characters_of_a_prompt_are_replaced(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    list(engine.run("a\udcffb\ud83d", FOUR, never))
    list(engine.run("\ud83d\ude00", FOUR, never))
    assert [question for question, _ in pair.tokenizer.histories[-1]] == [
        "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    ]
    list(engine.run("three", FOUR, never))
    assert pair.tokenizer.histories[-1][-1][0] == "\N{GRINNING FACE}"


def test_running_again_replaces_the_last_turn(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    list(engine.run("one", FOUR, never))
    list(engine.run("two", FOUR, never))
    list(engine.run("two", FOUR, never, again=True))
    assert [question for question, _ in pair.tokenizer.histories[-1]] == ["one"]
    assert pair.tokenizer.histories[-1] == pair.tokenizer.histories[-2]


def test_a_run_aside_of_the_conversation_neither_reads_nor_changes_it(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    list(engine.run("one", ALL, never))
    list(engine.run("two", ALL, never))
    store = engine._store
    list(engine.run("aside", ALL, never, aside=True))
    assert pair.tokenizer.histories[-1] == ()  # the template alone
    assert engine._store is store is not None
    list(engine.run("two", FOUR, never, again=True))
    assert [question for question, _ in pair.tokenizer.histories[-1]] == ["one"]
    list(engine.run("three", FOUR, never))
    assert [question for question, _ in pair.tokenizer.histories[-1]] == ["one", "two"]


def test_without_chat_nothing_is_remembered(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    list(engine.run("one", replace(FOUR, chat=False), never))
    list(engine.run("two", FOUR, never))
    assert pair.tokenizer.histories[-1] == ()


def test_without_a_target_pane_the_strategies_are_checked_by_teacher_forcing(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    engine = make_engine(TinyPair())
    events = list(engine.run("hello", replace(FOUR, strategies=("speculative",)), never))
    assert checks_of(events) == {"speculative": LosslessStatus.IDENTICAL}


def test_without_a_drafter_its_strategies_say_so_and_the_others_run(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    events = list(make_engine(TinyPair(drafter=False)).run("hello", ALL, never))
    ends = {e.strategy: e.record for e in events if isinstance(e, Step) and isinstance(e.record, RunEnded)}
    for strategy in ("drafter", "speculative"):
        assert ends[strategy].reason is EndReason.ERROR and "needs a drafter" in ends[strategy].message
    assert ends["lookup"].reason is ends["target"].reason is EndReason.LENGTH


def test_a_failing_model_ends_its_run_with_the_error_and_the_session_goes_on(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    list(engine.run("hello", FOUR, never))
    assert pair.drafter is not None
    pair.drafter.fails_after = len(pair.drafter.passes) + 4
    events = list(engine.run("hello", FOUR, never, again=True))
    ends = {e.strategy: e.record for e in events if isinstance(e, Step) and isinstance(e.record, RunEnded)}
    assert ends["speculative"].reason is EndReason.ERROR and "kernel [/x] failed" in ends["speculative"].message
    assert ends["lookup"].reason is EndReason.LENGTH
    assert checks_of(events)["speculative"] is LosslessStatus.NOT_APPLICABLE
    assert isinstance(events[-1], Finished)


def test_a_target_that_failed_is_no_reference(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    list(engine.run("hello", replace(FOUR, strategies=("drafter",)), never))
    pair.target.fails_after = len(pair.target.passes)
    events = list(engine.run("hello", replace(FOUR, strategies=("target", "drafter", "lookup")), never, again=True))
    assert set(checks_of(events).values()) == {LosslessStatus.NOT_APPLICABLE}


def test_warm_up_sees_every_block_length_once_for_each_gamma(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    only = replace(FOUR, strategies=("target",))
    list(engine.run("hello", only, never))
    assert [len(ids) for ids in pair.target.passes[:5]] == [8, 1, 2, 3, 4]
    before = len(pair.target.passes)
    list(engine.run("hello", only, never, again=True))
    assert [len(ids) for ids in pair.target.passes[before:][:2]] == [5, 1]


def test_another_gamma_or_a_switched_off_cache_is_warmed_up_anew(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    only = replace(FOUR, strategies=("target",), chat=False)
    for settings, lengths in ((only, 3), (replace(only, gamma=6), 6), (replace(only, cache=False), 3)):
        before = len(pair.target.passes)
        list(engine.run("hello", settings, never))
        assert [len(ids) for ids in pair.target.passes[before:][: lengths + 2]] == [8, *range(1, lengths + 2)]


def passes_of(events: Sequence[Event]) -> dict[str, PassSeconds]:
    return {e.strategy: e.record.passes for e in events if isinstance(e, Step) and isinstance(e.record, PrefillDone)}


def test_runs_tell_what_passes_of_their_model_took_measured_once(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    found = passes_of(list(engine.run("hello", ALL, never)))
    assert [length for length, _ in found["target"]] == list(range(1, 10))
    assert found["target"] == found["speculative"] == found["lookup"] != found["drafter"]
    again = passes_of(list(engine.run("hello", replace(ALL, gamma=6), never, again=True)))
    assert again == found
    wider = passes_of(list(engine.run("hello", replace(FOUR, gamma=12), never, again=True)))
    assert [length for length, _ in wider["target"]] == [*range(1, 10), 13]


def test_what_can_be_done_before_the_first_prompt_is_done_then(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    engine.prepare(FOUR, never, lambda progress: None)
    before = len(pair.target.passes)
    events = list(engine.run("hello", replace(FOUR, strategies=("target",)), never))
    assert [len(ids) for ids in pair.target.passes[before:][:2]] == [5, 1]  # the prompt, and the first round
    assert passes_of(events)["target"]


def test_a_prompt_does_not_wait_for_what_is_done_ahead_of_it(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    for most in (2, 20):  # within either part of it
        pair = TinyPair()
        engine = make_engine(pair)
        engine.prepare(FOUR, lambda passes=pair.target.passes, most=most: len(passes) > most, lambda progress: None)
        assert len(pair.target.passes) == most + 1
        events = list(engine.run("hello", FOUR, never))
        assert len(passes_of(events)["target"]) == 9


def test_a_disturbed_clock_is_tried_again_while_nothing_runs(
    make_engine: Callable[[TinyPair], LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def measured(model: object, lengths: object, cancelled: object, most_seconds: float) -> PassSeconds:
        asked.append(most_seconds)
        return ()

    engine = make_engine(TinyPair())
    monkeypatch.setattr("specdec_tui.loaded.pass_seconds", measured)
    target = replace(FOUR, strategies=("target",))
    assert not passes_of(list(engine.run("hello", target, never)))["target"]
    assert not passes_of(list(engine.run("hello", target, never, again=True)))["target"]
    assert asked == [MOST_SECONDS]  # nobody waits twice
    for _ in range(5):
        engine.prepare(target, never, lambda progress: None)
    assert asked == [MOST_SECONDS, MOST_AHEAD, MOST_AHEAD]


def test_without_a_cache_no_pass_is_measured(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    assert not any(passes_of(list(make_engine(TinyPair()).run("hello", replace(FOUR, cache=False), never))).values())


def test_a_run_that_was_stopped_before_it_began_leaves_the_measuring_to_the_next(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    list(engine.run("hello", FOUR, lambda: len(pair.target.passes) > 20))
    assert passes_of(list(engine.run("hello", FOUR, never, again=True)))["target"]


def test_a_drafter_with_a_tiny_context_stops_nobody(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    pair = TinyPair()
    pair.drafter = HashModel(2, context_length=6)
    events = list(make_engine(pair).run("hello", FOUR, never))
    assert set(checks_of(events).values()) == {LosslessStatus.IDENTICAL}
    assert len(ids_of(events)["speculative"]) == 20


def test_a_failing_warm_up_is_told_by_the_run_that_needs_the_model(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    pair = TinyPair()
    assert pair.drafter is not None
    pair.drafter.fails_after = 0
    events = list(make_engine(pair).run("hello", FOUR, never))
    ends = {e.strategy: e.record.reason for e in events if isinstance(e, Step) and isinstance(e.record, RunEnded)}
    assert ends["speculative"] is EndReason.ERROR
    assert ends["target"] is ends["lookup"] is EndReason.LENGTH


def test_a_failing_check_loses_neither_text_nor_turn(
    make_engine: Callable[[TinyPair], LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **settings: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("specdec_tui.decoding.lossless.check", fail)
    pair = TinyPair()
    engine = make_engine(pair)
    events = list(engine.run("one", FOUR, never))
    checks = [event.lossless for event in events if isinstance(event, Checked)]
    assert len(checks) == 4 and all("could not be checked: out of memory" in check.detail for check in checks)
    assert isinstance(events[-1], Finished)
    list(engine.run("two", FOUR, never))
    assert [question for question, _ in pair.tokenizer.histories[-1]] == ["one"]


def test_a_run_again_that_makes_no_answer_keeps_the_last_turn(
    make_engine: Callable[[TinyPair], LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = TinyPair()
    engine = make_engine(pair)
    list(engine.run("one", FOUR, never))
    list(engine.run("two", FOUR, lambda: True, again=True))
    right = pair.tokenizer.encode

    def refuse(*arguments: object) -> None:
        raise ValueError("the template refuses it")

    monkeypatch.setattr(pair.tokenizer, "encode", refuse)
    with pytest.raises(PromptError, match="the template refuses it"):
        list(engine.run("three", FOUR, never, again=True))
    monkeypatch.setattr(pair.tokenizer, "encode", right)
    list(engine.run("four", FOUR, never))
    assert [question for question, _ in pair.tokenizer.histories[-1]] == ["one"]


def test_the_drafter_alone_refuses_tokens_it_does_not_know(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    pair = TinyPair()
    assert pair.drafter is not None
    pair.drafter.vocab_size = 3
    events = list(make_engine(pair).run("hello", replace(FOUR, strategies=("target", "drafter")), never))
    end = next(
        e.record
        for e in events
        if isinstance(e, Step) and e.strategy == "drafter" and e.texts == () and isinstance(e.record, RunEnded)
    )
    assert end.reason is EndReason.ERROR and "does not know" in end.message


def test_a_run_stopped_ahead_of_the_target_is_not_called_identical(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    engine = make_engine(TinyPair(same=True))
    seen: list[Event] = []
    settings = replace(FOUR, schedule="interleaved", strategies=("target", "speculative"))
    for event in engine.run("hello", settings, lambda: sum(isinstance(e, Step) for e in seen) > 12):
        seen.append(event)
    ids = ids_of(seen)
    assert len(ids["speculative"]) > len(ids["target"]) > 1
    check = next(e.lossless for e in seen if isinstance(e, Checked) and e.strategy == "speculative")
    assert check.status is LosslessStatus.NOT_APPLICABLE
    assert f"the first {len(ids['target'])} tokens are the target's" in check.detail


def test_finished_runs_of_different_lengths_are_not_identical(
    make_engine: Callable[[TinyPair], LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    from specdec_tui.decoding import loop

    right = loop.decode

    def shorter(*arguments: object, **settings: object) -> object:
        if settings["strategy"] == "lookup":
            settings["max_new_tokens"] = 9
        return right(*arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "decode", shorter)
    checks = checks_of(list(make_engine(TinyPair()).run("hello", FOUR, never)))
    assert checks["lookup"] is LosslessStatus.DIFFERENT
    assert checks["speculative"] is LosslessStatus.IDENTICAL


def test_a_target_that_stops_too_early_is_different(
    make_engine: Callable[[TinyPair], LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    from specdec_tui.decoding import loop

    right = loop.decode

    def shorter(*arguments: object, **settings: object) -> object:
        return right(*arguments, **(settings | {"max_new_tokens": 9}))  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "decode", shorter)
    checks = checks_of(list(make_engine(TinyPair()).run("hello", FOUR, never)))
    assert checks["target"] is LosslessStatus.DIFFERENT


def test_the_ngram_storage_is_kept_between_prompts_only_when_asked(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    kept = replace(FOUR, strategies=("ngram",), reset_in_between=False, chat=False)
    engine = make_engine(TinyPair())

    def rounds(settings: Settings) -> int:
        return sum(
            isinstance(e, Step) and isinstance(e.record, RoundVerified) for e in engine.run("hello", settings, never)
        )

    first, second = rounds(kept), rounds(kept)
    assert second < first
    assert rounds(replace(kept, reset_in_between=True)) == first


def test_a_failed_load_leaves_the_previous_pair_in_place(
    make_engine: Callable[[TinyPair], LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(TinyPair())

    def fail(choice: ModelChoice, progress: object) -> None:
        raise LoadError("no such model")

    monkeypatch.setattr("specdec_tui.backends.loading.load_pair", fail)
    with pytest.raises(LoadError):
        engine.load(ModelChoice(target="x"), lambda progress: None)
    assert len(ids_of(list(engine.run("hello", FOUR, never)))["target"]) == 20


def test_running_without_models_is_a_clear_error() -> None:
    with pytest.raises(LoadError, match="no models are loaded"):
        list(LocalEngine().run("hello", FOUR, never))


def test_prompts_that_cannot_be_run_are_known_before_any_pass(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    pair = TinyPair()
    pair.target.context_length = 10
    assert pair.drafter is not None
    pair.drafter.context_length = 8
    engine = make_engine(pair)
    engine.check_prompt(["a" * 9], FOUR)
    with pytest.raises(PromptError, match="its 10 tokens leave no room in the target's context of 10 tokens"):
        engine.check_prompt(["a" * 10], FOUR)
    with pytest.raises(PromptError, match="its 9 tokens leave no room in the drafter's context of 8 tokens"):
        engine.check_prompt(["a" * 9], ALL)
    with pytest.raises(PromptError, match="turn 2: its 10 tokens"):
        engine.check_prompt(["a" * 4, "b" * 5], FOUR)
    engine.check_prompt(["a" * 4, "b" * 4], FOUR)
    with pytest.raises(PromptError, match="turn 2: its 29 tokens"):  # answers are as long as they are asked to be
        engine.check_prompt(["a" * 4, "b" * 5], replace(FOUR, ignore_eos=True))
    engine.check_prompt(["a" * 4, "b" * 5], replace(FOUR, chat=False))
    assert pair.target.passes == [] and pair.drafter.passes == []


def test_a_template_that_refuses_one_turn_is_known_before_any_pass(
    make_engine: Callable[[TinyPair], LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = TinyPair()
    encode = pair.tokenizer.encode

    def refusing(prompt: str, history: Sequence[tuple[str, str]] = (), chat: bool = True) -> tuple[list[int], str]:
        if "no" in prompt:
            raise ValueError("the chat template says no")
        return encode(prompt, history, chat)

    monkeypatch.setattr(pair.tokenizer, "encode", refusing)
    with pytest.raises(PromptError, match="the chat template says no"):
        make_engine(pair).check_prompt(["yes", "no"], FOUR)


def test_a_template_or_tokenizer_that_is_stopped_ends_the_run_with_nothing_remembered(
    make_engine: Callable[[TinyPair], LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = TinyPair()
    engine = make_engine(pair)

    def stopped(*_: object) -> Prompt:
        raise Stopped("stopped while the tokenizer was at work")

    with monkeypatch.context() as patch:
        patch.setattr(pair.tokenizer, "encode", stopped)
        *steps, last = engine.run("abc", Settings(strategies=("target", "lookup")), lambda: True)
    ends = [step for step in steps if isinstance(step, Step) and isinstance(step.record, RunEnded)]
    assert [(step.strategy, step.record.reason) for step in ends] == [  # type: ignore[union-attr]
        ("target", EndReason.CANCELLED),
        ("lookup", EndReason.CANCELLED),
    ]
    assert last == Finished(cancelled=True)
    list(engine.run("abc", Settings(strategies=("target",), max_new_tokens=1), lambda: False))
    assert pair.tokenizer.histories[-1] == ()


def test_what_must_be_known_of_a_model_and_a_prompt_stands_in_every_run(
    make_engine: Callable[[TinyPair], LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = TinyPair()
    model = replace(pair.info.target, caveats=("half",), generation_config_not_applied={"min_length": 3})
    pair.info = replace(pair.info, target=model)
    engine = make_engine(pair)
    monkeypatch.setattr(pair.tokenizer, "encode", lambda *_: Prompt([1, 2], "ab", ("typed",)))
    for schedule in ("interleaved", "sequential"):
        settings = Settings(strategies=("target", "drafter", "speculative"), max_new_tokens=3, schedule=schedule)
        steps = [event for event in engine.run("ab", settings, lambda: False) if isinstance(event, Step)]
        for strategy in settings.strategies:
            records = [step.record for step in steps if step.strategy == strategy]
            told = [record.message for record in records if isinstance(record, Notice)]
            own = [] if strategy == "drafter" else ["half", model.not_applied]
            assert isinstance(records[0], RunStarted) and told == [*own, "typed"]


def test_a_search_runs_beside_the_others_and_is_compared_with_nothing(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    strategies = ("target", "drafter", "speculative", "beam", "drafter-beam")
    settings = replace(Settings(), strategies=strategies, beam_width=3, max_new_tokens=12, schedule="interleaved")
    events = list(make_engine(TinyPair()).run("x", settings, never))
    told = {event.strategy: event.lossless for event in events if isinstance(event, Checked)}
    assert told["speculative"].status is LosslessStatus.IDENTICAL
    for name in ("beam", "drafter-beam"):
        assert told[name].status is LosslessStatus.NOT_APPLICABLE
        assert told[name].detail == "a search over whole texts, not the target's greedy text"
    places = dict.fromkeys(strategies, 0)
    for event in events:
        if isinstance(event, Step) and isinstance(event.record, RoundVerified) and event.strategy != "speculative":
            places[event.strategy] += 1
            assert max(places[name] for name in ("target", "beam")) - min(places["target"], places["beam"]) <= 2
    figures = figures_of(events)
    assert figures["beam"].new_tokens == 12 and figures["beam"].acceptance_rate is None


@pytest.mark.parametrize("what", ["push", "peek"])
@pytest.mark.parametrize("error", [ValueError("no such piece"), Stopped("the tokenizer took too long")])
@pytest.mark.parametrize("calls", range(1, 12))
def test_a_search_whose_text_cannot_be_told_keeps_what_was_shown_of_it(
    make_engine: Callable[[TinyPair], LocalEngine], what: str, error: Exception, calls: int
) -> None:
    class Failing(Letters):
        def fail(self, ids: Iterable[int]) -> tuple[str, ...]:
            ids = list(ids)
            nonlocal calls
            calls -= bool(ids)
            if ids and calls < 0:
                raise error
            return Letters.push(self, ids)

    pair = TinyPair()
    pair.tokenizer = Failing()
    setattr(pair.tokenizer, what, pair.tokenizer.fail)
    settings = replace(Settings(), strategies=("beam",), beam_width=3, max_new_tokens=12)
    text, pending, shown, end = "", "", "", None
    for event in make_engine(pair).run("x", settings, never):
        match event:
            case Step(record=DraftsProposed(kept=kept), texts=texts):
                pending = pending[:kept] + "".join(texts)
                shown = text + pending
            case Step(record=RoundVerified() | PrefillDone(), texts=texts):
                text += "".join(texts)
                pending = pending[len(texts) :] if pending.startswith("".join(texts)) else ""
            case Step(record=RunEnded(), answer=answer):
                end = event.record
                assert answer == text
    assert isinstance(end, RunEnded)
    if end.message == str(error):
        assert text.startswith(shown), (text, shown)
    else:
        assert len(text) == 12


def test_what_a_search_has_open_is_told_before_the_others_have_their_turn(
    make_engine: Callable[[TinyPair], LocalEngine],
) -> None:
    strategies = ("target", "speculative", "beam", "drafter-beam")
    settings = replace(Settings(), strategies=strategies, beam_width=3, max_new_tokens=12, schedule="interleaved")
    last: dict[str, Record] = {}
    seen = 0
    for event in make_engine(TinyPair()).run("x", settings, never):
        if not isinstance(event, Step):
            continue
        for name in {"beam", "drafter-beam"} - {event.strategy}:
            if (record := last.get(name)) is not None and not isinstance(record, RunStarted | RunEnded | Notice):
                seen += isinstance(record, DraftsProposed)
                over = isinstance(record, RoundVerified) and not record.beams
                assert isinstance(record, DraftsProposed) or over, (name, record)
        last[event.strategy] = event.record
    assert seen > 20


def test_every_drafter_has_a_run_of_its_own_beside_one_target(make_engine: Callable[[TinyPair], LocalEngine]) -> None:
    class Two(TinyPair):
        further = HashModel(3)

        @property
        def drafters(self) -> tuple[LoadedDrafter, ...]:
            return (*super().drafters, LoadedDrafter(self.further))

    pair = Two()
    events = list(make_engine(pair).run("hello", FOUR, never))
    ids, figures = ids_of(events), figures_of(events)
    assert list(ids) == ["target", "speculative", "ngram", "lookup", "speculative-2"]
    assert len(ids["target"]) == 20 and all(own == ids["target"] for own in ids.values())
    assert set(checks_of(events).values()) == {LosslessStatus.IDENTICAL}
    assert pair.further.passes and figures["speculative-2"].drafted > 0
    alone = list(make_engine(Two()).run("hello", replace(FOUR, strategies=("target", "speculative-2")), never))
    assert ids_of(alone) == {name: ids[name] for name in ("target", "speculative-2")}
