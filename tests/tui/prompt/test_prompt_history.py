"""The file of earlier prompts: kept across sessions, shared between apps, and never in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from specdec_tui.tui.prompt import history as prompt_history
from specdec_tui.tui.prompt.history import LARGEST_ENTRY, MOST_ENTRIES, PromptHistory

needs_permissions = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0, reason="needs a user whom permissions stop"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "prompts.jsonl"


def saved(file: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in file.read_text().splitlines()]


def test_prompts_come_back_in_the_next_session_in_order(file: Path) -> None:
    first = PromptHistory(file)
    for text in ("one", "two\nlines", "drei γ 世界 👩\u200d👩"):
        first.remember(text)
    assert PromptHistory(file).entries == first.entries == ["one", "two\nlines", "drei γ 世界 👩\u200d👩"]


def test_the_same_prompt_in_a_row_is_one_entry_even_over_two_sessions(file: Path) -> None:
    for _ in range(2):
        history = PromptHistory(file)
        history.remember("again")
        history.remember("again")
        assert history.entries == ["again"]
    assert saved(file) == ["again"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_nobody_else_can_read_the_file(file: Path) -> None:
    PromptHistory(file).remember("secret")
    assert {path.stat().st_mode & 0o077 for path in (file, file.parent, *file.parent.iterdir())} == {0}


def test_without_keep_nothing_is_written_and_the_session_still_has_its_prompts(file: Path) -> None:
    PromptHistory(file).remember("kept before")
    history = PromptHistory(file, keep=False)
    history.remember("private")
    assert history.entries == ["kept before", "private"]
    assert saved(file) == ["kept before"]


def test_the_file_stays_bounded_and_keeps_the_newest(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_history, "_SLACK", 10)
    file.parent.mkdir()
    file.write_bytes(b"".join(prompt_history._line(f"p{i}") for i in range(MOST_ENTRIES + 5)))
    history = PromptHistory(file)
    for i in range(20):
        history.remember(f"new {i}")
    assert len(saved(file)) <= MOST_ENTRIES + 10
    assert saved(file)[-20:] == [f"new {i}" for i in range(20)]
    assert len(history.entries) == MOST_ENTRIES
    assert [path.name for path in file.parent.iterdir() if path.suffix == ".new"] == []


def test_large_prompts_cannot_make_the_file_huge(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_history, "_MOST_BYTES", 100_000)
    history = PromptHistory(file)
    for i in range(30):
        history.remember(f"{i} " + "x" * 10_000)
    assert file.stat().st_size < 150_000
    assert saved(file)[-1].startswith("29 ")
    assert len(PromptHistory(file).entries) >= 4


def test_a_prompt_too_long_for_the_file_is_remembered_for_the_session(file: Path) -> None:
    history = PromptHistory(file)
    history.remember("short")
    history.remember("x" * LARGEST_ENTRY)
    assert len(history.entries) == 2
    assert saved(file) == ["short"]


def test_a_prompt_that_is_not_in_the_file_says_why(file: Path) -> None:
    history = PromptHistory(file)
    history.remember("kept")
    history.remember("x" * LARGEST_ENTRY)
    assert (history.why_not_kept("kept"), history.why_not_kept("x" * LARGEST_ENTRY)) == ("", "it is longer than 256 kB")
    with FileLock(f"{file}.lock"):
        history.remember("meanwhile")
        assert history.why_not_kept("meanwhile") == f"another program holds {file}"
    file.unlink()
    file.mkdir()
    history.remember("lost")
    assert history.why_not_kept("lost") == f"{file}: it is a folder, not a file"
    assert PromptHistory(file, keep=False).why_not_kept("private") == ""


def test_damaged_lines_are_left_out_and_told_about_once(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b'{"prompt": "good"}\n\xff\xfe\n[1]\n{"prompt": 3}\n{}\n"x"\n{"prompt": "cut o')
    told: list[str] = []
    history = PromptHistory(file, tell=told.append)
    assert history.entries == ["good"]
    history.remember("next")
    assert len(told) == 1
    assert "6 damaged lines" in told[0]
    assert PromptHistory(file).entries == ["good", "next"]


def test_half_characters_in_the_file_do_not_reach_the_box(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('{"prompt": "a\\ud800b"}\n')
    assert PromptHistory(file).entries == ["a?b"]


@pytest.mark.parametrize("in_the_way", ["file", "folder"])
def test_where_nothing_can_be_written_one_message_comes_and_memory_serves(file: Path, in_the_way: str) -> None:
    if in_the_way == "file":
        file.mkdir(parents=True)
    else:
        file.parent.write_text("not a folder")
    told: list[str] = []
    history = PromptHistory(file, tell=told.append)
    for text in ("one", "two"):
        history.remember(text)
    assert history.entries == ["one", "two"]
    assert len(told) == 1
    assert "this session only" in told[0]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_neither_waited_for_nor_replaced(file: Path, kind: str) -> None:
    """A pipe has no writer, and zeros never end."""
    file.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    before = file.stat()
    told: list[str] = []
    history = PromptHistory(file, tell=told.append)
    assert history.entries == []
    history.remember("one")
    assert history.entries == ["one"]
    assert len(told) == 1 and f"it is a {kind}, not a file" in told[0]
    assert (file.stat().st_ino, file.stat().st_mode) == (before.st_ino, before.st_mode)


@needs_permissions
def test_a_read_only_folder_costs_one_message(file: Path) -> None:
    file.parent.mkdir(mode=0o500)
    told: list[str] = []
    history = PromptHistory(file, tell=told.append)
    history.remember("one")
    history.remember("two")
    assert history.entries == ["one", "two"]
    assert len(told) == 1


def test_while_another_app_holds_the_lock_prompts_wait_and_none_is_lost(file: Path) -> None:
    told: list[str] = []
    history = PromptHistory(file, tell=told.append)
    history.remember("one")
    with FileLock(f"{file}.lock", is_singleton=False):
        history.remember("two")
        assert saved(file) == ["one"]
    history.remember("three")
    assert saved(file) == ["one", "two", "three"]
    assert told == []


def test_apps_that_write_at_once_lose_and_mix_nothing(file: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom specdec_tui.tui.prompt import history as prompt_history\n"
        "prompt_history._SLACK = 3\nprompt_history._PATIENCE_SECONDS = 60\n"
        "history = prompt_history.PromptHistory(Path(sys.argv[1]))\n"
        "for i in range(60):\n    history.remember(f'{sys.argv[2]}:{i} ' + 'x' * 5000)\n"
    )
    apps = [subprocess.Popen([sys.executable, "-c", code, str(file), name]) for name in ("a", "b", "c")]
    assert [app.wait(60) for app in apps] == [0, 0, 0]
    found = [text.split()[0] for text in saved(file)]
    for name in ("a", "b", "c"):
        assert [text for text in found if text.startswith(name)] == [f"{name}:{i}" for i in range(60)]


def test_prompts_of_another_app_show_after_a_reload(file: Path) -> None:
    mine, other = PromptHistory(file), PromptHistory(file)
    mine.remember("mine")
    other.remember("from elsewhere")
    mine.reload()
    assert mine.entries == ["from elsewhere", "mine"]
