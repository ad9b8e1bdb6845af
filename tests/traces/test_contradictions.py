"""What no run can have written is refused with its line and field, and so is a verdict that the tokens refute."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded import comparison, full_trace, search_events, trace_of

from specdec_tui.decoding.records import Checked, Finished, LosslessStatus
from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import TraceError, trace_lines
from specdec_tui.traces.played import is_answer

Lines = list[dict[str, Any]]
Change = Callable[[Lines], object]
OTHER_ID = 2**40


def lines_of_comparison() -> Lines:
    return [json.loads(line) for line in trace_lines(comparison(10))]


def at(lines: Lines, event: str, strategy: str = "speculative", number: int | None = None) -> int:
    """Where an event stands."""
    return next(
        index
        for index, line in enumerate(lines)
        if (line.get("event"), line.get("strategy")) == (event, strategy) and number in (None, line.get("round"))
    )


def refusal(path: Path, lines: Lines) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250
    return str(caught.value)


def fates(*statuses: str, number: int = 2) -> Change:
    """Others in a round that had: accepted, accepted, rejected, unverified."""

    def change(lines: Lines) -> None:
        drafts = lines[at(lines, "round_verified", number=number)]["drafts"]
        for draft, status in zip(drafts, statuses, strict=True):
            draft["status"] = status

    return change


def setting(event: str, path: str, value: Any, number: int | None = None, strategy: str = "speculative") -> Change:
    """Another value in the first such event."""

    def change(lines: Lines) -> None:
        part: Any = lines[at(lines, event, strategy, number)]
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        for step in steps:
            part = part[step]
        part[last] = value

    return change


def without_rounds(lines: Lines) -> None:
    keep = ("run_started", "run_ended", "checked", "finished")
    lines[1:] = [line for line in lines[1:] if line["event"] in keep]
    lines[0]["events"] = len(lines) - 1


def another_text(lines: Lines) -> None:
    """The run is sound in itself, but its text is not the target's."""
    lines[at(lines, "round_verified", number=0)]["emitted"]["id"] = OTHER_ID


def longer_target(lines: Lines) -> None:
    """The target goes on for a token that the strategy does not have."""
    lines[at(lines, "run_started", "target")]["max_new_tokens"] += 1
    end = at(lines, "run_ended", "target")
    last = json.loads(json.dumps(lines[end - 1]))
    last["round"] += 1
    last["emitted"]["position"] += 1
    lines[end]["answer"] += last["texts"][0]
    lines.insert(end, last)
    lines[0]["events"] += 1


def a_round_behind_an_open_end(lines: Lines) -> None:
    """Drafts that were all accepted with no token behind them end a run."""
    line = lines[at(lines, "round_verified", number=4)]
    del line["emitted"], line["texts"][-1]


