"""A row per round."""

from __future__ import annotations

import pytest
from widget_data import HostApp, painted, run_steps, strips_of, words_of

from specdec_tui.decoding.records import DraftsProposed, Insight, PrefillDone, RoundVerified, Status, Token
from specdec_tui.tui.tokens.round_lines import round_lines
from specdec_tui.tui.tokens.rounds_view import RoundsView
from specdec_tui.tui.tokens.run_log import Row
from specdec_tui.tui.tokens.style import token_styles

DRAFTS = (Token(1, Status.ACCEPTED, 1), Token(2, Status.REJECTED, 2), Token(3, Status.UNVERIFIED, 3))
VERDICT = RoundVerified(0, DRAFTS, Token(4, Status.RESAMPLED, 2), 0.004, 0.030, 0.0002)
TEXTS = (" the", "\n", "\tfox", " red")


async def test_a_round_shows_its_number_what_was_kept_its_time_and_every_token() -> None:
    view = RoundsView()
    async with HostApp(view, columns="-one").run_test(size=(80, 8)):
        view.add(VERDICT, TEXTS)
        view.sync()
        assert painted(view)[0] == "   1   1/3   34.2 ms  ✓·the ✗↵ ○⇥fox ↻·red"
        styles = token_styles(view)
        segments = [(segment.text, segment.style) for segment in view.render_line(0)]
        assert ("the", styles[Status.ACCEPTED]) in segments
        assert ("↵", styles[Status.REJECTED]) in segments
        assert styles[Status.REJECTED].strike


async def test_pending_drafts_stand_grey_until_the_verdict_takes_their_row() -> None:
    view = RoundsView()
    async with HostApp(view, columns="-one").run_test(size=(80, 8)):
        view.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.21), ("Hi",))
        waiting = tuple(Token(d.id, Status.PENDING, d.position) for d in DRAFTS)
        view.add(DraftsProposed(0, waiting), TEXTS[:3])
        view.sync()
        assert painted(view)[:2] == [" pre          210 ms  ›Hi", "   1   ?/3      … ms  ?·the ?↵ ?⇥fox"]
        view.add(VERDICT, TEXTS)
        view.sync()
        assert painted(view)[1].endswith("✓·the ✗↵ ○⇥fox ↻·red")
        assert painted(view)[2] == ""


async def test_drafts_that_nobody_will_judge_leave_with_the_run() -> None:
    view = RoundsView()
    async with HostApp(view, columns="-one").run_test(size=(80, 8)):
        view.add(VERDICT, TEXTS)
        view.add(DraftsProposed(1, DRAFTS), TEXTS[:3])
        view.sync()
        view.drop_pending()
        view.sync()
        assert view.line_count == 1


async def test_a_narrow_view_wraps_the_tokens_and_loses_none() -> None:
    view = RoundsView()
    async with HostApp(view, columns="-one").run_test(size=(40, 20)) as pilot:
        steps = run_steps("speculative", words_of("one two three four five six seven eight nine ten"))
        for step in steps[1:-1]:
            view.add(step.record, step.texts)  # type: ignore[arg-type]
        view.sync()
        drawn = "".join("".join(s.text for s in view.line_segments(i)) for i in range(view.line_count))
        for row in view.rows:
            for text in row.texts:
                assert text.replace(" ", "·") in drawn
        for width in (1, 10, 200):
            await pilot.resize_terminal(width, 20)
            await pilot.pause()
            assert view.line_count >= len(view.rows)


def sampled_round() -> Row:
    """Two drafts kept, one refused, and what was drawn in its place, all with insight."""
    drafts = (
        Token(1, Status.ACCEPTED, 0, 0.75, 0.5, 1.0, 0.314, Insight(1.5, 0.25)),
        Token(2, Status.ACCEPTED, 1, 0.2, 0.25, 0.8, 0.796, Insight(1.5, 0.25)),
        Token(3, Status.REJECTED, 2, 0.012, 0.1, 0.12, 0.831, Insight(2.5, 1.25)),
    )
    last = Token(4, Status.RESAMPLED, 2, 0.5, insight=Insight(2.5))
    return Row(RoundVerified(0, drafts, last, 0.1, 0.1, 0.1), (" the", " quick", " brown", " red"))


def greedy_round() -> Row:
    drafts = (
        Token(1, Status.ACCEPTED, 0, 1.0, 1.0, 1.0, None, Insight(1.5, 0.25)),
        Token(3, Status.REJECTED, 2, 0.0, 1.0, 0.0, None, Insight(2.5, 1.25)),
    )
    last = Token(4, Status.RESAMPLED, 2, 1.0, insight=Insight(2.5))
    return Row(RoundVerified(0, drafts, last, 0.1, 0.1, 0.1), (" the", " brown", " red"))


