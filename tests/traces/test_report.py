"""The report: one page that is whole, well formed, and safe to open whatever the texts in it say."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from recorded import comparison, full_events, full_trace, long_events, slower, trace_of, with_changed_pace

from specdec_tui.backends.pair import SERVED_BY
from specdec_tui.decoding.figures import RECOMPUTES
from specdec_tui.decoding.records import (
    EndReason,
    Finished,
    Insight,
    Lossless,
    LosslessStatus,
    Notice,
    PrefillDone,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.decoding.shares import shares
from specdec_tui.decoding.standing import BEYOND_TOKENS, MEANINGS
from specdec_tui.decoding.time_verdict import time_verdict
from specdec_tui.traces.charts import Bar, Series, bar_chart, line_chart
from specdec_tui.traces.export import steps_of
from specdec_tui.traces.format import Trace, TraceHeader
from specdec_tui.traces.report import _HEAD as HEADINGS
from specdec_tui.traces.report import _verdict, as_html
from specdec_tui.traces.report_charts import common_scale, latency, rounds_of, run_charts, speed_over_time
from specdec_tui.traces.report_style import STYLE
from specdec_tui.traces.summary import figures_of
from specdec_tui.tui.figures.words import lossless_part

VOID = {"meta", "input", "line", "polyline"}
TAGS = re.findall(
    r"\w+",
    """html head meta title style body input label main h1 h2 h3 p pre div table thead tbody tr th td section span b i
    figure figcaption svg line polyline rect text""",
)
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></title></svg></pre><iframe src=//evil.example>",
    "&lt;b&gt; &amp; \u202egnp.exe \x1b]52;c;eA==\x07 \0 \ud83d",
]


class Page(HTMLParser):
    """Elements in their order, their attributes and the visible text; unbalanced tags are errors."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def titles(self, kind: str) -> list[str]:
        """What is told on hover about the tokens of a fate."""
        return [a["title"] or "" for _, a in self.tags if kind in (a.get("class") or "").split() and a.get("title")]


def hostile_trace(text: str) -> Trace:
    """The text in every place that a model or a file can fill."""
    events = (
        Step(text, RunStarted(text, 1, 0, 1), prompt_text=text),
        Step(text, Notice(text)),
        Step(text, PrefillDone(Token(1, Status.SAMPLED, 0), 0.2), (text,), alternatives=((7, text),)),
        Step(text, RunEnded(EndReason.ERROR, text), (text,), answer=text),
        *full_events()[:-1],
        Finished(),
    )
    models = {"target": {"name": text, text: text}, "drafter": None, "notes": [text]}
    header = TraceHeader(text, text, text, {text: {text: text}}, models, {text: [text]}, {text: {text: text}})
    return Trace(header, events)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_shown_and_never_obeyed(text: str) -> None:
    html = as_html(hostile_trace(text))
    page = Page(html)
    assert {tag for tag, _ in page.tags} <= set(TAGS)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert not [a for _, a in page.tags if {"src", "href", "style"} & set(a)]
    assert not re.search("[\0\x07\x1b\u202e\ud800-\udfff]", html) and html.encode()


def test_the_report_needs_no_network_and_no_script() -> None:
    html = as_html(comparison())
    assert "<script" not in html and "http:" not in html and "https:" not in html and "url(" not in html
    assert "default-src 'none'" in html
    assert "prefers-color-scheme: dark" in html and "@media print" in html


def test_the_report_compares_all_strategies_in_words_and_numbers() -> None:
    page = Page(as_html(comparison()))
    for words in ("1.00×", "2.59×", "0.71", "identical to the target's", "the reference", "length reached"):
        assert words in page.text
    assert page.text.count("speculative") >= 3


def test_a_strategy_that_is_slower_is_called_slower() -> None:
    events = (*long_events("target", 20), *long_events("lookup", 20, gamma=1), Finished())
    slow = [
        Step(e.strategy, type(e.record)(e.record.round, e.record.drafts, e.record.emitted, 0.5, 0.5, 0.0), e.texts)
        if isinstance(e, Step) and type(e.record).__name__ == "RoundVerified" and e.strategy == "lookup"
        else e
        for e in events
    ]
    assert "× slower" in Page(as_html(trace_of(tuple(slow)))).text


