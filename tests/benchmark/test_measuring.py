"""The benchmark on scripted engines: order of work, statistics, the JSON contract, bad input."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from measured_engine import INFO, ScriptedEngine

from specdec_tui.backends.pair import LoadError, PairInfo, ReportProgress
from specdec_tui.benchmark.command import bench
from specdec_tui.benchmark.report import as_json, as_sheet, note_lines, pass_lines
from specdec_tui.benchmark.run import BenchmarkError, Result, measure
from specdec_tui.benchmark.statistics import Verdict, summarize
from specdec_tui.benchmark.suites import Prompt, builtin_suite, read_suite
from specdec_tui.decoding.figures import RECOMPUTES, RunFigures
from specdec_tui.decoding.form_distance import FormDistance
from specdec_tui.decoding.records import (
    Beam,
    EndReason,
    Event,
    Finished,
    Lossless,
    LosslessStatus,
    PassLimit,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.decoding.standing import BEYOND_TAU, BEYOND_TOKENS, MEANINGS, SAME_TEXT, standing
from specdec_tui.doors.output import Sheet
from specdec_tui.settings import ModelChoice, SettingError, Settings

DEMO = ModelChoice()
TOLD = ((1, 0.010), (2, 0.011), (5, 0.020))
TWO = Settings(strategies=("target", "speculative"))


def test_repeats_are_passes_over_all_prompts_and_the_warm_up_comes_first() -> None:
    engine = ScriptedEngine()
    seen: list[tuple[int, int]] = []
    prompts = [Prompt(("a",)), Prompt(("b", "c"))]
    results = measure(engine, prompts, TWO, repeat=2, warmup=1, progress=lambda *p: seen.append(p))
    assert [c for c in engine.calls if c != "new chat"] == ["a", "a", "b", "c", "a", "b", "c"]
    assert engine.calls.count("new chat") == 5
    assert seen[-1] == (6, 6)
    assert len(results) == 12
    assert {(r.prompt_index, r.turn, r.repeat) for r in results} == {
        (p, t, r) for r in (0, 1) for p, t in ((0, 0), (1, 0), (1, 1))
    }


def test_only_emitted_tokens_become_the_result() -> None:
    target, speculative = measure(ScriptedEngine(), [Prompt(("a",))], TWO, repeat=1, warmup=0)
    assert target.token_ids == speculative.token_ids == [100, 0, 1, 2, 3]
    assert target.text == "Axxxx"
    assert target.figures.new_tokens == 5


def test_the_summary_of_a_search_has_no_tokens_per_target_pass() -> None:
    figures = RunFigures()
    for record in (
        RunStarted("beam", 3, 2, 9, beams=4),
        PrefillDone(None, 0.1, beams=(Beam((1,), -1.0),)),
        RoundVerified(0, (), None, 0.0, 0.1, 0.0, (Token(1, Status.SAMPLED, 0), Token(2, Status.SAMPLED, 1))),
    ):
        figures.add(record)
    results = measure(ScriptedEngine(), [Prompt(("a",))], TWO, repeat=1, warmup=0)
    target, beam = summarize([results[0], replace(results[1], strategy="beam", figures=figures)])
    assert (target.tokens_per_target_call, beam.tokens_per_target_call) == (1.0, None)


def test_a_summary_holds_the_defined_figures() -> None:
    results = measure(ScriptedEngine(), [Prompt(("a",)), Prompt(("b",))], TWO, repeat=3, warmup=0)
    target, speculative = summarize(results)
    assert target.decode_tokens_per_second is not None and speculative.decode_tokens_per_second is not None
    assert target.decode_tokens_per_second.median == pytest.approx(10)
    assert speculative.decode_tokens_per_second.median == pytest.approx(4 / 0.32)
    assert speculative.speedup is not None
    assert speculative.speedup.low == speculative.speedup.high == pytest.approx(1.25)
    assert speculative.acceptance_rate == pytest.approx(3 / 4)
    assert speculative.tokens_per_target_call == pytest.approx(5 / 3)
    assert speculative.cost_ratio == pytest.approx(0.2)
    assert speculative.verify_ratio == pytest.approx(1.2)
    # Two drafts a round, the first always accepted and the second every other time; one round without its own token.
    assert speculative.predicted_speedup == pytest.approx((0.5 + 1 + 0.5) * 0.1 / 0.16)
    assert speculative.remainder == pytest.approx(0)
    assert (speculative.runs, speculative.disturbed_runs) == (6, 0)
    assert speculative.reliability == Verdict("short", "2 rounds beside target's are too few to tell")
    assert target.acceptance_rate is None and target.predicted_speedup is None


def test_the_json_contract_has_every_field() -> None:
    results = measure(ScriptedEngine(), [Prompt(("a",), "kind")], TWO, repeat=1, warmup=0)
    report = json.loads(json.dumps(as_json(results, summarize(results), INFO, TWO, {"python": "3"}, {"repeat": 1})))
    assert set(report) == {"schema", "environment", "models", "settings", "passes", "results", "summary"}
    assert report["schema"] == 1
    assert set(report["models"]) >= {"target", "drafter"}
    needed = (
        "strategy prompt_index category repeat prompt_tokens new_tokens token_ids text finish_reason prefill_seconds "
        "decode_seconds decode_tokens_per_second rounds drafted accepted rejected unverified acceptance_rate "
        "tokens_per_target_call draft_seconds verify_seconds other_seconds lossless"
    )
    assert set(report["results"][0]) >= set(needed.split())
    assert set(report["results"][0]["lossless"]) >= {"status", "ties", "first_divergence", "gap"}
    assert report["results"][1]["finish_reason"] == "end_token"
    summary = report["summary"][1]
    assert set(summary["speedup"]) == {"median", "low", "high"} == set(summary["decode_tokens_per_second"])
    assert {"acceptance_rate", "tokens_per_target_call", "cost_ratio", "verify_ratio", "predicted_speedup"} <= set(
        summary
    )


def test_what_passes_cost_is_told_once_for_each_model() -> None:
    limit = PassLimit(10_000_000, 1_000_000, 1e9, 1e9, 2)
    results = []
    for strategy, passes in (("target", TOLD), ("speculative", TOLD), ("drafter", TOLD[:1])):
        figures = RunFigures()
        figures.add(RunStarted(strategy, 3, 4, 9))
        figures.add(PrefillDone(Token(1, Status.SAMPLED, 0), 0.1, passes=passes, pass_limit=limit))
        results.append(Result(strategy, 0, 0, "", 0, figures))
    report = json.loads(json.dumps(as_json(results, [], INFO, TWO, {}, {})))
    assert set(report["passes"]) == {"target", "drafter"}
    assert report["passes"]["target"] == {
        "weights": "",
        "pass_seconds": [[1, 0.01], [2, 0.011], [5, 0.02]],
        "pass_limit_seconds": [[1, 0.01], [2, 0.01], [5, 0.01]],
        "knee": 2,
        "pass_limit": {
            "weight_bytes": 10_000_000,
            "multiply_adds": 1_000_000,
            "bytes_per_second": 1e9,
            "multiply_adds_per_second": 1e9,
            "threads": 2,
            "integer_adds": 0,
        },
    }
    told = pass_lines(results, INFO)
    assert told[:2] == [
        "v(n) of target, passes over n tokens against one of 10.00 ms: 2: 1.10, 5: 2.00; knee 2",
        "target: 5 tokens cost 2.00× one, 2.00× the limit: neither memory nor multiply-adds bind",
    ]
    assert told[2].startswith("target: limit: 10.0 MB read at 1.0 GB/s, 10.00 ms, or ")
    assert told[3] == "v(n) of drafter, one token alone: 10.00 ms; no knee up to 1"
    assert as_json([], [], INFO, TWO, {}, {})["passes"] == {}


def test_the_form_of_the_weights_stands_beside_what_passes_cost() -> None:
    figures = RunFigures()
    figures.add(RunStarted("target", 3, 4, 9))
    figures.add(PrefillDone(Token(1, Status.SAMPLED, 0), 0.1, passes=TOLD))
    results = [Result("target", 0, 0, "", 0, figures)]
    packed = replace(INFO, target=replace(INFO.target, weights="packed"))
    assert as_json(results, [], packed, TWO, {}, {})["passes"]["target"]["weights"] == "packed"
    assert pass_lines(results, packed)[0].startswith("v(n) of target (packed weights), passes over ")
    assert pass_lines(results, INFO)[0].startswith("v(n) of target, passes over ")


def test_where_no_pass_of_a_model_was_measured_it_says_why() -> None:
    figures = RunFigures()
    figures.add(RunStarted("target", 3, 4, 9))
    figures.add(PrefillDone(Token(1, Status.SAMPLED, 0), 0.1, recomputes=True))
    told = pass_lines([Result("target", 0, 0, "", 0, figures)], INFO)
    assert told == ["v(n) of target: not measured: every pass computes the whole text again"]
    assert pass_lines([], INFO) == []
    alone = pass_lines([Result("drafter", 0, 0, "", 0, figures)], INFO)
    assert alone == ["v(n) of drafter: not measured: every pass computes the whole text again"]


def test_what_runs_had_to_say_is_in_the_json_and_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    results = measure(ScriptedEngine(), [Prompt(("a",))], TWO, repeat=2, warmup=0)
    report = as_json(results, summarize(results), INFO, TWO, {}, {})
    assert [result["notices"] for result in report["results"]] == [["not captured"]] * 4
    assert _bench(ScriptedEngine()) == 0
    assert capsys.readouterr().out.count("target, speculative: not captured") == 1


def test_a_failed_run_fails_the_benchmark() -> None:
    with pytest.raises(BenchmarkError, match="speculative: out of memory"):
        measure(ScriptedEngine("out of memory"), [Prompt(("a",))], TWO, repeat=1, warmup=0)


def _bench(engine: ScriptedEngine, choice: ModelChoice = DEMO, json_to: str | None = None) -> int:
    return bench(engine, TWO, choice, prompts=["a"], prompts_file=None, repeat=1, warmup=0, json_to=json_to)


def test_json_goes_to_standard_output_alone_or_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench(ScriptedEngine(), json_to="-") == 0
    assert json.loads(capsys.readouterr().out)["summary"][0]["strategy"] == "target"
    assert _bench(ScriptedEngine(), json_to=str(tmp_path / "out.json")) == 0
    assert json.loads((tmp_path / "out.json").read_text())["schema"] == 1
    assert "speculative" in capsys.readouterr().out


def test_failures_have_an_exit_status_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench(ScriptedEngine(), ModelChoice(target="missing")) == 2
    assert "no such model" in capsys.readouterr().err
    assert _bench(ScriptedEngine("broken [/x]")) == 1
    assert "broken [/x]" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_found_before_measuring(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    for bad in (tmp_path, tmp_path / "none" / "out.json", Path("/proc/x.json")):
        with pytest.raises(SettingError, match="json: cannot write"):
            _bench(engine, json_to=str(bad))
    assert engine.calls == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_where_the_file_cannot_be_filled_the_table_is_shown_and_the_json_kept_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert _bench(ScriptedEngine(), json_to="/dev/full") == 1
    shown = capsys.readouterr()
    assert "speculative" in shown.out and "specdec-tui: /dev/full: No space left on device\n" in shown.err
    (kept,) = tmp_path.iterdir()
    assert str(kept) in shown.err
    assert json.loads(kept.read_text())["schema"] == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_where_the_json_cannot_be_kept_elsewhere_either_that_is_said_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    assert _bench(ScriptedEngine(), json_to="/dev/full") == 1
    assert capsys.readouterr().err.endswith(
        "specdec-tui: /dev/full: No space left on device\n"
        "specdec-tui: nor could the results be kept in the folder for temporary files: No such file or directory\n"
    )


def test_half_characters_of_prompts_are_replaced() -> None:
    assert Prompt(("a\udcffb",)).turns == ("a\N{REPLACEMENT CHARACTER}b",)


def test_the_built_in_suite_has_eight_prompts_of_seven_kinds() -> None:
    suite = builtin_suite()
    assert len(suite) == 8 and len({prompt.category for prompt in suite}) == 7
    assert any(len(prompt.turns) > 1 for prompt in suite)


def test_the_held_out_suite_has_eleven_prompts_of_each_of_six_kinds_and_none_of_the_everyday_ones() -> None:
    suite = builtin_suite("heldout")
    kinds = Counter(prompt.category for prompt in suite)
    assert set(kinds) == {"question", "story", "code", "summary", "list", "multi-turn"}
    assert set(kinds.values()) == {11}
    turns = [turn for prompt in suite + builtin_suite() for turn in prompt.turns]
    assert len(set(turns)) == len(turns)
    assert all((len(prompt.turns) > 1) == (prompt.category == "multi-turn") for prompt in suite)


def test_an_unknown_suite_is_refused_and_the_names_are_given() -> None:
    with pytest.raises(SettingError, match="suite: 'weekly' is not one of everyday, heldout"):
        builtin_suite("weekly")


def test_a_prompts_file_may_hold_prompts_and_turns(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}\n\n{"turns": ["b", "c"], "category": "chat"}\n')
    assert read_suite(path) == [Prompt(("a",)), Prompt(("b", "c"), "chat")]


@pytest.mark.parametrize(
    "bad",
    [
        "x",
        "[]",
        "{}",
        '{"prompt": ""}',
        '{"turns": []}',
        '{"turns": "a"}',
        '{"prompt": 1}',
        '{"prompt":"a","category":1}',
        "",
    ],
)
def test_a_bad_prompts_file_names_the_line_and_what_is_allowed(bad: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(bad + "\n")
    with pytest.raises(SettingError, match=r"p\.jsonl"):
        read_suite(path)
    with pytest.raises(SettingError, match="cannot read"):
        read_suite(tmp_path / "none")


def test_speedup_compares_with_the_same_turn_of_the_same_repeat() -> None:
    results: list[Result] = []
    # The machine halves its speed from one prompt and repeat to the next: paired ratios do not notice.
    for place, (prompt, turn, repeat) in enumerate([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1)]):
        for strategy, seconds in (("target", 1.0), ("speculative", 0.5)):
            result = Result(strategy, prompt, turn, "", repeat)
            emitted = Token(0, Status.SAMPLED, 1)
            result.figures.add(RoundVerified(0, (), emitted, 0.0, seconds * 2**place, 0.0))
            result.baseline = results[-1].figures if strategy == "speculative" else result.figures
            results.append(result)
    speculative = summarize(results)[1]
    assert speculative.speedup is not None
    assert (speculative.speedup.low, speculative.speedup.high) == pytest.approx((2.0, 2.0))


def plain_run(strategy: str, step: float, prompt: int = 0, repeat: int = 0, rounds: int = 40) -> Result:
    """A run of one-token rounds, whose passes take `step` seconds."""
    result = Result(strategy, prompt, 0, "", repeat)
    result.figures.add(RunStarted(strategy, 7, 4, 99))
    for number in range(rounds):
        result.figures.add(RoundVerified(number, (), Token(0, Status.SAMPLED, number), 0.0, step, 0.0))
    return result


def beside(run: Result, target_step: float) -> list[Result]:
    """The target's run of the same prompt and repeat, and this one beside it."""
    target = plain_run("target", target_step, run.prompt_index, run.repeat)
    target.baseline = run.baseline = target.figures
    return [target, run]


