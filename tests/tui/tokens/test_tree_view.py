"""A branch per round."""

from __future__ import annotations

import pytest
from contrast import contrast
from rich.cells import cell_len
from rich.style import Style
from shell import until
from textual.color import Color
from widget_data import HostApp, painted, run_steps, strips_of, words_of

from specdec_tui.decoding.records import Beam, DraftsProposed, Insight, PrefillDone, RoundVerified, Status, Token
from specdec_tui.tui.app.themes import THEMES
from specdec_tui.tui.tokens import tree_view
from specdec_tui.tui.tokens.run_log import Place, Row
from specdec_tui.tui.tokens.tree_lines import entropy_bar, strength_of, tree_lines
from specdec_tui.tui.tokens.tree_view import TreeView

DRAFTS = (
    Token(1, Status.ACCEPTED, 1),
    Token(2, Status.ACCEPTED, 2),
    Token(3, Status.REJECTED, 3),
    Token(4, Status.UNVERIFIED, 4),
)
VERDICT = RoundVerified(0, DRAFTS, Token(5, Status.RESAMPLED, 3), 0.004, 0.030, 0.0002)
TEXTS = (" the", " quick", " brown", " fox", " red")


def drawn(row: Row, width: int = 60) -> list[str]:
    return ["".join(run.text for run in line) for line in tree_lines(row, width)]


def test_a_rejection_forks_into_the_refused_drafts_and_the_correction_that_goes_on() -> None:
    assert drawn(Row(VERDICT, TEXTS)) == [
        "   1 ├─✓·the─✓·quick─┬─↻·red",
        "     │               └╌✗·brown╌○·fox",
    ]


def test_a_first_draft_refused_forks_at_the_trunk() -> None:
    drafts = (Token(1, Status.REJECTED, 1), Token(2, Status.UNVERIFIED, 2))
    row = Row(RoundVerified(8, drafts, Token(3, Status.RESAMPLED, 1), 0.1, 0.1, 0.1), (" a", " b", " c"))
    assert drawn(row) == ["   9 ├┬─↻·c", "     │└╌✗·a╌○·b"]


def test_full_acceptance_goes_on_with_the_bonus_token() -> None:
    row = Row(RoundVerified(1, DRAFTS[:2], Token(3, Status.BONUS, 3), 0.1, 0.1, 0.1), (" a", "\n", " c"))
    assert drawn(row) == ["   2 ├─✓·a─✓↵─+·c"]


def test_prefill_plain_rounds_and_pending_drafts_have_one_line() -> None:
    assert drawn(Row(PrefillDone(Token(0, Status.SAMPLED, 0), 0.2), ("Hi",))) == [" pre ├─›Hi"]
    assert drawn(Row(PrefillDone(None, 0.2), ())) == [" pre ├"]
    waiting = tuple(Token(d.id, Status.PENDING, d.position) for d in DRAFTS[:2])
    assert drawn(Row(DraftsProposed(3, waiting), (" a", " b"))) == ["   4 ├╌?·a╌?·b"]


def test_the_texts_of_a_search_hang_below_what_is_settled_the_best_first() -> None:
    beams = (Beam((7, 8), -0.5), Beam((9,), -0.75, before=3), Beam((7, 5), -1.25, ended=True))
    names = {7: " red", 8: " fox", 9: "\n"}
    told = ["╌ -0.50 ·red·fox", "     ├╌ -0.75 +3 ↵", "     └╌ -1.25 ·red#5 ended"]
    settled = (Token(3, Status.SAMPLED, 4),)
    row = Row(RoundVerified(8, (), None, 0.0, 0.1, 0.1, settled, beams), (" the",))
    lines = ["".join(run.text for run in line) for line in tree_lines(row, 60, names)]
    assert lines == ["   9 ├─›·the", "     ├" + told[0], *told[1:]]
    row = Row(RoundVerified(8, (), None, 0.0, 0.1, 0.1, (), beams), ())
    lines = ["".join(run.text for run in line) for line in tree_lines(row, 60, names)]
    assert lines == ["   9 ├" + told[0], *told[1:]]


