"""The top line has its parts whole: what it has no room for is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.content import Content

from specdec_tui.backends.pair import Health, ModelInfo, PairInfo, Progress
from specdec_tui.tui.commands.header import Header, elided, one_row, short_names

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
    names, _, facts = shown.replace("● ready", "").removeprefix("specdec-tui  ").partition(" · ")
    assert facts.strip() in ("cpu", "cpu · float32", "cpu · float32 · 574 MB")
    assert all(len(name) >= 12 for name in names.split(" + "))
    assert "…" not in names or len(shown) >= width - 4, "cut though there is room"


GGUF = "/home/somebody/models/qwen/Qwen2.5-Coder-{}B-Instruct-Q4_K_M.gguf"
HELD = replace(TARGET, held_dtype="Q4_K", weights="packed")
FILES = PairInfo(replace(HELD, name=GGUF.format(1.5)), (replace(HELD, name=GGUF.format(0.5), held_dtype="Q8_0"),), True)


@pytest.mark.parametrize("width", [80, 90, 100, 110, 120, 140, 180])
async def test_names_are_shortened_before_a_fact_is_left_out(width: int) -> None:
    """At 120 columns the names of two files left no room for dtype and memory."""
    shown = await line(width, state="ready", pair=FILES)
    assert " · cpu · float32 (" in shown and "packed) · 1.1 GB" in shown
    assert "1.5B" in shown or "Coder-1…" in shown, "what tells them apart is cut out"
    assert ("(held in Q4_K+Q8_0, packed)" in shown) == (width >= 100)
    assert "/" not in shown and ("Instruct-Q4_K_M.gguf + Qwen" in shown) == (width == 180)


async def test_a_load_names_the_file_without_its_folders() -> None:
    stage = Progress(f"Loading {GGUF.format(7)} (1 GB)", 0.5)
    assert "  Loading Qwen2.5-Coder-7B-Instruct-Q4_K_M.gguf (1 GB)" in await line(140, state="loading", progress=stage)
    hub = Progress("Loading meta-llama/Llama-3.2-3B and/or more", 0.5)
    assert "meta-llama/Llama-3.2-3B and/or" in await line(140, state="loading", progress=hub)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("owner/model", "demo drafter"), ["owner/model", "demo drafter"]),
        (("/a/b/m.gguf", "owner/model"), ["m.gguf", "owner/model"]),
        (("a/m.GGUF", "./x/", "~/y/z"), ["m.GGUF", "x", "z"]),
        (("/a/b/m.gguf", "/c/b/m.gguf"), ["a/b/m.gguf", "c/b/m.gguf"]),
        (("/a/q4/m.gguf", "/a/q8/m.gguf"), ["q4/m.gguf", "q8/m.gguf"]),
        (("/a/m.gguf", "/a/m.gguf"), ["m.gguf", "m.gguf"]),
        (("/m", "m"), ["/m", "m"]),
        (("/", "~"), ["/", "~"]),
    ],
)
def test_paths_are_told_by_their_last_parts_as_far_as_these_tell_them_apart(
    names: tuple[str, ...], expected: list[str]
) -> None:
    assert short_names(names) == expected


async def test_three_names_that_part_in_two_places_are_all_told_apart() -> None:
    kinds = ("1.5B-Instruct-Q4_K_M", "0.5B-Instruct-Q4_K_M", "0.5B-Instruct-Q8_0")
    target, *drafters = (replace(PAIR.target, name=f"/models/Qwen2.5-Coder-{kind}.gguf") for kind in kinds)
    shown = await line(80, pair=replace(PAIR, target=target, drafters=tuple(drafters)), state="ready")
    names = shown.partition(" · ")[0].replace("specdec-tui", "").strip().split(" + ")
    assert len(set(names)) == len(names) == 3, shown


def test_a_long_text_is_cut_in_its_middle_and_never_wider_than_asked() -> None:
    assert elided("SmolLM2-135M-Instruct", 12) == "SmolLM…truct"
    assert elided("SmolLM2-135M", 12) == "SmolLM2-135M"
    for cells in range(1, 20):
        assert cell_len(elided("日本語のモデル", cells)) <= cells


@pytest.mark.parametrize("width", [5, 12, 20, 30, 39])
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
