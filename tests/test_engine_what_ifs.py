"""What-ifs by the engine: exact behind any prefix, checked, side by side, and without a trace in later runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from test_session import ALL, FOUR, HashModel, TinyPair, checks_of, ids_of, make_engine, never
from test_session_programs import StaticPair

from specdec_tui.backends.loading import Pair
from specdec_tui.backends.pair import LoadError, PromptError
from specdec_tui.backends.weight_forms import with_form
from specdec_tui.decoding import run as round_by_round
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    Event,
    Finished,
    LosslessStatus,
    Notice,
    Origin,
    PassSeconds,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Step,
)
from specdec_tui.session import LocalEngine
from specdec_tui.settings import Settings
from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import Trace, new_header, trace_lines
from specdec_tui.what_ifs import WhatIf

Make = Callable[[TinyPair], LocalEngine]
__all__ = ["make_engine"]
SAMPLED = replace(ALL, processor="multinomial", temperature=0.8, seed=3)


def started(events: Sequence[Event], name: str) -> tuple[RunStarted, str]:
    step = next(e for e in events if isinstance(e, Step) and e.strategy == name and isinstance(e.record, RunStarted))
    assert isinstance(step.record, RunStarted)
    return step.record, step.prompt_text


def end_of(events: Sequence[Event], name: str) -> tuple[RunEnded, str]:
    step = next(e for e in events if isinstance(e, Step) and e.strategy == name and isinstance(e.record, RunEnded))
    assert isinstance(step.record, RunEnded)
    return step.record, step.answer


def asked(
    events: Sequence[Event],
    parent: str,
    settings: Settings,
    position: int,
    token: int | None = None,
    number: int = 1,
    changes: tuple[tuple[str, str], ...] = (),
) -> WhatIf:
    record, text = started(events, parent)
    given = (*ids_of(events)[parent][:position], *(() if token is None else (token,)))
    name = f"{parent}~{number}"
    return WhatIf(name, Origin(parent, position, token, changes), settings, text, record.prompt_tokens, given)


@pytest.mark.parametrize("settings", [ALL, replace(SAMPLED, rule="coupled")])
def test_behind_its_own_token_every_strategy_writes_its_rest_and_is_identical(
    make_engine: Make, settings: Settings
) -> None:
    engine = make_engine(TinyPair())
    run = list(engine.run("hello", settings, never))
    whole = ids_of(run)
    requests = [asked(run, name, settings, 6, whole[name][6]) for name in settings.strategies]
    events = list(engine.what_ifs(requests, never))
    assert ids_of(events) == {f"{name}~1": ids[7:] for name, ids in whole.items()}
    checks = checks_of(events)
    assert checks.pop("drafter~1") is LosslessStatus.NOT_APPLICABLE
    assert set(checks.values()) == {LosslessStatus.IDENTICAL}
    assert events[-1] == Finished()
    record, text = started(events, "target~1")
    assert record == RunStarted("target", 12, 3, 13, origin=Origin("target", 6, whole["target"][6]), alone=record.alone)
    answer = end_of(run, "target")[1]
    assert text == "hello" + answer[:7] and end_of(events, "target~1") == (RunEnded(EndReason.LENGTH), answer[7:])


@pytest.mark.each_value
@pytest.mark.parametrize("rule", ["rejection", "coupled", "block", "skip-adjustment"])
@pytest.mark.parametrize("captured", [False, True])
def test_other_tokens_and_settings_are_played_and_the_trace_takes_them(
    make_engine: Make, tmp_path: Path, rule: str, captured: bool
) -> None:
    engine = make_engine(StaticPair() if captured else TinyPair())
    engine.loaded.programs = Programs() if captured else None
    settings = replace(SAMPLED, rule=rule)
    run = list(engine.run("hello", settings, never))
    changed = replace(settings, gamma=1, temperature=0.5)
    changes = (("gamma", "1"), ("temperature", "0.5"))
    requests = [
        asked(run, "speculative", settings, 5, 7),
        asked(run, "speculative", changed, 5, None, 2, changes),
        asked(run, "ngram", changed, 0, None, 1, changes),
    ]
    events = list(engine.what_ifs(requests, never))
    again = list(engine.what_ifs(requests, never))
    assert ids_of(events) == ids_of(again), "the same noise, the same text"
    if rule == "coupled":
        assert ids_of(events)["ngram~1"] != ids_of(run)["ngram"]
    else:
        assert set(checks_of(events).values()) == {LosslessStatus.NOT_APPLICABLE}
    header = new_header("hello", (*run[:-1], *events[:-1]), settings=settings)
    trace = Trace(header, (*run[:-1], *events))
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(trace_lines(trace)))
    assert read_trace(path).events == trace.events
    assert json.loads(path.read_text().splitlines()[0])["strategies"]["speculative~2"]["gamma"] == 1


def test_a_corrupted_what_if_is_called_different(make_engine: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(TinyPair())
    run = list(engine.run("hello", ALL, never))
    monkeypatch.setattr("specdec_tui.decoding.run.kept_length", lambda base, accepted: base + accepted)
    assert checks_of(list(engine.what_ifs([asked(run, "speculative", ALL, 4, 2)], never))) == {
        "speculative~1": LosslessStatus.DIFFERENT
    }
    monkeypatch.undo()
    # Positions that begin anew take the noise of other places.
    monkeypatch.setattr(
        round_by_round.Run, "position", property(lambda run: len(run.ids) - run.prompt_length - len(run.given))
    )
    coupled = replace(SAMPLED, rule="coupled")
    run = list(engine.run("hello", coupled, never))
    found = checks_of(list(engine.what_ifs([asked(run, "speculative", coupled, 4, 2)], never)))
    assert found == {"speculative~1": LosslessStatus.DIFFERENT}


@pytest.mark.parametrize("schedule", ["interleaved", "sequential"])
def test_several_take_turns_as_the_strategies_of_a_run_do(make_engine: Make, schedule: str) -> None:
    engine = make_engine(TinyPair())
    settings = replace(ALL, schedule=schedule)
    run = list(engine.run("hello", settings, never))
    gammas = (1, 2, 5)
    requests = [
        asked(run, "speculative", replace(settings, gamma=gamma), 0, None, gamma, (("gamma", str(gamma)),))
        for gamma in gammas
    ]
    events = list(engine.what_ifs(requests, never))
    assert set(map(tuple, ids_of(events).values())) == {tuple(ids_of(run)["target"])}
    order = [event.strategy for event in events if isinstance(event, Step)]
    assert (order == sorted(order)) is (schedule == "sequential")
    assert [started(events, f"speculative~{gamma}")[0].gamma for gamma in gammas] == list(gammas)
    assert {started(events, name)[0].alone for name in set(order)} == {schedule == "sequential"}


def test_no_later_run_knows_of_a_what_if(make_engine: Make) -> None:
    settings = replace(ALL, strategies=("target", "ngram"))

    def rounds(between: bool) -> list[int]:
        engine = make_engine(TinyPair())
        run = list(engine.run("hello", settings, never))
        if between:
            list(engine.what_ifs([asked(run, "ngram", settings, 3, 2)], never))
        later = engine.run("hallo", settings, never)
        return [
            len(e.record.drafts)
            for e in later
            if isinstance(e, Step) and e.strategy == "ngram" and isinstance(e.record, RoundVerified)
        ]

    assert rounds(True) == rounds(False)


def test_a_prompt_of_another_session_is_read_again_or_refused(make_engine: Make) -> None:
    engine = make_engine(TinyPair())
    run = list(engine.run("hello", FOUR, never))
    later = make_engine(TinyPair())
    request = asked(run, "speculative", FOUR, 4, 2)
    pair = later._pair
    assert pair is not None
    pair.tokenizer.read_again = lambda text, cancelled: [ord(letter) % 12 for letter in text]  # type: ignore[method-assign]
    assert ids_of(list(later.what_ifs([request], never))) == ids_of(list(engine.what_ifs([request], never)))
    pair.tokenizer.read_again = lambda text, cancelled: [1, 2]  # type: ignore[method-assign]
    with pytest.raises(PromptError, match="as 2 tokens, not the 5 of the run"):
        list(later.what_ifs([request], never))
    with pytest.raises(LoadError):
        list(LocalEngine().what_ifs([request], never))


def test_what_cannot_be_gone_on_with_is_refused_in_one_line(make_engine: Make) -> None:
    engine = make_engine(TinyPair())
    run = list(engine.run("hello", replace(FOUR, strategies=("target", "beam")), never))
    with pytest.raises(PromptError, match="from the middle of its text"):
        list(engine.what_ifs([asked(run, "beam", FOUR, 2, 3)], never))
    for unknown in (99, 2**53):
        with pytest.raises(PromptError, match=rf"tokens that the target does not know: \[{unknown}\]"):
            list(engine.what_ifs([asked(run, "target", FOUR, 2, unknown)], never))


def test_a_stop_keeps_what_was_written(make_engine: Make) -> None:
    engine = make_engine(TinyPair())
    run = list(engine.run("hello", FOUR, never))
    asks = iter([False] * 5)
    events = list(engine.what_ifs([asked(run, "target", FOUR, 4, 2)], lambda: next(asks, True)))
    assert end_of(events, "target~1")[0].reason is EndReason.CANCELLED and ids_of(events)["target~1"]
    check = next(event for event in events if isinstance(event, Checked))
    assert check.lossless.detail == "stopped, not checked" and events[-1] == Finished(cancelled=True)


class FormedModel(HashModel):
    """A model over weights in forms: those of packed-int8 are another model's."""

    def __init__(self, seed: int, form: str = "packed") -> None:
        super().__init__(seed + 10 * (form == "packed-int8"))
        self.own_seed, self.form, self.memory_bytes = seed, form, 4 if form == "expanded" else 1
        self.forms = ("packed", "expanded", "packed-int8")
        self.made: list[FormedModel] = []

    def in_form(self, form: str) -> FormedModel:
        self.made.append(FormedModel(self.own_seed, form))
        return self.made[-1]


