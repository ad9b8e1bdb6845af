"""Where a model's files are: a hub id, a local folder or a GGUF file; and fetching what is not there.

Files that are in the hub cache and complete are used as they are, without asking the network. All of
them are looked at before a library reads any.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from specdec_tui.backends.config_sizes import sizes_of
from specdec_tui.backends.gguf.parts import header_of, parts_of
from specdec_tui.backends.pair import LoadError, Progress, ReportProgress
from specdec_tui.backends.presets import hint
from specdec_tui.backends.small_files import FileProblem, check_folder, is_there, read_bytes, read_object
from specdec_tui.backends.waiting import NoAnswer, awaited
from specdec_tui.backends.weight_files import Contents, check_weights, names_of

_DESCRIPTION = ("*.json", "*.model", "*.jinja", "*.tiktoken", "*.spm", "vocab.txt", "merges.txt")
_SAFETENSORS = ("*.safetensors", "*.safetensors.index.json")
_PICKLED = ("pytorch_model*.bin", "pytorch_model.bin.index.json")
# Other formats of the same weights: subfolders (original/, onnx/) and Mistral's single file.
_IGNORED = ("*/*", "consolidated*")
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "tekken.json",
    "*.tiktoken",
)
_TOKENIZER_STEMS = (
    *("tokenizer", "vocab", "merges", "spiece", "tekken", "special_tokens", "added_tokens"),
    *("source.spm", "target.spm"),
)
_WITHOUT_FILES = ("ByT5Tokenizer",)  # their tokens are the bytes
# Bytes that may come beyond those that were announced, and in all where no number was.
_SLACK, _MOST_UNTOLD = 16 << 20, 1 << 30
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[\w.-]{1,96})?")  # as long as the hub has them


@dataclass(frozen=True, slots=True)
class Location:
    """A model's files: its `folder`, its hub id if it has one, the GGUF file in it if that is what was named.

    Of a split one the first part."""

    source: str
    folder: Path
    gguf_file: str | None = None
    hub_id: str | None = None


def locate(source: str, progress: ReportProgress) -> Location:
    """Find a model and make its config and tokenizer files available; LoadError when there is no such model."""
    try:
        path = Path(source).expanduser()
    except RuntimeError:
        raise LoadError(f"{source}: there is no such home folder.") from None
    if path.suffix.lower() == ".gguf":
        if not _is_there(path, source):
            raise LoadError(f"{source}: there is no such GGUF file.")
        _check_gguf(source, path)
        return Location(source, path.absolute().parent, gguf_file=parts_of(path)[0].name)
    if _is_folder(path, source):
        if not _is_there(path / "config.json", source):
            raise LoadError(f"{source}: this folder has no config.json, so it is not a model.{_gguf_hint(path)}")
        _check_description(source, path)
        _check_tokenizer(source, path)
        return Location(source, path.absolute())
    if not is_hub_id(source):
        raise LoadError(f"{source}: there is no such folder, and it is no hub id (owner/name) either.{hint(source)}")
    folder = _cached_snapshot(source)
    if folder is None or not os.path.lexists(folder / "config.json") or not _has_tokenizer(folder):
        try:
            folder = _fetch(source, _DESCRIPTION, f"Looking up {source}", progress)
        except LoadError as error:
            raise LoadError(f"{error}{hint(source)}") from error
    if not _is_there(folder / "config.json", source):
        raise LoadError(f"{source}: the repository has no config.json, so it is not a transformers model.")
    _check_description(source, folder)
    _check_tokenizer(source, folder)
    return Location(source, folder, hub_id=source)


def _gguf_hint(folder: Path) -> str:
    """What to give in the place of a folder of GGUF files; empty for another, and where it cannot be listed."""
    try:
        names = sorted(one.name for one in folder.iterdir() if one.suffix.lower() == ".gguf" and one.is_file())
    except OSError:
        return ""
    return f" It holds GGUF files: give one of them, as {folder / names[0]}." if names else ""


def is_hub_id(name: str) -> bool:
    """Whether a repository of the hub can have this name."""
    return _HUB_ID.fullmatch(name) is not None


def _is_there(path: Path, source: str) -> bool:
    try:
        return is_there(path)
    except FileProblem as problem:
        raise LoadError(f"{source} {problem}.") from None


def _is_folder(path: Path, source: str) -> bool:
    """LoadError where that may not be known, and nothing but a path can be meant."""
    try:
        return path.is_dir()
    except OSError as error:
        if is_hub_id(source):  # the folder we are in is closed to us
            return False
        raise LoadError(f"{source} cannot be read ({error.strerror}).") from None


def fetch_weights(location: Location, progress: ReportProgress) -> Location:
    """Make sure that all weight files are there, safetensors preferred; LoadError names what is missing."""
    if location.gguf_file is not None:
        return location
    if location.hub_id is None:
        _require_weights(location.source, location.folder)
        return location
    folder = location.folder
    for patterns in (_SAFETENSORS, _PICKLED):
        if _has_weights(location.source, folder):
            break
        folder = _fetch(location.hub_id, (*_DESCRIPTION, *patterns), f"Downloading {location.hub_id}", progress)
    _require_weights(location.source, folder)
    return Location(location.source, folder, hub_id=location.hub_id)


def contents_of(location: Location) -> Contents:
    """What the headers of a model's weight files, which are all there, say that is in them."""
    if location.gguf_file is not None:
        header = header_of(location.folder / location.gguf_file)
        return Contents(frozenset(header.tensors), header.parameters)
    return check_weights(location.folder, names_of(location.folder) or ())


