"""A trace as one HTML page that needs nothing else: no script, no network, light and dark, fit for paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specdec_tui.backends.pair import known
from specdec_tui.decoding.costs import TIMES_VARY, UNPREDICTED, Costs
from specdec_tui.decoding.figures import RECOMPUTES, RunFigures
from specdec_tui.decoding.records import Checked, Lossless, LosslessStatus, Origin, Step
from specdec_tui.decoding.shares import Part, shares
from specdec_tui.decoding.standing import MEANINGS, OF_SPEEDUPS, Verdict
from specdec_tui.decoding.time_verdict import time_verdict
from specdec_tui.glossary import FIGURES
from specdec_tui.several_drafters import labelled, labels
from specdec_tui.traces.children import origins
from specdec_tui.traces.compared import Compared, compared
from specdec_tui.traces.export import steps_of
from specdec_tui.traces.format import Trace
from specdec_tui.traces.markup import element, safe, table
from specdec_tui.traces.report_charts import common_scale, run_charts, speed_chart
from specdec_tui.traces.report_style import STYLE
from specdec_tui.traces.report_text import legend, notices_of, spellings, text_of
from specdec_tui.traces.summary import figures_of

# Forbids everything but the page's own style, so that even a mistake in escaping could not run or load anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_TONES = {"target": "tone-0", "speculative": "tone-1", "ngram": "tone-2", "lookup": "tone-3", "drafter": "tone-4"}
_TONES |= {"speculative-2": "tone-5", "speculative-3": "tone-6", "speculative-4": "tone-7"}
_HEAD = (
    "strategy",
    "tok/s",
    "speedup",
    "clock",
    "output",
    "predicted (off by)",
    "α",
    "τ",
    "wasted",
    "c",
    "v",
    "tokens",
    "rounds",
    "prefill s",
)
_OF_CALLS = "calls a round", "wire"
_DEFINITIONS = (
    "tok/s: new tokens per second of decoding, the prefill and its token left out. "
    "speedup: against the target alone, over the text that both have; where the clock was disturbed, an interval of "
    "what was measured, what its own passes say and how uncertain these are, never above what its tokens allow. "
    "clock: whether passes that must take the same did. "
    "predicted: what the acceptance at each place of a round and the time of its parts let one expect "
    "(off by: measured / predicted − 1). predicted, c and v come from the same clocks: where these were disturbed "
    "or the times of like steps vary within a run, they are left out. "
    "wasted: drafts that were not kept. "
    + " ".join(f"{letter}: {meaning}." for letter, meaning in FIGURES.items())
    + " Rounds and tokens count from 1."
)


_DEFINED_OF_CALLS = (
    " The target is on a server: v is of a call with its way there and back, in tokens of a stream of the target; "
    "wire: the share of the decode time on that way."
)


def as_html(trace: Trace) -> str:
    """The whole report as one document. Everything from models and files is escaped."""
    header, children = trace.header, origins(trace)
    # A sweep has many runs, each from the first token on: their figures are for the table of who made it.
    swept = {name for name, origin in children.items() if origin.swept}
    runs = {name: steps for name, steps in steps_of(trace).items() if name not in swept}
    figures = {name: run for name, run in figures_of(trace.events).items() if name not in swept}
    found = compared(header, figures)
    verdicts = {event.strategy: event.lossless for event in trace.events if isinstance(event, Checked)}
    tones = {name: _TONES.get(name, "tone-5") for name in runs}
    drafters = labels(header.pair())
    names = spellings((step for steps in runs.values() for step in steps), trace.texts)
    scale = common_scale(runs)
    asks = any(run.by_calls for run in figures.values())
    title = f"specdec-tui: {' '.join(header.prompt.split())[:60] or 'report'}"
    body = [
        element("h1", "Speculative decoding report"),
        element("p", safe(_subtitle(trace)), class_="quiet"),
        element("h2", "Prompt"),
        element("pre", safe(header.prompt)),
        element("h2", "Strategies"),
        _comparison(figures, found, verdicts, drafters, asks),
        *_warnings(figures, found),
        element("p", safe(_DEFINITIONS + _DEFINED_OF_CALLS * asks), class_="quiet"),
        speed_chart(runs, tones, drafters),
        element("h2", "Texts"),
        legend(),
        element("p", "The charts of all strategies have the same axes.", class_="quiet"),
        *(
            _run(
                labelled(name, drafters) + _origin(children.get(name)),
                steps,
                verdicts.get(name),
                names,
                run_charts(steps, figures[name], tones[name], scale),
                _time(figures[name], figures.get("target")),
            )
            for name, steps in runs.items()
        ),
        *([element("p", f"Left out here, but in the trace: sweeps ({len(swept)}).")] if swept else []),
        *_tables(trace),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)}</title><style>{STYLE}</style></head>\n<body>"
        '<input type="checkbox" id="lost" class="screen" checked> '
        '<label for="lost" class="screen quiet">show drafts that were not kept</label>\n'
        f"{element('main', *(part + chr(10) for part in body))}</body></html>\n"
    )


def _origin(origin: Origin | None) -> str:
    """Behind the name of a what-if, whose text goes on with a part of another run's."""
    if origin is None:
        return ""
    changes = "".join(f", {name.replace('_', '-')} {value}" for name, value in origin.changes)
    return f" · what-if of {origin.parent} from token {origin.position + 1} on{changes}"


