"""Files: whole or not there at all, and every kind of damage has its own message."""

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import comparison, full_trace, long_events, trace_of

from specdec_tui.doors.characters import visible
from specdec_tui.traces.files import read_header, read_trace, write_lines, write_trace
from specdec_tui.traces.format import TraceError, trace_lines

LINES = [line.encode() for line in trace_lines(full_trace())]
FIRST = 1  # index of the first event: behind the header


def changed(index: int, **values: object) -> bytes:
    """The whole file with other values in one line; None takes a field away."""
    table = json.loads(LINES[index])
    for name, value in values.items():
        table.pop(name) if value is None else table.update({name: value})
    return b"".join([*LINES[:index], json.dumps(table).encode() + b"\n", *LINES[index + 1 :]])


def changed_draft(**values: object) -> bytes:
    drafts = json.loads(LINES[FIRST + 5])["drafts"]
    drafts[1].update(values)
    return changed(FIRST + 5, drafts=drafts)


DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty: a trace begins with a header line"),
    "binary": (b"\x89PNG\r\n\x1a\n\0\0\0", "line 1: binary, or not UTF-8: a trace is JSON lines in UTF-8"),
    "latin-1": ("é\n".encode("latin-1"), "line 1: binary, or not UTF-8: a trace is JSON lines in UTF-8"),
    "zeros": (b"{\0}\n", "line 1: binary, or not UTF-8"),
    "prose": (b"Dear reader\n", "line 1: not JSON: every line of a trace must be one JSON object"),
    "prose without a line end": (b"Dear", "line 1: not JSON: every line of a trace must be one JSON object"),
    "no JSON in the middle": (
        b"".join([*LINES[:3], b"{oops}\n", *LINES[3:]]),
        "line 4: not JSON: every line of a trace must be one JSON object",
    ),
    "NaN": (b"".join([*LINES[:1], b'{"event": NaN}\n']), "line 2: not JSON"),
    "another JSON": (
        b'{"schema": 1}\n',
        'line 1: not a trace: the first line must be a header object with "specdec_tui_trace": 1',
    ),
    "a list": (b"[1]\n", "line 1: not a trace: the first line must be a header object"),
    "deep": (b"[" * 100_000 + b"\n", "line 1: not JSON"),
    "deep header": (
        changed(0, environment=json.loads("[" * 60 + "]" * 60)),
        "'environment' is nested too deeply",
    ),
    "newer": (
        changed(0, specdec_tui_trace=2),
        "made by a newer specdec-tui (trace version 2; this one reads 1): update specdec-tui",
    ),
    "header without prompt": (changed(0, prompt=None), "line 1: field 'prompt' is missing"),
    "header with a wrong field": (changed(0, settings=[1]), "line 1: field 'settings' must be an object, not [1]"),
    "figure of a wrong type": (
        changed(0, strategies={"speculative": {"speedup": "x"}}),
        "line 1: field 'speedup' must be a number of at most 1e+12 or null, not 'x'",
    ),
    "endless figure": (
        changed(0, strategies={"speculative": {"speedup": 10**400}}),
        "line 1: field 'speedup' must be a number of at most 1e+12 or null, not",
    ),
    "endless figure of another kind": (
        LINES[0].replace(b'"strategies":{', b'"strategies":{"target":{"speedup":1e999},') + b"".join(LINES[1:]),
        "line 1: a number is out of range: all numbers of a trace are finite",
    ),
    "verdict of a wrong type": (
        changed(0, strategies={"speculative": {"lossless": 7}}),
        "line 1: field 'lossless' must be an object, not 7",
    ),
    "unknown event": (
        changed(FIRST, event="run_paused"),
        "line 2: field 'event' must be one of run_started, capturing, prefill_done, drafts_proposed, round_verified, "
        "notice, run_ended, checked, finished, not 'run_paused'",
    ),
    "no event": (changed(FIRST, event=None), "line 2: field 'event' is missing"),
    "event is no object": (
        b"".join([*LINES[:1], b"7\n"]),
        "line 2: field 'event' is missing: a line must be a JSON ob",
    ),
    "missing field": (changed(FIRST, gamma=None), "line 2: field 'gamma' is missing"),
    "wrong type": (changed(FIRST, gamma="4"), "line 2: field 'gamma' must be a whole number, not a text"),
    "truth for a number": (
        changed(FIRST, gamma=True),
        "line 2: field 'gamma' must be a whole number, not true or false",
    ),
    "negative time": (changed(FIRST + 3, seconds=-1.5), "line 5: field 'seconds' must be a number from 0 on"),
    "endless number": (
        b"".join(LINES).replace(b'"draft_seconds":0.001', b'"draft_seconds":1e999'),
        "line 7: field 'draft_seconds' must be a finite number",
    ),
    "unknown fate": (
        changed_draft(status="lost"),
        "line 7: field 'drafts[1].status' must be one of pending, accepted, rejected, unverified, resampled, bonus, "
        "sampled, not 'lost'",
    ),
    "hostile fate": (
        changed_draft(status="\x1b[2J\n - at `$.x`" + "x" * 100),
        "sampled, not '\\\\x1b[2J\\\\n - at `$.x`xxxxxxxxxxxxxx...",
    ),
    "fate of a wrong type": (
        changed_draft(status=["x"]),
        "line 7: field 'drafts[1].status' must be a text, not a list",
    ),
    "probability of a wrong type": (
        changed_draft(p="0.5"),
        "line 7: field 'drafts[1].p' must be a number or null, not a text",
    ),
    "token id": (changed_draft(id=-3), "line 7: field 'drafts[1].id' must be a whole number from 0 on"),
    "insight": (
        changed_draft(insight={"target_top": [[1]]}),
        "line 7: field 'drafts[1].insight.target_top[0]' must be a list of length 2",
    ),
    "insight of texts": (
        changed_draft(insight={"target_top": [["a", 0.5]]}),
        "line 7: field 'drafts[1].insight.target_top[0][0]' must be a whole number, not a text",
    ),
    "probability of a wrong type in an insight": (
        changed_draft(insight={"target_top": [[7, "0.5"]]}),
        "line 7: field 'drafts[1].insight.target_top[0][1]' must be a number, not a text",
    ),
    "drafts are no list": (changed(FIRST + 5, drafts={}), "line 7: field 'drafts' must be a list, not an object"),
    "too few texts": (
        changed(FIRST + 5, texts=["a"]),
        "line 7: field 'texts' must hold one text for each of the 4 tokens, not 1",
    ),
    "texts of numbers": (
        changed(FIRST + 5, texts=[1, 2, 3, 4]),
        "line 7: field 'texts[0]' must be a text, not a whole number",
    ),
    "negative position": (
        changed_draft(position=-1),
        "line 7: field 'drafts[1].position' must be a whole number from 0 on",
    ),
    "far position": (changed_draft(position=2**63), "line 7: field 'drafts[1].position' must be a whole number of at"),
    "endless id": (changed_draft(id=10**30), "line 7: field 'drafts[1].id' must be a whole number of at most"),
    "improbable": (changed_draft(p=1.5), "line 7: field 'drafts[1].p' must be a number of at most 1"),
    "negative probability": (changed_draft(q=-0.5), "line 7: field 'drafts[1].q' must be a number from 0 on"),
    "endless entropy": (
        changed_draft(insight={"target_entropy": 1.7e308}),
        "line 7: field 'drafts[1].insight.target_entropy' must be a number of at most 1000",
    ),
    "negative entropy": (
        changed_draft(insight={"target_entropy": -9}),
        "line 7: field 'drafts[1].insight.target_entropy' must be a number from 0 on",
    ),
    "improbable alternative": (
        changed_draft(insight={"target_top": [[1, 9e9]]}),
        "line 7: field 'drafts[1].insight.target_top[0][1]' must be a number of at most 1",
    ),
    "endless time": (
        changed(FIRST + 3, seconds=1.7e308),
        "line 5: field 'seconds' must be a number of at most",
    ),
    "no fate": (
        changed(FIRST + 5, drafts=[{"id": 1, "position": 2}]),
        "line 7: field 'drafts[0].status' is missing",
    ),
    "event of a wrong type": (changed(FIRST, event=7), "line 2: field 'event' must be a text"),
    "unknown verdict": (
        changed(FIRST + 9, lossless={"status": "pending"}),
        "line 11: field 'lossless.status' must be one of identical, near_ties, different, not_applicable, "
        "not 'pending'",
    ),
    "deep event": (b"".join([*LINES[:1], b'{"event":"finished","cancelled":' + b"[" * 100_000 + b"\n"]), "line 2: "),
    "half a character in a line with an endless number": (
        changed(FIRST + 5, strategy="\ud83d").replace(b'"draft_seconds": 0.001', b'"draft_seconds": 1e999'),
        "line 7: a number is out of range",
    ),
    "half a character for a fate": (changed_draft(status="\ud83d"), "line 7: field 'event' must be whole"),
    "half a character in a damaged line": (
        changed(FIRST + 5, alternatives={"x": "\ud83d"}),
        "line 7: field 'alternatives' has a key that must be a whole number, not a text",
    ),
    "unknown reason": (changed(FIRST + 8, reason="bored"), "line 10: field 'reason' must be one of end_token, length,"),
    "before the start": (
        b"".join([*LINES[:1], LINES[4], *LINES[1:]]),
        "line 2: field 'event' must not come before 'run_started' of 'speculative'",
    ),
    "behind the end": (
        b"".join([*LINES[:10], LINES[6]]),
        "line 11: field 'event' must not come behind 'run_ended' of 'speculative'",
    ),
    "rounds in another order": (
        b"".join([*LINES[:6], LINES[7], LINES[6], *LINES[8:]]),
        "line 7: field 'round' must be 0, the next one of 'speculative'",
    ),
    "a round twice": (b"".join([*LINES[:7], LINES[6]]), "line 8: field 'round' must be 1, the next one of "),
    "a round too few": (
        changed(FIRST + 5, round=1),
        "line 7: field 'round' must be 0, the next one of 'speculative'",
    ),
    "drafts of another round": (
        changed(FIRST + 4, round=1),
        "line 6: field 'round' must be 0, the next one of 'speculative'",
    ),
    "two prefills": (
        b"".join([*LINES[:5], LINES[4]]),
        "line 6: field 'event' comes too often: 'speculative' has at mo",
    ),
    "a prefill behind a round": (
        b"".join([*LINES[:8], LINES[4]]),
        "must not come behind the first round of 'speculative'",
    ),
    "a round before the prefill": (
        b"".join([*LINES[:4], *LINES[5:8], LINES[4]]),
        "must not come before 'prefill_done' of 'speculative'",
    ),
    "two starts": (
        b"".join([*LINES[:2], LINES[1]]),
        "line 3: field 'event' must start a run of 'speculative' only once",
    ),
    "behind finished": (b"".join([*LINES, LINES[2]]), "line 13: field 'event' must not come behind 'finished'"),
    "alternatives without ids": (
        changed(FIRST + 5, alternatives={"x": "a"}),
        "line 7: field 'alternatives' has a key that must be a whole number, not a text",
    ),
    "cut inside a line": (
        b"".join(LINES)[:-200],
        ": the last line is cut off: the trace was not written to its end",
    ),
    "cut inside a character": (
        b"".join(LINES[:7])[: b"".join(LINES[:7]).rindex("雲".encode()) + 1],
        "line 7: the last line is cut off: the trace was not written to its end",
    ),
    "cut between lines": (b"".join(LINES[:5]), "the trace was cut off: it holds 4 of its 11 events"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_says_what_is_wrong_and_where_in_one_line(name: str, tmp_path: Path) -> None:
    content, message = DAMAGED[name]
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith("run.jsonl: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["\ud800", "\x9b31m", "\u202e", "two\nlines"])
def test_what_a_message_quotes_of_a_file_and_its_name_is_harmless(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name.replace(chr(0xD800), chr(0xDC80))}.jsonl"
    path.write_bytes(changed(0, strategies={name: 255}))
    for read in (read_trace, read_header):
        with pytest.raises(TraceError) as caught:
            read(path)
        words = str(caught.value)
        assert visible(words) == words and "\n" not in words
    path.unlink()
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert visible(str(caught.value)) == str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no such file"),
        (lambda path: path.mkdir(), "it is a folder, not a file"),
        (lambda path: os.mkfifo(path), "it is a pipe, not a file"),
    ],
)
@pytest.mark.parametrize("read", [read_trace, read_header])
def test_what_is_no_file_says_so(
    make: Callable[[Path], None], message: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    make(path)
    with pytest.raises(TraceError, match=message):
        read(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("{}")
    path.chmod(0)
    with pytest.raises(TraceError, match="no permission"):
        read_trace(path)


def test_a_missing_permission_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "run.jsonl"
    path.write_text("{}")
    monkeypatch.setattr("specdec_tui.doors.reading.opened", refuse)
    with pytest.raises(TraceError, match="no permission"):
        read_trace(path)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec_tui.traces.files.LONGEST_LINE", 2**20)
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"x" * (2**20 + 5))
    with pytest.raises(TraceError, match="line 1: longer than 1 MB"):
        read_header(path)


def test_a_trace_is_written_privately_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.jsonl"
    write_trace(path, full_trace())
    assert read_trace(path) == full_trace()
    assert read_header(path) == full_trace().header
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in path.parent.iterdir()] == ["run.jsonl"]