def drawn(row: Row, width: int, *, in_rows: bool = False) -> list[str]:
    return ["".join(run.text for run in line) for line in round_lines(row, width, in_rows=in_rows)]


def test_insight_tells_the_chance_and_the_draw_first_then_p_and_q_and_entropies_last() -> None:
    _, first, *_, last = drawn(sampled_round(), 100, in_rows=True)
    numbers = "accept 1  coin 0.314  p 0.750  q 0.500  H 1.50  Hq 0.25"
    assert first.split("✓·the")[1].strip() == numbers
    assert last.split("↻·red")[1].strip() == "p 0.500  H 2.50"


@pytest.mark.parametrize("in_rows", [True, False])
@pytest.mark.parametrize("width", [58, 80, 120, 200])
def test_chance_and_draw_are_there_at_every_width(width: int, in_rows: bool) -> None:
    shown = "\n".join(drawn(sampled_round(), width, in_rows=in_rows))
    if in_rows and width < 200:  # where there is room for everything in one line, it is there
        assert all(f"coin {coin}" in shown for coin in ("0.31", "0.79", "0.83"))
        assert all(f"accept {chance}" in shown for chance in ("1", "0.8", "0.12"))
    else:
        assert all(odds in shown for odds in ("✓·the[.31<1", "✓·quick[.796<.800", "✗·brown[.83≥.12"))


def test_what_has_no_room_drops_from_the_end_whole() -> None:
    order = ["accept", "coin", "p", "q", "H", "Hq"]
    values = {"1", "0.31", "0.75", "0.50", "1.50", "0.25", "0.314", "0.750", "0.500"}
    for width in range(1, 130):
        line = drawn(sampled_round(), width, in_rows=True)[-4]
        names, numbers = line.split("·the")[-1].split()[::2], line.split("·the")[-1].split()[1::2]
        assert names == order[: len(names)] and len(names) == len(numbers)
        assert set(numbers) <= values
        assert width < 24 or len(line) <= width


def test_figures_in_a_line_take_no_line_of_their_own() -> None:
    plain = Row(VERDICT, TEXTS)
    for width in (80, 120, 200):
        assert len(drawn(sampled_round(), width)) == len(drawn(plain, width)) == 1
    assert len(drawn(sampled_round(), 58)) == 2
    assert drawn(sampled_round(), 200) == [
        "   1   2/3  300.0 ms  ✓·the[.31<1 p=.75 q=.50 H=1.5 Hq=0.2] ✓·quick[.796<.800 p=.20 q=.25 H=1.5 Hq=0.2] "
        "✗·brown[.83≥.12 p=.01 q=.10 H=2.5 Hq=1.2] ↻·red[p=.50 H=2.5]"
    ]
    assert all(len(line) <= width for width in range(40, 220) for line in drawn(sampled_round(), width))


def test_no_figure_takes_the_place_of_a_chance_and_its_draw() -> None:
    long = sampled_round()
    for text in (" non", " quite-a-long-token-that-fills-the-line", "世界" * 20):
        row = Row(long.record, (text, text, text, text))
        for width in range(34, 220):
            shown = "".join(drawn(row, width))
            assert all(odds in shown for odds in (".31<1", ".796<.800", ".83≥.12")), width


def test_a_small_chance_is_not_rounded_to_none_nor_a_great_one_to_certainty() -> None:
    def odds_of(chance: float, draw: float) -> str:
        token = Token(1, Status.REJECTED, 0, 0.0002, 0.9999, chance, draw, Insight(1.5, 0.25))
        row = Row(RoundVerified(0, (token,), None, 0.1, 0.1, 0.1), (" a",))
        assert "p=2e-4 q>.99" in drawn(row, 200)[0]
        return drawn(row, 200)[0].split("·a[")[1].split()[0]

    assert odds_of(0.0021, 0.34) == ".34≥.002"
    assert odds_of(1.3e-7, 0.34) == ".34≥1e-7"
    assert odds_of(0.997, 0.998) == ".998≥.997"


def test_what_fits_into_one_line_has_no_row_for_each_token() -> None:
    token = Token(1, Status.SAMPLED, 0, 0.75, insight=Insight(1.5))
    row = Row(RoundVerified(0, (), token, 0.1, 0.1, 0.1), (" a",))
    assert drawn(row, 60, in_rows=True) == ["   1        300.0 ms  ›·a[p=.75 H=1.5]"]
    assert len(drawn(sampled_round(), 200, in_rows=True)) == 1