def row_of(sheet: Sheet, strategy: str) -> dict[str, str]:
    (row,) = [row for row in sheet.rows if row[0] == strategy]
    return dict(zip(sheet.headings, row, strict=True))


def test_intervals_cover_prompts_and_repeats() -> None:
    """As it was seen: 7.0 (7.0–7.0) for repeats of 3.9, 4.7, 11.6 and 9.3 tokens per second."""
    results = [plain_run("target", 1 / rate, repeat=repeat) for repeat, rate in enumerate((3.9, 4.7, 11.6, 9.3))]
    results += [plain_run("target", 1 / 6.0, prompt=1, repeat=repeat) for repeat in range(4)]
    (summary,) = summarize(results)
    rate = summary.decode_tokens_per_second
    assert rate is not None
    assert (rate.median, rate.low, rate.high) == pytest.approx((6.5, 3.9, 11.6))
    table = as_sheet(results, [summary], INFO)
    assert row_of(table, "target")["tok/s"] == "6.5 (3.9–11.6)"
    assert "lowest–highest of all prompts and repeats" in str(table.caption)


def test_a_disturbed_run_has_no_bare_ratio_in_the_table_and_says_why() -> None:
    results = beside(plain_run("lookup", 0.058), 0.172)
    summaries = summarize(results)
    assert row_of(as_sheet(results, summaries, INFO), "lookup")["speedup"] == "≤ 1.00 ~"
    (line,) = note_lines(results, summaries)
    assert line == "~ lookup: clock disturbed: one-token passes took 58 ms, target's 172 ms"
    report = as_json(results, summaries, INFO, TWO, {}, {})
    verdict = {"word": "disturbed", "reason": "one-token passes took 58 ms, target's 172 ms"}
    words = [{name: result["reliability"][name] for name in ("word", "reason")} for result in report["results"]]
    assert words == [{"word": "steady", "reason": ""}, verdict]
    single = report["results"][1]["reliability"]
    assert (single["low"], single["high"]) == pytest.approx((1.0, 1.0)), "the interval is in each single result"
    assert report["results"][1]["no_prediction"] == summaries[1].no_prediction == "clock disturbed"
    row = row_of(as_sheet(results, summaries, INFO), "lookup")
    assert (row["c"], row["v"], row["predicted (off by)"]) == ("– ~", "– ~", "– ~")
    summary = json.loads(json.dumps(report["summary"]))[1]
    assert (summary["reliability"], summary["runs"], summary["disturbed_runs"]) == (verdict, 1, 1)