@pytest.mark.parametrize("width", [16, 20, 26, 40])
def test_a_beam_has_one_line_that_tells_its_end_whatever_the_width(width: int) -> None:
    beam = Beam(tuple(range(12)), -0.123, before=100, ended=True)
    row = Row(RoundVerified(8, (), None, 0.0, 0.1, 0.1, (), (beam,) * 12), ())
    lines = ["".join(run.text for run in line) for line in tree_lines(row, width, {n: f" w{n}" for n in range(12)})]
    assert len(lines) == 9 and lines[-1] == "     └╌ and 4 more"
    assert all(cell_len(line) <= width for line in lines[:-1])
    assert width < 30 or all("·w11 ended" in line for line in lines[:-1])


def test_where_the_fork_has_no_room_it_begins_a_line() -> None:
    assert drawn(Row(VERDICT, TEXTS), 30) == [
        "   1 ├─✓·the─✓·quick",
        "     │╰┬─↻·red",
        "     │ └╌✗·brown╌○·fox",
    ]


def test_whatever_goes_on_in_a_new_line_hangs_from_an_elbow() -> None:
    drafts = (*DRAFTS[:3], Token(4, Status.UNVERIFIED, 4), Token(6, Status.UNVERIFIED, 5))
    row = Row(RoundVerified(0, drafts, VERDICT.emitted, 0.1, 0.1, 0.1), (*TEXTS[:4], " jumps", " red"))
    assert drawn(row, 19) == [
        "   1 ├─✓·the",
        "     │╰─✓·quick",
        "     │╰┬─↻·red",
        "     │ └╌✗·brown",
        "     │  ╰○·fox",
        "     │  ╰○·jumps",
    ]


@pytest.mark.parametrize("width", range(12, 100))
def test_every_token_is_there_at_any_width_and_no_line_is_too_wide(width: int) -> None:
    row = Row(VERDICT, (" a", "世界", " brown" * 9, " fox", ""))
    lines = tree_lines(row, width)
    assert {run.token for line in lines for run in line} - {None} == set(range(5))
    assert all(cell_len("".join(run.text for run in line)) <= width for line in lines)


def test_a_bar_tells_the_targets_entropy_and_strength_the_chance_to_be_accepted() -> None:
    def token(entropy: float | None, acceptance: float | None, status: Status = Status.ACCEPTED) -> Token:
        return Token(1, status, 0, acceptance=acceptance, insight=Insight(entropy))

    assert [entropy_bar(token(e, None)) for e in (None, 0.0, 0.9, 3.1, 99.0)] == ["", "▁", "▂", "▅", "█"]
    assert [strength_of(token(0, a)) for a in (None, 0.1, 0.5, 0.95)] == [0, -1, 0, 1]
    assert strength_of(token(0, 0.1, Status.UNVERIFIED)) == 0
    row = Row(RoundVerified(0, (token(3.1, 1.0),), None, 0.1, 0.1, 0.1), (" a",))
    assert drawn(row) == ["   1 ├─✓▅·a"]


def faint_and_strong() -> Row:
    drafts = tuple(Token(i, Status.ACCEPTED, i, acceptance=a) for i, a in enumerate((0.95, 0.5, 0.1)))
    return Row(RoundVerified(0, (*drafts, DRAFTS[2]), VERDICT.emitted, 0.1, 0.1, 0.1), TEXTS)


def letters(view: TreeView) -> list[Style | None]:
    return [segment.style for segment in view.line_segments(0) if segment.text in ("the", "quick", "brown")]


async def test_the_strike_of_a_refused_draft_crosses_neither_its_glyph_nor_its_bar() -> None:
    view = TreeView()
    async with HostApp(view, columns="-one").run_test(size=(60, 8)):
        drafts = (Token(1, Status.REJECTED, 0, insight=Insight(3.1)),)
        view.add(RoundVerified(0, drafts, Token(2, Status.RESAMPLED, 0), 0.1, 0.1, 0.1), (" brown", " red"))
        view.sync()
        struck = [s.text for line in (0, 1) for s in view.line_segments(line) if s.style and s.style.strike]
        assert struck == ["brown"]
        assert "✗▅" in [segment.text for segment in view.line_segments(1)]


@pytest.mark.parametrize(("p", "word"), [(0.5, "entropy"), (1.0, "raw entropy")], ids=["sampling", "greedy"])
async def test_the_caption_says_what_the_bars_are(p: float, word: str) -> None:
    view = TreeView()
    async with HostApp(view, columns="-one").run_test(size=(60, 8)):
        assert view.caption == "tree"
        view.add(PrefillDone(Token(0, Status.SAMPLED, 0, p=p, insight=Insight(1.2)), 0.2), ("Hi",))
        assert view.caption == f"tree · ▁▅█ {word} of the target"


