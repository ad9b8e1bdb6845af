"""The door for text on the way out: nothing a terminal obeys, and no encoding error."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from specdec_tui.doors import output

HOSTILE = "a\x1b]52;c;aGk=\x07\x9b31m\u202eb\x7f\u2028"
HARMLESS = "a␛]52;c;aGk=␇␦31m⇆b␡␤"


class Stream(io.TextIOWrapper):
    """A standard stream of an encoding."""

    def __init__(self, encoding: str = "utf-8", terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    @property
    def text(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(self.encoding)


@pytest.fixture(params=["out", "err"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def streams(monkeypatch: pytest.MonkeyPatch, encoding: str = "utf-8", terminal: bool = False) -> dict[str, Stream]:
    made = {name: Stream(encoding, terminal) for name in ("out", "err")}
    monkeypatch.setattr(sys, "stdout", made["out"])
    monkeypatch.setattr(sys, "stderr", made["err"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    output.prepare()
    return made


def test_text_tables_and_lines_hold_nothing_a_terminal_obeys(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = streams(monkeypatch)[where]
    error = where == "err"
    output.say(HOSTILE, error=error)
    assert stream.text == HARMLESS + "\n"
    output.show(output.Sheet((HOSTILE,), ((HOSTILE,),), HOSTILE, HOSTILE), error=error)
    output.console(error=error).print(HOSTILE)
    assert stream.text.count(HARMLESS) == 5
    assert stream.text.count(HARMLESS.replace("␇", "")) == 1  # rich drops a bell by itself
    assert not (set(HOSTILE) - set(HARMLESS)) & set(stream.text)


def test_what_rich_adds_itself_stays_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = streams(monkeypatch, terminal=True)["out"]
    output.show_line("✓", "green", HOSTILE, HOSTILE)
    assert "\x1b[32m✓" in stream.text
    assert stream.text.count("␛]52") == 2 and "\x1b]52" not in stream.text


def test_a_complaint_is_one_line_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = streams(monkeypatch)["err"]
    output.complain(f"one\ntwo {HOSTILE}")
    assert stream.text == f"specdec-tui: one two {HARMLESS[:-1]}\n"


def test_a_traceback_comes_through_the_door_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = streams(monkeypatch)["err"]
    try:
        raise RuntimeError(HOSTILE)
    except RuntimeError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    assert f"RuntimeError: {HARMLESS}" in stream.text and "test_output.py" in stream.text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_json_on_standard_output_is_exact_in_every_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = streams(monkeypatch, encoding)["out"]
    value = {"text": HOSTILE + "γ × é 雲 👩", "γ": 1.5}
    output.write_json(value)
    assert json.loads(stream.text) == value
    assert not {"\x1b", "\x9b", "\x7f", "\u202e", "\u2028"} & set(stream.text)
    assert ("雲" in stream.text) == (encoding == "utf-8")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_nothing_ends_in_an_encoding_error(encoding: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = streams(monkeypatch, encoding)[where]
    error = where == "err"
    output.say("✓ γ 雲 " + HOSTILE, error=error)
    output.show(output.Sheet(("α", "lossless"), (("1.5×", "✓"), ("γ", "✗")), "τ · 雲"), error=error)
    print("γ", file=stream)  # whoever does not know of the door
    shown = stream.text
    assert "yes gamma ?" in shown and "| gamma | no       |" in shown
    rows = [line for line in shown.splitlines() if line.startswith(("|", "+"))]
    assert len({len(row) for row in rows}) == 1  # likenesses are longer, and columns as wide as they are


def test_json_for_an_output_that_was_closed_is_an_error_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark's results were gone without a word."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    output.prepare()
    with pytest.raises(OSError, match="it is closed"):
        output.write_json({"results": 1})


def test_streams_that_were_closed_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    output.prepare()
    output.say("x")
    output.complain("x")
    assert not output.is_terminal()


def test_a_bar_shows_the_stage_harmless_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for terminal in (False, True):
        stream = streams(monkeypatch, terminal=terminal)["err"]
        with output.at_work("loading") as report:
            report(f"Loading {HOSTILE}", 1, 2)
        assert "\x1b]52" not in stream.text and "\u202e" not in stream.text
        assert bool(stream.text) == terminal


def test_what_native_code_writes_goes_to_the_log_and_standard_error_stays_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "logs" / "output.log"
    monkeypatch.setattr(output.writing, "log_file", lambda: log)
    with pytest.raises(ValueError), output.libraries_unheard():
        os.write(1, b"raw\x1b[2J\n")
        os.write(2, b"panicked\n")
        output.complain("told")
        raise ValueError
    output.say("after")
    output.complain("and after")
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("after\n", "specdec-tui: told\nspecdec-tui: and after\n")
    assert log.read_bytes() == b"raw\x1b[2J\npanicked\n"