@pytest.mark.parametrize(
    ("step", "shown"),
    [
        (0.105, "0.95 (0.95–0.95)\nslower"),
        (0.1006, "0.99 (0.99–0.99)\nslower"),
        (0.1004, "1.00 (1.00–1.00)"),
        (0.095, "1.05 (1.05–1.05) °"),
    ],
)
def test_the_table_says_slower_where_panes_do(step: float, shown: str) -> None:
    results = beside(plain_run("lookup", step), 0.1)
    assert row_of(as_sheet(results, summarize(results), INFO), "lookup")["speedup"] == shown
    found = standing(results[1].figures, results[1].baseline)
    assert found is not None and (found.verdict == "slower") == ("slower" in shown)


def test_what_a_disturbed_run_costs_is_withheld_from_table_and_json() -> None:
    run = plain_run("lookup", 0.058)
    kept = (Token(1, Status.ACCEPTED, 0),) * 4
    run.figures.add(RoundVerified(40, kept, Token(0, Status.BONUS, 0), 0.01, 0.058, 0.0))
    results = beside(run, 0.172)
    summaries = summarize(results)
    row = row_of(as_sheet(results, summaries, INFO), "lookup")
    assert [row[name] for name in ("c", "v", "predicted (off by)")] == ["– ~"] * 3
    report = as_json(results, summaries, INFO, TWO, {}, {})
    for told in (report["results"][1], report["summary"][1]):
        assert {told[name] for name in ("cost_ratio", "verify_ratio", "predicted_speedup", "remainder")} == {None}


