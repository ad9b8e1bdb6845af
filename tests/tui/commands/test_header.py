"""The top line has its parts whole: what it has no room for is left out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.content import Content

from specdec_tui.backends.pair import Health, ModelInfo, PairInfo, Progress
from specdec_tui.tui.commands.header import Header, one_row

STAGE = "First-time compiling: SmolLM2-135M-Instruct (demo) (up to a minute)"
TARGET = ModelInfo("SmolLM2-135M-Instruct", "cpu", "float32", "none", 135_000_000, 538_000_000, 8192)
PAIR = PairInfo(
    TARGET, (ModelInfo("lightonai/drafter", "cpu", "float32", "none", 9_000_000, 36_000_000, 8192),), True, ()
)


class Shown(App[None]):
    CSS = "Header { height: 1; padding: 0 1; }"

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._values = values

    def compose(self) -> ComposeResult:
        yield Header()

    def on_mount(self) -> None:
        for name, value in self._values.items():
            setattr(self.query_one(Header), name, value)


async def line(width: int, **values: Any) -> str:
    app = Shown(**values)
    async with app.run_test(size=(width, 5)) as pilot:
        await pilot.pause()
        header = app.query_one(Header)
        shown = header.render()
        assert isinstance(shown, Content)
        assert shown.cell_length <= max(width, 20)
        return shown.plain


@pytest.mark.parametrize("width", [60, 66, 70, 80, 84, 90, 100, 104, 110, 120, 130, 140, 160])
async def test_what_a_load_does_is_never_cut_within_a_word(width: int) -> None:
    shown = await line(width, state="loading", progress=Progress(STAGE, 0.45))
    assert (
        "…" not in shown
        and "loading" in shown
        and shown.strip().startswith(("specdec-tui", "First-time compiling: Smol"))
    )
    assert ("minute" in shown) == ("(up to a minute)" in shown)
    assert ("(dem" in shown) == ("(demo)" in shown)


@pytest.mark.parametrize("width", [64, 70, 80, 84, 90, 100, 120, 140])
async def test_facts_of_a_pair_are_left_out_whole(width: int) -> None:
    shown = await line(width, state="ready", pair=PAIR)
    assert "SmolLM2-135M-Instruct + lightonai/drafter" in shown and "ready" in shown and "…" not in shown
    facts = re.sub(r".*drafter", "", shown).replace("● ready", "").strip(" ·")
    assert facts in ("", "cpu", "cpu · float32", "cpu · float32 · 574 MB")


@pytest.mark.parametrize("width", [5, 12, 20, 30, 45])
async def test_names_alone_are_cut_where_nothing_else_is_left(width: int) -> None:
    shown = await line(width, state="ready", pair=PAIR)
    assert "ready" in shown and "specdec-tui" not in shown and "·" not in shown


def test_marks_without_a_width_make_no_row_longer_than_a_screen() -> None:
    """Eight million accents over one letter filled one cell, and each drawing took seconds."""
    row = one_row("e" + "\u0301" * 1_000_000)
    assert len(row) <= 2002 and row.endswith("…")
    assert one_row(" a\n b ") == "a b"


async def test_the_health_of_a_targets_server_stands_behind_the_names() -> None:
    served = PairInfo(replace(TARGET, name="m", device="server host:1"), (), True)
    assert "m ● 12 ms · server host:1" in await line(120, pair=served, state="ready", health=Health(0.012))
    assert "m ● 12 ms (+100 added) · " in await line(120, pair=served, state="ready", health=Health(0.112, added=0.1))
    gone = await line(120, pair=served, state="ready", health=Health(None, "no server answers"))
    assert "m ✗ server does not answer · server host:1" in gone
    unknown = replace(served, target=replace(served.target, memory_bytes=0))
    assert "0 kB" not in (shown := await line(120, pair=unknown, state="ready")) and "server host:1 · float32" in shown
    assert "●  " not in await line(120, pair=PAIR, state="loading") and "ms" not in await line(120, pair=PAIR)
