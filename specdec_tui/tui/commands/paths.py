"""What is at a path, asked while the path is typed: a key never waits for a file system that does not answer."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from specdec_tui.doors.reading import status_of
from specdec_tui.settings import SettingError, parse_path

SECONDS = 0.05
"""The most that a key waits."""
NO_SUCH = "no such file or folder"

_unanswered: list[threading.Thread] = []


def is_missing_path(name: str) -> bool:
    """Whether a model so named can only be a file or folder, and none is there, as far as that can be known at once.

    A hub id is `owner/name`: the disk is not asked.
    """
    is_file = name.endswith(".gguf") and "/" not in name
    if not (name[:1] in ("/", "~", ".") or name.count("/") > 1 or is_file):
        return False
    try:
        status_in_time(parse_path(name))
    except (FileNotFoundError, NotADirectoryError, SettingError):
        return True
    except OSError:
        return False  # whoever loads it says why it may not be looked at
    return False


def status_in_time(path: Path) -> os.stat_result | None:
    """`status_of` with its errors; None where there is no answer yet.

    One look at the disk, and none while an earlier one is not answered.
    """
    _unanswered[:] = [thread for thread in _unanswered if thread.is_alive()]
    if _unanswered:
        return None
    answers: list[os.stat_result | OSError] = []

    def look() -> None:
        try:
            answers.append(status_of(path))
        except OSError as error:
            answers.append(error)

    thread = threading.Thread(target=look, name="specdec-path", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if not answers:
        _unanswered.append(thread)
        return None
    if isinstance(answers[0], OSError):
        raise answers[0]
    return answers[0]