def test_one_disturbed_repeat_does_not_spoil_the_others_and_is_counted() -> None:
    results = [
        result
        for repeat, step in enumerate((0.1, 0.2, 0.1))
        for result in beside(plain_run("lookup", step, repeat=repeat), 0.1)
    ]
    summaries = summarize(results)
    lookup = summaries[1]
    assert lookup.speedup is not None and lookup.reliability is not None
    assert (lookup.speedup.median, lookup.speedup.low, lookup.speedup.high) == pytest.approx((1.0, 0.5, 1.0))
    assert (lookup.reliability.word, lookup.disturbed_runs, lookup.runs) == ("steady", 1, 3)
    assert row_of(as_sheet(results, summaries, INFO), "lookup")["speedup"] == "1.00 (0.50–1.00) ~\n1 of 3 disturbed"
    (line,) = note_lines(results, summaries)
    assert line.startswith("~ lookup: 1 of 3 disturbed, e.g. one-token passes took 200 ms, target's")
    assert lookup.reliability.reason == line.removeprefix("~ lookup: ")
    assert lookup.compared_runs == 2


def test_with_half_of_its_runs_disturbed_a_summary_is_disturbed_and_has_an_interval_and_no_bare_ratio() -> None:
    """Two of four runs were disturbed, and it was called steady, with a median."""
    for disturbed, word, shown in (
        (1, "steady", "1.00 (0.50–1.00) ~\n1 of 4 disturbed"),
        (2, "disturbed", "0.50–1.00 ~\n2 of 4 disturbed"),
        (3, "disturbed", "0.50–1.00 ~\n3 of 4 disturbed"),
    ):
        results = [
            result
            for repeat in range(4)
            for result in beside(plain_run("lookup", 0.2 if repeat < disturbed else 0.1, repeat=repeat), 0.1)
        ]
        summaries = summarize(results)
        row = row_of(as_sheet(results, summaries, INFO), "lookup")
        told = as_json(results, summaries, INFO, TWO, {}, {})["summary"][1]
        assert (told["reliability"]["word"], row["speedup"]) == (word, shown)
        assert told["reliability"]["reason"].startswith(f"{disturbed} of 4 disturbed, e.g. ")
        assert (told["predicted_speedup"] is None) == (row["predicted (off by)"] == "– ~") == (word == "disturbed")
        assert told["no_prediction"] == (f"clock disturbed in {disturbed} of 4 runs" if word == "disturbed" else "")


