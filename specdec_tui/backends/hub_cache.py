"""What the local hub cache holds. Any repository in it may be damaged: that one is told with its reason.

No torch and no transformers here, so that a list of cached models costs little.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec_tui.backends.config_sizes import sizes_of
from specdec_tui.backends.hub import is_hub_id, reference_of
from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.small_files import FileProblem, check_folder, is_there, read_object
from specdec_tui.backends.weight_files import check_weights, names_of
from specdec_tui.doors.characters import one_line

_PREFIX = "models--"
_REVISION = re.compile(r"[\w.-]{1,100}")
_LONGEST_NAME = 200
# How the classes of encoder-decoder models are called, and what the configs of those have that read no text alone.
_ENCODER_DECODERS = ("ForConditionalGeneration", "MTModel", "WithLMHeadModel", "ForTextToText")
_SENSES = frozenset(
    {"num_mel_bins", "vision_config", "audio_config", "image_size", "patch_size", "input_feat_per_channel"}
)


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A language model in the local hub cache, complete and ready to load."""

    name: str
    size_bytes: int
    model_type: str


@dataclass(frozen=True, slots=True)
class DamagedModel:
    """A repository in the cache that cannot be loaded as it is, and why in a few words."""

    name: str
    reason: str


def cached_models(folder: Path | None = None) -> list[CachedModel]:
    """Complete language models in the hub cache (by default the user's), most recently used first."""
    return [model for model in scan_cache(folder) if isinstance(model, CachedModel)]


def scan_cache(folder: Path | None = None) -> list[CachedModel | DamagedModel]:
    """The same with the damaged ones, which come last, as does a cache that cannot be read.

    What is no language model is left out.
    """
    if folder is None:
        from huggingface_hub import constants

        folder = Path(constants.HF_HUB_CACHE)
    found: list[tuple[float, CachedModel]] = []
    damaged: list[CachedModel | DamagedModel] = []
    try:
        repositories = _repositories(folder)
    except OSError as error:
        return [DamagedModel(str(folder), f"this cache cannot be read ({error.strerror})")]
    for repository in repositories:
        whole = repository.name.removeprefix(_PREFIX).replace("--", "/")
        name = one_line(whole[:_LONGEST_NAME])
        try:
            if (model := _look_into(name, repository)) is not None:
                if not is_hub_id(whole):
                    raise FileProblem("no repository of the hub can have this name")
                found.append(model)
        except (FileProblem, LoadError) as problem:
            damaged.append(DamagedModel(name, str(problem).removeprefix(f"{name}: ")))
        except Exception as error:  # a folder that anyone may have written must not hide the others
            damaged.append(DamagedModel(name, f"cannot be read ({getattr(error, 'strerror', None) or error})"))
    return [model for _, model in sorted(found, key=lambda pair: -pair[0])] + damaged


def _repositories(folder: Path) -> list[Path]:
    """OSError for a cache that may not be read; one that is not there is empty."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    return [folder / name for name in names if name.startswith(_PREFIX)]


def _look_into(name: str, repository: Path) -> tuple[float, CachedModel] | None:
    """When a repository was last used, and its model; None for what is no language model, or not fetched."""
    problem: FileProblem | LoadError | None = None
    for snapshot in _snapshots(repository):
        try:
            if not _has_config(snapshot):
                continue
            try:
                config = read_object(snapshot / "config.json")
            except FileProblem as fault:
                raise FileProblem(f"config.json {fault}") from None
            if not _is_language_model(config):
                continue
            sizes_of(name, config)
            if (weights := names_of(snapshot)) is None:
                continue  # only looked up so far
            lacking = [weight for weight in weights if not os.path.lexists(snapshot / weight)]
            if lacking:
                raise FileProblem(f"{len(lacking)} of {len(weights)} weight files are missing")
            check_weights(snapshot, weights)
            check_folder(snapshot)
            return _used(snapshot), CachedModel(name, _size(snapshot), str(config.get("model_type", ""))[:40])
        except (FileProblem, LoadError) as fault:
            problem = problem or fault
    if problem is not None:
        raise problem
    return None


def _snapshots(repository: Path) -> list[Path]:
    """The folders of a repository's revisions, the one that `main` is first."""
    try:
        found = sorted((entry for entry in os.scandir(repository / "snapshots")), key=_changed, reverse=True)
        folders = [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileProblem(f"snapshots cannot be read ({error.strerror})") from None
    main = _main_revision(repository)
    if main and found and not any(folder.name == main for folder in folders):
        raise FileProblem("refs/main names a revision that is not here")
    return sorted(folders, key=lambda folder: folder.name != main)


def _has_config(snapshot: Path) -> bool:
    try:
        return is_there(snapshot / "config.json")
    except FileProblem as problem:
        raise FileProblem(f"its snapshot {problem}") from None


def _changed(entry: os.DirEntry[str]) -> float:
    return entry.stat(follow_symlinks=False).st_mtime


def _main_revision(repository: Path) -> str:
    """Its name; empty where there is none. FileProblem for a reference that leads out of the repository."""
    if (text := reference_of(repository)) is None:
        return ""
    if not _REVISION.fullmatch(text) or set(text) <= {"."}:
        raise FileProblem("refs/main names no revision")
    return text


def _is_language_model(config: dict[str, Any]) -> bool:
    """Whether it goes on with a text, or reads one and writes another.

    FileProblem where that cannot be told: `architectures` has to be a list of names.
    """
    names = config.get("architectures")
    if names is None:
        return False
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FileProblem(f"config.json is damaged: architectures is {str(names)[:40]!r}")
    if not config.get("is_encoder_decoder", False):
        return any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names)
    return _SENSES.isdisjoint(config) and any(name.endswith(_ENCODER_DECODERS) for name in names)


def _used(snapshot: Path) -> float:
    return max((entry.stat().st_atime for entry in _files(snapshot)), default=0.0)


def _size(snapshot: Path) -> int:
    return sum(entry.stat().st_size for entry in _files(snapshot))


def _files(snapshot: Path) -> Iterator[os.DirEntry[str]]:
    """Files at the top of a snapshot; a link that leads nowhere is none."""
    with os.scandir(snapshot) as entries:
        for entry in entries:
            try:
                if entry.is_file():
                    yield entry
            except OSError:
                continue
