"""The command line: bad input is one line and exit status 2; every setting is a flag."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specdec_tui import __version__, cli
from specdec_tui.settings import FIELDS, Settings, flag_of
from specdec_tui.traces.files import read_trace


@pytest.fixture(autouse=True)
def _own_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("SPECDEC_TUI_DATA_DIR", str(tmp_path / "data"))


def status_of(*words: str) -> int:
    try:
        return cli.main(words)
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--gamma", "x"], "gamma: 'x' is not valid: give a whole number from 0 to 32"),
        (["run", "--temperature", "-1"], "temperature: '-1' is not valid"),
        (["bench", "--top-p", "2"], "top-p: '2' is not valid"),
        (["bench", "--repeat", "0"], "repeat: '0' is not valid"),
        (["bench", "--warmup", "x"], "warmup: 'x' is not valid"),
        (["bench", "--prompt", " "], "empty prompt"),
        (["bench", "--prompts", "no-such-file.jsonl"], "cannot read"),
        (["bench", "--suite", "heldout", "--prompt", "hi"], "exclude each other"),
        (["bench", "--suite", "everyday", "--prompts", "mine.jsonl"], "exclude each other"),
        (["bench", "--strategies", "target,magic"], "strategies: 'target,magic' is not valid"),
        (["--rule", "none"], "rejection, coupled, block, skip-adjustment"),
        (["--preset", "demoo"], "one of demo, llama3.2"),
        (["--device", "gpu"], "device: 'gpu' is not valid"),
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--gam", "3"], "unrecognized arguments: --gam 3"),
        (["--gamma"], "expected one argument"),
        (["benhc"], "unknown command 'benhc': allowed are run, serve, bench, replay, import, tour, models, doctor"),
        (["replay"], "the following arguments are required: FILE"),
        (["replay", "no-such-trace.jsonl"], "no-such-trace.jsonl"),
        (["replay", "x.jsonl", "--race", "0"], "race: '0' is not valid: give a speed from 0.01 to 100"),
        (["bench", "stray"], "unrecognized arguments: stray"),
    ],
)
def test_bad_input_is_one_clear_line_and_status_2(
    words: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*words) == 2
    shown = capsys.readouterr()
    assert part in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.out == ""


def test_a_bad_config_file_or_environment_is_status_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text("gamma = true\n")
    assert status_of("bench") == 2
    assert "config.toml" in capsys.readouterr().err
    (tmp_path / "config.toml").unlink()
    monkeypatch.setenv("SPECDEC_TUI_RULE", "x")
    assert status_of("bench") == 2
    assert "rule (environment): 'x'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "config", "words"),
    [
        ("SPECDEC_TUI_GAMMA", "x", "", "gamma (environment): 'x' is not valid"),
        ("SPECDEC_TUI_GAMA", "3", "", "'SPECDEC_TUI_GAMA' is not valid, perhaps SPECDEC_TUI_GAMMA is meant"),
        ("OTHER", "", "gamma = 99\n", "gamma (in "),
        ("OTHER", "", "gama = 3\n", "unknown setting 'gama'"),
        ("OTHER", "", "gamma = [", "cannot read the config file"),
        ("SPECDEC_TUI_CONFIG", "/dev/zero", "", "/dev/zero: it is a device, not a file"),
    ],
)
def test_a_wrong_setting_stops_a_run_and_is_only_told_by_what_needs_none(
    variable: str,
    value: str,
    config: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "config.toml").write_text(config)
    monkeypatch.setenv(variable, value)
    opened: list[object] = []
    monkeypatch.setattr("specdec_tui.traces.files.read_trace", opened.append)
    monkeypatch.setattr("specdec_tui.catalogue.show_models", lambda choice: 0)
    monkeypatch.setattr("specdec_tui.doctor.show_health", lambda engine, settings, choice: 0)
    for command in (["run"], ["bench"]):
        assert status_of(*command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("specdec-tui: ") and words in line
    status_of("replay", "x.jsonl")  # ends at the terminal that is missing here
    assert opened and words in capsys.readouterr().err
    for command in (["models"], ["doctor"], ["--help"], ["bench", "--help"]):
        assert status_of(*command) == 0
        assert (words in capsys.readouterr().err) == (command[-1] != "--help")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "zeros", "folder"])
@pytest.mark.parametrize("words", [["bench", "--prompts"], ["replay"]])
def test_a_file_that_is_none_is_one_line_and_hangs_nothing(
    words: list[str], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = {"pipe": tmp_path / "pipe", "zeros": Path("/dev/zero"), "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    assert status_of(*words, str(path)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"cannot read {path}: it is " in line


@pytest.mark.parametrize(
    "words",
    [["\x1b]52;c;aGk=\x07"], ["bench", "--\x1b]0;x\x07"], ["--rule", "\u202e\n\x9b"], ["bench", "--repeat", "\x1b[2J"]],
)
def test_what_was_typed_comes_back_harmless(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(*words) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 1 and not set("\x1b\x07\x9b\u202e") & set(shown)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_help_is_shown_in_encodings_that_lack_our_glyphs(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "specdec_tui", "bench", "--help"],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": encoding},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"draft tokens per round (gamma)" in done.stdout


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (MemoryError(), 1, "not enough memory: try a smaller model, dtype or int8"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device", "a\x1b[2Jb"), 1, "a␛[2Jb: No space left on device"),
    ],
)
def test_what_ends_a_command_is_one_line(
    error: BaseException,
    status: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing(choice: object) -> int:
        raise error

    monkeypatch.setattr("specdec_tui.catalogue.show_models", failing)
    monkeypatch.setattr(cli.output, "give_up", lambda: None)
    assert status_of("models") == status
    assert capsys.readouterr().err == f"specdec-tui: {words}\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_end_in_no_traceback(closed: str, tmp_path: Path) -> None:
    done = subprocess.run(["sh", "-c", f'"{sys.executable}" -m specdec_tui {closed}'], capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize("words", [[], ["run"], ["--gamma", "3"]])
def test_without_a_terminal_the_app_names_bench(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "specdec_tui", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 2
    assert "needs a terminal" in done.stderr and "specdec-tui bench" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_output_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "specdec_tui", "models"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr == "specdec-tui: No space left on device\n"


def test_a_table_in_the_config_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text("[gamma]\nx = 3\n")
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", str(tmp_path / "config.toml"))
    assert status_of("bench") == 2
    assert "gamma: a table is not valid: give a value" in capsys.readouterr().err


def test_every_setting_is_a_flag_of_run_and_bench(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "bench"):
        assert status_of(command, "--help") == 0
        text = capsys.readouterr().out
        for name in FIELDS:
            assert f"--{flag_of(name)}" in text


def test_flags_reach_the_settings_and_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        "specdec_tui.benchmark.command.bench", lambda engine, *given, **more: seen.append((given, more)) or 0
    )
    words = (
        "bench --target a --drafter b --device cpu --no-chat --no-cache --ignore-eos --gamma 7 --top-p 0.8 --repeat 2"
    )
    assert status_of(*words.split()) == 0
    (settings, choice), more = seen[0]
    assert (choice.target, choice.drafter, choice.device) == ("a", ("b",), "cpu")
    assert (settings.chat, settings.cache, settings.ignore_eos, settings.gamma) == (False, False, True, 7)
    assert (settings.processor, settings.top_p) == ("nucleus", 0.8)
    assert more["repeat"] == 2 and more["json_to"] is None


@pytest.mark.parametrize(("words", "insight"), [("bench", False), ("bench --insight", True)])
def test_bench_measures_without_insight_unless_it_is_asked_for(
    words: str, insight: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr("specdec_tui.benchmark.command.bench", lambda engine, *given, **more: seen.append(given) or 0)
    monkeypatch.setenv("SPECDEC_TUI_INSIGHT", "on")
    assert status_of(*words.split()) == 0
    assert seen[0][0].insight is insight


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--version") == 0
    assert capsys.readouterr().out.strip() == f"specdec-tui {__version__}"


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--ignore-eos"], True),
        (["--ignore-eos", "on"], True),
        (["--ignore-eos", "true"], True),
        (["--ignore-eos", "off"], False),
        (["--ignore-eos=no"], False),
        (["--no-ignore-eos"], False),
        (["--ignore-eos", "--gamma", "3"], True),
        (["--no-ignore-eos", "--ignore-eos"], True),
    ],
)
def test_a_switch_takes_a_value_or_none(words: list[str], value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []
    monkeypatch.setattr(
        "specdec_tui.benchmark.command.bench", lambda engine, settings, *given, **more: seen.append(settings) or 0
    )
    assert status_of("bench", *words) == 0
    assert seen[0].ignore_eos is value


@pytest.mark.parametrize("words", [["--cache", "maybe"], ["--no-cache", "on"]])
def test_a_bad_value_of_a_switch_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("bench", *words) == 2
    assert len(capsys.readouterr().err.strip().split("\n")) == 1


def test_a_damaged_trace_is_one_line_for_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"specdec_tui_trace": 1}\n')
    assert status_of("replay", str(path)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("specdec-tui: run.jsonl: line 1: field ")


RECORDED = Path(__file__).parent / "traces" / "served"


def test_a_recording_becomes_a_trace_that_is_kept_or_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "import", str(RECORDED / "vllm.jsonl"), "--baseline", str(RECORDED / "vllm_plain.jsonl")
    assert status_of(*words, "--output", str(tmp_path / "own.jsonl")) == 0
    assert "1.61–1.75×, clock disturbed" in capsys.readouterr().out
    assert read_trace(tmp_path / "own.jsonl").strategies == ["target", "vllm"]
    assert status_of(*words) == 0
    (kept,) = tmp_path.rglob("traces/*.jsonl")
    assert str(kept) in "".join(capsys.readouterr().out.split("\n"))
    assert read_trace(kept) == read_trace(tmp_path / "own.jsonl")


def test_what_is_no_recording_is_one_line_for_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.jsonl").write_text("{}\n")
    for words in ([str(tmp_path / "bad.jsonl")], [str(tmp_path / "none.jsonl")], [str(tmp_path)]):
        assert status_of("import", *words) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_settings_that_a_replay_leaves_out_are_told_in_the_app_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text("gamma = 'many'\n")
    opened: list[Any] = []
    monkeypatch.setattr("specdec_tui.traces.files.read_trace", lambda path: path)
    monkeypatch.setattr("specdec_tui.doors.output.is_terminal", lambda: True)
    monkeypatch.setattr("specdec_tui.tui.app.program.run_app", lambda *_, replay, keymap: opened.append(replay) or 0)
    assert status_of("replay", "x.jsonl") == 0
    (problem,) = opened[0].left_out
    assert "gamma" in problem and "config.toml" in problem
