"""The list of kept runs: what it shows of each, how it is filtered, what is done with one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.cells import cell_len
from scripted_engine import ScriptedEngine, info
from shell import ask, make_app, ready, until
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, OptionList, Static

from specdec_tui.decoding.records import Event
from specdec_tui.settings import Settings
from specdec_tui.traces.format import Trace, TraceHeader, new_header
from specdec_tui.traces.store import Entry, TraceStore
from specdec_tui.tui.screens.compare import CompareScreen, legend, rows
from specdec_tui.tui.screens.export import ExportScreen
from specdec_tui.tui.screens.history import HistoryScreen
from specdec_tui.tui.screens.history_rows import COLUMNS, best, clock, figures_line, matching, speed, table

FIGURES = {
    "speedup": 1.834,
    "acceptance_rate": 0.529,
    "new_tokens": 96,
    "finish_reason": "length",
    "reliability": {"word": "steady", "reason": "", "low": 1.8, "high": 1.9},
}


def entry(prompt: str = "Why is the sky blue?", **settings: object) -> Entry:
    from specdec_tui.traces.header import plain

    kept = plain(replace(Settings(), **settings))  # type: ignore[arg-type]
    header = TraceHeader(
        datetime(2026, 11, 28, 12, tzinfo=UTC).isoformat(),
        "0",
        prompt,
        {"target": {"finish_reason": "length"}, "speculative": FIGURES},
        settings=kept,
    )
    return Entry(Path(f"/kept/{prompt[:8]}.jsonl"), 1000, header)


def told(one: Entry, width: int) -> str:
    _, (line,) = table([one], [False], width)
    return str(line)


def test_a_wide_list_tells_settings_and_figures_of_a_run() -> None:
    line = told(entry(gamma=6, processor="nucleus", temperature=0.8, max_new_tokens=200), 160)
    assert "Why is the sky blue?" in line
    for words in ("6  ", "0.8  ", "200  ", "96  ", "0.53  ", "speculative 1.83×", "steady"):
        assert words in line, words


@pytest.mark.parametrize("width", [20, 40, 56, 76, 116, 196])
def test_columns_are_whole_and_lines_as_wide_as_the_room(width: int) -> None:
    heading, lines = table([entry(), entry("世界 " * 30), entry("x", gamma=12)], [False, True, False], width)
    titles = [*(column.title for column in COLUMNS), "len"]
    assert all(word in titles for word in str(heading).split())
    assert {cell_len(str(line)) for line in lines} == {cell_len(str(heading))} and cell_len(str(heading)) <= width
    if width >= 56:
        assert "1.83×" in str(lines[0])


def test_80_columns_have_room_for_every_setting_and_figure_and_the_prompt_for_what_remains() -> None:
    run = entry("Why is the sky blue in the morning?", max_new_tokens=128)
    assert run.header is not None
    shaken = {"word": "disturbed", "reason": "because", "low": 0.94, "high": 1.71}
    disturbed = replace(run.header, strategies={"speculative": {**FIGURES, "reliability": shaken}})
    heading, lines = table([run, replace(run, header=disturbed)], [False, False], 72)
    assert str(heading).split() == ["when", "prompt", "γ", "T", "len", "α", "speedup", "clock"]
    assert [str(line).split()[-7:] for line in lines] == [
        ["4", "0", "128", "0.53", "spec.", "1.83×", "steady"],
        ["4", "0", "128", "0.53", "spec.", "0.94–1.71×", "disturbed"],
    ]
    assert all("Why is" in str(line) for line in lines)


def borrowed(one: Entry, **figures: object) -> TraceHeader:
    assert one.header is not None
    earlier = "2026-11-27T12:00:00+00:00"
    return replace(one.header, strategies={"speculative": {**FIGURES, "baseline_created": earlier, **figures}})


def test_80_columns_have_room_for_all_of_it_whatever_one_of_the_runs_has_to_tell() -> None:
    """One row with a long word took T and the length from all rows."""
    plain, wide = entry("Why is the sky blue?"), entry("Another", gamma=16, processor="nucleus", temperature=1 / 3)
    assert plain.header is not None and wide.header is not None
    shaken = {"word": "disturbed", "reason": "because", "low": 10.94, "high": 11.71}
    rest = {name: {**FIGURES, "reliability": shaken, "marks": "†‡"} for name in ("speculative", "drafter", "ngram")}
    others = {
        "over an earlier run": borrowed(plain),
        "too short, over an earlier run": borrowed(wide, reliability={"word": "short", "reason": ""}),
        "without speedups": replace(plain.header, strategies={name: {} for name in ("target", *rest, "lookup")}),
        "disturbed, marked": replace(wide.header, strategies=rest | {"lookup": FIGURES, "target": {}}),
    }
    for what, header in others.items():
        heading, lines = table([plain, replace(plain, header=header)], [False, False], 72)
        assert {"when", "prompt", "γ", "T", "len", "α", "speedup", "clock"} <= {*str(heading).split()}, what
        assert all(cell_len(str(line)) == 72 for line in (heading, *lines)), what
    _, lines = table([plain, replace(plain, header=others["over an earlier run"])], [False, False], 72)
    assert "speculative 1.83×*" in str(lines[1]) and "Why is" in str(lines[1])
    assert "1.83×* · * over an earlier run of target" in str(figures_line(others["over an earlier run"]))
    assert "speculative 1.83× vs. earlier" in told(replace(plain, header=others["over an earlier run"]), 160)


def test_a_disturbed_run_tells_an_interval_and_no_bare_ratio() -> None:
    one = entry()
    assert one.header is not None
    shaken = {"word": "disturbed", "reason": "because", "low": 0.94, "high": 1.71}
    disturbed = replace(one.header, strategies={"speculative": {**FIGURES, "reliability": shaken}})
    line = told(replace(one, header=disturbed), 160)
    assert "speculative 0.94–1.71×  disturbed" in line and "1.83" not in line
    others = {"unknown": {**shaken, "low": None}, "old": None}
    runs = replace(one.header, strategies={name: {**FIGURES, "reliability": word} for name, word in others.items()})
    assert (speed(runs, "unknown"), speed(runs, "old"), speed(runs, "nobody")) == ("?", "1.83×", "–")


def test_a_run_kept_by_an_older_version_has_dashes() -> None:
    bare = Entry(Path("/kept/old.jsonl"), 10, TraceHeader("2026-01-01T00:00:00Z", "0", "old", {"target": {}}))
    assert "–" in told(bare, 160)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("γ 6", ["six"]),
        ("gamma 4", ["four", "warm"]),
        ("0.8", ["warm"]),
        ("SIX", ["six"]),
        ("nothing", []),
        ("steady warm", ["warm"]),
    ],
)
def test_any_words_filter(query: str, found: list[str]) -> None:
    entries = [entry("four"), entry("six", gamma=6), entry("warm", processor="multinomial", temperature=0.8)]
    assert [e.header.prompt for e in matching(entries, query) if e.header] == found


async def history(pilot: Pilot[int], runs: int) -> HistoryScreen:
    await pilot.press("escape", "H")
    await until(pilot, lambda: pilot.app.screen.query_one(OptionList).option_count == runs, "the list")
    assert isinstance(pilot.app.screen, HistoryScreen)
    return pilot.app.screen


async def test_a_slash_filters_and_escape_leads_out_step_by_step() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        for prompt in ("first prompt", "second prompt"):
            await ask(pilot, prompt)
            await until(pilot, lambda: not app.runs.running and not app.runs.waiting)
        await until(pilot, lambda: len(app.recordings.store.entries()) == 2)
        screen = await history(pilot, 2)
        await pilot.press("slash", *"first")
        options = screen.query_one(OptionList)
        await until(pilot, lambda: options.option_count == 1, "one row")
        assert str(screen.query_one("#history-prompt", Static).render()) == "first prompt"
        await pilot.press("escape")
        assert app.screen is screen and options.option_count == 2 and not screen.query_one(Input).display
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


async def test_a_kept_run_is_exported_from_the_list_without_being_shown(tmp_path: Path) -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await ask(pilot, "a prompt")
        await until(pilot, lambda: not app.runs.running and len(app.recordings.store.entries()) == 1)
        shown = app.recordings.trace
        await history(pilot, 1)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, ExportScreen), "the dialog")
        await pilot.press("escape")  # one step out: to the list
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen), "the list again")
        await until(pilot, lambda: app.screen.query_one(OptionList).option_count == 1, "its run")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, ExportScreen), "the dialog")
        assert "svg" not in str([str(o.prompt) for o in app.screen.query_one(OptionList).options])
        box = app.screen.query_one("#export-file", Input)
        box.value = str(tmp_path / "run.html")
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "run.html").exists(), "the file")
        assert app.recordings.trace is shown


def test_a_disturbed_strategy_is_not_called_fastest_where_another_was_steady() -> None:
    one = entry().header
    assert one is not None
    shaken = {**FIGURES, "speedup": 2.03, "reliability": {"word": "disturbed", "reason": "", "low": 0.9, "high": 2.03}}
    assert best(replace(one, strategies={"lookup": shaken, "speculative": FIGURES})) == "speculative 1.83×"
    assert best(replace(one, strategies={"lookup": shaken})) == "lookup 0.90–2.03×"


KINDS = {
    "steady": (1.4, "steady", 1.3, 1.5),
    "slow": (0.9, "steady", 0.85, 0.95),
    "disturbed": (2.9, "disturbed", 0.9, 2.0),
    "short": (1.9, "short", None, None),
}


def run_with(**strategies: str) -> Entry:
    """A kept run whose strategies stood as one of `KINDS`, or like one that had ended in an error: `steady!`."""
    one = entry("Why?", strategies=("target", *strategies))
    assert one.header is not None
    found = {
        "target": {**FIGURES, "speedup": 1.0, "reliability": {"word": "steady", "reason": "", "low": 1, "high": 1}}
    }
    for name, kind in strategies.items():
        ratio, word, low, high = KINDS[kind.strip("!")]
        reason = "" if word == "steady" else "passes took longer"
        found[name] = {
            **FIGURES,
            "speedup": ratio,
            "tokens_per_target_call": 2.0,
            "finish_reason": "error" if "!" in kind else "length",
            "reliability": {"word": word, "reason": reason, "low": low, "high": high},
        }
    return replace(one, header=replace(one.header, strategies=found))


@pytest.mark.parametrize(
    ("strategies", "figure", "clock", "short"),
    [
        (
            {"speculative": "steady", "ngram": "disturbed", "lookup": "slow"},
            "speculative 1.40×",
            "1 of 3 disturbed",
            "1 disturbed",
        ),
        (
            {"speculative": "disturbed", "ngram": "disturbed", "lookup": "slow"},
            "lookup 0.90×",
            "2 of 3 disturbed",
            "2 disturbed",
        ),
        ({"speculative": "slow", "lookup": "short"}, "speculative 0.90×", "1 of 2 short", "1 short"),
        ({"ngram": "disturbed", "lookup": "short"}, "lookup ~1.90×", "1 of 2 disturbed, 1 of 2 short", "1 disturbed"),
        ({"ngram": "disturbed", "lookup": "disturbed"}, "ngram 0.90–2.00×", "disturbed", "disturbed"),
        ({"speculative": "slow", "lookup": "steady!"}, "speculative 0.90×", "steady", "steady"),
        ({"drafter": "steady", "speculative": "slow"}, "speculative 0.90×", "steady", "steady"),
    ],
)
def test_a_row_tells_the_best_steady_strategy_and_whether_the_clocks_of_all_can_be_believed(
    strategies: dict[str, str], figure: str, clock: str, short: str
) -> None:
    one = run_with(**strategies)
    assert told(one, 160).rstrip().endswith(f"{figure}  {clock}")
    assert told(one, 72).rstrip().endswith(f"{figure}  {short}")


def test_nothing_that_cannot_be_praised_is_the_figure_of_a_run_with_one_that_can() -> None:
    one = run_with(speculative="steady", lookup="steady").header
    assert one is not None
    above = {**one.strategies["lookup"], "speedup": 2.6, "tokens_per_target_call": 1.2}
    borrowed = {**one.strategies["lookup"], "speedup": 2.6, "baseline_created": "2026-01-01T00:00:00Z"}
    for lookup in (above, borrowed):
        assert best(replace(one, strategies={**one.strategies, "lookup": lookup})) == "speculative 1.40×"
    forgetful = {"target": {**one.strategies["target"], "recomputes": True}, "lookup": one.strategies["lookup"]}
    assert best(replace(one, strategies=forgetful)) == "lookup 1.40×†"


def test_marks_that_a_trace_does_not_tell_are_those_of_a_target_that_recomputes() -> None:
    one = run_with(lookup="steady").header
    assert one is not None
    target = {"target": {**one.strategies["target"], "recomputes": True}}
    for marks in ({}, {"marks": None}):
        header = replace(one, strategies={**target, "lookup": {**one.strategies["lookup"], **marks}})
        assert best(header) == "lookup 1.40×\N{DAGGER}"


def test_a_ratio_of_a_run_that_nobody_looked_at_is_no_more_than_its_tokens_allow() -> None:
    one = run_with(lookup="steady").header
    assert one is not None
    old = {**one.strategies["lookup"], "speedup": 2.9, "tokens_per_target_call": 1.2, "reliability": None}
    header = replace(one, strategies={"lookup": old})
    assert best(header) == "lookup ≤ 1.20×" and clock(header) == "disturbed"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("disturbed", {"mixed", "short"}),
        ("ngram disturbed", {"mixed"}),
        ("lookup disturbed", {"short"}),
        ("lookup", {"mixed", "short", "fine"}),
        ("short", {"short"}),
        ("steady", {"mixed", "fine"}),
        ("speculative", {"mixed"}),
    ],
)
def test_the_filter_finds_the_word_and_the_name_of_any_strategy(query: str, found: set[str]) -> None:
    runs = {
        "mixed": run_with(speculative="steady", ngram="disturbed", lookup="slow"),
        "short": run_with(lookup="disturbed", ngram="short"),
        "fine": run_with(lookup="steady"),
    }
    assert {name for name, one in runs.items() if one in matching(list(runs.values()), query)} == found


def test_below_the_list_every_strategy_has_its_figure_and_what_is_to_be_known_of_it() -> None:
    header = run_with(speculative="steady", ngram="disturbed", lookup="short", drafter="steady!").header
    assert header is not None
    words = "speculative 1.40× · ngram 0.90–2.00× clock disturbed · lookup ~1.90× too short · drafter 1.40× failed"
    assert str(figures_line(header)) == words
    forgetful = {**header.strategies, "target": {**header.strategies["target"], "recomputes": True}}
    line = str(figures_line(replace(header, strategies=forgetful)))
    assert "speculative 1.40×† · " in line and line.endswith(" · † target recomputes")


NOT_BEGUN = {"finish_reason": "cancelled", "prompt_tokens": 0}


@pytest.mark.parametrize(
    ("strategies", "words", "line"),
    [
        (
            {"target": {**NOT_BEGUN, "prompt_tokens": 9}, "speculative": NOT_BEGUN, "ngram": NOT_BEGUN},
            "stopped",
            "target stopped · speculative not begun · ngram not begun",
        ),
        ({"target": {"finish_reason": "length"}, "lookup": {"finish_reason": "error"}}, "failed", "lookup failed"),
        ({"target": {"finish_reason": "length"}}, "target alone", "target alone: nothing was compared with it"),
        (
            {"lookup": {"finish_reason": "length"}},
            "lookup alone",
            "lookup no speedup · no run of target to compare with",
        ),
        (
            {"target": {"finish_reason": "length"}, "lookup": {"finish_reason": "length"}},
            "no speedup",
            "lookup no speedup",
        ),
        ({"target": {"finish_reason": None}, "lookup": NOT_BEGUN}, "not ended", "target not ended · lookup not begun"),
    ],
)
@pytest.mark.parametrize("width", [160, 100, 76])
def test_a_run_without_a_speedup_says_why_in_plain_words(
    strategies: dict[str, dict[str, object]], words: str, line: str, width: int
) -> None:
    """`target +3` stood there."""
    run = entry()
    assert run.header is not None
    header = replace(run.header, strategies=strategies)
    assert best(header) == words and str(figures_line(header)) == line
    assert words in told(replace(run, header=header), width)


def test_compared_runs_tell_interval_and_word_of_each_strategy() -> None:
    header = run_with(speculative="steady", ngram="disturbed", lookup="short").header
    assert header is not None
    told_of = {str(row[0]): [str(row[3]), str(row[4])] for row in rows([header])}
    assert told_of == {
        "target": ["–", ""],
        "speculative": ["1.40×", "steady"],
        "ngram": ["0.90–2.00×", "disturbed"],
        "lookup": ["~1.90×", "short"],
    }


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40)])
async def test_however_many_runs_there_are_what_is_said_below_them_is_in_sight(
    size: tuple[int, int], tmp_path: Path
) -> None:
    """At 80×24 the question whether to delete stood below the edge of the screen."""
    store = TraceStore(tmp_path / "traces")
    for number in range(40):
        store.save(trace_of((), "a long prompt " * 30, number))
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        screen = HistoryScreen(store)
        await app.push_screen(screen)
        await until(pilot, lambda: screen.query_one(OptionList).option_count == 40, "the list")
        await pilot.press("slash", "a", "down", "d")
        await pilot.pause()
        note = screen.query_one("#history-note", Static)
        assert "d again deletes" in str(note.render())
        box = screen.query_one("#history").content_region
        for name in ("heading", "list", "filter", "prompt", "note"):
            part = screen.query_one(f"#history-{name}").region
            assert part.height and box.contains_region(part) and screen.region.contains_region(part), name


def trace_of(events: tuple[Event, ...], prompt: str, minute: int) -> Trace:
    return Trace(new_header(prompt, events, created=datetime(2026, 11, 28, 12, minute, tzinfo=UTC)), events)


async def test_a_folder_that_can_hold_nothing_is_not_called_empty(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("escape", "H")
        note = app.screen.query_one("#history-note", Static)
        await until(pilot, lambda: "No runs can be kept: " in str(note.render()))
        assert str(note.render()).endswith("is no folder")


@pytest.mark.parametrize("small", [(1, 1), (6, 3), (60, 12), (99, 30)])
async def test_after_the_smallest_sizes_the_list_is_as_it_was(small: tuple[int, int]) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        screen = HistoryScreen(app.recordings.store)
        await app.push_screen(screen)
        screen.post_message(HistoryScreen.Listed([entry(), entry("世界 " * 30)]))
        await until(pilot, lambda: screen.query_one(OptionList).option_count == 2)

        def lines() -> list[str]:
            return [str(option.prompt) for option in screen.query_one(OptionList).options]

        await until(pilot, lambda: cell_len(lines()[0]) == screen.query_one(OptionList).size.width - 4)
        before = lines()
        await pilot.resize_terminal(*small)
        await pilot.pause()
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: lines() == before)


@pytest.mark.parametrize("strategies", [{"speculative": "disturbed"}, {"ngram": "steady", "lookup": "disturbed"}])
def test_where_there_is_little_room_there_are_fewer_columns_of_whole_words(strategies: dict[str, str]) -> None:
    """`spec. 0.9–2.0×` and `1✗` at 60×18."""
    mixed = run_with(speculative="steady", ngram="disturbed", lookup="short")
    heading, (line, _) = table([run_with(**strategies), mixed], [False, False], 52)
    assert "disturbed" in str(line) and not set("✗✓") & set(str(line))
    assert "×" in str(line) and "spec" not in str(line)
    assert set(str(heading).split()) <= {column.title for column in COLUMNS}


def test_compared_runs_are_told_with_gamma_temperature_and_length() -> None:
    """None of them was told where both runs had the same."""
    alike = [one.header for one in (entry(gamma=6, max_new_tokens=99), entry("why", gamma=6, max_new_tokens=99))]
    other = entry(gamma=6, processor="nucleus", temperature=0.8, max_new_tokens=200).header
    first, second = (header for header in alike if header is not None)
    lines = [str(line) for line in legend([first, second], 114)]
    assert lines[1] == lines[3] == "  γ 6 · greedy · 99 tokens"
    assert other is not None
    lines = [str(line) for line in legend([first, other], 114)]
    assert lines[1].startswith("  γ 6 · greedy · 99 tokens")
    assert lines[3].startswith("  γ 6 · T 0.8 · nucleus · 200 tokens")
    short = [str(line) for line in legend([first, other], 20)]
    assert "γ" not in "".join(short) and "200 tokens" in short[3] and "greedy" in short[1]
    long = replace(first, prompt="a long prompt " * 9)
    assert str(legend([long, first], 30)[1]) == "  γ 6 · greedy · 99 tokens", "a prompt may take two rows"
    bare = replace(first, settings={})
    assert "γ" not in str(legend([bare, first], 114)[1])


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40)])
async def test_what_differs_between_compared_runs_is_on_the_screen(size: tuple[int, int]) -> None:
    headers = [entry(gamma=4, max_new_tokens=99).header, entry(gamma=8, max_new_tokens=200).header]
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        screen = CompareScreen([header for header in headers if header is not None])
        await app.push_screen(screen)
        runs = screen.query_one("#compare-runs", Static)
        words = "γ 4", "γ 8", "99 tokens", "200 tokens"
        await until(pilot, lambda: all(word in str(runs.render()) for word in words))
        assert runs.region.bottom <= size[1]


@pytest.mark.parametrize(("size", "missing"), [((60, 18), "tokens, lossless"), ((80, 24), ""), ((120, 40), "")])
async def test_the_columns_of_compared_runs_are_whole_and_those_without_room_are_told(
    size: tuple[int, int], missing: str
) -> None:
    """At 60 columns the last digit of τ stood beyond the edge."""
    headers = [run_with(speculative="steady", ngram="disturbed", lookup="short").header] * 2
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        screen = CompareScreen([header for header in headers if header is not None])
        await app.push_screen(screen)
        table = screen.query_one(DataTable)
        await until(pilot, lambda: len(table.columns) > 2 and table.virtual_size.width > 0)
        await until(pilot, lambda: table.virtual_size.width <= table.scrollable_content_region.width)
        told = str(screen.query_one("#compare").border_subtitle)
        assert told == "escape closes" + f" · no room for {missing}" * bool(missing)


async def test_names_of_drafters_take_no_room_from_the_figures_of_compared_runs() -> None:
    """With two drafters only strategy, run, speedup and clock were left at 60 columns."""
    app = make_app()
    async with app.run_test(size=(60, 18)) as pilot:
        await ready(pilot)
        screen = CompareScreen([with_two_drafters(), with_two_drafters()])
        await app.push_screen(screen)
        table = screen.query_one(DataTable)
        await until(pilot, lambda: table.virtual_size.width > 0)
        titles = [str(column.label).strip() for column in table.ordered_columns]
        assert titles == ["strategy", "run", "tok/s", "speedup", "clock", "α", "τ"]
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: any("speculative-2 · tiny-one" in str(cell) for cell in table.get_column_at(0)))


@pytest.mark.parametrize(("size", "rows"), [((40, 12), 3), ((60, 18), 5)])
async def test_what_was_compared_leaves_room_for_the_figures_on_a_low_screen(size: tuple[int, int], rows: int) -> None:
    """At 40×12 three runs' times, prompts and settings filled the box."""
    first = with_two_drafters()
    prompts = "Why?", "a longer prompt that goes on and on and on", "And why not?"
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        screen = CompareScreen([replace(first, prompt=prompt) for prompt in prompts])
        await app.push_screen(screen)
        box, table = screen.query_one("#compare"), screen.query_one(DataTable)
        await until(pilot, lambda: table.row_count and table.region.height)
        assert box.content_region.bottom - table.region.y >= rows
        assert all(prompt[:9] in str(screen.query_one("#compare-runs", Static).render()) for prompt in prompts)