CONTRADICTIONS: dict[str, tuple[Change, str]] = {
    "accepted behind rejected": (
        fates("rejected", "accepted", "rejected", "accepted"),
        "field 'drafts[1].status' must be unverified here, not accepted",
    ),
    "rejected twice": (
        fates("accepted", "accepted", "rejected", "rejected"),
        "field 'drafts[3].status' must be unverified here, not rejected",
    ),
    "unverified behind accepted": (
        fates("accepted", "accepted", "unverified", "unverified"),
        "field 'drafts[2].status' must be rejected here, not unverified",
    ),
    "pending in a round that is over": (fates(*["pending"] * 4), "field 'drafts[0].status' must be rejected here, not"),
    "a draft that was sampled": (fates("sampled", *["unverified"] * 3), "field 'drafts[0].status' must be rejected"),
    "all accepted, and yet one replaced": (
        fates(*["accepted"] * 4),
        "field 'emitted.status' must be bonus here, not resampled",
    ),
    "a rejected emitted token": (
        setting("round_verified", "emitted.status", "rejected"),
        "field 'emitted.status' must be resampled here, not rejected",
    ),
    "a bonus without drafts": (
        setting("round_verified", "emitted.status", "bonus", strategy="target"),
        "field 'emitted.status' must be sampled here, not bonus",
    ),
    "a rejected first token": (
        setting("prefill_done", "token.status", "rejected", strategy="target"),
        "field 'token.status' must be sampled here, not rejected",
    ),
    "drafts judged before their round": (
        setting("drafts_proposed", "drafts.1.status", "accepted"),
        "field 'drafts[1].status' must be pending here, not accepted",
    ),
    "other drafts than proposed": (
        setting("round_verified", "drafts.3.id", 5),
        "field 'drafts' must be those that were proposed for the round",
    ),
    "a place of the first token": (setting("prefill_done", "token.position", 3), "field 'token.position' must be 0"),
    "a place of a draft": (setting("round_verified", "drafts.1.position", 9), "'drafts[1].position' must be 2, not 9"),
    "a place of a proposed draft": (
        setting("drafts_proposed", "drafts.0.position", 32_768),
        "field 'drafts[0].position' must be 1, not 32768",
    ),
    "a place of an emitted token": (setting("round_verified", "emitted.position", 0), "'emitted.position' must be 1"),
    "more drafts than γ": (
        lambda lines: (lines[0]["settings"].pop("gamma"), setting("run_started", "gamma", 3)(lines)),
        "field 'drafts' must be at most the 3 of the run",
    ),
    "another γ than the settings'": (
        setting("run_started", "gamma", 5),
        "field 'gamma' contradicts the settings: 4 there, 5 here",
    ),
    "no room for a token": (
        setting("run_started", "max_new_tokens", 0),
        "field 'token' must not exceed the 0 new tokens of the run",
    ),
    "more tokens than the run was to have": (
        setting("run_started", "max_new_tokens", 20),
        "field 'emitted' must not exceed the 20 new tokens of the run",
    ),
    "fewer tokens than the length that was reached": (
        setting("run_started", "max_new_tokens", 1000, strategy="target"),
        "field 'reason' contradicts the rounds: 'length' means 1,000 new tokens, the rounds have 31",
    ),
    "an end without rounds": (without_rounds, "'reason' contradicts the rounds: 'length' means 31 new tokens, the"),
    "an end token of no text": (
        lambda lines: (without_rounds(lines), setting("run_ended", "reason", "end_token", strategy="target")(lines)),
        "field 'reason' contradicts the rounds: 'end_token' means a token, the rounds have none",
    ),
    "a round behind the end of the text": (
        a_round_behind_an_open_end,
        "field 'event' must be 'run_ended': the text of the run is over",
    ),
    "a rejection without its correction": (
        lambda lines: (
            setting("round_verified", "emitted", None)(lines),
            lines[at(lines, "round_verified")]["texts"].pop(),
        ),
        "field 'emitted' must be a token where not all drafts were accepted",
    ),
    "an answer of other words": (
        setting("run_ended", "answer", "contradiction"),
        "field 'answer' contradicts the texts of the rounds",
    ),
    "an alternative that nobody thought of": (
        setting("round_verified", "alternatives", {"77": " no"}),
        "field 'alternatives' must hold only ids that the line's insights and beams name, not 77",
    ),
    "another text said to be identical": (
        another_text,
        "field 'lossless.status' contradicts the rounds: the target has another token at 1",
    ),
    "another length said to be identical": (
        longer_target,
        "field 'lossless.status' contradicts the rounds: the target has another token at 31",
    ),
    "a divergence elsewhere": (
        lambda lines: (
            another_text(lines),
            setting("checked", "lossless", {"status": "near_ties", "ties": 1, "first_divergence": 7})(lines),
        ),
        "field 'lossless.first_divergence' contradicts the rounds: 1, not 7",
    ),
    "a divergence of equal texts": (
        setting("checked", "lossless", {"status": "different", "first_divergence": 7}),
        "field 'lossless.first_divergence' contradicts the rounds: none, not 7",
    ),
    "more ties than tokens": (
        setting("checked", "lossless", {"status": "near_ties", "ties": 32}),
        "field 'lossless.ties' must be at most the 31 tokens of the run",
    ),
    "identical with ties": (
        setting("checked", "lossless", {"status": "identical", "ties": 1}),
        "field 'lossless.status' contradicts its ties or its first_divergence: identical has none",
    ),
    "a verdict on no text": (
        lambda lines: (without_rounds(lines), [line.update(reason="cancelled") for line in lines if "reason" in line]),
        "field 'lossless.status' must be not_applicable, not identical: the run has no tokens",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_what_no_run_can_have_written_is_refused_with_line_and_field(name: str, tmp_path: Path) -> None:
    change, message = CONTRADICTIONS[name]
    lines = lines_of_comparison()
    for line in (line for line in lines if line.get("event") == "run_ended"):
        if name in ("an end without rounds", "an end token of no text", "a verdict on no text"):
            del line["answer"]
    change(lines)
    found = refusal(tmp_path / "run.jsonl", lines)
    assert found.startswith("run.jsonl: line ") and message in found


def judged(rule: str, status: str, **numbers: float | None) -> Change:
    """A round of one draft: these numbers, this fate."""

    def change(lines: Lines) -> None:
        lines[0]["settings"]["rule"] = rule
        line = lines[at(lines, "round_verified", number=2)]
        index = ["accepted", "accepted", "rejected"].index(status)
        line["drafts"][index] |= numbers

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            judged("rejection", "rejected", p=0.9, q=0.5, acceptance=1.0, draw=0.4),
            "field 'drafts[2].draw' contradicts rejected: 0.4 is below its acceptance of 1",
        ),
        (
            judged("rejection", "rejected", p=0.2, q=0.4, acceptance=None, draw=0.1),
            "field 'drafts[2].draw' contradicts rejected: 0.1 is below its p / q of 0.5",
        ),
        (
            judged("rejection", "accepted", p=0.2, q=0.4, acceptance=0.5, draw=0.7),
            "field 'drafts[0].draw' contradicts accepted: 0.7 is above its acceptance of 0.5",
        ),
        (
            judged("skip-adjustment", "accepted", p=0.2, q=0.4, acceptance=None, draw=0.7),
            "field 'drafts[0].draw' contradicts accepted: 0.7 is above its p / q of 0.5",
        ),
        (
            judged("block", "rejected", p=0.2, q=0.4, acceptance=0.6, draw=0.1),
            "field 'drafts[2].draw' contradicts rejected: 0.1 is below its acceptance of 0.6",
        ),
        (judged("rejection", "rejected", p=0.2, q=0.4, acceptance=0.5, draw=0.5), ""),
        (judged("block", "accepted", p=0.2, q=0.4, acceptance=0.5, draw=0.7), ""),
        (judged("block", "rejected", p=0.2, q=0.4, acceptance=None, draw=0.1), ""),
    ],
)
def test_a_fate_is_what_the_draw_and_the_chances_of_its_draft_say(change: Change, message: str, tmp_path: Path) -> None:
    lines = lines_of_comparison()
    change(lines)
    if message:
        assert message in refusal(tmp_path / "run.jsonl", lines)
    else:
        path = tmp_path / "run.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        read_trace(path)


