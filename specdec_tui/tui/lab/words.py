"""What the γ-lab says beside its curve: the figures, one round to scale, the sum, and what follows."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_tui.decoding.forecast import Forecast, scaled_rate
from specdec_tui.decoding.standing import standing
from specdec_tui.tui.figures.words import BAD, GOOD, QUIET, WARN, Part
from specdec_tui.tui.lab.reading import FIGURES, Reading, is_set, value_of

Line = list[Part]
WHAT_IF = "*"
"""Stands behind a figure that was set, and behind all that follows from it."""
_ACCENT = "bold $text-accent"
_LEAST_BAR = 12


def figure_line(reading: Reading, chosen: str) -> Line:
    """α, c and v as they are set, the chosen one marked."""
    line: Line = []
    for figure in FIGURES:
        value = value_of(reading, figure)
        told = "–" if value is None else _value_text(reading, figure, value)
        mark = WHAT_IF if is_set(reading, figure) else ""
        sign = "▸" if figure == chosen else " "
        line += [(f"{sign}{figure} ", "bold" if figure == chosen else QUIET), (f"{told}{mark}", _ink(bool(mark)))]
        line.append(("  ", ""))
    told = f"{WHAT_IF} what if · 0 as measured" if not reading.supposed.is_nothing else "↑↓ choose · ←→ what if"
    return [*line, (told, QUIET)]


def _value_text(reading: Reading, figure: str, value: float) -> str:
    """Of a small c as measured three digits, as in the pane: it is taken γ times."""
    is_small = figure == "c" and 0.0005 <= value < 0.0995 and not is_set(reading, figure)
    return f"{value:.{3 if is_small else 2}f}"


def _ink(is_hypothetical: bool) -> str:
    return _ACCENT if is_hypothetical else "bold"


def round_lines(reading: Reading, width: int) -> list[Line]:
    """A round with all its drafts drawn to scale, with the target's plain pass as a ruler below it."""
    here = reading.here
    if here is None or width < _LEAST_BAR + 16:
        return []
    room = width - 14
    total = here.full_drafting + here.full_verifying
    whole = max(total, 1.0)
    drafting = round(here.full_drafting / whole * room)
    wire = round(here.wire / whole * room)
    verifying = max(1, round(total / whole * room) - drafting - wire)
    ruler = max(1, round(room / whole))
    each = drafting / here.gamma if here.gamma else 0
    drafts = "".join(("▒" * (round(each * (i + 1)) - round(each * i) - 1) + "░") for i in range(here.gamma))
    drafts = drafts if each >= 3 else "▒" * drafting
    return [
        [("one round ", QUIET), (drafts, "$secondary"), ("█" * verifying, "$primary"), ("━" * wire, WARN)],
        [("target    ", QUIET), ("├" + "─" * (ruler - 2) + "┤" if ruler > 1 else "│", "")],
        _call_words(here) if reading.by_calls else _round_words(here),
    ]


def _call_words(here: Forecast) -> Line:
    """The same of a call to a server."""
    if not here.gamma:
        return [("no drafts: a stream from the server, token by token", QUIET)]
    return [
        (f"▒ {here.gamma} draft{'s' * (here.gamma > 1)} · █ server ", QUIET),
        (f"{here.full_verifying - here.wire:.2f}", "bold"),
        (" · ━ wire ", QUIET),
        (f"{here.wire:.2f}", "bold"),
        (" of a streamed token (├─┤)", QUIET),
    ]


def _round_words(here: Forecast) -> Line:
    if not here.gamma:
        return [("no drafts: the target's own pass for each token", QUIET)]
    return [
        (f"▒ {here.gamma} draft{'s' * (here.gamma > 1)} · █ a pass over ", QUIET),
        (f"{here.gamma + 1}", "bold"),
        (" tokens costs ", QUIET),
        (f"{here.full_verifying:.2f}", "bold"),
        (" of one (├─┤)", QUIET),
    ]


def purpose_lines() -> list[Line]:
    """What stands here once there is something to tell."""
    return [
        [("", "")],
        [("Here stand, of a strategy that drafts and ran beside the target:", QUIET)],
        [("· its speedup over γ as a curve, predicted from α at each place of a round, c and v", QUIET)],
        [("· one round to scale: what γ drafts and one pass over them cost beside the target's plain pass", QUIET)],
        [("· the sum of it in words, the best γ, and the α from which speculation pays", QUIET)],
        [("· what a sweep (s) measures at each γ, as points on the curve", QUIET)],
    ]