def test_the_report_has_an_interval_and_the_reason_where_the_clock_was_disturbed() -> None:
    steady = Page(as_html(comparison())).text
    assert "steady" in steady and "disturbed:" not in steady and "(+0%)" in steady
    page = Page(as_html(slower(comparison(), "target", 3))).text
    row = page.split("speculative")[1].split("ngram")[0]
    assert row.startswith("50.82.56–3.00×disturbed") and row.count("7.68×") == 0, "no bare ratio"
    html = as_html(slower(comparison(), "target", 3))
    told = dict(zip(HEADINGS, cells(html, "speculative"), strict=True))
    assert [told[name] for name in ("predicted (off by)", "c", "v")] == ["–"] * 3, "nothing follows from such clocks"
    assert "where these were disturbed or the times of like steps vary within a run, they are left out" in html
    known = dict(zip(HEADINGS, cells(as_html(comparison()), "speculative"), strict=True))
    assert [known[name] for name in ("predicted (off by)", "c", "v")] == ["2.59× (+0%)", "0.04", "1.00"]
    assert "speculative: clock disturbed: many-token passes took 50 ms, target's one-token 150 ms." in page
    assert "never above what its tokens allow" in page, "as the interval is made"


def test_a_speedup_above_what_its_tokens_allow_is_marked_with_what_that_means() -> None:
    """1.05× at a token a round: steady, and without a word."""
    events = (*long_events("target", 60), *long_events("lookup", 60, gamma=0), Finished())
    html = as_html(slower(trace_of(events), "lookup", 0.95))
    told = dict(zip(HEADINGS, cells(html, "lookup"), strict=True))
    assert (told["speedup"], told["clock"]) == (f"1.05× {BEYOND_TOKENS}", "steady")
    assert f"{BEYOND_TOKENS} lookup: {MEANINGS[BEYOND_TOKENS]}." in Page(html).text