@pytest.fixture
def formed(make_engine: Make) -> LocalEngine:
    engine, tiny = make_engine(TinyPair()), TinyPair()
    target = FormedModel(1)
    info = replace(tiny.info, target=with_form(tiny.info.target, target))
    engine.loaded.pair = Pair(target, tiny.drafters, tiny.tokenizer, tiny.end_ids, info)  # type: ignore[arg-type]
    return engine


def test_a_what_if_runs_the_target_in_another_form_of_its_weights(formed: LocalEngine) -> None:
    run = list(formed.run("hello", ALL, never))
    pair = formed.loaded.pair
    assert pair is not None and isinstance(pair.target, FormedModel)
    before = len(pair.target.passes)
    forms = ("expanded", "packed-int8")
    requests = [
        replace(asked(run, "speculative", ALL, 0, None, number, (("weights", form),)), weights=form)
        for number, form in enumerate(forms, 1)
    ]
    events = list(formed.what_ifs(requests, never))
    whole = ids_of(run)["target"]
    assert ids_of(events)["speculative~1"] == whole, "the same numbers"
    assert ids_of(events)["speculative~2"] != whole
    assert set(checks_of(events).values()) == {LosslessStatus.IDENTICAL}, "each against its own"
    assert len(pair.target.passes) == before, "the loaded form has taken no part"
    assert [model.form for model in pair.target.made] == list(forms)
    notices = {e.strategy: e.record.message for e in events if isinstance(e, Step) and isinstance(e.record, Notice)}
    assert list(notices) == ["speculative~2"] and "may differ" in notices["speculative~2"]
    list(formed.what_ifs(requests[:1], never))
    assert len(pair.target.made) == 2, "kept while what-ifs are played"
    later = list(formed.run("hello", replace(ALL, chat=False), never))
    list(formed.what_ifs([replace(asked(later, "speculative", ALL, 0), weights="expanded")], never))
    assert len(pair.target.made) == 3, "the next run lets go of it"