def _subtitle(trace: Trace) -> str:
    header, pair = trace.header, trace.header.pair()
    parts = [] if pair is None else [pair.name]
    parts += [] if pair is None else [pair.target.device, pair.target.precision]
    return " · ".join([*parts, header.created, f"specdec-tui {header.app}"])


def _comparison(
    figures: Mapping[str, RunFigures],
    found: Mapping[str, Compared],
    verdicts: Mapping[str, Lossless],
    drafters: Mapping[str, str],
    asks: bool,
) -> str:
    rows = [
        (
            labelled(name, drafters),
            _number(run.decode_tokens_per_second, ".1f"),
            *_speed_cells(name, run, found[name]),
            _outcome(name, run, verdicts.get(name)),
            *_costs(Costs() if name == "target" else found[name].costs, run),
            str(run.new_tokens),
            str(run.rounds),
            f"{run.prefill_seconds:.2f}",
            *(_calls(run) if asks else ()),
        )
        for name, run in figures.items()
    ]
    return table((*_HEAD, *_OF_CALLS) if asks else _HEAD, rows, class_="figures")


def _calls(run: RunFigures) -> tuple[str, str]:
    """Round trips of a mean round to a server, and the share of the decode time on the way; nothing of a stream."""
    share = run.wire_seconds / run.decode_seconds if run.has_calls and run.decode_seconds else None
    return _number(run.calls_per_round, ".2f"), _number(share, ".0%")


def _speed_cells(name: str, run: RunFigures, found: Compared) -> tuple[str, str]:
    if name == "target":
        return "1.00×" + " †" * run.recomputes, ""
    return ("what-if", "") if run.is_what_if else _compared(found)


def _compared(found: Compared) -> tuple[str, str]:
    """A run's speedup, and whether its clock can be believed: if not, an interval in the place of a number."""
    one = found.standing
    if one is None:
        return "–", ""
    slower = " slower" * (one.verdict is Verdict.SLOWER)
    marks, since = f" {one.marks}" * bool(one.marks), f" vs. target of {found.since}" * bool(found.since)
    return one.text + slower + marks + since, one.word


def _costs(found: Costs, run: RunFigures) -> tuple[str, ...]:
    """What was to be expected of a run, what became of its drafts, and c and v."""
    expected, off = found.predicted_speedup, found.remainder
    mark = f" {UNPREDICTED}" * (found.missing == TIMES_VARY)
    return (
        f"–{mark}" if expected is None else f"{expected:.2f}×" + ("" if off is None else f" ({off:+.0%})"),
        _number(run.acceptance_rate, ".2f"),
        _number(run.tokens_per_target_call, ".2f"),
        _number(run.wasted_rate, ".0%"),
        _number(found.cost_ratio, ".2f") + mark,
        _number(found.verify_ratio, ".2f") + mark,
    )


def _warnings(figures: Mapping[str, RunFigures], found: Mapping[str, Compared]) -> list[str]:
    """What the figures of the table must not be read without."""
    told = {name: one.standing for name, one in found.items()}
    lines = [f"{name}: {one.doubt}: {one.reason}." for name, one in told.items() if one and one.reason]
    if changed := [name for name, one in found.items() if one.costs.missing == TIMES_VARY]:
        lines.append(f"{UNPREDICTED} {', '.join(changed)}: {TIMES_VARY}: nothing is predicted, and c and v not told.")
    if recomputing := [name for name, run in figures.items() if run.recomputes]:
        lines.append(f"† {', '.join(recomputing)}: {RECOMPUTES}.")
    for mark in OF_SPEEDUPS:
        if marked := [name for name, one in told.items() if one and mark in one.marks]:
            lines.append(f"{mark} {', '.join(marked)}: {MEANINGS[mark]}.")
    return [element("p", safe(line)) for line in lines]


