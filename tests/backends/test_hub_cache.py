"""Any repository in the cache may be damaged: the good ones are listed, the bad one with its reason."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specdec_tui.backends.hub_cache import CachedModel, DamagedModel, cached_models, scan_cache

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def put(cache: Path, name: str, model: Path) -> Path:
    repository = cache / f"models--someone--{name}"
    snapshot = repository / "snapshots" / COMMIT
    shutil.copytree(model, snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return snapshot


def config(**values: object) -> Callable[[Path], object]:
    def change(snapshot: Path) -> None:
        file = snapshot / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    return change


def instead(make: Callable[[Path], object], name: str = "config.json") -> Callable[[Path], object]:
    def change(snapshot: Path) -> None:
        (snapshot / name).unlink(missing_ok=True)
        make(snapshot / name)

    return change


def index(text: str) -> Callable[[Path], object]:
    def change(snapshot: Path) -> None:
        (snapshot / "model.safetensors").unlink()
        (snapshot / "model.safetensors.index.json").write_text(text)

    return change


def refs(text: str) -> Callable[[Path], object]:
    return lambda snapshot: (snapshot.parent.parent / "refs" / "main").write_text(text)


def file_in_place_of_the_snapshot(snapshot: Path) -> None:
    shutil.rmtree(snapshot)
    snapshot.touch()


HARMS: dict[str, Callable[[Path], object]] = {
    "architectures is '5'": config(architectures=5),
    "architectures is '[5]'": config(architectures=[5]),
    "num_hidden_layers in its config is 'x'": config(num_hidden_layers="x"),
    "names no files": index('{"weight_map": [1, 2]}'),
    "1 of 1 weight files are missing": index('{"weight_map": {"a": "a.safetensors"}}'),
    "is no file beside it": index('{"weight_map": {"a": "/etc/passwd"}}'),
    "nested too deeply": instead(lambda path: path.write_text("[" * 200_000)),
    "is a pipe": instead(os.mkfifo),
    "is a folder": instead(os.mkdir),
    "is a link to a file that is not there": instead(lambda path: path.symlink_to("nowhere")),
    "levels of symbolic links": instead(lambda path: path.symlink_to(path)),
    "has 1,000 MB": instead(lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 10**9)),
    "is no UTF-8": instead(lambda path: path.write_bytes(b'{"a": "\xff"}')),
    "is no JSON object": instead(lambda path: path.write_text("7")),
    "Git LFS": instead(
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n"), "model.safetensors"
    ),
    "is cut off": instead(lambda path: path.write_bytes(b"\x10"), "model.safetensors"),
    "refs/main names no revision": refs("../../../../etc"),
    "refs/main has": refs("x" * 10_000),
    "refs/main names a revision that is not here": refs("f" * 40),
    "names a revision that is not here": file_in_place_of_the_snapshot,
    "tokenizer.json is a folder": instead(os.mkdir, "tokenizer.json"),
    "tokenizer.json is a pipe": instead(os.mkfifo, "tokenizer.json"),
    "tokenizer.json is no whole JSON": instead(lambda path: path.write_text("{"), "tokenizer.json"),
    "chat_template.jinja is a device": instead(lambda path: path.symlink_to("/dev/zero"), "chat_template.jinja"),
    "generation_config.json is a folder": instead(os.mkdir, "generation_config.json"),
}


@pytest.mark.parametrize("reason", HARMS)
def test_a_damaged_repository_is_told_with_its_reason_and_hides_no_other(
    tmp_path: Path, save_model: Any, reason: str
) -> None:
    cache = tmp_path / "hub"
    good = save_model("good")
    put(cache, "good", good)
    HARMS[reason](put(cache, "bad", good))
    whole, damaged = scan_cache(cache)
    assert isinstance(whole, CachedModel) and whole.name == "someone/good"
    assert isinstance(damaged, DamagedModel) and damaged.name == "someone/bad"
    assert reason in damaged.reason and len(damaged.reason) < 160 and "\n" not in damaged.reason


CLOSED: dict[str, Callable[[Path], object]] = {
    "its snapshot cannot be read (Permission denied)": lambda snapshot: snapshot.chmod(0),
    "snapshot cannot be read (Permission denied)": lambda snapshot: snapshot.chmod(0o444),
    "snapshots cannot be read (Permission denied)": lambda snapshot: snapshot.parent.chmod(0),
    "refs/main cannot be read (Permission denied)": lambda snapshot: (snapshot.parent.parent / "refs").chmod(0),
    "tokenizer.json cannot be read (Permission denied)": lambda snapshot: (snapshot / "tokenizer.json").chmod(0),
}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("reason", CLOSED)
def test_what_another_user_keeps_closed_is_told_and_not_left_out(tmp_path: Path, save_model: Any, reason: str) -> None:
    cache = tmp_path / "hub"
    good = save_model("good")
    put(cache, "good", good)
    CLOSED[reason](put(cache, "bad", good))
    try:
        whole, damaged = scan_cache(cache)
        assert isinstance(whole, CachedModel) and isinstance(damaged, DamagedModel) and reason in damaged.reason
    finally:
        for folder in (cache / "models--someone--bad", *(cache / "models--someone--bad").iterdir()):
            folder.chmod(0o700)


def test_a_cache_that_cannot_be_read_is_not_called_empty(tmp_path: Path) -> None:
    (tmp_path / "hub").touch()
    assert scan_cache(tmp_path / "hub") == [
        DamagedModel(str(tmp_path / "hub"), "this cache cannot be read (Not a directory)")
    ]
    assert scan_cache(tmp_path / "nowhere") == []


@pytest.mark.parametrize("name", ["a line\nand one", "esc\x1b[2J", "l" * 120, "[b]markup", "\udcff", ""])
def test_what_no_hub_id_can_name_is_told_in_one_row(tmp_path: Path, save_model: Any, name: str) -> None:
    cache = tmp_path / "hub"
    put(cache, name, save_model("good"))
    (damaged,) = scan_cache(cache)
    assert isinstance(damaged, DamagedModel) and damaged.reason == "no repository of the hub can have this name"
    assert damaged.name.isprintable() and damaged.name.startswith("someone/")


def test_folders_that_are_none_hide_no_other(tmp_path: Path, save_model: Any) -> None:
    cache = tmp_path / "hub"
    put(cache, "good", save_model("good"))
    (cache / "models--a--file").touch()
    (cache / "models--a--loop").symlink_to("models--a--loop")
    (cache / "models--a--empty").mkdir()
    (cache / "models--").mkdir()
    (cache / "models--a--odd").mkdir()
    (cache / "models--a--odd" / "snapshots").touch()
    os.mkfifo(cache / "models--a--pipe")
    assert [model.name for model in cached_models(cache)] == ["someone/good"]


def test_models_and_the_picker_list_what_is_good_beside_what_is_not(
    tmp_path: Path, save_model: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import constants

    from specdec_tui.catalogue import show_models
    from specdec_tui.settings import ModelChoice
    from specdec_tui.tui.screens.model_picker import models_on_this_computer

    cache, good = tmp_path / "hub", save_model("good")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("SPECDEC_TUI_CACHE_DIR", str(tmp_path / "demo"))
    put(cache, "good", good)
    config(architectures=5)(put(cache, "bad", good))
    config(hidden_act="evil\u202e\x1b[2J")(put(cache, "worse", good))
    assert show_models(ModelChoice(device="cpu")) == 0
    shown = capsys.readouterr().out
    rows = {line.split()[1]: line for line in shown.splitlines() if line.startswith("│")}
    assert rows["someone/good"].rstrip("│ ").endswith("yes")
    assert "architectures" in rows["someone/bad"] and "no model can be" in rows["someone/worse"]
    assert not {"\x1b[2J", "\u202e"} & set(shown) and "\u202e" not in shown
    listed = {row.name: row for row in models_on_this_computer()}
    assert not listed["someone/good"].damaged and listed["someone/bad"].damaged
    assert "architectures" in listed["someone/bad"].detail


def test_scanning_imports_neither_torch_nor_transformers(tmp_path: Path) -> None:
    import subprocess

    code = "import sys; from specdec_tui.backends import hub_cache; hub_cache.scan_cache()"
    code += "; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"HF_HOME": str(tmp_path)}
    )
    assert done.stdout.strip() == "[]"
