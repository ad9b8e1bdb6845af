"""What a model may write, and what a terminal must never see."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text
from widget_data import HostApp, escape_bytes, run_steps, strips_of

from specdec_tui.decoding.records import Lossless, LosslessStatus, Notice, Step
from specdec_tui.doors.characters import visible
from specdec_tui.tui.panes.pane import StrategyPane

HOSTILE = {
    "markup": "[/x] [bold]not bold[/] [link=http://x]y[/link] \\[a] [@click=app.quit]go[/]",
    "ansi": "\x1b[31mred\x1b[0m \x1b[2J\x1b[H\x9b31m",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07 and \x1b]52;c;?\x1b\\",
    "title": "\x1b]0;owned\x07\x1b]2;owned\x9c",
    "bidi": "user\u202e\u2066// admin\u2069 \u200f\u061c",
    "separators": "one\u2028two\u2029three\x0bfour\x0cfive\r\nsix\x85seven",
    "surrogates": "half \ud83d of an emoji \ude00",
    "cjk": "投机解码让小模型先写几个词，然后大模型一次检查。「正しい」なら採用する。",
    "emoji": "👨\u200d👩\u200d👧\u200d👦 ❤\ufe0f 🏳\ufe0f\u200d🌈 👍🏽 🇩🇪 1\ufe0f\u20e3",
    "combining": "Z" + "\u0351\u036b\u0343" * 40 + " e\u0301",
    "nul": "a\x00b\x08\x08c\x7f",
    "tabs": "\tif x:\n\t\treturn\t1\t\t2\n",
    "long line": "x" * 50_000,
    "long blank": " " * 5_000 + "\n" * 300,
}


def split(text: str, sizes: tuple[int, ...] = (1, 3, 2, 7)) -> list[str]:
    """Tokens that end anywhere, inside sequences too; some empty."""
    if len(text) > 10_000:
        sizes = (40, 90)
    pieces: list[str] = [""]
    at = 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    return pieces


def terminal_output(pane: StrategyPane) -> str:
    """What the strips of all parts of the pane write to a terminal that knows no colours."""
    console = Console(file=io.StringIO(), color_system=None, width=500, legacy_windows=False)
    for child in pane.children:
        if child.display:
            for strip in strips_of(child):
                console.print(Text(strip.text), end="")
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("kind", HOSTILE)
async def test_hostile_text_is_shown_whole_and_obeyed_never(kind: str) -> None:
    text = HOSTILE[kind]
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(30, 24)) as pilot:
        pane.feed([Step("speculative", Notice(f"note: {text[:500]}"))])
        steps = run_steps("speculative", split(text))
        for at in range(0, len(steps), 5):
            pane.feed(steps[at : at + 5])
        pane.checked(Lossless(LosslessStatus.DIFFERENT, detail=text[:200]))
        await pilot.pause()
        assert pane.plain_text == text
        assert pane.token_view.layout_text.text == visible(text)
        view = pane.token_view
        drawn = "".join("".join(s.text for s in view.line_segments(line)) for line in range(view.line_count))
        if "\t" not in text:
            assert drawn == visible(text).replace("\n", "")
        for name in ("text", "rounds"):
            pane.view = name
            await pilot.pause()
            strips = [strip for child in pane.children if child.display for strip in strips_of(child)]
            assert escape_bytes(strips) == set()
            assert "\x1b" not in terminal_output(pane)
        await pilot.resize_terminal(100, 20)
        await pilot.pause()
        assert view.layout_text.text == visible(text)


async def test_hostile_strategy_names_do_not_reach_the_border_as_markup() -> None:
    pane = StrategyPane(2, "[/x]\x1b[2J")
    async with HostApp(pane, columns="-one").run_test(size=(60, 10)) as pilot:
        await pilot.pause()
        assert pane._border_title.plain == "2 [/x]␛[2J"  # type: ignore[attr-defined]