def _outcome(name: str, run: RunFigures, verdict: Lossless | None) -> str:
    ended = "not ended" if run.end is None else run.end.words
    return f"{ended}, {_verdict(name, verdict)}"


def _verdict(name: str, verdict: Lossless | None) -> str:
    """What the lossless check found, in words."""
    if verdict is None:
        return "not checked"
    if name == "target" and verdict.status in (LosslessStatus.IDENTICAL, LosslessStatus.NOT_APPLICABLE):
        return "the reference"
    words = {
        LosslessStatus.IDENTICAL: "identical to the target's",
        LosslessStatus.NEAR_TIES: f"{verdict.ties} near-tie{'' if verdict.ties == 1 else 's'}",
        LosslessStatus.DIFFERENT: "DIFFERENT from the target's",
        LosslessStatus.NOT_APPLICABLE: _not_compared(verdict.detail),
    }[verdict.status]
    if verdict.gap is not None and verdict.status is LosslessStatus.NEAR_TIES:
        words += f" (largest gap {verdict.gap:.2g} logits)"
    if verdict.first_divergence is not None:
        words += f", first at token {verdict.first_divergence + 1}"
    return words


def _not_compared(detail: str) -> str:
    """As the app's table has it; other reasons stand whole beside the run's text."""
    if "lossy" in detail:
        return "lossy"
    return "same distribution, other draws" if not detail or "distribution" in detail else "not compared"


def _time(run: RunFigures, target: RunFigures | None) -> str:
    """Where the time went, and beside the target in one sentence why the run was faster or slower."""
    spent = shares(run)
    names = {Part.TARGET: "server"} if run.by_calls else {}
    parts = [
        f"{names.get(part, part.value)} {seconds:.3g} s ({seconds / spent.total:.0%})"
        for part, seconds in spent.parts
        if seconds
    ]
    sentence = "" if target is None else time_verdict(run, target)
    told = [", ".join(parts), f"{sentence[:1].upper()}{sentence[1:]}"]
    return element("p", safe(" ".join(f"{part}." for part in told if part)), class_="quiet")


def _run(
    name: str, steps: Sequence[Step], verdict: Lossless | None, names: Mapping[int, str], charts: str, time: str
) -> str:
    told = "" if verdict is None or not verdict.detail else element("p", safe(verdict.detail), class_="quiet")
    parts = [notices_of(steps), told, time, text_of(steps, names), charts]
    return element("section", element("h3", safe(name)), *parts)


def _tables(trace: Trace) -> list[str]:
    header = trace.header
    models = {role: known(model) for role, model in header.models.items() if isinstance(model, Mapping)}
    others = header.models.get("drafters")
    for number, model in enumerate(others[1:] if isinstance(others, list) else (), 2):
        models |= {f"drafter {number}": known(model)} if isinstance(model, Mapping) else {}
    columns = list(dict.fromkeys(key for model in models.values() for key in model))
    model_rows = [[role, *(_value(model.get(key)) for key in columns)] for role, model in models.items()]
    notes = header.models.get("notes")
    told = [element("p", safe(note), class_="quiet") for note in (notes if isinstance(notes, list) else ())]
    return [
        element("h2", "Models"),
        table(("", *(key.replace("_", " ") for key in columns)), model_rows) if models else "",
        *told,
        element("h2", "Settings"),
        table((), [(key.replace("_", " "), _value(value)) for key, value in header.settings.items()]),
        element("h2", "Environment"),
        table((), [(key.replace("_", " "), _value(value)) for key, value in header.environment.items()]),
    ]


def _value(value: Any) -> str:
    """A JSON value as a person reads it."""
    match value:
        case None:
            return "–"
        case bool():
            return "on" if value else "off"
        case int() if abs(value) >= 10_000:
            return f"{value:,}"
        case list():
            return ", ".join(map(_value, value))
        case dict():
            return ", ".join(f"{key} {_value(part)}" for key, part in value.items())
    return str(value)


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None else format(value, form) + unit
