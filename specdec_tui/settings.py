"""Every setting, declared once: its values and its validation.

The command line, palette, side bar and model picker are all made from these fields; `setting_sources` merges the
places that a value can come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from specdec_tui.setting_kinds import (
    ADDRESS,
    BIASES,
    SWITCH,
    TEXTS,
    Kind,
    Names,
    Wrong,
    choice,
    names,
    or_model,
    real,
    whole,
)
from specdec_tui.theme_files import THEMES, ThemeKind

MOST_DRAFTERS = 4
SPECULATIVE = ("speculative", *(f"speculative-{place}" for place in range(2, MOST_DRAFTERS + 1)))
"""A strategy for each drafter that can be loaded. In the setting the first name means all of them."""
FIRST_ALONE = "speculative-1"
"""In the setting: `speculative` without the others."""
_ONE_BY_ONE = f"or {FIRST_ALONE} to {SPECULATIVE[-1]}: with one of several drafters"
_WITH_ALL = ("target", "drafter", "speculative", "ngram", "lookup", "beam", "drafter-beam")
STRATEGIES = (*_WITH_ALL, *SPECULATIVE[1:])
SERVED = ("vllm", "llama-cpp")
"""Runs that were imported, by the servers that drafted by themselves: none that anybody can choose."""
USED_BY: dict[str, tuple[str, ...]] = {
    "greedy": (),
    "multinomial": ("temperature",),
    "topk": ("temperature", "top_k"),
    "nucleus": ("temperature", "top_p"),
    "topknucleus": ("temperature", "top_k", "top_p"),
}
"""The settings that each processor has a use for, in the order of its arguments. Who has more of them comes later."""
PROCESSORS = tuple(USED_BY)
RULES = ("rejection", "coupled", "block", "skip-adjustment")
QUANTIZATIONS = ("none", "int8", "int4")
DTYPES = ("auto", "float32", "bfloat16", "float16")
WEIGHT_FORMS = ("packed", "expanded", "packed-int8")
PRESET_NAMES = ("demo", "llama3.2", "gpt2", "qwen2.5", "smollm2", "flan-t5")
CONTROLS = (
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "no_repeat_ngram", "min_new_tokens"),
    *("bad_words", "logit_bias", "stop_strings"),
)
MOST_BEAMS = 32
_SHOWN = 60  # characters of a bad value in a message
_SECRET = re.compile(r"//[^/\s]*@")  # a user and a password before a host


class SettingError(ValueError):
    """A bad value: the message says what is wrong and what is allowed, in one line."""


def _parse_strategies(text: str) -> tuple[str, ...]:
    given = [name.strip().lower() for name in text.split(",") if name.strip()]
    allowed = (*STRATEGIES, FIRST_ALONE)
    if not given or any(name not in allowed for name in given):
        raise ValueError
    return tuple(name for name in allowed if name in given)


def _parse_device(text: str) -> str:
    value = text.strip().lower()
    head, _, index = value.partition(":")
    if value in ("auto", "cpu", "cuda") or (head == "cuda" and index.isascii() and index.isdecimal()):
        return value
    raise ValueError


def _setting(default: Any, kind: Kind | ThemeKind, help: str, **extra: Any) -> Any:
    return field(default=default, metadata={"kind": kind, "help": help, **extra})


@dataclass(frozen=True)
class Settings:
    """What applies from one prompt to the next, without loading a model again."""

    gamma: int = _setting(4, whole(0, 32), "draft tokens per round (γ)")
    max_new_tokens: int = _setting(128, whole(1, 32768), "most new tokens", palette="length")
    processor: str = _setting("greedy", choice(*PROCESSORS), "how the next token is drawn")
    temperature: float = _setting(0.7, real(0, 5), "sampling temperature (0 is greedy)")
    top_k: int = _setting(50, whole(0, 1_000_000), "keep the k most probable tokens (0: all)")
    top_p: float = _setting(0.9, real(0, 1, above=True), "keep the smallest set of this probability")
    min_p: float | None = _setting(
        None, or_model(real(0, 1)), "keep tokens at least this share as probable as the best (0: all)"
    )
    typical_p: float | None = _setting(
        None, or_model(real(0, 1, above=True)), "keep the most typical set of this probability (1: all)"
    )
    seed: int = _setting(
        42, whole(0, 2**63 - 1, "a whole number from 0 up, below 2^63"), "random seed, the same for every strategy"
    )
    repetition_penalty: float | None = _setting(
        None, or_model(real(0, 10, above=True)), "divide the logits of tokens that the text has (1: off)"
    )
    presence_penalty: float = _setting(0.0, real(-2, 2), "take this from the logits of tokens that the answer has")
    frequency_penalty: float = _setting(0.0, real(-2, 2), "the same, for every time that it has them")
    no_repeat_ngram: int | None = _setting(
        None, or_model(whole(0, 1000)), "no so many tokens come twice in a row (0: off)"
    )
    min_new_tokens: int | None = _setting(None, or_model(whole(0, 32768)), "no end before so many new tokens")
    bad_words: tuple[str, ...] | None = _setting(None, or_model(TEXTS), "texts that must not be written")
    logit_bias: tuple[tuple[int, float], ...] | None = _setting(
        None, or_model(BIASES), "make tokens more or less likely"
    )
    stop_strings: tuple[str, ...] | None = _setting(None, or_model(TEXTS), "texts at which an answer ends")
    beam_width: int = _setting(4, whole(2, MOST_BEAMS), "texts that a beam search goes on with at once")
    length_penalty: float = _setting(
        1.0, real(-10, 10), "the log-probability of an ended beam is divided by its length to this power"
    )
    early_stopping: str = _setting(
        "off",
        choice("off", "on", "never"),
        "a beam search ends with as many ended beams as its width (on), or where no beam can improve (off: as it is)",
    )
    rule: str = _setting("rejection", choice(*RULES), "verification rule (skip-adjustment is lossy)")
    tokenizers: str = _setting(
        "auto",
        choice("auto", "shared", "retokenize"),
        "a drafter of another tokenizer: tokens that both have, or its text read anew (auto: by a look at the prompt)",
    )
    schedule: str = _setting(
        "interleaved",
        choice("sequential", "interleaved"),
        "strategies one after another, or round by round (their ratios survive a busy machine)",
    )
    strategies: tuple[str, ...] = _setting(
        ("target", "speculative", "ngram", "lookup"),
        Kind(_parse_strategies, f"a comma-separated list out of {', '.join(_WITH_ALL)}; {_ONE_BY_ONE}"),
        "the strategies to run",
    )
    ngram_storage: str = _setting(
        "basic", choice("basic", "onelevel"), "n-gram contexts: n-1 down to 1 tokens, or exactly n-1"
    )
    ngram_order: int = _setting(3, whole(2, 16), "n of the n-gram storage and of prompt look-up")
    top_k_filler: int = _setting(3, whole(0, 50), "also store the top target tokens of each position (0, 1: off)")
    ngram_unknown: str = _setting(
        "stop", choice("stop", "drafter"), "at an unknown n-gram context: stop drafting, or ask the drafter model"
    )
    reset_in_between: bool = _setting(True, SWITCH, "forget the n-gram storage between prompts")
    added_latency: float = _setting(
        0.0, real(0, 10_000), "simulate a distance to a target on a server: so many milliseconds more for each call"
    )
    cache: bool = _setting(True, SWITCH, "keep keys and values (off recomputes everything)")
    capture: bool = _setting(True, SWITCH, "on a GPU, play a round as one captured program (off: step by step)")
    chat: bool = _setting(True, SWITCH, "apply the chat template and keep the conversation")
    ignore_eos: bool = _setting(False, SWITCH, "go on behind end tokens, for equal lengths")
    insight: bool = _setting(True, SWITCH, "record entropies and alternatives, with the clock paused")
    record: bool = _setting(True, SWITCH, "keep runs as traces, and prompts, in the user's data folder")
    theme: str = _setting(THEMES[0], ThemeKind(), "colours of the app")


@dataclass(frozen=True)
class ModelChoice:
    """Which pair to load, and how."""

    preset: str = _setting("demo", choice(*PRESET_NAMES), "built-in pair")
    target_url: str = _setting("", ADDRESS, "server that runs the target, by its name there")
    target: str = _setting(
        "",
        Kind(str.strip, "a hub id, a folder or a GGUF file; with target-url its name on that server"),
        "target model",
    )
    tokenizer: str = _setting(
        "",
        Kind(str.strip, "a hub id or a folder"),
        "tokenizer and config of a target on a server, where its name is neither",
    )
    drafter: tuple[str, ...] = _setting(
        Names(),
        names(
            MOST_DRAFTERS,
            "none",
            f"a hub id, a folder, a GGUF file, or 'none'; several (up to {MOST_DRAFTERS}) as a JSON list",
        ),
        "drafter model",
    )
    device: str = _setting("auto", Kind(_parse_device, "auto, cpu, cuda or cuda:N", ("auto", "cpu", "cuda")), "device")
    dtype: str = _setting("auto", choice(*DTYPES), "data type of the weights")
    weights: str = _setting(
        "auto",
        choice("auto", *WEIGHT_FORMS),
        "form of a GGUF file's weights on a CPU (packed-int8: another model by a hair)",
    )
    quantize: str = _setting("", choice("", *QUANTIZATIONS), "quantization of all models")
    target_quantize: str = _setting("", choice("", *QUANTIZATIONS), "quantization of the target")
    drafter_quantize: str = _setting("", choice("", *QUANTIZATIONS), "quantization of the drafters")

    def __post_init__(self) -> None:
        given: object = self.drafter
        if not isinstance(given, Names):
            named = (given,) if isinstance(given, str) else self.drafter
            object.__setattr__(self, "drafter", Names(filter(None, named)))


FIELDS = {f.name: f for cls in (Settings, ModelChoice) for f in fields(cls)}


def flag_of(name: str) -> str:
    """`top_k` -> `top-k`: the word used by flags, palette and config file."""
    return name.replace("_", "-")


def name_of(word: str) -> str:
    """The setting that a flag, palette or config word means; SettingError when there is none."""
    name = word.strip().lower().replace("-", "_")
    for field_name, f in FIELDS.items():
        if name == field_name or name == f.metadata.get("palette"):
            return field_name
    raise SettingError(f"unknown setting {quoted(word)}: allowed are {', '.join(map(flag_of, FIELDS))}")


def quoted(text: str) -> str:
    """A bad value, or its beginning, as it may stand in a one-line message."""
    text = _SECRET.sub("//…@", text)
    if len(text) > _SHOWN:
        text = text[:_SHOWN] + "…"
    return f"'{text}'" if text.isprintable() else repr(text)


def parse_value(name: str, text: str, *, source: str = "") -> Any:
    """The value of setting `name` read from `text`; SettingError with one clear line."""
    kind: Kind = FIELDS[name].metadata["kind"]
    try:
        return kind.parse(text)
    except (ValueError, OverflowError) as error:
        where = f" ({source})" if source else ""
        why = str(error) if isinstance(error, Wrong) else f"give {kind.allowed}"
        raise SettingError(f"{flag_of(name)}{where}: {quoted(text)} is not valid: {why}") from None


def parse_processor(text: str) -> dict[str, Any]:
    """Changes from a whole processor line: `topknucleus T k p`, `nucleus T p`, `topk T k`, `multinomial T`.

    Arguments may be left out from the right; those given are validated like the settings they set.
    """
    words = text.split()
    name = parse_value("processor", words[0] if words else "")
    takes = USED_BY[name]
    if len(words) - 1 > len(takes):
        arguments = " ".join(map(flag_of, takes)) or "no argument"
        raise SettingError(f"processor: {quoted(text)} has too many arguments: {name} takes {arguments}")
    return {"processor": name} | {key: parse_value(key, word) for key, word in zip(takes, words[1:], strict=False)}


def parse_speed(text: str) -> float:
    """The speed of a race, 1 is true time. SettingError with one clear line."""
    try:
        value = float(text)
        if not 0.01 <= value <= 100:
            raise ValueError
    except ValueError:
        raise SettingError(f"race: {quoted(text)} is not valid: give a speed from 0.01 to 100") from None
    return value


def parse_path(text: str) -> Path:
    """A file as a user names it, `~` taken for a home. SettingError with one clear line."""
    if not text.strip():
        raise SettingError("an empty name is not valid: give a file")
    try:
        return Path(text.strip()).expanduser()
    except RuntimeError:
        raise SettingError(f"{quoted(text)}: there is no such home folder") from None


def reason_of(error: Exception) -> str:
    """What went wrong with a file, without its name."""
    return getattr(error, "strerror", None) or str(error)


def whole_characters(text: str) -> str:
    """`text` with a replacement character for each half of one, as stray bytes make them: no tokenizer reads those."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def unused_by(processor: str, names: Iterable[str]) -> list[str]:
    """Those of these settings that other processors have a use for, and this one has not."""
    return [name for name in names if name in USED_BY["topknucleus"] and name not in USED_BY[processor]]


def implied_processor(given: Mapping[str, Any], now: str) -> dict[str, str]:
    """The change of processor that sampling values ask for where the present one has no use for some of them.

    It is the first that uses them and what the present one uses; none where `given` names a processor.
    """
    if "processor" in given or not (unused := unused_by(now, given)):
        return {}
    used = {*unused, *USED_BY[now]}
    return {"processor": next(name for name in PROCESSORS if used <= set(USED_BY[name]))}
