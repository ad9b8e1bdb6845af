from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from tiny_gguf import write_tiny_gguf
from tiny_transformers import tiny_tokenizer

from specdec_tui.backends import hub
from specdec_tui.backends.hub_cache import cached_models
from specdec_tui.backends.pair import LoadError, Progress
from specdec_tui.backends.presets import PRESETS

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and no network."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder


def put(cache: Path, hub_id: str, model: Path) -> Path:
    """Lay a model folder out as the hub cache does."""
    repository = cache / f"models--{hub_id.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    shutil.copytree(model, snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "blobs").mkdir()
    return snapshot


def silent(progress: Progress) -> None:
    """Nobody watches."""


def test_a_cached_model_is_found_and_complete_without_network(hub_cache: Path, save_model: Any) -> None:
    snapshot = put(hub_cache, "someone/tiny", save_model("tiny"))
    location = hub.fetch_weights(hub.locate("someone/tiny", silent), silent)
    assert location.folder == snapshot and location.hub_id == "someone/tiny"


def test_cached_models_lists_complete_causal_models_only(hub_cache: Path, save_model: Any) -> None:
    tiny = save_model("tiny")
    put(hub_cache, "someone/tiny", tiny)
    (put(hub_cache, "someone/half", tiny) / "model.safetensors").unlink()
    encoder = put(hub_cache, "someone/encoder", tiny) / "config.json"
    encoder.write_text(json.dumps(json.loads(encoder.read_text()) | {"architectures": ["BertModel"]}))
    (model,) = cached_models(hub_cache)
    assert (model.name, model.model_type) == ("someone/tiny", "llama")
    assert model.size_bytes >= (tiny / "model.safetensors").stat().st_size