def missing_weights(folder: Path) -> tuple[str, ...] | None:
    """Names of weight files that a folder should have and has not; None when it has no weights at all."""
    names = names_of(folder)
    return None if names is None else tuple(name for name in names if not os.path.lexists(folder / name))


def _has_weights(source: str, folder: Path) -> bool:
    try:
        return missing_weights(folder) == ()
    except FileProblem as problem:
        raise LoadError(f"{source}: its weights cannot be loaded: {problem}.") from None


def _require_weights(source: str, folder: Path) -> None:
    """LoadError unless all weight files are there and whole, and have tensors enough for the config's layers."""
    try:
        missing = missing_weights(folder)
        if missing is None:
            raise LoadError(
                f"{source}: there are no weights (model.safetensors or pytorch_model.bin, or their shards)."
            )
        if missing:
            raise LoadError(f"{source}: {len(missing)} weight file(s) are missing: {', '.join(missing[:3])}.")
        tensors = check_weights(folder, names_of(folder) or ()).tensors
    except FileProblem as problem:
        raise LoadError(f"{source}: its weights cannot be loaded: {problem}.") from None
    layers = sizes_of(source, _config(source, folder)).layers
    if tensors is not None and layers > len(tensors):
        raise LoadError(
            f"{source}: its config names {layers:,} layers, but its weight files hold {len(tensors):,} tensors: "
            "they do not belong together."
        )


def _check_description(source: str, folder: Path) -> None:
    """What is read before any weights: every small file bounded and whole, and sizes that can be built."""
    config = _config(source, folder)
    try:
        check_folder(folder)
    except FileProblem as problem:
        part = "tokenizer" if str(problem).startswith(_TOKENIZER_STEMS) else "files"
        raise LoadError(f"{source}: its {part} cannot be read: {problem}.") from None
    _refuse_what_cannot_fit(source, config)


def _config(source: str, folder: Path) -> dict[str, Any]:
    try:
        return read_object(folder / "config.json")
    except FileProblem as problem:
        raise LoadError(f"{source}: its config cannot be read: config.json {problem}.") from None


def _refuse_what_cannot_fit(source: str, config: dict[str, Any]) -> None:
    from specdec_tui.backends.memory import refuse_what_cannot_fit  # brings torch, as what comes next does

    refuse_what_cannot_fit(source, sizes_of(source, config))


def _check_gguf(source: str, path: Path) -> None:
    try:
        header = header_of(path)
    except FileProblem as problem:
        raise LoadError(f"{source} {problem}.") from None
    config = header.config()
    _refuse_what_cannot_fit(source, config)
    layers = sizes_of(source, config).layers
    if layers > len(header.tensors):
        raise LoadError(f"{source}: it names {layers:,} layers, but holds {len(header.tensors):,} tensors.")


def _has_tokenizer(folder: Path) -> bool:
    if any(not os.path.isdir(path) for name in _TOKENIZER_FILES for path in folder.glob(name)):
        return True
    try:
        named = read_object(folder / "tokenizer_config.json").get("tokenizer_class")
    except (OSError, FileProblem):
        return False
    return named in _WITHOUT_FILES


