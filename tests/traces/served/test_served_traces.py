"""A trace of a server's run holds what the server told, and no more; its figures are those that a hand adds up."""

from dataclasses import replace

import pytest
from streams import STEP, counted, llama_events, metrics, real, recorded, vllm_events

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import (
    Checked,
    LosslessStatus,
    Notice,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
)
from specdec_tui.traces.baseline import is_comparable
from specdec_tui.traces.format import Trace, TraceError, parse_lines, trace_lines
from specdec_tui.traces.served.trace import trace_of
from specdec_tui.traces.summary import figures_of


def rounds_of(trace: Trace, strategy: str = "vllm") -> list[RoundVerified]:
    steps = [event for event in trace.events if isinstance(event, Step) and event.strategy == strategy]
    return [step.record for step in steps if isinstance(step.record, RoundVerified)]


def figures(trace: Trace, strategy: str = "vllm") -> RunFigures:
    return figures_of(trace.events)[strategy]


def notices(trace: Trace) -> str:
    records = (event.record for event in trace.events if isinstance(event, Step))
    return "\n".join(record.message for record in records if isinstance(record, Notice))


def test_the_real_run_of_vllm_has_the_figures_that_its_events_add_up_to() -> None:
    """Steps behind the first token: 7 of one token, then 5, 4, 1, 2 and 2; it told accepted 4, 3, 1 and 3 of 4 each.

    Of the last three accepted drafts the text has two, for the second is the end token.
    """
    trace = trace_of(real("vllm"), real("vllm_plain"))
    run = figures(trace)
    assert (run.new_tokens, run.rounds, run.gamma, run.prompt_tokens) == (22, 12, 4, 36)
    assert (run.drafted, run.accepted, run.rejected, run.unverified) == (4 + 4 + 4 + 2, 4 + 3 + 1 + 2, 2, 2)
    assert run.acceptance_rate == pytest.approx(10 / 12)
    assert run.tokens_per_target_call == pytest.approx(22 / 13)
    assert run.accepted_lengths == [0, 1, 1, 1, 1]
    assert run.conditional_acceptance == [4 / 4, 3 / 4, 2 / 2, 1 / 2]
    arrivals = [one.seconds for one in real("vllm").arrived]
    assert run.prefill_seconds == arrivals[0]
    assert run.decode_seconds == pytest.approx(arrivals[12] - arrivals[0])
    plain = figures(trace, "target")
    assert (plain.new_tokens, plain.drafted, plain.tokens_per_target_call) == (22, 0, 1.0)
    own = [arrivals[12] - arrivals[0], real("vllm_plain").arrived[21].seconds - real("vllm_plain").arrived[0].seconds]
    assert trace.header.strategies["vllm"]["speedup"] == pytest.approx(own[1] / own[0])
    assert "of 3 drafts accepted in the last step the text has 2" in notices(trace)
    assert "its own clock: the first token after 115.9 ms, all others 620.6 ms later" in notices(trace)
    assert run.decode_seconds == pytest.approx(0.6206, rel=0.01), "what its arrivals say"


def test_the_trace_of_the_real_run_is_read_back_exactly_and_its_texts_are_those_of_its_tokens() -> None:
    trace = trace_of(real("vllm"), real("vllm_plain"))
    assert parse_lines(trace_lines(trace)) == trace
    ended = [event for event in trace.events if isinstance(event, Step) and isinstance(event.record, RunEnded)]
    assert {step.answer for step in ended} == {"\nThe cat was a dog. The cat ran. The cat ate the fish. The cat slept."}
    texts = [event.texts for event in trace.events if isinstance(event, Step) and event.strategy == "vllm"]
    assert " cat" in {text for of_step in texts for text in of_step}
    verdicts = {event.strategy: event.lossless.status for event in trace.events if isinstance(event, Checked)}
    assert verdicts["vllm"] is LosslessStatus.IDENTICAL


def test_of_a_step_that_refused_drafts_only_their_number_is_in_the_trace() -> None:
    last = counted([(2, 4), (4, 4)])
    first, second = rounds_of(trace_of(recorded(vllm_events([1, 3, 5], metrics=last), max_tokens=9)))
    assert [token.status for token in first.drafts] == [Status.ACCEPTED] * 2
    assert first.emitted is not None and first.emitted.status is Status.RESAMPLED and first.untold == 2
    assert second.emitted is not None and second.emitted.status is Status.BONUS and second.untold == 0
    assert (first.draft_seconds, first.verify_seconds) == (0.0, pytest.approx(STEP))


def test_where_the_number_of_drafts_is_not_told_no_rate_of_acceptance_is() -> None:
    lines = [metrics(2, 10, 4, 0), *vllm_events([1, 3, 1, 1, 3]), metrics(5, 20, 8, 9)]
    trace = trace_of(recorded(lines, max_tokens=9))
    run = figures(trace)
    assert [record.untold for record in rounds_of(trace)] == [None] * 4
    assert {record.emitted.status for record in rounds_of(trace) if record.emitted} == {Status.SAMPLED}
    assert not run.drafts_are_told and run.acceptance_rate is None and run.wasted_rate is None
    assert run.accepted_lengths == [] and set(run.conditional_acceptance) == {None}
    told = trace.header.strategies["vllm"]
    assert [told[name] for name in ("drafted", "rejected", "unverified", "acceptance_rate")] == [None] * 4
    assert (told["accepted"], told["tokens_per_target_call"]) == (4, 9 / 5)
    assert "it counted 10 drafts in 3 steps, 4 of them accepted" in notices(trace)
    assert "there is no α" in notices(trace)