def test_of_a_greedy_round_entropies_are_called_raw_as_p_and_q_are_not() -> None:
    rows = drawn(greedy_round(), 80, in_rows=True)
    assert rows[1].endswith("accept 1  p 1  q 1  raw H 1.50  raw Hq 0.25")
    assert "✓·the[p=1 q=1 raw H=1.5 raw Hq=0.2] ✗·brown[p=0 q=1 raw H=2.5" in drawn(greedy_round(), 200)[0]
    assert not any("raw" in line for line in drawn(sampled_round(), 200))


@pytest.mark.parametrize("in_rows", [False, True])
def test_a_draft_that_was_never_judged_has_no_chance_to_be_accepted(in_rows: bool) -> None:
    seen = Insight(1.0, 1.0, ((1, 0.5),), ((1, 0.5),))
    never = Token(3, Status.UNVERIFIED, 3, 0.7, 0.6, 0.97, None, seen)
    tested = Token(3, Status.UNVERIFIED, 3, 0.7, 0.6, 0.97, 0.98, seen)  # under the block rule
    texts = [
        "\n".join(
            drawn(Row(RoundVerified(0, (DRAFTS[1], token), VERDICT.emitted, 0, 0, 0), TEXTS), 140, in_rows=in_rows)
        )
        for token in (never, tested)
    ]
    assert [".97" in text for text in texts] == [False, True]
    assert all(".7" in text and ".6" in text for text in texts)


async def test_a_low_view_shows_several_rounds_where_a_high_one_has_a_row_for_each_token() -> None:
    view = RoundsView()
    async with HostApp(view, columns="-one").run_test(size=(80, 9)) as pilot:
        for _ in range(20):
            view.add(sampled_round().record, sampled_round().texts)
        view.sync()
        assert sum("2/3" in line for line in painted(view)) >= 8
        assert view.caption == "rounds · coin<accept: kept", "what stands there"
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert view.line_count == 20 * 5
        assert any("accept 0.120  coin 0.831" in line for line in painted(view))
        assert view.caption == "rounds · coin<accept: kept · p target · q drafter · H entropy, nats"
        await pilot.resize_terminal(80, 9)
        await pilot.pause()
        assert view.line_count == 20


async def test_the_mark_of_a_blank_is_quieter_than_the_letters_and_a_strike_spares_the_glyph() -> None:
    view = RoundsView()
    async with HostApp(view, columns="-one").run_test(size=(80, 8)):
        view.add(RoundVerified(0, (Token(1, Status.REJECTED, 1),), None, 0.1, 0.1, 0.1), (" brown",))
        view.sync()
        styles = {segment.text: segment.style for segment in view.line_segments(0)}
        glyph, blank, letters = styles["✗"], styles["·"], styles["brown"]
        assert glyph and blank and letters
        assert letters.strike and not glyph.strike and not blank.strike
        assert glyph.color == letters.color != blank.color


async def test_rows_are_not_laid_out_while_the_view_is_hidden() -> None:
    view = RoundsView()
    async with HostApp(view, columns="-one").run_test(size=(80, 8)) as pilot:
        view.display = False
        await pilot.pause()
        for _ in range(100):
            view.add(VERDICT, TEXTS)
            view.sync()
        assert view.line_count == 0
        view.display = True
        await pilot.pause()
        assert view.line_count == 100
        assert painted(view)[-1] != ""


async def test_thousands_of_rounds_lay_out_only_what_is_new(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    view = RoundsView()
    async with HostApp(view, columns="-one").run_test(size=(80, 8)):
        calls = 0

        def counted(row: Row, width: int, *, in_rows: bool):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += 1
            return round_lines(row, width, in_rows=in_rows)

        monkeypatch.setattr("specdec_tui.tui.tokens.round_lines.round_lines", counted)
        for _ in range(3000):
            view.add(VERDICT, TEXTS)
            view.sync()
        assert calls == 3000
        strips_of(view)
        assert calls <= 3000 + view.size.height


async def test_a_monstrous_token_is_clipped_here() -> None:
    lines = round_lines(Row(VERDICT, ("x" * 50_000, "\x1b[31m", "世" * 100, "")), 60)
    text = "".join(run for line in lines for run, *_ in line)
    assert len(text) < 400
    assert "␛[31m" in text
    assert "↻∅" in text