@pytest.mark.parametrize("steps", [(0.05, 0.04, 0.06), (0.05, 0.2), (0.1, 0.05), (0.2, 0.3), (0.1, 0.1, 0.05)])
def test_the_median_of_speedups_lies_in_their_interval_and_within_what_tokens_allow(steps: tuple[float, ...]) -> None:
    """Four disturbed runs had a median of 1.23 beside an interval of 0.61–1.13."""
    runs = [r for repeat, step in enumerate(steps) for r in beside(plain_run("lookup", step, repeat=repeat), 0.1)]
    found = summarize(runs)[1].speedup
    assert found is not None and found.low <= found.median <= found.high <= 1.0 + 1e-9


def times_vary(strategy: str, ratio: float, prompt: int = 0, repeat: int = 0) -> list[Result]:
    """Beside the target's: in the middle of both the machine became six times as fast; their ratio stands."""
    found = beside(plain_run(strategy, 0.1, prompt, repeat, rounds=0), 0.1)
    for result, step in zip(found, (0.1, 0.1 / ratio), strict=True):
        result.figures = RunFigures()
        result.figures.add(RunStarted(result.strategy, 7, 4, 99))
        for number in range(40):
            seconds = step * (6 if number < 20 else 1)
            result.figures.add(RoundVerified(number, (), Token(0, Status.SAMPLED, number), 0.0, seconds, 0.0))
    for result in found:
        result.baseline = found[0].figures
    return found


