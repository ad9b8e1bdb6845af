"""Noise on the line of a real terminal: the app stays, paints and is left by a key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pty_app import Pty

NOISE = {
    "a byte that is no UTF-8": b"\xff",
    "the beginning of a character, and a key": b"\xe9x",
    "latin-1 in a paste": b"\x1b[200~caf\xe9\x1b[201~",
    "an old report of the mouse": b"\x1b[M \xf0!",
    "a key of no character": b"\x1b[1114112u\x1b[999999999999;999999u",
    "an impossible size": b"\x1b[48;9999999;99999999;1;1t",
    "a sequence without an end": b"\x1b[" + b"1;" * 1500,
}


def test_noise_on_the_line_neither_ends_nor_holds_up_the_app(tmp_path: Path) -> None:
    app = Pty(tmp_path)
    try:
        app.wait_for("Ask something")
        for what, noise in NOISE.items():
            os.write(app._fd, noise)
            app.rest(0.3)
            assert "Traceback" not in app.shown and "Error" not in app.shown, what
            before = len(app.shown)
            app.resize(90 if len(what) % 2 else 100, 30)
            app.wait(lambda before=before: len(app.shown) > before + 500, f"painted behind {what}")
        app.send("\x11")
        assert app.ended() == 0
        app.assert_given_back()
    finally:
        app.close()


@pytest.mark.parametrize("size", [pytest.param((5000, 2000), marks=pytest.mark.large), (65535, 65535)])
def test_a_terminal_that_says_it_is_huge_is_left_by_a_key(tmp_path: Path, size: tuple[int, int]) -> None:
    app = Pty(tmp_path)
    try:
        app.wait_for("Ask something")
        app.resize(*size)
        app.rest(0.3)
        app.send("\x11")
        assert app.ended() == 0
        app.assert_given_back()
    finally:
        app.close()
