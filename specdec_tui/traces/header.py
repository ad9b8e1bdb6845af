"""The header of a trace: what was run, on what, and how fast each strategy was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from specdec_tui import __version__
from specdec_tui.backends.pair import ModelInfo, PairInfo
from specdec_tui.decoding.latency import CALL_FIGURES
from specdec_tui.decoding.records import EndReason, Event, Lossless, LosslessStatus, strategy_of
from specdec_tui.decoding.reliability import WORDS, Reliability
from specdec_tui.doors.characters import one_line
from specdec_tui.settings import FIELDS, MOST_DRAFTERS, Settings, parse_value
from specdec_tui.traces.bounds import LONGEST_MESSAGE, LONGEST_NAME, LONGEST_PROMPT, MOST_STRATEGIES
from specdec_tui.traces.summary import summarise
from specdec_tui.traces.values import BadField, checked_number, mapping, plain, shown, text, whole

VERSION = 1
MARK = "specdec_tui_trace"
_DEEPEST = 24  # what walks through the values must not run out of stack
_MOST_VALUES = 20_000
AGREES = LosslessStatus.IDENTICAL, LosslessStatus.NEAR_TIES
NOT_TO_ITS_END = Lossless(LosslessStatus.NOT_APPLICABLE, detail="failed, not checked to its end")
"""The verdict on a run that failed: older versions may have called it identical, as far as it had come."""


class TraceError(Exception):
    """A trace that cannot be read or written: one line for a person, made harmless: it quotes files and their names."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class CutOff(TraceError):
    """A file that ends inside of its last line."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}: the last line is cut off: the trace was not written to its end")


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """What a list of traces shows. Everything in it is JSON-ready: lists, not tuples; no NaN.

    `created` is ISO 8601 in UTC, `app` the version that wrote it, `strategies` maps each strategy to
    its figures (`summarise`), `models` is a PairInfo as a dictionary, empty where it is not known.
    """

    created: str
    app: str
    prompt: str
    strategies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    models: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> dict[str, Mapping[str, Any]]:
        """The figures of the strategies that ran, without those of what-ifs that were added since."""
        return {name: figures for name, figures in self.strategies.items() if strategy_of(name) == name}

    def pair(self) -> PairInfo | None:
        """The models as the app shows a loaded pair; None where the header does not describe one."""
        try:
            target, drafters = _model(self.models.get("target")), _drafters(self.models)
        except BadField:
            return None
        notes = self.models.get("notes")
        sentences = tuple(map(str, notes)) if isinstance(notes, list) else ()
        chat = self.models.get("chat_template") is True
        return None if target is None else PairInfo(target, drafters, chat, sentences)

    def reliability(self, strategy: str) -> Reliability | None:
        """Whether the clock of a run could be believed; None where the header does not tell."""
        told = self.strategies.get(strategy, {}).get("reliability")
        try:
            return None if told is None else _reliability(told)
        except BadField:
            return None

    def is_borrowed(self, strategy: str) -> bool:
        """Whether the figures of a run are against a target of another time."""
        return bool(self.strategies.get(strategy, {}).get("baseline_created"))

    def run_settings(self) -> Settings:
        """The settings of the run; one that is not known or not valid here has its default."""
        known: dict[str, Any] = {}
        names = {f.name for f in fields(Settings)}
        for name, value in self.settings.items():
            if name in names:
                try:
                    known[name] = parse_value(name, FIELDS[name].metadata["kind"].written(value))
                except (ValueError, TypeError):
                    continue
        return replace(Settings(), **known)


def new_header(
    prompt: str,
    events: Iterable[Event],
    *,
    pair: PairInfo | None = None,
    settings: Settings | None = None,
    environment: Mapping[str, Any] | None = None,
    created: datetime | None = None,
) -> TraceHeader:
    """The header of a run that was just recorded; `created` defaults to now."""
    moment = (created or datetime.now(UTC)).astimezone(UTC)
    return TraceHeader(
        created=moment.isoformat(timespec="seconds").replace("+00:00", "Z"),
        app=__version__,
        prompt=prompt,
        strategies=summarise(events),
        models={} if pair is None else _models(pair),
        settings={} if settings is None else plain(settings),
        environment=plain(environment or {}),
    )


_FIGURES = (
    "prompt_tokens",
    "new_tokens",
    "gamma",
    "prefill_seconds",
    "capture_seconds",
    "decode_seconds",
    "decode_tokens_per_second",
    "speedup",
    "rounds",
    "drafted",
    "accepted",
    "rejected",
    "unverified",
    "acceptance_rate",
    "tokens_per_target_call",
    "draft_seconds",
    "verify_seconds",
    "other_seconds",
    *CALL_FIGURES,
    "cost_ratio",
    "verify_ratio",
    "predicted_speedup",
    "remainder",
)


def _check_figures(table: dict[str, Any]) -> None:
    """BadField where a figure that lists and comparisons show is no number, or the verdict no verdict."""
    for name in _FIGURES:
        if name in table:
            checked_number(name, table[name])
    if table.get("reliability") is not None:
        _reliability(mapping(table, "reliability"))
    for name in ("baseline_created", "no_prediction", "marks"):
        if table.get(name) is not None:
            text(table, name)
    if table.get("lossless") is not None:
        text(mapping(table, "lossless"), "status")


def read_header_table(table: Any) -> TraceHeader:
    """The header of a parsed first line. TraceError when it is none, damaged, or of a newer version."""
    version = table.get(MARK) if type(table) is dict else None
    if type(version) is not int or version < 1:
        raise TraceError(f'line 1: not a trace: the first line must be a header object with "{MARK}": {VERSION}')
    if version > VERSION:
        raise TraceError(
            f"made by a newer specdec-tui (trace version {version}; this one reads {VERSION}): update specdec-tui"
        )
    try:
        prompt = text(table, "prompt", LONGEST_PROMPT)
        _check_sizes({name: value for name, value in table.items() if name != "prompt"})
        strategies = mapping(table, "strategies")
        if len(strategies) > MOST_STRATEGIES:
            raise BadField("strategies", f"must be an object of at most {MOST_STRATEGIES} entries")
        for name in strategies:
            if len(name) > LONGEST_NAME:
                raise BadField("strategies", f"must have names of at most {LONGEST_NAME} characters")
            _check_figures(mapping(strategies, name))
        return TraceHeader(
            text(table, "created", LONGEST_NAME),
            text(table, "app", LONGEST_NAME),
            prompt,
            {name: _as_checked(figures) for name, figures in strategies.items()},
            *(mapping(table, name) for name in ("models", "settings", "environment")),
        )
    except BadField as error:
        raise TraceError(f"line 1: {error}") from None


def _as_checked(figures: dict[str, Any]) -> dict[str, Any]:
    verdict = figures.get("lossless")
    if figures.get("finish_reason") != EndReason.ERROR or not verdict or verdict.get("status") not in AGREES:
        return figures
    return figures | {"lossless": plain(NOT_TO_ITS_END)}


def _reliability(table: Any) -> Reliability:
    if type(table) is not dict:
        raise BadField("reliability", "must be an object")
    word = text(table, "word")
    if word not in WORDS:
        raise BadField("word", f"must be one of {', '.join(WORDS)}, not {shown(word)}")
    ends = (checked_number(name, table.get(name)) for name in ("low", "high"))
    return Reliability(word, text(table, "reason"), *ends)


def _check_sizes(table: dict[str, Any]) -> None:
    """BadField where a value is too long, or too deep, or there are too many."""
    left = _MOST_VALUES
    values = [(name, value, _DEEPEST) for name, value in table.items()]
    while values:
        name, value, levels = values.pop()
        if isinstance(value, str) and len(value) > LONGEST_MESSAGE:
            raise BadField(name, f"must hold texts of at most {LONGEST_MESSAGE:,} characters")
        if isinstance(value, dict | list):
            left -= len(value)
            if left < 0:
                raise BadField(name, f"holds too much: a header has at most {_MOST_VALUES:,} values")
            if levels == 1:
                raise BadField(name, f"is nested too deeply: a header has at most {_DEEPEST} levels")
            if isinstance(value, dict):
                values += [(name, key, 1) for key in value]
                value = value.values()
            values += [(name, part, levels - 1) for part in value]


def _models(pair: PairInfo) -> dict[str, Any]:
    """A pair as a dictionary, with its first drafter beside the list of all, as versions before had it."""
    return plain({"target": pair.target, "drafter": pair.drafter}) | plain(pair)


def _drafters(models: Mapping[str, Any]) -> tuple[ModelInfo, ...]:
    """Those of a trace; older ones tell of one."""
    told = models.get("drafters", [models.get("drafter")])
    if type(told) is not list or len(told) > MOST_DRAFTERS:
        raise BadField("drafters", f"must be a list of at most {MOST_DRAFTERS}")
    return tuple(found for table in told if (found := _model(table)) is not None)


def _model(table: Any) -> ModelInfo | None:
    if table is None:
        return None
    if type(table) is not dict:
        raise BadField("models", "must hold objects")
    bound = None if table.get("context_length") is None else whole(table, "context_length")
    name, device, dtype, quantization = (text(table, key) for key in ("name", "device", "dtype", "quantization"))
    parameters, memory = whole(table, "parameters"), whole(table, "memory_bytes")
    held = table.get("held_dtype")
    left_out, done = (table.get(f"generation_config_{name}") for name in ("not_applied", "applied"))
    caveats = table.get("caveats")
    return ModelInfo(
        name,
        device,
        dtype,
        quantization,
        parameters,
        memory,
        bound,
        held if isinstance(held, str) else "",
        tuple(map(str, caveats)) if isinstance(caveats, list) else (),
        left_out if isinstance(left_out, dict) else {},
        done if isinstance(done, dict) else {},
        weights=form if isinstance(form := table.get("weights"), str) else "",
        weight_forms=tuple(map(str, forms)) if isinstance(forms := table.get("weight_forms"), list) else (),
    )
