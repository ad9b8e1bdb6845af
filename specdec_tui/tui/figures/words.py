"""What a pane says about its run in words and numbers: pure functions from figures to parts of a line."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from rich.cells import cell_len
from textual.content import Content

from specdec_tui.decoding.figures import RunFigures, speedup
from specdec_tui.decoding.records import EndReason, Lossless, LosslessStatus
from specdec_tui.tui.lines.sanitize import visible

# (text, Textual style). Text is shown as it is, never read as markup.
Part = tuple[str, str]

QUIET = "$quiet"
GOOD = "bold $token-accepted"
WARN = "bold $token-resampled"
BAD = "bold $token-rejected"

_BARS = "▁▂▃▄▅▆▇█"


class PaneState(StrEnum):
    """What the run of a pane is doing."""

    IDLE = "idle"
    WAITING = "waiting"
    CAPTURING = "capturing"
    PREFILL = "prefill"
    RUNNING = "running"
    ENDED = "ended"
    BROKEN_OFF = "broken off"  # of a trace: the app was left in the middle of the run


_END_WORDS = {
    EndReason.END_TOKEN: "end token",
    EndReason.LENGTH: "length reached",
    EndReason.CONTEXT: "context full",
    EndReason.CANCELLED: "stopped",
    EndReason.ERROR: "failed",
}


def sparkline(values: Sequence[int], highest: int) -> str:
    """One bar per value, full height at `highest`."""
    top = max(1, highest)
    return "".join(_BARS[min(7, max(0, (value * 8 - 1) // top))] for value in values)


def speedup_part(ratio: float) -> Part:
    """A ratio to the target's own speed; below one it is said in words too."""
    if ratio < 0.995:
        return (f"{ratio:.2f}× slower than target", WARN)
    return (f"{ratio:.2f}×", GOOD if ratio > 1.005 else "bold")


def figure_parts(figures: RunFigures, baseline: RunFigures | None, is_target: bool) -> list[list[Part]]:
    """The live figures, most important group first."""
    rate = figures.decode_tokens_per_second
    if rate is None:
        return []
    groups: list[list[Part]] = [[(f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}", "bold"), (" tok/s", QUIET)]]
    if is_target:
        groups.append([("baseline", QUIET)])
    elif baseline is not None and (ratio := speedup(baseline, figures)) is not None:
        groups.append([speedup_part(ratio)])
    if figures.acceptance_rate is not None:
        groups.append([("α ", QUIET), (f"{figures.acceptance_rate:.2f}", "bold")])
    if figures.drafted and figures.tokens_per_target_call is not None:
        groups.append([("τ ", QUIET), (f"{figures.tokens_per_target_call:.2f}", "bold")])
    return groups


def fit_groups(groups: Sequence[Sequence[Part]], width: int, gap: str = "  ", first: int = 0) -> list[Part]:
    """As many whole groups as fit into `width` cells, in their order; group `first` is always there."""
    kept: set[int] = set()
    used = 0
    for index in sorted(range(len(groups)), key=lambda index: index != first):
        cells = sum(cell_len(text) for text, _ in groups[index]) + (cell_len(gap) if kept else 0)
        if not kept or used + cells <= width:
            kept.add(index)
            used += cells
    line: list[Part] = []
    for index in sorted(kept):
        line += [(gap, QUIET), *groups[index]] if line else groups[index]
    return line


def figure_line(figures: RunFigures, baseline: RunFigures | None, is_target: bool, width: int) -> Content:
    """Figures, and in the room left a bar for each of the last rounds."""
    groups = figure_parts(figures, baseline, is_target)
    if sum(cell_len(text) for group in groups[:2] for text, _ in group) + 2 > width:
        # Without room for all its words a slow run is still called slower.
        groups = [[(text.removesuffix(" than target"), style) for text, style in group] for group in groups]
    line = fit_groups(groups, width)
    room = width - sum(cell_len(text) for text, _ in line) - 2
    if figures.drafted and room >= 4:
        shown = figures.tokens_per_round[-min(room, 40) :]
        line += [("  ", ""), (sparkline(shown, figures.gamma + 1), "$secondary")]
    return Content.assemble(*line)


def lossless_part(lossless: Lossless, is_target: bool = False) -> Part:
    """The verdict of the lossless check in a few words. Token numbers count from 1."""
    if is_target and lossless.status in (LosslessStatus.IDENTICAL, LosslessStatus.NOT_APPLICABLE):
        return ("the reference", QUIET)
    match lossless.status:
        case LosslessStatus.IDENTICAL:
            return ("✓ identical to target", GOOD)
        case LosslessStatus.NEAR_TIES:
            ties = f"{lossless.ties} near-tie{'' if lossless.ties == 1 else 's'}"
            gap = "" if lossless.gap is None else f" (max gap {lossless.gap:.2g})"
            return (f"≈ {ties}{gap}", WARN)
        case LosslessStatus.DIFFERENT:
            where = "" if lossless.first_divergence is None else f" from token {lossless.first_divergence + 1}"
            return (f"✗ DIFFERENT{where}", BAD)
    if "lossy" in lossless.detail:
        return ("≠ lossy", WARN)
    if not lossless.detail or "distribution" in lossless.detail:
        return ("~ same distribution, other draws", QUIET)
    return (visible(lossless.detail), QUIET)


def status_parts(
    state: PaneState, figures: RunFigures, max_new_tokens: int, lossless: Lossless | None, is_target: bool
) -> tuple[list[list[Part]], int]:
    """The status line's groups in reading order, and which of them matters most."""
    match state:
        case PaneState.IDLE:
            return [[("no run yet", QUIET)]], 0
        case PaneState.WAITING:
            return [[("waiting", QUIET)]], 0
        case PaneState.CAPTURING:
            return [[("capturing the round…", "$token-bonus")]], 0
        case PaneState.PREFILL:
            tokens = figures.prompt_tokens
            return [[(f"reading {tokens} prompt token{'' if tokens == 1 else 's'}…", "$token-bonus")]], 0
    unit = " token" if max_new_tokens == 1 else " tokens"
    groups: list[list[Part]] = [[(f"{figures.new_tokens}/{max_new_tokens}", "bold"), (unit, QUIET)]]
    end = figures.end
    first = 0
    if end is not None and end.reason is not EndReason.LENGTH:
        bad = end.reason is EndReason.ERROR
        groups.append([(_END_WORDS[end.reason], BAD if bad else QUIET)])
    if state is PaneState.BROKEN_OFF:
        groups.append([("not ended", WARN)])
        first = len(groups) - 1
    if lossless is not None:
        verdict = lossless_part(lossless, is_target)
        if end is not None and end.reason in (EndReason.CANCELLED, EndReason.ERROR):
            # One group: a verdict on a part of the text must not be read without saying so.
            groups[-1] += [(" · ", QUIET), verdict]
        else:
            groups.append([verdict])
        first = len(groups) - 1
    if figures.prefill_seconds:
        groups.append([(f"prefill {figures.prefill_seconds:.2f} s", QUIET)])
    if figures.capture_seconds:
        groups.append([(f"captured in {figures.capture_seconds:.1f} s", QUIET)])
    if end is not None and end.reason is EndReason.LENGTH:
        groups.append([(_END_WORDS[end.reason], QUIET)])
    return groups, first