def test_speedup_and_prediction_are_over_the_same_runs() -> None:
    """The prediction was the median of the runs at one pace, the speedup that of all."""
    steps = (0.1, 0.098, 0.096)
    results = [r for repeat, step in enumerate(steps) for r in beside(plain_run("lookup", step, repeat=repeat), 0.1)]
    results += [r for repeat in (3, 4) for r in times_vary("lookup", 0.93, repeat=repeat)]
    assert all(r.reliability is not None and r.reliability.is_steady for r in results)
    summaries = summarize(results)
    lookup = summaries[1]
    assert lookup.speedup is not None and lookup.predicted_speedup is not None and lookup.remainder is not None
    assert (lookup.runs, lookup.compared_runs, lookup.no_prediction) == (5, 3, "")
    assert lookup.speedup.median == pytest.approx(0.1 / 0.098)
    assert lookup.predicted_speedup == pytest.approx(1.0), "a round is taken to cost no less than a step"
    assert lookup.remainder == pytest.approx(lookup.speedup.median / lookup.predicted_speedup - 1)
    assert lookup.speedup.low == pytest.approx(0.93), "the spread is of all"
    _, line = note_lines(results, summaries)  # the first: 1.02× and 1.04× are above what a token a round allows
    assert line == "§ lookup: step times vary in 2 of 5 runs: median and prediction are of the others, ranges of all"


def test_where_no_run_of_a_prompt_has_a_prediction_none_is_told_and_it_is_said_why() -> None:
    results = [r for repeat in range(2) for r in beside(plain_run("lookup", 0.1, 0, repeat), 0.1)]
    results += [r for repeat in range(2) for r in times_vary("lookup", 0.93, 1, repeat)]
    summaries = summarize(results)
    lookup = summaries[1]
    assert lookup.speedup is not None and lookup.speedup.median == pytest.approx((1.0 + 0.93) / 2), "of both prompts"
    assert (lookup.predicted_speedup, lookup.remainder) == (None, None)
    assert lookup.no_prediction == "step times vary in 2 of 4 runs"
    row = row_of(as_sheet(results, summaries, INFO), "lookup")
    assert row["predicted (off by)"] == "– §" and row["c"] == "– §"
    assert note_lines(results, summaries) == ["§ lookup: step times vary in 2 of 4 runs: no c, v and prediction"]
    singles = as_json(results, summaries, INFO, TWO, {}, {})["results"]
    assert [r["no_prediction"] for r in singles if r["strategy"] == "lookup"] == ["", "", *["step times vary"] * 2]


def test_the_table_says_why_a_run_is_different_and_where() -> None:
    results = beside(plain_run("lookup", 0.1, prompt=2, repeat=1), 0.1)
    detail = "a token scores 2.5 below the target's first choice; rounding explains 0.001"
    results[1].lossless = Lossless(LosslessStatus.DIFFERENT, 0, 16, 2.5, detail)
    lines = note_lines(results, summarize(results))
    assert lines == [f"lookup differs (prompt 3, turn 1, repeat 2): from token 17 on: {detail}"]
    many = [results[1]] * 15
    assert len(note_lines(many, [])) == 11 and note_lines(many, [])[-1] == "and 5 more runs that differ"


