"""The settings that matter for a run, in one short line."""

from __future__ import annotations

from collections.abc import Iterator

from specdec_tui.settings import CONTROLS, FIELDS, USED_BY, Settings

_SIGNS = {"temperature": "T", "top_k": "k", "top_p": "p"}


def _controls(settings: Settings) -> Iterator[tuple[str, str]]:
    """Controls that the user has set, in few letters; lists by their length."""
    for name in ("min_p", "typical_p", *CONTROLS):
        value = getattr(settings, name)
        if value is not None and value != FIELDS[name].default:
            yield name, f"({len(value)})" if isinstance(value, tuple) else f"{value:g}"


def summary(settings: Settings, turns: int = 0) -> str:
    """`γ 4 · greedy · 128 tokens · turn 2`; what is at its usual place is left out."""
    sampling = " ".join(f"{_SIGNS[name]} {getattr(settings, name):g}" for name in USED_BY[settings.processor])
    length = f"{settings.max_new_tokens} token{'' if settings.max_new_tokens == 1 else 's'}"
    parts = [f"γ {settings.gamma}", f"{settings.processor} {sampling}".strip(), length]
    if settings.processor != "greedy":
        parts += [settings.rule, f"seed {settings.seed}"]
    parts += [f"{name.replace('_', ' ')} {value}" for name, value in _controls(settings) if value]
    if settings.schedule != Settings.schedule:
        parts.append(settings.schedule)
    if settings.added_latency:
        parts.append(f"+{settings.added_latency:g} ms a call")
    if not settings.cache:
        parts.append("no cache")
    if not settings.insight:
        parts.append("no insight")
    parts.append((f"turn {turns + 1}" if turns else "chat") if settings.chat else "no chat")
    return " · ".join(parts)
