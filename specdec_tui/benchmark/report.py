"""A benchmark's results as the JSON contract (schema 1) and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from specdec_tui.backends.pair import PairInfo, known
from specdec_tui.benchmark.run import Result
from specdec_tui.benchmark.statistics import Spread, Summary
from specdec_tui.decoding.costs import TIMES_VARY, UNPREDICTED
from specdec_tui.decoding.figures import OF_THE_DRAFTER, RECOMPUTES, RunFigures
from specdec_tui.decoding.form_distance import OWN, ROUNDED, together
from specdec_tui.decoding.latency import CALL_FIGURES, Latency, call_figures
from specdec_tui.decoding.passes import as_table, in_words, knee, limit_in_words, why_not_measured
from specdec_tui.decoding.records import LosslessStatus
from specdec_tui.decoding.reliability import DOUBTS, Reliability
from specdec_tui.decoding.standing import MEANINGS, OF_SPEEDUPS, Verdict, interval_text, verdict_of
from specdec_tui.decoding.standing import RECOMPUTES as RECOMPUTED
from specdec_tui.doors.output import Sheet
from specdec_tui.settings import Settings
from specdec_tui.several_drafters import drafter_of, labelled, labels

SCHEMA = 1
DOUBT = "~"
_MOST_DIFFERENT = 10


def as_json(
    results: Sequence[Result],
    summaries: Sequence[Summary],
    info: PairInfo,
    settings: Settings,
    environment: dict[str, Any],
    run: dict[str, Any],
    stopped: str = "",
) -> dict[str, Any]:
    """The whole benchmark as JSON-ready data; `run` holds repeat and warm-up counts.

    `stopped`: why not all was measured; such results, and only such, are marked as partial.
    """
    return {
        "schema": SCHEMA,
        **({"partial": True, "stopped": stopped} if stopped else {}),
        "environment": environment,
        "models": {
            "target": known(asdict(info.target)),
            "drafter": asdict(info.drafter) if info.drafter else None,
            "drafters": [asdict(drafter) for drafter in info.drafters],
            "notes": list(info.notes),
        },
        "settings": asdict(settings) | run,
        "passes": {
            whose: {"weights": _weights(whose, info), **as_table(one.passes, one.pass_limit)}
            for whose, one in _measured_passes(results).items()
        },
        "results": [_result(result, _drafter(result.strategy, info, settings)) for result in results],
        "summary": [
            _summary(summary) | {"drafter": _drafter(summary.strategy, info, settings)} for summary in summaries
        ],
    }


def _measured_passes(results: Sequence[Result]) -> dict[str, RunFigures]:
    """By model, `target` or `drafter`, a run that tells what passes of it take: all runs tell the same."""
    found: dict[str, RunFigures] = {}
    for result in results:
        if result.figures.passes:
            found.setdefault("drafter" if result.strategy in OF_THE_DRAFTER else "target", result.figures)
    return found


def _summary(summary: Summary) -> dict[str, Any]:
    """Figures of calls are there where the target is on a server."""
    left_out = () if summary.wire_seconds is not None else CALL_FIGURES
    return {name: value for name, value in asdict(summary).items() if name not in left_out}


def _drafter(strategy: str, info: PairInfo, settings: Settings) -> str | None:
    found = drafter_of(strategy, info, falls_back=settings.ngram_unknown == "drafter")
    return None if found is None else found.name


def _result(result: Result, drafter: str | None) -> dict[str, Any]:
    figures, lossless, told = result.figures, result.lossless, result.reliability
    return {
        "strategy": result.strategy,
        "drafter": drafter,
        "prompt_index": result.prompt_index,
        "turn": result.turn,
        "category": result.category,
        "repeat": result.repeat,
        "prompt_tokens": figures.prompt_tokens,
        "new_tokens": figures.new_tokens,
        "token_ids": result.token_ids,
        "text": result.text,
        "finish_reason": str(figures.end.reason) if figures.end else None,
        "prefill_seconds": figures.prefill_seconds,
        "capture_seconds": figures.capture_seconds,
        "decode_seconds": figures.decode_seconds,
        "decode_tokens_per_second": figures.decode_tokens_per_second,
        "rounds": figures.rounds,
        "drafted": figures.drafted,
        "accepted": figures.accepted,
        "rejected": figures.rejected,
        "unverified": figures.unverified,
        "acceptance_rate": figures.acceptance_rate,
        "tokens_per_target_call": figures.tokens_per_target_call,
        "accepted_lengths": figures.accepted_lengths,
        "conditional_acceptance": figures.conditional_acceptance,
        "draft_seconds": figures.draft_seconds,
        "verify_seconds": figures.verify_seconds,
        "other_seconds": figures.other_seconds,
        **call_figures(figures, result.baseline),
        "speedup": result.speedup,
        **result.costs.named(),
        "reliability": None if told is None else asdict(told),
        "marks": result.marks,
        "recomputes": figures.recomputes,
        "notices": result.notices,
        "lossless": {
            "status": str(lossless.status),
            "ties": lossless.ties,
            "first_divergence": lossless.first_divergence,
            "gap": lossless.gap,
            "detail": lossless.detail,
            "distance": None if lossless.distance is None else asdict(lossless.distance),
        },
    }


def as_sheet(results: Sequence[Result], summaries: Sequence[Summary], info: PairInfo, partial: str = "") -> Sheet:
    """The summary for a person, one row a strategy. `partial` says that and why it is one of a part."""
    precision = " + ".join(dict.fromkeys(model.precision for model in info.models))
    drafters = labels(info)
    by_calls = any(summary.calls_per_round is not None for summary in summaries)
    figures = (*_FIGURES, *_OF_CALLS) if by_calls else _FIGURES
    rows = []
    for summary in summaries:
        own = [result for result in results if result.strategy == summary.strategy]
        rows.append(
            (
                labelled(summary.strategy, drafters),
                _spread(summary.decode_tokens_per_second, "{:.1f}"),
                _speedup(summary),
                _number(summary.acceptance_rate, "{:.2f}"),
                _number(summary.tokens_per_target_call, "{:.2f}"),
                _told(summary, summary.cost_ratio),
                _told(summary, summary.verify_ratio),
                _predicted(summary),
                *([_number(summary.calls_per_round, "{:.2f}"), _wire(summary)] if by_calls else []),
                lossless_words(own),
            )
        )
    title = f"{info.name} · {info.target.device} · {precision}"
    return Sheet(
        ("strategy", *figures, "lossless"),
        rows,
        f"{title}\n{partial}" if partial else title,
        CAPTION,
        frozenset(figures),
    )


_FIGURES = ("tok/s", "speedup", "α", "τ", "c", "v", "predicted (off by)")
_OF_CALLS = ("calls a round", "wire a round (ms)")

_MEDIAN_BEYOND_TAU = "more than τ, which is over the tokens of all prompts; the speedup is a median of prompts"

CAPTION = (
    "median over the prompts, each by the median of its repeats (lowest–highest of all prompts and repeats); "
    "speedup against target in the same repeat, predicted over the same runs; "
    "off by: measured / predicted − 1"
)


def _weights(whose: str, info: PairInfo) -> str:
    """The form of the weights of `target` or `drafter`; empty where there is no choice."""
    model = info.target if whose == "target" else info.drafter
    return "" if model is None else model.weights


def note_lines(results: Sequence[Result], summaries: Sequence[Summary]) -> list[str]:
    """What a reader of the table must know, a sentence a line."""
    return [
        *_clock_lines(summaries),
        *_mark_lines(results, summaries),
        *_pace_lines(summaries),
        *_latency_lines(summaries),
        *_different_lines(results),
        *_distance_lines(results),
        *_notice_lines(results),
    ]


def _clock_lines(summaries: Sequence[Summary]) -> list[str]:
    """Whose speedups the clock leaves in doubt, and why."""
    lines = []
    for summary in summaries:
        told = summary.reliability
        if told is not None and (summary.disturbed_runs or told.word in DOUBTS):
            what = f"{DOUBTS[told.word]}: " if not summary.disturbed_runs or summary.runs == 1 else ""
            lines.append(f"{DOUBT} {summary.strategy}: {what}{told.reason}")
    return lines


def _mark_lines(results: Sequence[Result], summaries: Sequence[Summary]) -> list[str]:
    """Whose speedups are not what a reader would make of the figures beside them, and in how many runs.

    That a target recomputes is a notice of each of its runs.
    """
    lines = []
    for mark in OF_SPEEDUPS:
        for summary in summaries:
            count = sum(mark in result.marks for result in results if result.strategy == summary.strategy)
            if count:
                where = f" in {count} of {summary.runs} runs" if summary.runs > 1 else ""
                lines.append(f"{mark} {summary.strategy}{where}: {MEANINGS[mark]}")
            elif mark in summary.marks:
                lines.append(f"{mark} {summary.strategy}: {_MEDIAN_BEYOND_TAU}")
    return lines


def _pace_lines(summaries: Sequence[Summary]) -> list[str]:
    """Whose predictions are lacking, or of fewer runs than there are, and why."""
    lines = []
    for summary in summaries:
        left_out = summary.runs - summary.compared_runs
        if _is_disturbed(summary):
            continue
        if summary.no_prediction:
            is_told = summary.cost_ratio is not None or summary.verify_ratio is not None
            what = "no prediction; c and v are of the other runs" if is_told else "no c, v and prediction"
            lines.append(f"{UNPREDICTED} {summary.strategy}: {summary.no_prediction}: {what}")
        elif left_out > summary.disturbed_runs:
            changed = f"{TIMES_VARY} in {left_out - summary.disturbed_runs} of {summary.runs} runs"
            lines.append(
                f"{UNPREDICTED} {summary.strategy}: {changed}: median and prediction are of the others, ranges of all"
            )
    return lines


def _latency_lines(summaries: Sequence[Summary]) -> list[str]:
    """From which latency on each strategy loses."""
    return [
        f"{summary.strategy}: {Latency(summary.break_even_latency_seconds, summary.wire_seconds).text}"
        for summary in summaries
        if summary.break_even_latency_seconds is not None and summary.wire_seconds is not None
    ]


def pass_lines(results: Sequence[Result], info: PairInfo) -> list[str]:
    """What passes of several tokens cost against one, where the knee is, and what they are bounded by.

    Or why it is not known of a model that ran alone.
    """
    lines, measured = [], _measured_passes(results)
    for whose in ("target", "drafter"):
        of = next((one for one in results if (one.strategy in OF_THE_DRAFTER) == (whose == "drafter")), None)
        if of is not None and whose not in measured:
            lines.append(f"v(n) of {whose}: not measured: {why_not_measured(of.figures)}")
    for whose, figures in measured.items():
        plain = dict(figures.passes)[1]
        costs = ", ".join(f"{tokens}: {seconds / plain:.2f}" for tokens, seconds in figures.passes if tokens > 1)
        bend = knee(figures.passes)
        told = f"no knee up to {figures.passes[-1][0]}" if bend is None else f"knee {bend}"
        against = f"passes over n tokens against one of {plain * 1e3:.2f} ms: {costs}"
        alone = f"one token alone: {plain * 1e3:.2f} ms"
        form = f" ({weights} weights)" if (weights := _weights(whose, info)) else ""
        lines.append(f"v(n) of {whose}{form}, {against if costs else alone}; {told}")
        lines.append(f"{whose}: {in_words(figures.passes, figures.pass_limit, figures.gamma)[0]}")
        if figures.pass_limit is not None:
            lines.append(f"{whose}: {limit_in_words(figures.pass_limit)}")
    return lines


def _different_lines(results: Sequence[Result]) -> list[str]:
    """Each run whose text is not the target's: which, from where on, and why."""
    lines = []
    for result in results:
        lossless = result.lossless
        if lossless.status is LosslessStatus.DIFFERENT:
            place = f"prompt {result.prompt_index + 1}, turn {result.turn + 1}, repeat {result.repeat + 1}"
            where = [] if lossless.first_divergence is None else [f"from token {lossless.first_divergence + 1} on"]
            lines.append(
                f"{result.strategy} differs ({place}): " + ": ".join([*where, lossless.detail or "no reason told"])
            )
    rest = len(lines) - _MOST_DIFFERENT
    return [*lines[:_MOST_DIFFERENT], f"and {rest} more runs that differ"] if rest > 0 else lines