def test_a_text_that_several_strategies_and_repeats_wrote_counts_once_in_the_distance() -> None:
    results = []
    for prompt, found in enumerate((FormDistance(60, 0.01, 0.02, 1.0), FormDistance(20, 0.05, 0.09, 0.5))):
        for repeat in range(2):
            results += beside(plain_run("lookup", 0.1, prompt, repeat), 0.1)
            for result in results[-2:]:
                result.lossless = Lossless(LosslessStatus.IDENTICAL, distance=found)
    (line,) = (line for line in note_lines(results, summarize(results)) if "KL" in line)
    assert line.endswith("KL(exact ‖ int8) 0.02 on average, 0.09 at most; the same first choice at 87.5% of 80 tokens")


def drafting_run(repeat: int, step: float, rounds: int) -> list[Result]:
    """Rounds of five tokens in `step` seconds, beside a target of 0.1 s a token that wrote five for each of nine."""
    result = Result("lookup", 0, 0, "", repeat)
    result.figures.add(RunStarted("lookup", 3, 4, 999))
    result.figures.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    for number in range(rounds):
        drafts = tuple(Token(1, Status.ACCEPTED, 0) for _ in range(4))
        result.figures.add(RoundVerified(number, drafts, Token(2, Status.BONUS, 0), 0.0, step, 0.0))
    target = plain_run("target", 0.1, repeat=repeat, rounds=45)
    target.baseline = result.baseline = target.figures
    return [target, result]


def test_a_speedup_has_the_marks_that_the_app_gives_it_and_a_line_that_says_what_they_mean() -> None:
    """4.90× beside a τ of 4.60 stood there without a word."""
    results = drafting_run(0, 0.1 / 0.98, 9)
    stands = standing(results[1].figures, results[1].baseline)
    assert stands is not None and stands.marks == BEYOND_TAU
    row = row_of(as_sheet(results, summarize(results), INFO), "lookup")
    assert row["speedup"].endswith(f") {BEYOND_TAU}") and row["τ"] == "4.60"
    line = f"{BEYOND_TAU} lookup: more than τ, which counts the prefill; a round makes as many tokens"
    assert line in note_lines(results, summarize(results))
    results += drafting_run(1, 0.1 / 0.7, 9)
    lines = note_lines(results, summarize(results))
    assert f"{BEYOND_TAU} lookup in 1 of 2 runs: {MEANINGS[BEYOND_TAU]}" in lines
    assert not any(line.startswith(BEYOND_TAU) for line in note_lines(results[2:], summarize(results[2:])))


def test_a_speedup_over_the_same_text_alone_is_marked() -> None:
    """Of a target whose passes became slower, only those are compared that wrote the same text."""
    results = drafting_run(0, 0.1 / 0.5, 9)
    for number in range(45, 90):
        results[0].figures.add(RoundVerified(number, (), Token(0, Status.SAMPLED, number), 0.0, 0.15, 0.0))
    assert SAME_TEXT in results[1].marks
    row = row_of(as_sheet(results, summarize(results), INFO), "lookup")
    assert SAME_TEXT in row["speedup"]
    lines = note_lines(results, summarize(results))
    assert f"{SAME_TEXT} lookup: over the text both have; tok/s and τ are over all that each wrote" in lines


