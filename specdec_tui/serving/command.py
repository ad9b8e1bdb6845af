"""`specdec-tui serve`: models loaded once, and the app in every browser that may ask for it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from specdec_tui.doors import output, writing
from specdec_tui.serving.admission import LEAST_TOKEN, Admission, in_address, is_loopback
from specdec_tui.serving.engine_server import EngineServer
from specdec_tui.settings import SettingError, quoted
from specdec_tui.variables import PREFIX, SERVE_TOKEN

TOKEN_VARIABLE = f"{PREFIX}{SERVE_TOKEN}"
AUTO = "auto"
MOST_TABS = 64
_TOKEN = re.compile(f"[A-Za-z0-9._~-]{{{LEAST_TOKEN},}}")  # what an address may hold as it is
_ALLOWED = "the letters a to z, digits and - . _ ~"
_INSTALL = "serve needs a part that is not installed: pip install 'specdec-tui[serve]'"


@dataclass(frozen=True, slots=True)
class Place:
    """Where to serve and for whom, as asked for: a token of `auto` is one that is made up."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str = ""
    tabs: int = 8


def check_installed() -> None:
    """SettingError where the optional part is missing."""
    if os.name != "posix":
        raise SettingError("serve: it needs a system with Unix sockets")
    try:
        import aiohttp  # noqa: F401
        import textual_serve  # noqa: F401
    except ImportError:
        raise SettingError(_INSTALL) from None


def as_place(host: str, port: str, token: str | None, tabs: str) -> Place:
    """Read the options of the command line; a token may come from the environment. SettingError in one line."""
    given = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
    if (given or token is not None) and given != AUTO and not _TOKEN.fullmatch(given):
        raise SettingError(f"token: this one is not valid: give {LEAST_TOKEN} or more of {_ALLOWED}, or {AUTO}")
    return Place(host.strip(), _whole("port", port, 0, 65535), given, _whole("tabs", tabs, 1, MOST_TABS))


def _whole(name: str, text: str, low: int, high: int) -> int:
    try:
        value = int(text)
        if low <= value <= high:
            return value
    except ValueError:
        pass
    raise SettingError(f"{name}: {quoted(text)} is not valid: give a whole number from {low} to {high}")


def bind(place: Place) -> tuple[socket.socket, Admission]:
    """Take the address, before anything is loaded. SettingError where it cannot be had, or would need a token."""
    found = []
    with suppress(OSError, UnicodeError):
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM) if place.host else []
    if not found:
        raise SettingError(f"host: {quoted(place.host)} is not valid: give an address or a name of this machine")
    family, _, _, _, address = found[0]
    if not is_loopback(str(address[0])) and not place.token:
        raise SettingError(
            f"host: {quoted(place.host)} can be reached from other machines, which demands a token: "
            f"set {TOKEN_VARIABLE}, or give --token {AUTO}"
        )
    try:
        listening = socket.create_server(address[:2], family=family)
    except OSError as error:
        where = f"{in_address(place.host)}:{place.port}"
        raise SettingError(f"cannot serve at {where}: {os.strerror(error.errno or 0).lower()}") from None
    token = secrets.token_urlsafe(24) if place.token == AUTO else place.token
    return listening, Admission(place.host, listening.getsockname()[1], token)


def told(place: Place, admission: Admission) -> str:
    """Where it is served, in one line. A token that somebody gave is not shown."""
    host = socket.gethostname() if place.host in ("0.0.0.0", "::") else place.host
    shown = f"http://{in_address(host)}:{admission.port}/"
    if place.token == AUTO:
        shown += f"?token={admission.token}"
    elif place.token:
        shown += "?token=… (the token that was given)"
    return f"specdec-tui is at {shown} – ctrl+c ends it"


def serve(place: Place, engine_of: Callable[[Callable[[str], object]], EngineServer]) -> NoReturn:
    """Serve until told to end; the process ends here, with the exit status.

    `engine_of` makes what has the models; it is given what hears why they could not be loaded. SettingError where
    nothing can be served. A load cannot be interrupted inside a library, so nothing of it is waited for.
    """
    listening, admission = bind(place)
    os.environ.pop(TOKEN_VARIABLE, None)
    status = 1
    try:
        status = asyncio.run(_serve(place, listening, admission, engine_of))
    except BaseException as fault:
        output.show_traceback(type(fault), fault, fault.__traceback__)
    finally:
        os._exit(status)


async def _serve(
    place: Place,
    listening: socket.socket,
    admission: Admission,
    engine_of: Callable[[Callable[[str], object]], EngineServer],
) -> int:
    from aiohttp import web

    from specdec_tui.serving.pages import CLOSING_SECONDS, Pages

    loop, over, status = asyncio.get_running_loop(), asyncio.Event(), 0

    def load_failed(error: str) -> None:
        nonlocal status
        status = 1
        output.complain(error)
        loop.call_soon_threadsafe(over.set)

    def told_to_end() -> None:
        if over.is_set():  # again: it takes too long for somebody
            os._exit(status)
        over.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, told_to_end)
    engine = engine_of(load_failed)
    log = writing.log_or_nowhere(writing.log_file())
    pages = Pages(admission, engine, place.tabs, log)
    runner = web.AppRunner(pages.application(), access_log=None, shutdown_timeout=2 * CLOSING_SECONDS)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    output.say(told(place, admission))
    with output.libraries_unheard():
        logging.basicConfig(level=logging.WARNING, stream=sys.__stderr__)  # of the web server, to the log
        engine.start()
        await over.wait()
        await runner.cleanup()
        engine.close()
    return status