def _check_tokenizer(source: str, folder: Path) -> None:
    if not _has_tokenizer(folder):
        raise LoadError(f"{source}: there is no tokenizer (tokenizer.json, tokenizer.model, vocab.json …) beside it.")


def reference_of(repository: Path) -> str | None:
    """What a cached repository says that its main revision is; None where it says nothing. FileProblem."""
    try:
        if not is_there(repository / "refs" / "main"):
            return None
        return read_bytes(repository / "refs" / "main", 1000).decode("utf-8", "replace").strip()
    except FileProblem as problem:
        raise FileProblem(f"refs/main {problem}") from None


def _cached_snapshot(hub_id: str) -> Path | None:
    """The folder of the cached main revision, complete or not. LoadError for a reference that is no file of text."""
    from huggingface_hub import constants, try_to_load_from_cache

    repository = Path(constants.HF_HUB_CACHE) / f"models--{hub_id.replace('/', '--')}"
    try:
        reference_of(repository)  # the library would wait for a pipe, and read a device for ever
    except FileProblem as problem:
        raise LoadError(f"{hub_id}: {problem}, in {repository}.") from None
    found = try_to_load_from_cache(hub_id, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def _fetch(hub_id: str, patterns: Sequence[str], stage: str, progress: ReportProgress) -> Path:
    """Download what matches into the hub cache and return the snapshot's folder."""
    from huggingface_hub import constants, errors, snapshot_download

    host = urlsplit(constants.ENDPOINT).hostname or "the hub"
    try:
        folder = awaited(
            lambda reached: snapshot_download(
                hub_id,
                allow_patterns=list(patterns),
                ignore_patterns=list(_IGNORED),
                tqdm_class=_reporting_bar(stage, reached),
            ),
            Progress(stage),
            f"{stage}: waiting for {host}",
            progress,
        )
    except NoAnswer as error:
        raise LoadError(
            f"{hub_id}: {host} has not answered for {error.seconds:.0f} s. Try again later, or name a local folder."
        ) from None
    except _TooMuch as error:
        raise LoadError(f"{hub_id}: {host} sends more than {error}: the download was stopped.") from None
    except errors.GatedRepoError as error:
        raise LoadError(
            f"{hub_id} is gated: accept its conditions on its hub page, then log in with `hf auth login`."
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise LoadError(f"{hub_id}: the hub has no such model (or it is private and you are not logged in).") from error
    except errors.LocalEntryNotFoundError as error:
        raise LoadError(f"{hub_id} is not in the local cache, and the hub cannot be reached from here.") from error
    except Exception as error:  # the hub's HTTP library differs between versions, and so do its errors
        raise LoadError(f"{hub_id} could not be downloaded: {_one_line(error)}") from error
    return Path(folder)


class _TooMuch(Exception):
    """A server does not end; in words, how much was to come."""


def _reporting_bar(stage: str, progress: ReportProgress) -> type:
    """A tqdm class that draws nothing and reports the bytes that have come; _TooMuch where they do not end."""
    from tqdm import tqdm

    most = 0.0

    class ReportingBar(tqdm):
        monitor_interval = 0  # no thread of its own

        def __init__(self, *arguments: Any, **options: Any) -> None:
            # "gui" is what keeps tqdm from setting up a printer for the terminal.
            super().__init__(*arguments, **(options | {"disable": False, "gui": True}))

        def display(self, *arguments: Any, **options: Any) -> None:
            """Nothing is drawn."""

        def update(self, n: float | None = 1) -> bool | None:
            nonlocal most
            drawn = super().update(n)
            if self.unit == "B" and self.n > (self.total + _SLACK if self.total else _MOST_UNTOLD):
                raise _TooMuch(f"the {self.total:,} bytes of its files" if self.total else f"{_MOST_UNTOLD:,} bytes")
            # One bar counts files, one or two count bytes: the one that is ahead tells the truth.
            if self.unit == "B" and self.total and self.n >= most:
                most = self.n
                progress(Progress(stage, min(1.0, self.n / self.total)))
            return drawn

    return ReportingBar


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:  # of the cache, or of a token's file
        return f"{error.filename}: {error.strerror}"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
