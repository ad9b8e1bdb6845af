"""A row per round."""

from __future__ import annotations

from widget_data import HostApp, painted, run_steps, strips_of, words_of

from specdec_tui.decoding.records import DraftsProposed, Insight, PrefillDone, RoundVerified, Status, Token
from specdec_tui.tui.tokens.round_lines import RoundLines
from specdec_tui.tui.tokens.rounds_view import RoundsView
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
        assert ("·the", styles[Status.ACCEPTED]) in segments
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


async def test_insight_shows_probabilities_and_entropies_of_each_token() -> None:
    seen = Insight(1.5, 0.25)
    token = Token(1, Status.ACCEPTED, 0, 0.75, 0.5, 1.0, None, seen)
    lines = RoundLines(RoundVerified(0, (token,), None, 0.1, 0.1, 0.1), (" word",)).lines(80)
    assert len(lines) == 2
    text = "".join(run for run, *_ in lines[1])
    assert text.split() == ["✓·word", "p", "0.750", "q", "0.500", "H", "1.50", "Hq", "0.25", "accept", "1.000"]


async def test_numbers_of_insight_are_left_out_whole_where_they_do_not_fit() -> None:
    token = Token(1, Status.ACCEPTED, 0, 0.75, 0.5, 0.931, None, Insight(1.5, 0.25))
    for width in range(1, 120):
        line = RoundLines(RoundVerified(0, (token,), None, 0.1, 0.1, 0.1), (" word",)).lines(width)[-1]
        text = "".join(run for run, *_ in line)
        numbers = text.split("·word")[-1].split()[1::2]
        assert set(numbers) <= {"0.75", "0.50", "0.750", "0.500", "1.50", "0.25", "0.93", "0.931"}
        assert width < 24 or len(text) <= width


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
        original = RoundLines.lines

        def counted(self: RoundLines, width: int):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += 1
            return original(self, width)

        monkeypatch.setattr(RoundLines, "lines", counted)
        for _ in range(3000):
            view.add(VERDICT, TEXTS)
            view.sync()
        assert calls == 3000
        strips_of(view)
        assert calls <= 3000 + view.size.height


async def test_a_monstrous_token_is_clipped_here() -> None:
    lines = RoundLines(VERDICT, ("x" * 50_000, "\x1b[31m", "世" * 100, "")).lines(60)
    text = "".join(run for line in lines for run, *_ in line)
    assert len(text) < 400
    assert "␛[31m" in text
    assert "↻∅" in text