def cells(html: str, strategy: str) -> list[str]:
    """The row of a strategy in the report's first table."""
    rows = (re.findall("<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall("<tr>(.*?)</tr>", html))
    return next(row for row in rows if row[0] == strategy)


def test_where_step_times_vary_it_is_said_in_the_place_of_predicted_c_and_v() -> None:
    """They were dashes, and nothing said why."""
    trace = comparison()
    page = Page(as_html(with_changed_pace(trace))).text
    row = page.split("speculative")[1].split("ngram")[0]
    assert "steady" in row and row.count("– §") == 3 and "×" in row
    assert "§ speculative, ngram: step times vary: nothing is predicted, and c and v not told." in page
    assert "§" not in Page(as_html(trace)).text


def test_a_target_that_recomputes_everything_is_said_beside_the_speedup() -> None:
    events = tuple(
        replace(event, record=replace(event.record, recomputes=True))
        if isinstance(event, Step) and isinstance(event.record, PrefillDone)
        else event
        for event in comparison().events
    )
    page = Page(as_html(Trace(comparison().header, events))).text
    assert "2.59× †" in page and f"† target, speculative, ngram: {RECOMPUTES}." in page
    assert RECOMPUTES not in Page(as_html(comparison())).text


def test_every_token_says_its_round_place_fate_and_numbers() -> None:
    page = Page(as_html(full_trace()))
    (rejected,) = page.titles("rejected")
    assert rejected.splitlines()[0] == "round 1 · token 3 · ✗ rejected"
    assert rejected.splitlines()[2] == "processed p 0.200, q 0.333"
    assert rejected.splitlines()[3].endswith("= 0.30 · draw 0.90 ≥ 0.30: rejected")
    accepted = page.titles("accepted")[0]
    assert "processed entropy (nats): target 0.300, drafter 0.000" in accepted
    assert "processed target: ·the 0.600" in accepted and "processed drafter:" in accepted
    assert page.titles("sampled")[0].startswith("prefill · token 1 · › sampled")
    assert "(half precision)" not in page.text and "half precision" in page.text


def test_a_greedy_round_says_what_is_raw() -> None:
    token = Token(1, Status.SAMPLED, 0, 1.0, insight=Insight(1.2, target_top=((1, 0.553), (2, 0.25))))
    events = (Step("target", RunStarted("target", 3, 4, 9)), Step("target", PrefillDone(token, 0.1), (" a",)))
    (title,) = Page(as_html(trace_of(events))).titles("sampled")
    assert "raw p 0.553 → greedy 1" in title and "raw entropy (nats): target 1.200" in title
    assert "raw target: ·a 0.553" in title and "processed" not in title


def test_alternatives_without_a_known_text_show_their_id() -> None:
    token = Token(1, Status.SAMPLED, 0, insight=Insight(target_top=((1, 0.75), (99, 0.25))))
    events = (Step("target", RunStarted("target", 3, 4, 9)), Step("target", PrefillDone(token, 0.1), (" a",)))
    assert "target: ·a 0.750  #99 0.250" in Page(as_html(trace_of(events))).titles("sampled")[0]


def test_drafts_that_were_not_kept_can_be_hidden_without_a_script() -> None:
    html = as_html(full_trace())
    assert "#lost:not(:checked) ~ main .lost" in html and 'id="lost"' in html
    assert 'class="rejected lost"' in html and 'class="unverified lost' in html


def test_the_kept_tokens_are_the_text() -> None:
    html = as_html(full_trace())
    kept = re.sub(r'<span class="[^"]*lost[^"]*"[^>]*>[^<]*</span>', "", html.split('class="tokens"')[1])
    assert Page("<div" + kept.split("</div>")[0] + "</div>").text == "Since the雲\n end\N{REPLACEMENT CHARACTER}"


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("media", ["light", "dark", "paper"])
def test_all_text_can_be_read_on_whatever_it_stands_on(media: str) -> None:
    """A contrast of at least 4.5, as WCAG 2 asks; drafts that were never judged had 3.9 on their panel."""
    light, dark, paper = (
        dict(re.findall(r"--([\w-]+): (#\w+)", found)) for found in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    )
    colours = light | {"light": {}, "dark": dark, "paper": paper}[media]
    assert set(dark) == set(light), "no colour of one theme is left over in the other"
    texts = set(re.findall(r"(?:color|fill): var\(--([\w-]+)\)", STYLE))
    grounds = set(re.findall(r"background: var\(--([\w-]+)\)", STYLE))
    assert texts >= {"ink", "quiet", "accepted", "rejected", "resampled", "bonus", "unverified"} and "panel" in grounds
    for text in texts - {"edge"}:
        for ground in grounds:
            low, high = sorted(luminance(colours[name]) for name in (text, ground))
            assert (high + 0.05) / (low + 0.05) >= 4.5, f"{text} on {ground}"
    assert "opacity" not in STYLE, "fainter than computed here"


def test_a_trace_without_any_run_is_a_report_too() -> None:
    assert Page(as_html(Trace(TraceHeader("", "", "p"), ()))).text


def test_a_run_cut_short_before_its_first_round_is_a_report_too() -> None:
    events = (Step("target", RunStarted("target", 3, 4, 9)), Step("target", RunEnded(EndReason.ERROR, "out of memory")))
    page = Page(as_html(trace_of(events)))
    assert "failed, not checked" in page.text and "out of memory" in page.text


def test_charts_of_all_strategies_have_the_same_axes() -> None:
    """A round that costs three times as much must not look the same because its chart is scaled to itself."""
    trace = slower(comparison(), "ngram", 3)
    runs = steps_of(trace)
    charts = {
        name: run_charts(runs[name], figures, "tone-1", common_scale(runs))
        for name, figures in figures_of(trace.events).items()
    }
    marks = {name: re.findall(r'text-anchor="(?:end|middle)">([\d.]+)<', html) for name, html in charts.items()}
    assert marks["speculative"] == marks["ngram"] and "100" in marks["speculative"]
    assert "same axes" in Page(as_html(trace)).text


def test_charts_are_thinned_out_for_long_runs() -> None:
    rounds = rounds_of([event for event in long_events("speculative", 5_000) if isinstance(event, Step)])
    points = speed_over_time(rounds)
    assert len(points) < 400 and points[-1][0] == pytest.approx(sum(record.seconds for record in rounds))
    assert points[-1][1] == pytest.approx(3 / 0.059, rel=0.2)
    drafting, verifying, _ = latency(rounds)
    assert len(drafting) == len(verifying) <= 160 and drafting[0][1] == pytest.approx(8.0)


def test_charts_stay_inside_their_frame_whatever_the_numbers() -> None:
    points = [(0.0, 0.0), (1e-9, 1e9), (float("nan"), 1.0), (2.0, float("inf"))]
    for drawing in (
        line_chart("t", "x", "y", [Series("s", points, "tone-1")]),
        line_chart("t", "x", "y", [Series("s", [(0.0, 0.0)], "tone-1")]),
        bar_chart("t", "x", "y", [Bar(str(n), n * 1e7, "n") for n in range(33)], "tone-1"),
        bar_chart("t", "x", "y", [Bar("0", 0, "0")], "tone-1"),
    ):
        Page(drawing)
        assert "nan" not in drawing and "inf" not in drawing
        places = [float(v) for v in re.findall(r' (?:x|y|x1|x2|y1|y2|width|height)="(-?[\d.]+)"', drawing)]
        assert places and all(-1 <= place <= 481 for place in places)
    assert line_chart("t", "x", "y", []) == "" and bar_chart("t", "x", "y", [], "tone-1") == ""


@pytest.mark.parametrize("detail", ["", "only the distribution is the same", "a lossy rule"])
def test_a_run_that_cannot_be_compared_is_told_as_in_the_app(detail: str) -> None:
    """The report called a sampled run `not compared`, where the app says what is the same."""
    verdict = Lossless(LosslessStatus.NOT_APPLICABLE, detail=detail)
    in_the_app, _ = lossless_part(verdict)
    assert _verdict("ngram", verdict) == in_the_app.lstrip("~≠ ")


def test_each_strategy_says_where_its_time_went_and_why_it_was_faster_or_slower() -> None:
    trace = comparison()
    page, figures = Page(as_html(trace)), figures_of(trace.events)
    for run in figures.values():
        spent = shares(run)
        assert f"target {spent.target:.3g} s ({spent.target / spent.total:.0%})" in page.text
        sentence = time_verdict(run, figures["target"])
        assert f"{sentence[0].upper()}{sentence[1:]}." in page.text
    alone = trace_of(tuple(e for e in comparison().events if getattr(e, "strategy", "") != "target"))
    assert "no run of the target" not in Page(as_html(alone)).text


def test_a_page_of_a_target_on_a_server_has_columns_and_lines_for_the_way_and_others_have_not() -> None:
    text = as_html(full_trace())
    assert '<th scope="col">calls a round</th><th scope="col">wire</th></tr>' in text
    row = next(row for row in re.findall("<tr>.*?</tr>", text) if '<th scope="row">speculative' in row)
    # A call in two rounds; 30 of 143.03 ms on the way.
    assert re.findall("<td>(.*?)</td>", row)[-2:] == ["0.50", "21%"]
    stream = as_html(trace_of(full_events("target")))
    row = next(row for row in re.findall("<tr>.*?</tr>", stream) if '<th scope="row">target' in row)
    assert re.findall("<td>(.*?)</td>", row)[-2:] == ["–", "–"]
    assert "server 0.11 s" in text and "wire 0.03 s" in text
    assert "server</span>" in text and "wire</span>" in text and "target pass</span>" not in text
    here = as_html(comparison())
    assert "calls a round" not in here and "target pass</span>" in here and "on a server" not in here


def test_what_a_target_on_a_server_is_made_of_is_not_known() -> None:
    trace = full_trace()
    served = trace.header.models["target"] | {
        "device": f"{SERVED_BY}there:8000",
        "dtype": "served",
        "quantization": "none",
        "parameters": 0,
        "memory_bytes": 0,
    }
    models = trace.header.models | {"target": served}
    text = as_html(Trace(replace(trace.header, models=models), trace.events))
    row = next(row for row in re.findall("<tr>.*?</tr>", text) if f"<td>a/target</td><td>{SERVED_BY}" in row)
    head = next(row for row in re.findall("<tr>.*?</tr>", text) if ">memory bytes</th>" in row)
    told = dict(zip(re.findall("<th.*?>(.*?)</th>", head)[1:], re.findall("<td>(.*?)</td>", row), strict=True))
    assert [told[name] for name in ("quantization", "parameters", "memory bytes")] == ["–", "–", "–"]
    assert "<td>16,000,000</td>" in text  # of the drafter, which is here