def test_refused_drafts_without_a_place_count_once_the_run_is_over() -> None:
    """Two of three plain-looking steps had four drafts each: α is 4 of 4 + 2, though nobody knows which steps."""
    last = counted([(0, 4), (0, 4), (4, 4)])
    trace = trace_of(recorded(vllm_events([1, 1, 1, 1, 5], metrics=last), max_tokens=9))
    assert [record.untold for record in rounds_of(trace)] == [None, None, None, 0]
    run = figures(trace)
    assert (run.drafted, run.accepted, run.rejected, run.acceptance_rate) == (12, 4, 2, 4 / 6)
    assert run.accepted_lengths == [2, 0, 0, 0, 1]
    so_far = RunFigures()
    for event in trace.events:
        if isinstance(event, Step) and not isinstance(event.record, RunEnded):
            so_far.add(event.record)
    assert so_far.acceptance_rate is None
    assert parse_lines(trace_lines(trace)) == trace


def test_nothing_is_predicted_of_a_server_whose_rounds_are_not_split() -> None:
    plain = recorded(vllm_events([1] * 41), max_tokens=41)
    lines = vllm_events([1, *[5] * 8], metrics=counted([(4, 4)] * 8))
    told = trace_of(recorded(lines, max_tokens=41), plain).header.strategies["vllm"]
    assert told["speedup"] == pytest.approx(5.0)
    assert [told[name] for name in ("cost_ratio", "verify_ratio", "predicted_speedup")] == [None] * 3


def test_rounds_that_may_have_had_drafts_are_no_plain_passes() -> None:
    lines = vllm_events([1, 1, 1, 1, 5], metrics=counted([(0, 4), (0, 4), (4, 4)]))
    course = figures(trace_of(recorded(lines, max_tokens=9))).course
    assert course.plain_passes(0, 4).count == 0
    known = vllm_events([1, 1, 5], metrics=counted([(4, 4)]))
    assert figures(trace_of(recorded(known, max_tokens=7))).course.plain_passes(0, 2).count == 1


def test_another_token_than_without_drafts_is_told_and_not_judged() -> None:
    plain = vllm_events([1] * 5)
    plain[3]["event"]["choices"][0]["token_ids"] = [99]
    lines = vllm_events([1, 4], metrics=counted([(3, 4)]))
    trace = trace_of(recorded(lines, max_tokens=5), recorded(plain, max_tokens=5))
    verdict = next(e.lossless for e in trace.events if isinstance(e, Checked) and e.strategy == "vllm")
    assert (verdict.status, verdict.first_divergence) == (LosslessStatus.NOT_APPLICABLE, 3)


def test_what_a_server_drew_is_not_called_the_same() -> None:
    asked = {"max_tokens": 5, "temperature": 0.7, "top_p": 0.9}
    trace = trace_of(recorded(vllm_events([1] * 5), **asked), recorded(vllm_events([1] * 5), **asked))
    verdict = next(e.lossless for e in trace.events if isinstance(e, Checked) and e.strategy == "vllm")
    assert verdict.status is LosslessStatus.NOT_APPLICABLE
    assert trace.header.settings["processor"] == "nucleus"


def test_a_server_s_run_is_measured_against_none_of_another_time() -> None:
    """Of another recording nothing tells whether it was made on the same machine."""
    plain = recorded(vllm_events([1] * 9), max_tokens=9)
    own = recorded(vllm_events([1, 3, 5], metrics=counted([(2, 4), (4, 4)])), max_tokens=9)
    earlier, alone = trace_of(own, plain).header, trace_of(own).header
    assert earlier.strategies["target"]["finish_reason"] == "length" and earlier.environment["served_by"] == "vLLM 1"
    assert not is_comparable(earlier, alone)
    ours = [replace(header, environment={}) for header in (earlier, alone)]
    assert is_comparable(*ours), "nothing else hinders it"


@pytest.mark.parametrize(
    ("lines", "asked", "message"),
    [
        (vllm_events([1, 2]), {"prompt": "Other."}, "the prompt is another one"),
        (vllm_events([1, 2]), {"server": "llama.cpp"}, "the server is another one"),
        (vllm_events([1, 1, 1]), {"max_tokens": 4}, "the max_tokens is another one"),
        (vllm_events([1, 1, 1]), {"repetition_penalty": 1.3}, "the repetition_penalty is another one"),
        (vllm_events([1, 1, 1]), {"stop": ["x"], "min_p": 0}, "the stop is another one"),
        (vllm_events([1, 2], metrics=counted([(1, 4)])), {}, "the server drafted"),
    ],
)
def test_a_baseline_must_be_of_the_same_server_and_prompt_without_drafts(
    lines: list[dict[str, object]], asked: dict[str, object], message: str
) -> None:
    own = recorded(vllm_events([1, 2], metrics=counted([(1, 4)])), max_tokens=3)
    other = recorded(lines, **({"max_tokens": 3} | asked))  # type: ignore[arg-type]
    with pytest.raises(TraceError, match=message):
        trace_of(own, other)


