"""Fast streams into four panes while the terminal is resized: not one token may get lost."""

from __future__ import annotations

import random

from widget_data import STORY, HostApp, run_steps, words_of

from specdec_tui.decoding.records import DraftsProposed
from specdec_tui.tui.panes.pane import StrategyPane

NAMES = ("target", "speculative", "ngram", "lookup")
SIZES = [(80, 24), (120, 40), (200, 60), (41, 13), (99, 50), (60, 20), (180, 45), (20, 9), (300, 100), (120, 40)]


async def test_ten_resizes_at_two_thousand_tokens_a_second_lose_no_token() -> None:
    """Batches of 33 ms: 66 tokens for each pane, in both views, with a resize every third batch."""
    panes = [StrategyPane(number, name) for number, name in enumerate(NAMES, 1)]
    chance = random.Random(11)
    vocabulary = [*words_of(STORY), "世界", "👨\u200d", "👩", "\n", "\t", "supercalifragilistic" * 3]
    texts = {name: [chance.choice(vocabulary) for _ in range(2000)] for name in NAMES}
    streams = {n: run_steps(n, texts[n], gamma=0 if n == "target" else 4, seed=i) for i, n in enumerate(NAMES)}
    async with HostApp(*panes).run_test(size=(120, 40)) as pilot:
        for pane in panes:
            pane.begin(2000)
        panes[1].view = "rounds"
        sizes = iter(SIZES)
        positions = dict.fromkeys(NAMES, 0)
        batch = 0
        while any(positions[name] < len(streams[name]) for name in NAMES):
            for pane in panes:
                at = positions[pane.strategy]
                pane.feed(streams[pane.strategy][at : at + 66])
                positions[pane.strategy] = at + 66
            if batch % 3 == 0 and (size := next(sizes, None)):
                await pilot.resize_terminal(*size)
            await pilot.pause()
            batch += 1
        assert next(sizes, None) is None
        for pane in panes:
            expected = "".join(texts[pane.strategy])
            assert pane.plain_text == expected
            assert pane.token_view.layout_text.text == expected
            assert pane.figures.new_tokens == 2000
            rows = [row for row in pane.rounds_view.rows if not isinstance(row.record, DraftsProposed)]
            assert len(rows) == pane.figures.rounds + 1
        panes[1].view = "text"
        panes[2].view = "rounds"
        await pilot.pause()
        drawn = panes[2].rounds_view
        assert drawn.line_count >= len(drawn.rows)
