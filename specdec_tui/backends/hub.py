"""Where a model's files are: a hub id, a local folder or a GGUF file; what is cached, and fetching the rest.

Files that are in the hub cache and complete are used as they are, without asking the network.
No torch and no transformers here, so that a list of cached models costs little.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec_tui.backends.pair import LoadError, Progress, ReportProgress

_DESCRIPTION = ("*.json", "*.model", "*.jinja", "*.tiktoken", "vocab.txt", "merges.txt")
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
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class Location:
    """A model's files: its `folder`, the GGUF file in it if that is what was named, its hub id if it has one."""

    source: str
    folder: Path
    gguf_file: str | None = None
    hub_id: str | None = None


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A causal language model in the local hub cache, complete and ready to load."""

    name: str
    size_bytes: int
    model_type: str


def locate(source: str, progress: ReportProgress) -> Location:
    """Find a model and make its config and tokenizer files available; LoadError when there is no such model."""
    path = Path(source).expanduser()
    if path.suffix.lower() == ".gguf":
        if not path.is_file():
            raise LoadError(f"{source}: there is no such GGUF file.")
        return Location(source, path.absolute().parent, gguf_file=path.name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise LoadError(f"{source}: this folder has no config.json, so it is not a model.")
        _check_tokenizer(source, path)
        return Location(source, path.absolute())
    if not _HUB_ID.fullmatch(source):
        raise LoadError(f"{source}: there is no such folder, and it is no hub id (owner/name) either.")
    folder = _cached_snapshot(source)
    if folder is None or not (folder / "config.json").is_file() or not _has_tokenizer(folder):
        folder = _fetch(source, _DESCRIPTION, f"Looking up {source}", progress)
    if not (folder / "config.json").is_file():
        raise LoadError(f"{source}: the repository has no config.json, so it is not a transformers model.")
    _check_tokenizer(source, folder)
    return Location(source, folder, hub_id=source)


def fetch_weights(location: Location, progress: ReportProgress) -> Location:
    """Make sure that all weight files are there, safetensors preferred; LoadError names what is missing."""
    if location.gguf_file is not None:
        return location
    if location.hub_id is None:
        _require_weights(location.source, location.folder)
        return location
    folder = location.folder
    for patterns in (_SAFETENSORS, _PICKLED):
        if missing_weights(folder) == ():
            break
        folder = _fetch(location.hub_id, (*_DESCRIPTION, *patterns), f"Downloading {location.hub_id}", progress)
    _require_weights(location.source, folder)
    return Location(location.source, folder, hub_id=location.hub_id)


def missing_weights(folder: Path) -> tuple[str, ...] | None:
    """Names of weight files that a folder should have and has not; None when it has no weights at all."""
    for stem in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{stem}.index.json"
        if index.is_file():
            shards = sorted(set(_read_json(index).get("weight_map", {}).values()))
            return tuple(shard for shard in shards if not (folder / shard).is_file())
        if (folder / stem).is_file():
            return ()
    return None


def cached_models(cache_folder: Path | None = None) -> list[CachedModel]:
    """Complete causal language models in the hub cache (by default the user's), most recently used first."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir(cache_folder).repos
    except (CacheNotFound, OSError, ValueError):
        return []
    found = []
    for repository in sorted(repositories, key=lambda repository: -repository.last_accessed):
        if repository.repo_type != "model":
            continue
        for revision in sorted(repository.revisions, key=lambda revision: -revision.last_modified):
            config = _read_json(revision.snapshot_path / "config.json")
            if _is_causal_lm(config) and missing_weights(revision.snapshot_path) == ():
                model_type = str(config.get("model_type", ""))
                found.append(CachedModel(repository.repo_id, revision.size_on_disk, model_type))
                break
    return found


def _is_causal_lm(config: dict[str, Any]) -> bool:
    names = config.get("architectures") or []
    return not config.get("is_encoder_decoder", False) and any(
        name.endswith(("ForCausalLM", "LMHeadModel")) for name in names
    )


def _require_weights(source: str, folder: Path) -> None:
    missing = missing_weights(folder)
    if missing is None:
        raise LoadError(f"{source}: there are no weights (model.safetensors or pytorch_model.bin, or their shards).")
    if missing:
        raise LoadError(f"{source}: {len(missing)} weight file(s) are missing: {', '.join(missing[:3])}.")


def _has_tokenizer(folder: Path) -> bool:
    return any(next(folder.glob(name), None) is not None for name in _TOKENIZER_FILES)


def _check_tokenizer(source: str, folder: Path) -> None:
    if not _has_tokenizer(folder):
        raise LoadError(f"{source}: there is no tokenizer (tokenizer.json, tokenizer.model, vocab.json …) beside it.")


def _cached_snapshot(hub_id: str) -> Path | None:
    """The folder of the cached main revision, complete or not."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(hub_id, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def _fetch(hub_id: str, patterns: Sequence[str], stage: str, progress: ReportProgress) -> Path:
    """Download what matches into the hub cache and return the snapshot's folder."""
    from huggingface_hub import errors, snapshot_download

    progress(Progress(stage))
    try:
        folder = snapshot_download(
            hub_id,
            allow_patterns=list(patterns),
            ignore_patterns=list(_IGNORED),
            tqdm_class=_reporting_bar(stage, progress),
        )
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


def _reporting_bar(stage: str, progress: ReportProgress) -> type:
    """A tqdm class that draws nothing and reports the bytes that have come."""
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
            # One bar counts files, one or two count bytes: the one that is ahead tells the truth.
            if self.unit == "B" and self.total and self.n >= most:
                most = self.n
                progress(Progress(stage, min(1.0, self.n / self.total)))
            return drawn

    return ReportingBar


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _one_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