@pytest.mark.parametrize("theme", [theme.name for theme in THEMES])
async def test_what_is_faint_can_still_be_read_in_every_theme(theme: str) -> None:
    view = TreeView()
    async with HostApp(view, columns="-one", theme=theme).run_test(size=(60, 8)):
        row = faint_and_strong()
        view.add(row.record, row.texts)
        view.sync()
        styles = letters(view)
        assert len({str(style) for style in styles}) == 3
        for style in styles:
            assert style is not None and style.color is not None and style.bgcolor is not None
            assert contrast(Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)) >= 3.0


async def test_without_colours_the_steps_are_bold_plain_and_dim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    view = TreeView()
    async with HostApp(view, columns="-one", ansi_color=True).run_test(size=(60, 8)):
        row = faint_and_strong()
        view.add(row.record, row.texts)
        view.sync()
        styles = letters(view)
        assert [(style.bold, style.dim) for style in styles if style] == [(True, None), (None, None), (None, True)]


async def test_the_marked_token_is_reversed_and_a_cell_leads_back_to_its_token() -> None:
    view = TreeView()
    async with HostApp(view, columns="-one").run_test(size=(60, 8)):
        view.add(VERDICT, TEXTS)
        view.sync()
        view.point(Place(0, 3))
        marked = [segment.text for segment in view.render_line(1) if segment.style and segment.style.reverse]
        assert "".join(marked) == "○·fox"
        column = painted(view)[0].index("quick")
        assert view.place_at(0, column) == Place(0, 1)
        assert view.place_at(0, 0) is None and view.place_at(0, 59) is None and view.place_at(9, 0) is None
        view.point(None)
        assert not any(segment.style and segment.style.reverse for segment in view.render_line(1))


async def test_thousands_of_rounds_scroll_without_being_wrapped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    view = TreeView()
    async with HostApp(view, columns="-one").run_test(size=(80, 10)) as pilot:
        calls = 0

        def counted(*given):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += 1
            return tree_lines(*given)

        monkeypatch.setattr(tree_view, "tree_lines", counted)
        for _ in range(5000):
            view.add(VERDICT, TEXTS)
        view.sync()
        assert calls < 200  # what is in sight; the others are counted bit by bit
        await until(pilot, lambda: view.lines_at_rest == 10_000)
        assert calls < 5000 + 400 and view.line_count == view.lines_at_rest == 10_000
        calls = 5000
        for y in (0, 3000, 9000, 5000):
            view.scroll_to(y=y, animate=False)
            strips_of(view)
        await pilot.pause()
        assert calls < 5000 + 200
        view.point(Place(2500, 0))
        view.point(Place(2500, 4))
        assert calls < 5000 + 250


async def test_a_hidden_tree_only_takes_note(monkeypatch: pytest.MonkeyPatch) -> None:
    view = TreeView()
    async with HostApp(view, columns="-one").run_test(size=(80, 8)) as pilot:
        view.display = False
        await pilot.pause()
        monkeypatch.setattr(tree_view, "tree_lines", None)
        for step in run_steps("speculative", words_of("one two three four five six"))[1:-1]:
            view.add(step.record, step.texts)  # type: ignore[arg-type]
            view.sync()
        monkeypatch.undo()
        view.display = True
        await pilot.pause()
        assert "".join(painted(view)).count("├") == len(view.rows)


def test_refused_drafts_are_drawn_once_however_many_tokens_go_on_behind_them() -> None:
    for count in (2, 20, 2_000):
        fates = [Status.REJECTED] * count + [Status.ACCEPTED] * count
        tokens = tuple(Token(i, fate, i) for i, fate in enumerate(fates))
        row = Row(RoundVerified(0, tokens, None, 0.1, 0.1, 0.1), ("x",) * len(tokens))
        shown = [run.token for line in tree_lines(row, 60) for run in line if run.token is not None]
        assert len(set(shown)) == len(tokens) and len(shown) <= 2 * len(tokens)  # a sign and a text each


def test_refused_drafts_of_a_round_that_broke_off_are_drawn_too() -> None:
    row = Row(RoundVerified(0, DRAFTS[2:], None, 0.1, 0.1, 0.1), (" brown", " fox"))
    assert drawn(row) == ["   1 ├╌✗·brown╌○·fox"]
