from __future__ import annotations

import os
from pathlib import Path

import pytest

from specdec_tui.config_table import LONGEST_CONFIG
from specdec_tui.setting_sources import read_config
from specdec_tui.settings import SettingError
from specdec_tui.tui.commands.config_store import save_settings


def test_a_saved_setting_is_read_back_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "config.toml"
    save_settings(path, {"gamma": 8, "top_p": 0.8})
    save_settings(path, {"gamma": 2, "chat": False, "strategies": ("target", "lookup")})
    assert read_config(path) == {"gamma": "2", "top_p": "0.8", "chat": "off", "strategies": "target,lookup"}


def test_another_spelling_of_the_same_setting_is_replaced_and_not_doubled(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('length = 10\ntarget = "mine"\n')
    save_settings(path, {"max_new_tokens": 20})
    assert read_config(path) == {"max_new_tokens": "20", "target": "mine"}
    assert "length" not in path.read_text()


def test_comments_stay_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# mine\ngamma = 3  # for slides\n\n# what follows is for the lab\nseed = 7\n")
    save_settings(path, {"gamma": 8, "chat": True})
    assert path.read_text() == (
        "# mine\ngamma = 8  # for slides\n\n# what follows is for the lab\nseed = 7\nchat = true\n"
    )


def test_a_damaged_file_is_left_alone_with_a_clear_message(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for damaged in ("gamma = = 3", "gamma = 3\ngamma = 4", "[gamma", 'x = "'):
        path.write_text(damaged)
        with pytest.raises(SettingError, match="damaged"):
            save_settings(path, {"gamma": 8})
        assert path.read_text() == damaged


def test_a_place_that_cannot_be_written_gives_a_clear_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="not saved"):
        save_settings(tmp_path / "file" / "config.toml", {"gamma": 8})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_file_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("gamma = 3\n")
    path.chmod(0o400)
    with pytest.raises(SettingError, match="read-only"):
        save_settings(path, {"gamma": 8})
    assert path.read_text() == "gamma = 3\n"


def test_a_symbolic_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "link.toml"
    real.write_text("")
    link.symlink_to(real)
    save_settings(link, {"gamma": 8})
    assert link.is_symlink()
    assert read_config(real) == {"gamma": "8"}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_what_is_no_file_is_neither_read_nor_replaced(kind: str, tmp_path: Path, device: Path) -> None:
    path = {"device": device, "pipe": tmp_path / "pipe", "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    before = path.stat()
    with pytest.raises(SettingError, match=f"settings not saved to .*: it is a {kind}, not a file"):
        save_settings(path, {"gamma": 8})
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("damaged", [b"gamma = " + b"[" * 15_000, b"seed = " + b"9" * 5000, b"#" * 17_000, b"a\xff"])
def test_a_hostile_file_is_left_alone(damaged: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(damaged)
    with pytest.raises(SettingError, match="settings not saved"):
        save_settings(path, {"gamma": 8})
    assert path.read_bytes() == damaged


def test_a_file_with_a_byte_order_mark_can_be_saved_to(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# mine\nseed = 3\n", encoding="utf-8-sig")
    save_settings(path, {"gamma": 8})
    assert read_config(path) == {"seed": "3", "gamma": "8"}
    assert "# mine" in path.read_text()


def test_nothing_is_saved_that_could_not_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("#" * (LONGEST_CONFIG - 2) + "\n")
    assert read_config(path) == {}
    with pytest.raises(SettingError, match="longer than can be read again"):
        save_settings(path, {"gamma": 8})
    assert read_config(path) == {}


def test_no_temporary_file_is_left_behind(tmp_path: Path) -> None:
    save_settings(tmp_path / "config.toml", {"gamma": 8})
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["config.toml"]