# Read by the library itself: a pipe would be waited for, and a device fill the memory. So a process is given a bound.
LOAD = """
import resource, sys
from specdec_tui.backends import hub
from specdec_tui.backends.pair import LoadError
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
try:
    hub.locate("someone/tiny", lambda progress: None)
except LoadError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "refs/main is a pipe, not a file, in "),
        (os.mkdir, "refs/main is a folder, not a file, in "),
        (lambda path: os.symlink("/dev/zero", path), "refs/main is a device, not a file, in "),
        (lambda path: os.symlink(path, path), "refs/main cannot be read (Too many levels of symbolic links), in "),
    ],
    ids=["pipe", "folder", "device", "loop"],
)
def test_a_reference_in_the_cache_that_is_no_file_is_told_and_not_waited_for(
    hub_cache: Path, save_model: Any, make: Callable[[Path], object], said: str
) -> None:
    reference = put(hub_cache, "someone/tiny", save_model("tiny")).parent.parent / "refs" / "main"
    reference.unlink()
    make(reference)
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        capture_output=True,
        text=True,
        timeout=30,
        env=os.environ | {"HF_HUB_CACHE": str(hub_cache), "HF_HUB_OFFLINE": "1"},
    )
    assert done.stdout == f"someone/tiny: {said}{reference.parent.parent}.\n"


@pytest.mark.parametrize(("make", "kind"), [(os.mkfifo, "a pipe"), (os.mkdir, "a folder")])
def test_a_config_in_the_cache_that_is_no_file_is_not_called_missing(
    hub_cache: Path, save_model: Any, make: Callable[[Path], object], kind: str
) -> None:
    config = put(hub_cache, "someone/tiny", save_model("tiny")) / "config.json"
    config.unlink()
    make(config)
    with pytest.raises(LoadError, match=f"its config cannot be read: config.json is {kind}, not a file"):
        hub.locate("someone/tiny", silent)


def test_without_a_cache_no_model_is_listed(tmp_path: Path) -> None:
    assert cached_models(tmp_path / "absent") == []


def test_a_model_that_is_not_cached_says_so_when_the_hub_is_out_of_reach(hub_cache: Path) -> None:
    with pytest.raises(LoadError, match="not in the local cache, and the hub cannot be reached"):
        hub.locate("someone/else", silent)


@pytest.mark.parametrize("name", ["demo", "Demo", "demo_drafter", "demo drafter", "smollm2"])
def test_a_model_called_by_the_name_of_a_preset_is_refused_with_the_names_of_its_models(
    hub_cache: Path, name: str
) -> None:
    with pytest.raises(LoadError) as refused:
        hub.locate(name, silent)
    preset = PRESETS["smollm2" if name == "smollm2" else "demo"]
    assert str(refused.value).startswith(name)
    told = f"The preset {preset.name} is made of target {preset.target} and drafter {preset.drafter}."
    assert str(refused.value).endswith(told)
    with pytest.raises(LoadError, match=r"cannot be reached from here\.$"):
        hub.locate("org/demo", silent)


def test_a_cached_model_without_weights_says_so_when_the_hub_is_out_of_reach(hub_cache: Path, save_model: Any) -> None:
    (put(hub_cache, "someone/half", save_model("tiny")) / "model.safetensors").unlink()
    with pytest.raises(LoadError, match="there are no weights"):
        hub.fetch_weights(hub.locate("someone/half", silent), silent)


@pytest.mark.parametrize("source", ["/nowhere/model", "./nowhere", "a/b/c", "what is this"])
def test_what_is_neither_a_folder_nor_a_hub_id_is_named_so(source: str) -> None:
    with pytest.raises(LoadError, match="no such folder"):
        hub.locate(source, silent)


@pytest.mark.parametrize("source", ["nowhere/model.gguf", "half a\0.gguf", "\udcff.gguf"])
def test_a_missing_gguf_file_is_named_so(source: str) -> None:
    with pytest.raises(LoadError, match="no such GGUF file"):
        hub.locate(source, silent)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("~nosuch/model", "~nosuch/model: there is no such home folder"),
        ("~nosuch/model.gguf", "~nosuch/model.gguf: there is no such home folder"),
        ("long" * 100, "longlong cannot be read (File name too long)"),
        ("long" * 100 + ".gguf", "longlong.gguf cannot be read (File name too long)"),
    ],
)
def test_a_path_that_cannot_be_followed_is_named_with_the_reason(source: str, said: str) -> None:
    with pytest.raises(LoadError) as caught:
        hub.locate(source, silent)
    assert said in str(caught.value)


def test_a_gguf_file_is_its_own_weights(tiny_gguf: Path) -> None:
    location = hub.fetch_weights(hub.locate(str(tiny_gguf), silent), silent)
    assert (location.folder, location.gguf_file) == (tiny_gguf.parent, tiny_gguf.name)


def test_a_folder_without_a_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"no config\.json"):
        hub.locate(str(tmp_path), silent)


def test_a_folder_without_a_tokenizer_is_refused(save_model: Any) -> None:
    folder = save_model("tiny")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(LoadError, match="no tokenizer"):
        hub.locate(str(folder), silent)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
    )
    (tmp_path / "model-1.safetensors").touch()
    with pytest.raises(LoadError, match=r"1 weight file\(s\) are missing: model-2.safetensors"):
        hub.fetch_weights(hub.locate(str(tmp_path), silent), silent)


def test_download_bars_report_bytes_and_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Progress] = []
    bar_class = hub._reporting_bar("Downloading x", seen.append)
    files = bar_class(total=3, desc="Fetching 3 files")
    with bar_class(total=0, initial=0, unit="B", unit_scale=True, desc="bytes") as bar:
        bar.total += 200
        bar.refresh()
        bar.update(50)
        files.update(1)
        bar.set_description("half")
        bar.update(150)
    files.close()
    assert [progress.fraction for progress in seen] == [0.25, 1.0]
    assert capfd.readouterr() == ("", "")


def test_a_split_gguf_file_is_found_by_any_of_its_parts(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", splits=3)
    location = hub.locate(str(tmp_path / "m-00002-of-00003.gguf"), silent)
    assert location.gguf_file == "m-00001-of-00003.gguf"
    assert len(hub.contents_of(location).tensors or ()) == 20
