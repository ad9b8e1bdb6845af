"""A pane is fed steps and shows figures, tokens and how the run stands."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from shell import until
from widget_data import STORY, HostApp, painted, run_steps, words_of

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.form_distance import OWN
from specdec_tui.decoding.records import (
    Capturing,
    DraftsProposed,
    EndReason,
    Lossless,
    LosslessStatus,
    Notice,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.tui.commands.command import following_view
from specdec_tui.tui.figures.words import GOOD, QUIET, figure_lines, sparkline, status_line
from specdec_tui.tui.panes.pane import StrategyPane

PIECES = words_of(STORY)


def lines(pane: StrategyPane) -> list[str]:
    """What the pane shows below its title, line by line."""
    return [line for child in pane.children if child.display for line in painted(child)]


def status(pane: StrategyPane) -> str:
    return painted(pane.query_one(".status"))[0].strip()


def figure_text(pane: StrategyPane) -> str:
    return "\n".join(line.strip() for line in painted(pane.query_one(".figures"))).strip()


async def test_a_pane_goes_from_waiting_over_prefill_to_its_end() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(100, 20)) as pilot:
        await until(pilot, lambda: status(pane) == "no run yet")
        pane.begin(128)
        await until(pilot, lambda: status(pane) == "waiting")
        steps = run_steps("speculative", PIECES)
        pane.feed(steps[:1])
        await until(pilot, lambda: status(pane) == "reading 23 prompt tokens…")
        pane.feed(steps[1:20])
        await until(pilot, lambda: status(pane).startswith(f"{pane.figures.new_tokens}/{len(PIECES)} tokens"))
        assert "prefill 0.21 s" in status(pane)
        pane.feed(steps[20:])
        await pilot.pause()
        assert status(pane) == "102/102 tokens · prefill 0.21 s · length reached"
        assert pane.plain_text == STORY


async def test_a_pane_says_while_its_round_is_captured_and_what_that_took() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(100, 20)) as pilot:
        for notice in (Notice("step by step, not captured: no graph"), None):
            pane.begin(128)
            steps = run_steps("speculative", PIECES)
            pane.feed([steps[0], Step("speculative", Capturing())])
            await until(pilot, lambda: status(pane) == "compiling, capturing…")
            if notice is not None:
                pane.feed([Step("speculative", notice)])
                await until(pilot, lambda: status(pane) == "reading 23 prompt tokens…")
        first = steps[1].record
        assert isinstance(first, PrefillDone)
        pane.feed([Step("speculative", replace(first, capture_seconds=1.5), steps[1].texts), *steps[2:]])
        await pilot.pause()
        assert status(pane) == "102/102 tokens · prefill 0.21 s · captured in 1.5 s · length reached"


async def test_the_text_is_the_same_whatever_the_batches() -> None:
    steps = run_steps("speculative", PIECES)
    panes = [StrategyPane(number, "speculative") for number in (1, 2, 3)]
    async with HostApp(*panes).run_test(size=(120, 40)) as pilot:
        for pane, size in zip(panes, (1, 7, len(steps)), strict=True):
            for at in range(0, len(steps), size):
                pane.feed(steps[at : at + size])
        await pilot.pause()
        for pane in panes:
            assert pane.plain_text == STORY == pane.token_view.layout_text.text
            assert len(pane.rounds_view.rows) == pane.figures.rounds + 1


async def test_pending_drafts_are_painted_behind_the_text_at_once() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(100, 20)) as pilot:
        pane.feed(
            [
                Step("speculative", RunStarted("speculative", 3, 2, 9)),
                Step("speculative", PrefillDone(Token(0, Status.SAMPLED, 0), 0.1), ("Hello",)),
                Step("speculative", DraftsProposed(0, (Token(1, Status.PENDING, 1),)), (" draft",)),
            ]
        )
        await pilot.pause()
        assert painted(pane.token_view)[0].strip() == "Hello draft"
        assert pane.plain_text == "Hello"
        pane.feed([Step("speculative", RunEnded(EndReason.CANCELLED))])
        await pilot.pause()
        assert painted(pane.token_view)[0].strip() == "Hello"
        assert "stopped" in status(pane)


async def test_a_rejected_draft_stays_readable_in_the_rounds_view_alone() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(100, 20)) as pilot:
        drafts = (Token(1, Status.REJECTED, 1), Token(2, Status.UNVERIFIED, 2))
        verdict = RoundVerified(0, drafts, Token(3, Status.RESAMPLED, 1), 0.01, 0.05, 0.0)
        pane.feed([Step("speculative", verdict, (" wrong", " later", " right"))])
        await pilot.pause()
        assert pane.plain_text == " right"
        pane.view = following_view(pane.view)
        await pilot.pause()
        assert "✗·wrong ○·later ↻·right" in painted(pane.rounds_view)[0]


async def test_speed_is_set_against_the_targets_own_run() -> None:
    target, fast, slow = (StrategyPane(i, n) for i, n in enumerate(("target", "speculative", "ngram"), 1))
    async with HostApp(target, fast, slow).run_test(size=(160, 40)) as pilot:
        target.feed(run_steps("target", PIECES, gamma=0))
        fast.feed(run_steps("speculative", PIECES))
        slow.feed(run_steps("ngram", PIECES, alpha=0.0))
        for pane in (target, fast, slow):
            pane.set_baseline(target.figures)
        await until(pilot, lambda: "×, slower" in figure_text(slow))
        assert "16.4 tok/s  baseline" in figure_text(target)
        assert "2.15×" in figure_text(fast)
        assert "slower" not in figure_text(fast)
        assert "α 0.79  τ 3.19" in figure_text(fast)
        fast.set_baseline(None)
        await until(pilot, lambda: "×" not in figure_text(fast))


@pytest.mark.parametrize(
    ("lossless", "words"),
    [
        (Lossless(LosslessStatus.IDENTICAL), "✓ identical to target"),
        (Lossless(LosslessStatus.IDENTICAL, detail=f"{OWN}: so far"), "✓ identical to packed-int8"),
        (Lossless(LosslessStatus.NEAR_TIES, 2, gap=0.3125), "≈ 2 near-ties (max gap 0.31)"),
        (Lossless(LosslessStatus.NEAR_TIES, 1), "≈ 1 near-tie"),
        (Lossless(LosslessStatus.DIFFERENT, first_divergence=16), "✗ DIFFERENT from token 17"),
        (Lossless(LosslessStatus.NOT_APPLICABLE), "~ same distribution, other draws"),
        (Lossless(LosslessStatus.NOT_APPLICABLE, detail="a lossy rule"), "≠ lossy"),
        (Lossless(LosslessStatus.NOT_APPLICABLE, detail="no [/x] tokens"), "no [/x] tokens"),
    ],
)
@pytest.mark.parametrize("width", [100, 50])
async def test_the_verdict_is_in_the_status_line(lossless: Lossless, words: str, width: int) -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(width, 20)) as pilot:
        pane.feed(run_steps("speculative", PIECES))
        pane.checked(lossless)
        await pilot.pause()
        assert words in status(pane)


async def test_the_targets_own_run_is_the_reference() -> None:
    pane = StrategyPane(1, "target")
    async with HostApp(pane, columns="-one").run_test(size=(100, 20)) as pilot:
        pane.feed(run_steps("target", PIECES, gamma=0))
        for verdict in (LosslessStatus.IDENTICAL, LosslessStatus.NOT_APPLICABLE):
            pane.checked(Lossless(verdict))
            await pilot.pause()
            assert "the reference" in status(pane)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (EndReason.END_TOKEN, "end token"),
        (EndReason.CONTEXT, "context full"),
        (EndReason.CANCELLED, "stopped"),
        (EndReason.ERROR, "failed"),
    ],
)
async def test_the_reason_for_an_end_is_named_and_its_message_shown_in_full(reason: EndReason, words: str) -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(60, 20)) as pilot:
        message = "the [/bold] reason \x1b[2J is long " + "and longer " * 10
        pane.feed(run_steps("speculative", PIECES, end=RunEnded(reason, message)))
        await pilot.pause()
        assert words in status(pane)
        shown = " ".join(" ".join(painted(pane.query_one(".notes"))).split())
        assert shown == message.replace("\x1b", "␛").strip()


async def test_notices_are_shown_and_gone_with_the_next_run() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(60, 20)) as pilot:
        pane.feed([Step("speculative", Notice("fewer drafts: the drafter's context is full"))])
        pane.note("and one more")
        await pilot.pause()
        assert "fewer drafts" in "".join(lines(pane))
        assert "and one more" in "".join(lines(pane))
        pane.begin(10)
        await pilot.pause()
        assert not pane.query_one(".notes").display


async def test_a_target_that_is_another_model_by_a_hair_says_by_how_much() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(100, 20)) as pilot:
        pane.feed(run_steps("speculative", PIECES))
        pane.checked(Lossless(LosslessStatus.IDENTICAL, detail="every token is the target's first choice"))
        await pilot.pause()
        assert "first choice" not in "".join(lines(pane))
        pane.checked(Lossless(LosslessStatus.IDENTICAL, detail=f"{OWN}: KL 0.003"))
        await pilot.pause()
        assert "another model by a hair: KL 0.003" in "".join(lines(pane))


async def test_a_new_run_leaves_nothing_of_the_last_one() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(80, 20)) as pilot:
        pane.feed(run_steps("speculative", PIECES))
        pane.checked(Lossless(LosslessStatus.DIFFERENT, detail="bad"))
        await pilot.pause()
        assert pane.has_class("-failed")
        pane.begin(7)
        await pilot.pause()
        assert pane.plain_text == ""
        assert isinstance(pane.figures, RunFigures)
        assert pane.figures.new_tokens == 0
        assert not pane.has_class("-failed")
        assert "".join(lines(pane)).split() == ["waiting"]


async def test_keys_scroll_the_view_of_a_focused_pane() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(40, 12)) as pilot:
        pane.feed(run_steps("speculative", PIECES * 4))
        pane.focus()
        await pilot.pause()
        view = pane.token_view
        assert view.scroll_y == view.max_scroll_y > 0
        await pilot.press("up", "up")
        await until(pilot, lambda: view.scroll_y == view.max_scroll_y - 2)
        assert not view.following
        await pilot.press("home")
        await until(pilot, lambda: view.scroll_y == 0)
        await pilot.press("end")
        await until(pilot, lambda: view.scroll_y == view.max_scroll_y)
        assert view.following


@pytest.mark.parametrize("view_name", ["text", "rounds", "tree"])
async def test_pages_are_turned_by_keys_in_every_view(view_name: str) -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(40, 12)) as pilot:
        pane.feed(run_steps("speculative", PIECES * 8))
        pane.view = view_name
        pane.focus()
        await pilot.pause()
        view = {"text": pane.token_view, "rounds": pane.rounds_view, "tree": pane.tree_view}[view_name]
        await until(pilot, lambda: view.scroll_y == view.max_scroll_y > view.size.height)
        await pilot.press("pageup")
        await until(pilot, lambda: view.scroll_y == view.max_scroll_y - view.size.height)
        await pilot.press("pagedown")
        await until(pilot, lambda: view.scroll_y == view.max_scroll_y)
        await pilot.press("home")
        await until(pilot, lambda: view.scroll_y == 0)


async def test_a_pane_too_low_for_a_status_line_has_it_in_its_border() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(60, 5)) as pilot:
        pane.feed(run_steps("speculative", PIECES))
        pane.checked(Lossless(LosslessStatus.IDENTICAL))
        await pilot.pause()
        assert "identical to target" in str(pane.border_subtitle)
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert pane.border_subtitle is None
        assert "identical to target" in status(pane)


async def test_a_pane_survives_every_size() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(80, 24)) as pilot:
        steps = run_steps("speculative", PIECES * 3, insight=True)
        for index, size in enumerate([(1, 1), (2, 3), (300, 100), (5, 40), (40, 2), (80, 24)]):
            await pilot.resize_terminal(*size)
            pane.view = following_view(pane.view)
            pane.feed(steps[index * 20 : index * 20 + 20])
            await pilot.pause()
        assert pane.plain_text == pane.token_view.layout_text.text.removesuffix("")


async def test_a_pane_can_be_fed_before_it_is_on_the_screen() -> None:
    pane = StrategyPane(2, "speculative")
    pane.begin(9)
    pane.feed(run_steps("speculative", PIECES))
    pane.note("early")
    async with HostApp(pane, columns="-one").run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "length reached" in status(pane)
        assert painted(pane.token_view)[0].strip().startswith("Speculative decoding")


def test_bars_reach_from_the_lowest_to_the_highest() -> None:
    assert sparkline([1, 3, 5], 5) == "▂▅█"
    assert sparkline([0, 9], 5) == "▁█"
    assert sparkline([], 5) == ""


@pytest.mark.parametrize("width", [40, 50, 60])
async def test_a_stopped_run_says_so_in_a_narrow_pane_with_its_verdict(width: int) -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(width, 20)) as pilot:
        pane.feed(run_steps("speculative", PIECES, end=RunEnded(EndReason.CANCELLED)))
        pane.checked(Lossless(LosslessStatus.IDENTICAL))
        await pilot.pause()
        assert "stopped · ✓ identical to target" in status(pane)


@pytest.mark.parametrize(("width", "words"), [(80, "a search over whole texts"), (60, "a search over whole texts")])
@pytest.mark.parametrize("reason", [EndReason.CANCELLED, EndReason.LENGTH])
async def test_a_long_reason_leaves_room_for_how_many_tokens_there_are(
    width: int, words: str, reason: EndReason
) -> None:
    pane = StrategyPane(6, "beam")
    async with HostApp(pane, columns="-one").run_test(size=(width, 20)) as pilot:
        pane.feed(run_steps("beam", PIECES, end=RunEnded(reason)))
        pane.checked(Lossless(LosslessStatus.NOT_APPLICABLE, detail=f"{words}, not the target's greedy text"))
        await pilot.pause()
        stopped = "stopped · " * (reason is EndReason.CANCELLED)
        assert re.match(rf"\d+/\d+ tokens · {stopped}{words}", status(pane))


def test_a_reason_loses_words_before_the_tokens_go_and_a_verdict_does_not() -> None:
    count = [("124/128", ""), (" tokens", QUIET)]
    why = [("stopped", QUIET), (" · ", QUIET), ("the drafter's own text, not the target's", QUIET)]

    def line(width: int) -> str:
        return "".join(text for text, _ in status_line([count, why], width, 1))

    assert line(80) == "124/128 tokens · stopped · the drafter's own text, not the target's"
    assert line(58) == "124/128 tokens · stopped · the drafter's own text"
    assert line(44) == "124/128 tokens · stopped · the drafter's…"
    assert line(34) == "124/128 tokens · stopped"
    good = [count, [("stopped · ", QUIET), ("✓ identical to target", GOOD)]]
    assert "".join(text for text, _ in status_line(good, 40, 1)) == "stopped · ✓ identical to target"


@pytest.mark.parametrize("batch", [1, 100])
async def test_what_an_unfinished_character_owes_at_the_end_is_shown_with_the_last_token(batch: int) -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(80, 20)) as pilot:
        last = Token(8, Status.SAMPLED, 0)
        steps = [
            Step("speculative", PrefillDone(last, 0.1), ("ab",)),
            Step("speculative", RunEnded(EndReason.LENGTH), ("\ufffd",)),
        ]
        for at in range(0, len(steps), batch):
            pane.feed(steps[at : at + batch])
        await pilot.pause()
        assert pane.plain_text == pane.token_view.layout_text.text == "ab\ufffd"
        assert pane.token_view.token_at(0, 2) is last


@pytest.mark.parametrize("width", range(20, 90))
def test_a_slow_run_is_called_slower_at_any_width(width: int) -> None:
    target, slow = RunFigures(), RunFigures()
    for figures, seconds in ((target, 0.02), (slow, 0.0213)):
        figures.add(RunStarted("x", 3, 4, 99))
        drafts = () if figures is target else (Token(1, Status.REJECTED, 1),)
        figures.add(RoundVerified(0, drafts, Token(2, Status.SAMPLED, 1), 0.0, seconds, 0.0))
    line = figure_lines(slow, target, False, width).plain
    assert cell_len(line) <= max(width, 10)
    assert "0.94×, slower" in line or width < 25


async def test_a_run_with_more_notices_than_a_pane_has_room_for_shows_some_and_counts_the_others() -> None:
    pane = StrategyPane(1, "target")
    async with HostApp(pane, columns="-one").run_test(size=(100, 20)) as pilot:
        pane.begin(8)
        shows = []
        show = pane._notes._show
        pane._notes._show = lambda: (shows.append(1), show())  # type: ignore[method-assign]
        pane.feed([Step("target", Notice(f"notice {i % 40}")) for i in range(10_000)])
        assert len(shows) == 1  # one painting, however many
        await pilot.pause()
        shown = [line.strip() for line in painted(pane.query_one(".notes"))]
        assert shown == [*(f"notice {i}" for i in range(4)), "… and 36 more: exports hold them all"]


async def test_why_a_run_failed_stands_before_its_notices() -> None:
    pane = StrategyPane(1, "target")
    async with HostApp(pane, columns="-one").run_test(size=(100, 20)) as pilot:
        pane.begin(8)
        pane.feed([Step("target", Notice(f"asked again, {i}")) for i in range(9)])
        pane.feed([Step("target", RunEnded(EndReason.ERROR, "the server is gone"))])
        await pilot.pause()
        shown = [line.strip() for line in painted(pane.query_one(".notes"))]
        assert shown[:2] == ["the server is gone", "asked again, 0"] and "more: exports hold them all" in shown[-1]


@pytest.mark.parametrize(("size", "rows"), [((40, 6), 1), ((40, 20), 5), ((60, 20), 5), ((100, 20), 5)])
async def test_a_notice_that_has_no_room_ends_in_a_mark_after_a_whole_word(size: tuple[int, int], rows: int) -> None:
    """`a step is 4 passes here, one for` stood there, at 40 columns."""
    pane = StrategyPane(6, "beam")
    async with HostApp(pane, columns="-one").run_test(size=size) as pilot:
        said = "a step is 4 passes here, one for each beam: this pass reads one text at a time"
        for count in range(1, 9):
            text = " ".join([said] * count)
            pane.begin(8)
            pane.feed([Step("beam", Notice(text))])
            await pilot.pause()
            shown = [line.strip() for line in painted(pane.query_one(".notes"))]
            told = " ".join(shown)
            assert (len(shown) <= rows and told == text) or (told.endswith("…") and len(shown) == rows), told
            assert f"{text} ".startswith(f"{told.removesuffix('…')} ")