def test_a_trace_whose_writing_fails_leaves_the_old_one_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_trace(path, full_trace())

    def failing() -> object:
        yield "half"
        raise OSError(28, "No space left on device")

    with pytest.raises(TraceError, match=r"cannot write .*No space left on device"):
        write_lines(path, failing())  # type: ignore[arg-type]
    assert read_trace(path) == full_trace()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_text_file_with_a_byte_order_mark_and_windows_line_ends_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"".join(LINES).replace(b"\n", b"\r\n"))
    assert read_trace(path) == full_trace()


def test_the_header_is_read_without_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(LINES[0] + b"\0 not read")
    assert read_header(path) == full_trace().header


def test_twenty_thousand_tokens_are_read_in_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    trace = trace_of(tuple(long_events("speculative", 6_668)))
    assert trace.header.strategies["speculative"]["new_tokens"] > 20_000
    write_trace(path, trace)
    start = time.process_time()
    assert read_trace(path).events == trace.events
    assert time.process_time() - start < 5, "0.4 s where it was measured: this only catches what is quadratic"


def test_several_strategies_in_turns_are_read(tmp_path: Path) -> None:
    """With the schedule `interleaved` the rounds of all strategies alternate."""
    trace = comparison(10)
    runs = [
        [e for e in trace.events if getattr(e, "strategy", "") == name] for name in ("target", "speculative", "ngram")
    ]
    mixed = [event for group in zip(*runs, strict=False) for event in group]
    mixed += [event for run in runs for event in run[min(map(len, runs)) :]]
    write_trace(tmp_path / "run.jsonl", trace_of(tuple(mixed)))
    assert read_trace(tmp_path / "run.jsonl").events == tuple(mixed)
