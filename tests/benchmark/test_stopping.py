"""A benchmark that is stopped: prompts are checked before, and what was measured is kept whatever happens."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from measured_engine import ScriptedEngine

from specdec_tui.backends.pair import PairInfo, ReportProgress
from specdec_tui.benchmark.command import STOP_AGAIN, bench
from specdec_tui.benchmark.suites import Prompt
from specdec_tui.decoding.records import Event, Finished, RunEnded, Step
from specdec_tui.doors import output
from specdec_tui.settings import ModelChoice, Settings

TWO = Settings(strategies=("target", "speculative"))


class Breaking(ScriptedEngine):
    """Something happens in the second prompt: behind `ended` runs that have come to their end."""

    def __init__(self, happens: Callable[[], None], ended: int = 0) -> None:
        super().__init__()
        self.happens = happens
        self.ended = ended

    def run(self, prompt: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
        ended = 0
        for event in super().run(prompt, settings, cancelled):
            if prompt == "b" and ended == self.ended:
                self.happens()
            ended += isinstance(event, Step) and isinstance(event.record, RunEnded)
            yield event


def throw(error: BaseException) -> Callable[[], None]:
    def happens() -> None:
        raise error

    return happens


def measured(engine: ScriptedEngine, json_to: str | None = None, prompts: tuple[str, ...] = ("a", "b", "c")) -> int:
    return bench(engine, TWO, ModelChoice(), prompts=prompts, prompts_file=None, repeat=1, warmup=1, json_to=json_to)


STOPS: dict[str, tuple[Callable[[], None], int, str]] = {
    "ctrl+c": (throw(KeyboardInterrupt()), 130, "interrupted"),
    "an error of a library": (throw(RuntimeError("kernel \x1b[2J failed")), 1, "RuntimeError: kernel ␛[2J failed"),
    "no memory": (throw(MemoryError()), 1, "out of memory: try a shorter prompt"),
    "told to end": (lambda: os.kill(os.getpid(), signal.SIGTERM), 143, "told to end by SIGTERM"),
    "hung up": (lambda: os.kill(os.getpid(), signal.SIGHUP), 129, "told to end by SIGHUP"),
}


@pytest.mark.parametrize(("happens", "status", "words"), STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("ended", [0, 1])
def test_whatever_stops_a_benchmark_what_was_measured_is_shown_and_written_as_partial(
    happens: Callable[[], None],
    status: int,
    words: str,
    ended: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "out.json"
    assert measured(Breaking(happens, ended), str(path)) == status
    shown = capsys.readouterr()
    assert f"PARTIAL, 1 of 3 turns are complete: {words}" in shown.out
    assert f"specdec-tui: {words}" in shown.err and "\x1b" not in shown.out + shown.err
    report = json.loads(path.read_text())
    assert report["partial"] is True and report["stopped"].startswith(words.replace("␛", "\x1b"))
    kept = [(result["strategy"], result["prompt_index"]) for result in report["results"]]
    assert kept == [("target", 0), ("speculative", 0), ("target", 1)][: 2 + ended]
    assert report["summary"][1]["speedup"]["median"] == pytest.approx(1.25)


def test_a_process_that_is_killed_leaves_what_it_had_measured_a_while_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    monkeypatch.setattr("specdec_tui.benchmark.command.KEEP_EVERY", 0.0)
    seen: list[dict[str, Any]] = []
    engine = Breaking(lambda: seen.append(json.loads(path.read_text())))
    assert measured(engine, str(path)) == 0
    assert {len(report["results"]) for report in seen} == {2}
    assert seen[0]["partial"] and seen[0]["stopped"] == "it is still at work, or was killed"
    whole = json.loads(path.read_text())
    assert len(whole["results"]) == 6 and "partial" not in whole


def test_standard_output_by_another_name_is_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the file that standard output was sent to would be replaced, and what it has be lost."""
    there = tmp_path / "redirected"
    there.write_text("")
    monkeypatch.setattr("os.fstat", lambda descriptor: os.stat(there))
    assert measured(ScriptedEngine(), str(there)) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == 1
    assert there.read_text() == ""