def test_behind_a_part_of_a_text_the_other_form_goes_on(formed: LocalEngine) -> None:
    run = list(formed.run("hello", ALL, never))
    one = replace(asked(run, "target", ALL, 5, None, 1, (("weights", "expanded"),)), weights="expanded")
    assert ids_of(list(formed.what_ifs([one], never)))["target~1"] == ids_of(run)["target"][5:]
    as_loaded = replace(one, weights="packed")
    pair = formed.loaded.pair
    assert pair is not None and isinstance(pair.target, FormedModel)
    made = len(pair.target.made)
    list(formed.what_ifs([as_loaded], never))
    assert len(pair.target.made) == made


def test_passes_are_measured_for_each_form_of_the_weights(formed: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"packed": 0.001, "expanded": 0.010}

    def measured(model: FormedModel, lengths: Sequence[int], *_: object) -> PassSeconds:
        return tuple((length, costs[model.form] * length) for length in lengths)

    monkeypatch.setattr("specdec_tui.loaded.pass_seconds", measured)

    def told(events: Sequence[Event], name: str) -> PassSeconds:
        return next(
            e.record.passes
            for e in events
            if isinstance(e, Step) and e.strategy == name and isinstance(e.record, PrefillDone)
        )

    run = list(formed.run("hello", ALL, never))
    one = replace(asked(run, "speculative", ALL, 0, None, 1, (("weights", "expanded"),)), weights="expanded")
    events = list(formed.what_ifs([one, replace(one, name="speculative~2", weights="")], never))
    assert dict(told(run, "speculative"))[1] == 0.001 == dict(told(events, "speculative~2"))[1]
    assert dict(told(events, "speculative~1"))[1] == 0.010


def test_a_form_that_cannot_be_is_one_line(
    make_engine: Make, formed: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = list(formed.run("hello", ALL, never))
    one = replace(asked(run, "speculative", ALL, 0), weights="expanded")
    monkeypatch.setattr("specdec_tui.backends.memory.available_bytes", lambda device: 3)
    with pytest.raises(PromptError, match=r"tiny: expanded its weights take .* are free: load the pair with weights"):
        list(formed.what_ifs([one], never))
    plain = make_engine(TinyPair())
    run = list(plain.run("hello", ALL, never))
    kept = asked(run, "speculative", ALL, 0)
    assert checks_of(list(plain.what_ifs([replace(kept, weights="expanded")], never))), "it is so, whatever is free"
    with pytest.raises(PromptError, match="weights packed is for the fast CPU pass"):
        list(plain.what_ifs([replace(one, weights="packed")], never))