def test_an_alternative_whose_text_came_before_is_refused(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in trace_lines(full_trace())]
    lines[at(lines, "round_verified", number=0)]["alternatives"] = {"7": " the"}
    message = "line 9: field 'alternatives' must hold each id once in a run, 7 came before"
    assert message in refusal(tmp_path / "run.jsonl", lines)


def test_the_verdict_of_a_target_that_was_itself_different_binds_nobody(tmp_path: Path) -> None:
    """It is no yardstick, and the strategies were checked without it."""
    lines = lines_of_comparison()
    another_text(lines)
    different = {"status": "different", "detail": "not the target's own"}
    lines[at(lines, "checked", "target")]["lossless"] = different
    for strategy in lines[0]["strategies"].values():
        strategy["lossless"] = None
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(read_trace(path).events) == lines[0]["events"]


@pytest.mark.parametrize(
    ("answer", "pieces", "agrees"),
    [
        ("Light of day.", ["Light", " of", " day", ".", "<end>"], True),
        ("Light of day", ["<s>", " Light", " of", "<pad>", " day"], True),
        ("hello, world", ["hello", " ,", " world"], True),
        ("", ["<end>"], True),
        ("<e>", ["<e>", "<", "e", ">"], True),
        ("雲", ["\N{REPLACEMENT CHARACTER}", "<s>"], True),
        ("Light of night", ["Light", " of", " day"], False),
        ("Light of day and more", ["Light", " of", " day"], False),
        ("Lday", ["Light", " of", " day"], False),
    ],
)
def test_an_answer_is_the_pieces_without_those_of_special_tokens(answer: str, pieces: list[str], agrees: bool) -> None:
    assert is_answer(answer, pieces) is agrees