def sum_line(reading: Reading, wide: bool = False) -> Line:
    """How the speedup at this γ comes about, and what was measured of it; `wide`: there is room for a remark on τ.

    c and v stand here for what the row of figures says of them. A mean round may cost something else, as rounds
    with fewer drafts are in it, and then it is named so.
    """
    here = reading.here
    if here is None:
        return []
    mark = "" if reading.supposed.is_nothing else WHAT_IF
    total = here.drafting + here.verifying
    name, is_mean = _verifying_name(reading, here)
    digits, verifying = _printed(here, total, is_mean or reading.by_calls)
    checking = f"{name} {verifying}"
    if reading.by_calls:
        wire = f"{here.wire:.{digits}f}"
        checking = f"server {max(0.0, float(verifying) - float(wire)):.{digits}f} + wire {wire}"
    floor = "" if here.steps - total < 0.005 else f", no less than {here.steps:.{digits}f}"
    line: Line = [
        (f"γ {here.gamma}: ", "bold"),
        (f"{_drafting_name(reading, here, digits)} {here.drafting:.{digits}f} + ", ""),
        (f"{checking} = {total:.{digits}f} steps{floor}; ", ""),
        (f"gives {here.tokens:.{digits}f} tokens", ""),
        (_beside_tau(reading, here) if wide else "", QUIET),
        ("; ", ""),
        ("predicts ", ""),
        (f"{here.speedup:.2f}×{mark}", _ink(bool(mark))),
    ]
    return line + _measured_parts(reading)


def _printed(here: Forecast, total: float, is_mean: bool) -> tuple[int, str]:
    """Digits with which tokens by the whole are the printed speedup and its parts add up, and the target's part.

    `is_mean`: it stands nowhere else, and may be what the printed whole has more than the printed drafts.
    """
    for digits in (2, 3, 4):
        drafting, whole, steps, tokens = (
            float(f"{value:.{digits}f}") for value in (here.drafting, total, max(total, here.steps), here.tokens)
        )
        rest = f"{whole - drafting:.{digits}f}"
        adds = is_mean or rest == f"{here.verifying:.{digits}f}"
        if adds and steps and f"{tokens / steps:.2f}" == f"{here.speedup:.2f}":
            break
    return digits, rest


def _drafting_name(reading: Reading, here: Forecast, digits: int) -> str:
    """`4c`, or `4 drafts` where so many times the c that stands above is not what is printed here."""
    each = value_of(reading, "c")
    for count in (f"{here.drafts:.1f}".removesuffix(".0"), f"{here.drafts:.2f}"):
        told = None if each is None else float(count) * float(_value_text(reading, "c", each))
        if told is not None and f"{told:.{digits}f}" == f"{here.drafting:.{digits}f}":
            return f"{count}c"
    return f"{here.drafts:.1f}".removesuffix(".0") + f" draft{'s' * (here.drafts > 1)}"


def _verifying_name(reading: Reading, here: Forecast) -> tuple[str, bool]:
    """`v` of the figure above; of another γ with that; of a mean round, if that differs from a full one: then True."""
    told, v = f"{here.verifying:.2f}", value_of(reading, "v")
    if v is not None and f"{v:.2f}" == told:
        return "v", False
    return (f"v({here.gamma})", False) if f"{here.full_verifying:.2f}" == told else ("a mean round's pass", True)


def _beside_tau(reading: Reading, here: Forecast) -> str:
    """Why the pane has another number of tokens: τ is over all passes of the run, the prefill's among them."""
    run = reading.subject.run
    tau, is_of_run = run.tokens_per_target_call, here.gamma == run.gamma and not reading.stand_in
    if tau is None or not is_of_run or not reading.supposed.is_nothing or f"{tau:.2f}" == f"{here.tokens:.2f}":
        return ""
    return f" a round (τ {tau:.2f} counts the prefill too)"


def _measured_parts(reading: Reading) -> Line:
    point = reading.points.get(reading.gamma)
    if point is None:
        return [("; not measured", QUIET)]
    ink = GOOD if point.is_faster and not reading.contradicts else "bold"
    if point.ratio is not None and point.ratio < 0.995:
        ink = WARN
    parts: Line = [("; measured ", ""), (point.text, ink)]
    if point.doubt or reading.contradicts:
        parts.append((f" {point.doubt or 'clock'}?", WARN))
    if point.runs > 1:
        parts.append((f" in {point.runs} runs", QUIET))
    own = standing(reading.subject.run, reading.subject.baseline)
    if reading.gamma in reading.swept and reading.gamma == reading.subject.run.gamma and own is not None:
        parts.append((f"; the run itself {own.marked}", QUIET))
    return parts