def test_what_was_asked_for_beyond_the_settings_is_told_in_a_sentence_and_may_be_asked_of_the_baseline_too() -> None:
    asked = {"repetition_penalty": 1.3, "min_p": 0.2, "logit_bias": {"5": 100}, "stop": ["x"], "max_tokens": 3}
    own = recorded(vllm_events([1, 2], metrics=counted([(1, 4)])), **asked)
    told = notices(trace_of(own, recorded(vllm_events([1, 1, 1]), **asked)))
    more = "repetition_penalty 1.3, min_p 0.2, logit_bias {'5': 100}, stop ['x']"
    assert told.count(f"it was asked for more than the settings here tell: {more}\n") == 2


def test_fields_that_change_no_text_are_neither_told_nor_in_the_way_of_a_baseline() -> None:
    neutral = {"repetition_penalty": 1, "presence_penalty": 0.0, "min_p": 0, "stop": [], "n": 1, "ignore_eos": False}
    shape = {"stream": True, "logprobs": 3, "user": "me", "speculative.n_max": 4, "skip_special_tokens": True}
    own = recorded(vllm_events([1, 2], metrics=counted([(1, 4)])), max_tokens=3, **neutral, **shape)
    trace = trace_of(own, recorded(vllm_events([1, 1, 1]), max_tokens=3))
    assert "asked for more" not in notices(trace)


def test_of_many_fields_the_first_are_told() -> None:
    own = recorded(vllm_events([1, 1]), **{f"field\n{number}": number + 1 for number in range(300)})
    assert "field 7 8 and 292 more" in notices(trace_of(own))


def test_the_run_of_llama_cpp_has_its_own_clock_and_knows_the_drafts_of_every_step() -> None:
    """Four drafts of which one was kept, a plain step, three that were all kept, two that were refused."""
    lines = llama_events([(4, 1), (0, 0), (3, 3), (2, 0)])
    trace = trace_of(recorded(lines, "llama.cpp", n_predict=9))
    rounds = rounds_of(trace, "llama-cpp")
    assert [(len(one.drafts), one.untold) for one in rounds] == [(1, 3), (0, 0), (3, 0), (0, 2)]
    fates = [one.emitted.status for one in rounds if one.emitted]
    assert fates == [Status.RESAMPLED, Status.SAMPLED, Status.BONUS, Status.RESAMPLED]
    run = figures(trace, "llama-cpp")
    assert (run.drafted, run.accepted, run.rejected, run.unverified) == (9, 4, 2, 3)
    assert (run.acceptance_rate, run.gamma, run.prompt_tokens) == (4 / 6, 4, 3)
    assert (run.prefill_seconds, run.decode_seconds) == (0.5, pytest.approx(4 * STEP))
    assert parse_lines(trace_lines(trace)) == trace


def test_a_trace_that_claims_untold_drafts_of_our_own_run_is_refused() -> None:
    trace = trace_of(recorded(vllm_events([1, 3], metrics=counted([(2, 4)])), max_tokens=4))
    assert parse_lines(trace_lines(trace)) == trace

    def changed(event: object) -> object:
        if isinstance(event, Step) and isinstance(event.record, RunStarted):
            return replace(event, record=replace(event.record, served=False))
        return event

    own = replace(trace, events=tuple(map(changed, trace.events)))  # type: ignore[arg-type]
    with pytest.raises(TraceError, match="'untold' must be left out: the run is no server's own"):
        parse_lines(trace_lines(own))


@pytest.mark.parametrize(
    ("told", "changed", "message"),
    [
        ('"untold":2', '"untold":3', "'untold' must be at most the 2 left"),
        ('"untold":2', '"untold":null', "'emitted.status' must be sampled"),
        ('"untold":2', '"untold":-1', "'untold' must be"),
        ('"message":""', '"message":"","unplaced":[1,1]', "'unplaced' must be at most 0 rounds"),
    ],
)
def test_what_is_not_told_of_drafts_must_fit_the_run(told: str, changed: str, message: str) -> None:
    lines = list(trace_lines(trace_of(recorded(vllm_events([1, 3], metrics=counted([(2, 4)])), max_tokens=4))))
    spoilt = [lines[0], *(line.replace(told, changed) for line in lines[1:])]
    assert spoilt != lines
    with pytest.raises(TraceError, match=message):
        parse_lines(spoilt)


def test_the_prefill_of_a_served_run_is_its_first_event() -> None:
    trace = trace_of(recorded(vllm_events([1, 1]), max_tokens=2))
    record = next(e.record for e in trace.events if isinstance(e, Step) and isinstance(e.record, PrefillDone))
    assert record.seconds == STEP and record.token is not None and record.token.id == 0