def single_drafts(repeat: int, step: float, rounds: int = 60) -> list[Result]:
    """Five tokens in four rounds of `step` seconds, beside a target of 0.1 s a token."""
    result = Result("lookup", 0, 0, "", repeat)
    result.figures.add(RunStarted("lookup", 3, 1, 999))
    result.figures.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    for number in range(rounds):
        drafts = (Token(1, Status.ACCEPTED, 0),) * (number % 4 == 0)
        result.figures.add(RoundVerified(number, drafts, Token(2, Status.SAMPLED, 0), 0.0, step, 0.0))
    target = plain_run("target", 0.1, repeat=repeat, rounds=rounds * 5 // 4)
    target.baseline = result.baseline = target.figures
    return [target, result]


def test_a_speedup_above_what_its_tokens_allow_is_marked_in_table_notes_and_json() -> None:
    """1.31 at τ 1.28 was plainly steady; the app painted it neither green nor with a star."""
    results = single_drafts(0, 0.1 / 1.04)
    assert round(results[1].speedup or 0, 2) == 1.30
    summaries = summarize(results)
    row = row_of(as_sheet(results, summaries, INFO), "lookup")
    assert row["speedup"].endswith(f") {BEYOND_TOKENS}") and row["τ"] == "1.25"
    assert f"{BEYOND_TOKENS} lookup: {MEANINGS[BEYOND_TOKENS]}" in note_lines(results, summaries)
    report = as_json(results, summaries, INFO, TWO, {}, {})
    assert report["results"][1]["marks"] == report["summary"][1]["marks"] == BEYOND_TOKENS
    assert report["results"][0]["marks"] == report["summary"][0]["marks"] == ""


def test_a_median_above_the_tau_of_all_prompts_is_marked_though_no_run_is() -> None:
    results = [*single_drafts(0, 0.1), *beside(plain_run("lookup", 0.1, prompt=1, repeat=0, rounds=500), 0.1)]
    results[0].prompt_index = results[1].prompt_index = 0
    results += single_drafts(1, 0.1)
    for result in results[4:]:
        result.prompt_index = 2
    summaries = summarize(results)
    row = row_of(as_sheet(results, summaries, INFO), "lookup")
    assert float(row["speedup"].split()[0]) > float(row["τ"])
    assert row["speedup"].endswith(f" {BEYOND_TAU}")
    assert any(line.startswith(f"{BEYOND_TAU} lookup: more than τ") for line in note_lines(results, summaries))


def test_a_target_that_recomputes_everything_is_said_beside_the_speedup_and_in_the_json() -> None:
    class Forgetful(ScriptedEngine):
        def run(self, prompt: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
            for event in super().run(prompt, settings, cancelled):
                if isinstance(event, Step) and isinstance(event.record, PrefillDone):
                    event = replace(event, record=replace(event.record, recomputes=True))
                yield event

    results = measure(Forgetful(), [Prompt(("a",))], TWO, repeat=1, warmup=0)
    summaries = summarize(results)
    assert row_of(as_sheet(results, summaries, INFO), "speculative")["speedup"] == "1.25 (1.25–1.25) ~ †"
    assert f"† target, speculative: {RECOMPUTES}" in note_lines(results, summaries)
    report = as_json(results, summaries, INFO, TWO, {}, {})
    assert all(r["recomputes"] and RECOMPUTES in r["notices"] for r in report["results"])
    assert report["summary"][1]["recomputes"]


def test_a_prompt_that_leaves_no_room_fails_the_benchmark_with_the_reason() -> None:
    class FullEngine(ScriptedEngine):
        def run(self, prompt: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
            yield Step("target", RunStarted("target", 70, 2, 9))
            yield Step("target", PrefillDone(None, 0.0))
            yield Step("target", RunEnded(EndReason.CONTEXT, "the context holds 64 tokens"))
            yield Finished()

    with pytest.raises(BenchmarkError, match="prompt 1: the context holds 64 tokens"):
        measure(FullEngine(), [Prompt(("a",))], TWO, repeat=1, warmup=0)


def test_without_a_drafter_its_strategies_are_left_out_or_refused_when_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = PairInfo(INFO.target, (), True)
    monkeypatch.setattr(ScriptedEngine, "load", lambda self, choice, progress: alone)
    assert _bench(ScriptedEngine(), json_to="-") == 0
    shown = capsys.readouterr()
    assert [s["strategy"] for s in json.loads(shown.out)["summary"]] == ["target"]
    assert "left out" in shown.err and "speculative" in shown.err
    named = bench(
        ScriptedEngine(),
        TWO,
        DEMO,
        prompts=["a"],
        prompts_file=None,
        repeat=1,
        warmup=0,
        json_to="-",
        strategies_named=True,
    )
    assert named == 2
    assert "needs a drafter" in capsys.readouterr().err


def test_a_message_is_one_line_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    class Wordy(ScriptedEngine):
        def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
            raise LoadError("word " * 60)

    assert _bench(Wordy()) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_json_lines_end_at_newlines_only_and_may_begin_with_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('\ufeff{"prompt": "a \u2028 b"}\r\n{"prompt": "c\x85d"}\n', encoding="utf-8")
    assert [prompt.turns[0] for prompt in read_suite(path)] == ["a \u2028 b", "c\x85d"]