def test_a_run_that_fails_leaves_those_before_it_and_those_beside_it_that_had_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Failing(ScriptedEngine):
        def run(self, prompt: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
            self.error = "out of [/memory]" if prompt == "b" else ""
            return super().run(prompt, settings, cancelled)

    assert measured(Failing(), "-") == 1
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report["stopped"] == "speculative: out of [/memory]"
    assert [r["strategy"] for r in report["results"]] == ["target", "speculative", "target"]
    assert "specdec-tui: speculative: out of [/memory]" in shown.err


def test_what_is_whole_is_not_marked(capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(ScriptedEngine(), "-") == 0
    report = json.loads(capsys.readouterr().out)
    assert not {"partial", "stopped"} & set(report)
    assert measured(ScriptedEngine()) == 0
    assert "PARTIAL" not in capsys.readouterr().out


def test_a_stop_before_anything_was_measured_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Stopped(ScriptedEngine):
        def new_chat(self) -> None:
            raise KeyboardInterrupt

    assert measured(Stopped(), "-") == 130
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "specdec-tui: interrupted\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_that_a_library_drops_is_raised_again(number: signal.Signals, status: int) -> None:
    """What is raised in a callback of a compiler is forgotten: ctrl+c while kernels were made had no effect."""

    class Compiling(ScriptedEngine):
        def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), number)
            time.sleep(30)
            raise AssertionError("nothing stopped it")

    assert measured(Compiling(), "-") == status
    time.sleep(1.2 * STOP_AGAIN)  # and not once more behind it


def test_a_second_ctrl_c_does_not_lose_what_the_first_one_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def impatient() -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        return {}

    monkeypatch.setattr("specdec_tui.benchmark.command.describe_environment", impatient)
    assert measured(Breaking(throw(KeyboardInterrupt())), "-") == 130
    assert len(json.loads(capsys.readouterr().out)["results"]) == 2
    with pytest.raises(KeyboardInterrupt):  # and has its effect again behind that
        os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_that_is_ignored_stays_so(capsys: pytest.CaptureFixture[str]) -> None:
    """As under nohup: a hang-up must not stop what was begun to outlive its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert measured(Breaking(lambda: os.kill(os.getpid(), signal.SIGHUP)), "-") == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert len(json.loads(capsys.readouterr().out)["results"]) == 6


def test_every_prompt_is_checked_before_the_first_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    engine = ScriptedEngine()
    assert measured(engine, prompts=("a", "b", "refused", "c")) == 2
    assert engine.calls == []
    shown = capsys.readouterr()
    assert shown.err == "specdec-tui: prompt 3 of 4: the chat template ␛]52;c;aGk=␇ refuses this\n"
    engine = ScriptedEngine()
    assert measured(engine) == 0
    assert engine.checked == [Prompt((text,)).turns for text in "abc"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_behind_standard_output_does_not_lose_the_table_or_the_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(output, "give_up", lambda: None)
    for json_to in (None, "-"):
        with monkeypatch.context() as patched:
            full = io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True)
            patched.setattr(sys, "stdout", full)
            assert measured(ScriptedEngine(), json_to) == 1
        shown = capsys.readouterr().err
        assert "specdec-tui: standard output: No space left on device\n" in shown
        if json_to is None:
            assert "speculative" in shown and "tok/s" in shown
    (kept,) = tmp_path.iterdir()
    assert str(kept) in shown and len(json.loads(kept.read_text())["results"]) == 6


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_an_encoding_that_lacks_our_glyphs_loses_nothing(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign(ScriptedEngine):
        def run(self, prompt: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
            for event in super().run(prompt, settings, cancelled):
                if isinstance(event, Step) and isinstance(event.record, RunEnded):
                    event = Step(event.strategy, event.record, answer="γ 雲 \x9b\u202e é")
                yield event
            yield Finished()

    for json_to in ("-", None):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", stream)
        assert measured(Foreign(), json_to) == 0
        stream.flush()
        written = stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
        if json_to:
            assert {result["text"] for result in json.loads(written)["results"]} == {"γ 雲 \x9b\u202e é"}
            assert not {"\x9b", "\u202e"} & set(written)
        else:
            assert "alpha" in written and "1.25 (1.25-1.25)" in written.replace("–", "-")


def test_what_models_say_reaches_tables_and_notes_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]52;c;aGk=\x07\x9b\u202e\x7f"

    class Hostile(ScriptedEngine):
        def run(self, prompt: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
            from specdec_tui.decoding.records import Notice

            yield Step("target", Notice(f"a notice {hostile}"))
            yield from super().run(prompt, settings, cancelled)

    assert measured(Hostile()) == 0
    shown = capsys.readouterr()
    assert "a notice ␛]52" in shown.out and not set(hostile[:1] + hostile[-4:]) & set(shown.out + shown.err)
