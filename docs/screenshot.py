"""Make a screenshot from a real run, the README's unless told otherwise.

    python docs/screenshot.py [COLUMNS LINES OUTPUT.svg [DRAFTER…]]

The guide's, from the drafter that `benchmarks/other_tokenizers.py --folder permuted-drafter` keeps:

    python docs/screenshot.py 140 42 docs/drafters.svg demo-drafter permuted-drafter
"""

from __future__ import annotations

import asyncio
import sys

from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.tui.app.app import SpecdecApp

PROMPT = "List five fruits, each with its colour."


async def take(columns: int, lines: int, path: str, drafters: tuple[str, ...]) -> None:
    app = SpecdecApp(LocalEngine(), Settings(max_new_tokens=96, gamma=2), ModelChoice(drafter=drafters))
    async with app.run_test(size=(columns, lines)) as pilot:
        while "ready" not in str(app.header.state):
            await pilot.pause(0.2)
        app.prompt_box.text = PROMPT
        await pilot.press("enter")
        await pilot.pause(1.0)
        while app.runs.running:
            await pilot.pause(0.2)
        await pilot.pause(1.0)
        await pilot.press("escape", "alt+3", "v")
        await pilot.pause(1.0)
        with open(path, "w", encoding="utf-8") as file:
            file.write(app.export_screenshot(title="specdec-tui"))


if __name__ == "__main__":
    words = sys.argv[1:] or ["140", "42", "docs/screenshot.svg"]
    asyncio.run(take(int(words[0]), int(words[1]), words[2], tuple(words[3:])))