def advice_lines(reading: Reading) -> list[Line]:
    """The best γ as predicted and as measured, and the α from which speculation pays."""
    best, measured = reading.best, reading.best_measured
    lines: list[Line] = []
    if best is not None:
        mark = "" if reading.supposed.is_nothing else WHAT_IF
        if best.gamma == 0:
            lines.append([(f"do not speculate{mark}: ", BAD), ("no γ is expected to be faster than the target", "")])
        else:
            lines.append([("best predicted ", QUIET), (f"γ {best.gamma}: {best.speedup:.2f}×{mark}", _ink(bool(mark)))])
        lines[-1] += [(" · ", QUIET), *_break_even_parts(reading)]
    if reading.far is not None:
        mark = "" if reading.supposed.is_nothing else WHAT_IF
        lines.append([(f"γ {reading.gamma}: ", QUIET), (f"{reading.far.text}{mark}", _ink(bool(mark)))])
    lines += losing_lines(reading)
    if measured is not None and measured.ratio is not None:
        if measured.ratio <= 1:
            lines.append([("do not speculate: ", BAD), (f"the fastest measured, γ {measured.gamma}, is ", "")])
            lines[-1].append((measured.text, WARN))
        else:
            lines.append([("best measured ", QUIET), (f"γ {measured.gamma}: ", "bold"), (measured.text, "bold")])
            if best is not None and best.gamma != measured.gamma:
                lines[-1].append((" · goes before what is predicted", QUIET))
        others: dict[str, list[str]] = {}
        for point in reading.passed_over:
            others.setdefault(reading.not_compared(point), []).append(f"γ {point.gamma}, {point.text}")
        for why, found in others.items():
            lines[-1].append((f" · not compared: {'; '.join(found)} ({why})", QUIET))
    return lines


def losing_lines(reading: Reading) -> list[Line]:
    """That every γ of a sweep loses, though its clocks leave open by how much."""
    fastest = reading.least_slow
    if fastest is None:
        return []
    doubts: dict[str, list[int]] = {}
    for point in reading.points.values():
        if point.gamma in reading.swept and point.doubt:
            doubts.setdefault(point.doubt, []).append(point.gamma)
    why = "; ".join(f"{doubt} at γ {ranges(gammas)}" for doubt, gammas in doubts.items())
    return [
        [
            ("do not speculate: ", BAD),
            (f"each γ measured loses, γ {fastest.gamma} least: ", ""),
            (fastest.text, WARN),
            (f" · {why}: by how much is not known" if why else "", QUIET),
        ]
    ]


def _break_even_parts(reading: Reading) -> Line:
    if not reading.gamma:
        return []
    if reading.break_even is None:
        return [(f"γ {reading.gamma} cannot pay: not even at α 1", WARN)]
    return [
        ("break-even α ", QUIET),
        (f"{reading.break_even:.2f}", "bold"),
        (f" at γ {reading.gamma}, all places scaled alike", QUIET),
    ]


def source_line(reading: Reading) -> Line:
    """What of the curve was measured, and what is estimated; rates as they are where α is set."""
    basis = reading.basis
    if basis is None:
        return []
    wanted = reading.supposed.alpha
    places = [scaled_rate(rate, basis.alpha, wanted) for rate in basis.rates[:8]]
    rates = " ".join(f"{rate:.2f}" for rate in places) + (" …" if len(basis.rates) > 8 else "")
    mark = "" if wanted is None else WHAT_IF
    beyond = scaled_rate(basis.beyond, basis.alpha, wanted)
    told = f"α by place{mark}: {rates}; beyond {len(basis.rates)} estimated as {beyond:.2f}"
    widths = sorted({basis.gamma, *basis.beforehand, *basis.swept})
    elsewhere = "elsewhere as there" if basis.by_calls and len(widths) == 1 else "else on a straight line"
    passes = f"v measured at γ {ranges(widths)}, {elsewhere}"
    of = ""
    if reading.stand_in:
        why = reading.stand_in.partition(":")[0]
        of = f"The run itself says nothing ({why}): all of it is from the sweep, γ {basis.gamma}. "
    return [(of, WARN), (f"{told}. {passes}.", QUIET)]


def table_lines(reading: Reading) -> list[Line]:
    """Every γ of the curve: predicted, measured, and by how much a prediction is off."""
    mark = "" if reading.supposed.is_nothing else WHAT_IF
    lines: list[Line] = [[("", "")], [(f"  γ  predicted{mark:1}  off    measured", QUIET)]]
    for found in reading.curve[1:]:
        point = reading.points.get(found.gamma)
        off, told = "", ""
        if point is not None:
            told = point.text + (f" {point.doubt}?" if point.doubt else "")
            if point.ratio and not mark:
                off = f"{found.speedup / point.ratio - 1:+.0%}".replace("-", "−")
        sign = "▸" if found.gamma == reading.gamma else " "
        estimated = "~" if found.rates_extended or found.passes_estimated else " "
        ink = "bold" if found.gamma == reading.gamma else ""
        lines.append([(f"{sign}{found.gamma:>2}   {estimated}{found.speedup:>6.2f}×  {off:>6}    {told}", ink)])
    return [*lines, [("~ with estimated rates or passes", QUIET)]]


def ranges(numbers: Sequence[int]) -> str:
    """`1–4, 8` of rising numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def about_text(seconds: float) -> str:
    """`about 40 s`, rounded as coarsely as it is known."""
    if seconds >= 90:
        return f"about {round(seconds / 60)} min"
    return f"about {max(1, round(seconds / 5) * 5 if seconds >= 10 else round(seconds))} s"