def _distance_lines(results: Sequence[Result]) -> list[str]:
    """How far a target that rounds its activations is from the exact one, over all texts, each counted once."""
    texts = {(one.prompt_index, one.turn, one.lossless.distance): one.lossless.distance for one in results}
    found = together(texts.values())
    return [] if found is None else [f"weights {ROUNDED}: {OWN}: {found.in_words()}"]


def _notice_lines(results: Sequence[Result]) -> list[str]:
    """What the runs had to say, each once, with the strategies that said it."""
    tellers: dict[str, list[str]] = {}
    for result in results:
        for message in result.notices:
            own = tellers.setdefault(message, [])
            if result.strategy not in own:
                own.append(result.strategy)
    return [
        f"{RECOMPUTED} " * (message == RECOMPUTES) + f"{', '.join(strategies)}: {message}"
        for message, strategies in tellers.items()
    ]


def lossless_words(results: Sequence[Result]) -> str:
    """How many runs were identical, had near-ties only, or differ; or why the check does not apply."""
    counts = {status: sum(r.lossless.status is status for r in results) for status in LosslessStatus}
    if counts[LosslessStatus.NOT_APPLICABLE] == len(results):
        details = {result.lossless.detail for result in results if result.lossless.detail}
        return details.pop() if len(details) == 1 else "not applicable"
    words = [f"{counts[status]} {str(status).replace('_', ' ')}" for status in LosslessStatus if counts[status]]
    return ", ".join(words)