def test_the_prompt_of_a_compared_run_is_cut_between_words_where_its_line_ends() -> None:
    """It was cut after 60 cells, within a word, though the line had room for all."""
    prompt = "Say in a few words what happens between a key and the screen when a prompt is typed by a person"
    header = replace(with_two_drafters(), prompt=prompt)
    assert str(legend([header], 120)[0]).endswith(f" {prompt}")
    assert str(legend([header], 100)[0]).endswith(" when a prompt is…")
    assert str(legend([header], 54)[0]).endswith(" a key and the…")
    assert "…" in str(legend([replace(header, prompt="x" * 400)], 54)[0])


def with_two_drafters() -> TraceHeader:
    header = run_with(speculative="steady", ngram="disturbed", **{"speculative-2": "short"}).header
    assert header is not None
    pair = info("org/target", "org/small-but-long-name", "/models/tiny-one")
    return replace(header, models=new_header("", (), pair=pair).models)


@pytest.mark.parametrize(("size", "first"), [((60, 18), "↵ open"), ((120, 40), "↵ open"), ((50, 18), "/ filter")])
async def test_the_keys_of_the_history_are_told_whole_at_every_width(size: tuple[int, int], first: str) -> None:
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        screen = HistoryScreen(app.recordings.store)
        await app.push_screen(screen)
        box = screen.query_one("#history")
        await until(pilot, lambda: box.size.width > 0 and len(str(box.border_subtitle)) <= box.size.width - 2)
        told = str(box.border_subtitle)
        assert told.startswith(first) and told.endswith("space mark · c compare · d delete")


async def test_of_a_file_that_cannot_be_read_the_whole_reason_is_told() -> None:
    """It stood behind the file's path, beyond the edge."""
    path = Path("/home/somebody/.local/share/specdec-tui/traces/2026-11-28T12-00-00-why-is-the-sky-blue.jsonl")
    closed = Entry(path, 1000, None, f"cannot read {path}: no permission")
    damaged = Entry(path, 1000, None, f"{path.name}: line 1: it is not a trace")
    assert told(closed, 76).endswith("  no permission") and told(damaged, 76).endswith("  line 1: it is not a trace")
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        screen = HistoryScreen(app.recordings.store)
        await app.push_screen(screen)
        note = screen.query_one("#history-note", Static)
        await until(pilot, lambda: "reading" not in str(note.render()))  # its own list would come later
        screen.post_message(HistoryScreen.Listed([closed]))
        figures = screen.query_one("#history-figures", Static)
        await until(pilot, lambda: str(figures.render()) == closed.problem)
        await until(pilot, lambda: figures.region.height == 2)