@pytest.mark.parametrize("status", ["identical", "near_ties"])
def test_a_verdict_of_an_older_version_on_a_run_that_failed_is_not_repeated(tmp_path: Path, status: str) -> None:
    lines = lines_of_comparison()
    lines[at(lines, "run_ended")] |= {"reason": "error", "message": "no room"}
    lines[0]["strategies"]["speculative"] |= {"finish_reason": "error", "message": "no room"}
    for verdict in (lines[at(lines, "checked")]["lossless"], lines[0]["strategies"]["speculative"]["lossless"]):
        verdict |= {"status": status}
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = read_trace(path)
    assert trace.header.strategies["speculative"]["lossless"]["status"] == "not_applicable"
    verdicts = {e.strategy: e.lossless for e in trace.events if isinstance(e, Checked)}
    assert verdicts["speculative"].status is LosslessStatus.NOT_APPLICABLE
    assert verdicts["speculative"].detail == "failed, not checked to its end"


def search_lines() -> Lines:
    return [json.loads(line) for line in trace_lines(trace_of((*search_events(), Finished())))]


def of_search(event: str, path: str, value: Any, number: int | None = None) -> Change:
    return setting(event, path, value, number, strategy="beam")


SEARCHED: dict[str, tuple[Change, str]] = {
    "more beams than a search has": (
        of_search("prefill_done", "beams", [{"ids": [20], "score": -1.0}] * 5),
        "field 'beams' must be at most 4 in this run, not 5",
    ),
    "beams of no search": (of_search("run_started", "beams", 0), "field 'beams' must be at most 0 in this run, not 2"),
    "a draft in a search": (
        of_search("round_verified", "emitted", {"id": 1, "status": "sampled", "position": 0}),
        "field 'texts' must hold one text for each of the 1 tokens, not 0",
    ),
    "more kept than was pending": (
        of_search("drafts_proposed", "kept", 2, 1),
        "field 'kept' must be at most the 1 tokens that were pending, not 2",
    ),
    "pending at another place": (
        of_search("drafts_proposed", "drafts.0.position", 2, 1),
        "field 'drafts[0].position' must be 1, not 2",
    ),
    "settled at another place": (
        of_search("round_verified", "settled.1.position", 2, 1),
        "field 'settled[1].position' must be 1, not 2",
    ),
    "settled by a drafter": (
        of_search("round_verified", "settled.0.status", "accepted", 1),
        "field 'settled[0].status' must be sampled here, not accepted",
    ),
    "a step behind the last one": (
        lambda lines: lines[at(lines, "round_verified", "beam", 0)].pop("beams"),
        "field 'alternatives' must hold only ids",
    ),
    "a beam longer than the run": (
        of_search("round_verified", "beams.0.before", 4, 0),
        "field 'beams[0]' must not exceed the 4 new tokens of the run",
    ),
    "a beam of endless tokens": (
        of_search("round_verified", "beams.0.ids", [1] * 13, 0),
        "field 'beams[0].ids' must be a list of at most 12 entries",
    ),
    "a score that is none": (
        of_search("round_verified", "beams.0.score", "best", 0),
        "field 'beams[0].score' must be a number",
    ),
}


@pytest.mark.parametrize(("change", "told"), SEARCHED.values(), ids=SEARCHED)
def test_what_no_search_can_have_written_is_refused(tmp_path: Path, change: Change, told: str) -> None:
    lines = search_lines()
    change(lines)
    assert told in refusal(tmp_path / "run.jsonl", lines)