def _speedup(summary: Summary) -> str:
    """No single number where the clock was disturbed; marks for what the lines below the table say, and `slower`."""
    doubted = summary.disturbed_runs > 0 or (summary.reliability is not None and summary.reliability.word in DOUBTS)
    marks = f" {DOUBT}" * doubted + f" {RECOMPUTED}" * summary.recomputes
    marks += "".join(f" {mark}" for mark in OF_SPEEDUPS if mark in summary.marks)
    if summary.disturbed_runs and summary.runs > 1:
        marks += f"\n{summary.disturbed_runs} of {summary.runs} disturbed"
    spread = summary.speedup
    if spread is not None and _is_disturbed(summary):
        return interval_text(spread.low, spread.high).removesuffix("×") + marks
    return _spread(spread, "{:.2f}") + marks + "\nslower" * _is_slower(summary)


def _is_slower(summary: Summary) -> bool:
    """By the rule for a single run, of the median."""
    told, speedup = summary.reliability, summary.speedup
    if told is None or speedup is None:
        return False
    tau = summary.tokens_per_target_call
    return verdict_of(Reliability(told.word, told.reason), speedup.median, tau, True, False) is Verdict.SLOWER


def _predicted(summary: Summary) -> str:
    off = "" if summary.remainder is None else f" ({summary.remainder:+.0%})"
    return _told(summary, summary.predicted_speedup) + off


def _told(summary: Summary, value: float | None) -> str:
    """A figure; what is not told has the mark of the line below that says why."""
    mark = DOUBT if _is_disturbed(summary) else UNPREDICTED
    return _number(value, "{:.2f}") + f" {mark}" * (value is None and bool(summary.no_prediction))


def _is_disturbed(summary: Summary) -> bool:
    return summary.reliability is not None and summary.reliability.word == "disturbed"


def _wire(summary: Summary) -> str:
    """Of a round; a stream pays none."""
    return (
        "–" if summary.wire_seconds is None or summary.calls_per_round is None else f"{summary.wire_seconds * 1e3:.3g}"
    )


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _spread(value: Spread | None, form: str) -> str:
    if value is None:
        return "–"
    return f"{form.format(value.median)} ({form.format(value.low)}–{form.format(value.high)})"
