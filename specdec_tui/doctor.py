"""The `doctor` command: is everything here that a run needs, and does a pair really run?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from specdec_tui.backends.pair import SERVED_BY, LoadError
from specdec_tui.benchmark.environment import describe_environment, installed_versions
from specdec_tui.benchmark.run import BenchmarkError, measure
from specdec_tui.benchmark.suites import Prompt
from specdec_tui.config_table import config_file
from specdec_tui.decoding.records import LosslessStatus
from specdec_tui.doors import output
from specdec_tui.session import Engine
from specdec_tui.setting_sources import read_config
from specdec_tui.settings import ModelChoice, SettingError, Settings
from specdec_tui.tui.app.own_themes import check_theme
from specdec_tui.tui.commands.keymap import read_keymap
from specdec_tui.variables import api_key

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; `state` is ok, warning or failed."""

    state: str
    name: str
    detail: str


def show_health(engine: Engine, settings: Settings, choice: ModelChoice) -> int:
    """Print every check as it is made. Exit status 0 when none failed, else 1."""
    failed = False
    for check in _checks(engine, settings, choice):
        mark, colour = MARKS[check.state]
        output.show_line(mark, colour, check.name, check.detail)
        failed = failed or check.state == "failed"
    output.say("Something is missing: see the lines marked ✗." if failed else "All is well.")
    return int(failed)


def _checks(engine: Engine, settings: Settings, choice: ModelChoice) -> Iterator[Check]:
    for name, version in installed_versions().items():
        optional = name == "bitsandbytes"
        missing = "warning" if optional else "failed"
        yield Check("ok" if version else missing, name, version or "not installed" + optional * " (no int8, int4)")
    path = config_file()
    try:
        read = read_config(path)
        keymap, wrong = read_keymap(path)
        yield from (Check("failed", "config file", problem) for problem in wrong)
        check_theme(settings.theme)
        held = (
            f"{len(read)} settings{f', {len(keymap)} own keys' if keymap else ''}"
            if os.path.exists(path)
            else "none yet"
        )
        if not wrong:
            yield Check("ok", "config file", f"{path} ({held})")
    except SettingError as error:
        yield Check("failed", "config file", str(error))
    try:
        here = describe_environment()
    except (ImportError, OSError) as error:  # OSError: one of its own libraries does not load
        yield Check("failed", "environment", f"torch does not import: {error}")
        return
    yield Check("ok", "processor", f"{here['processor']}, {here['cpu_count']} cores, {here['threads']} threads used")
    yield Check("ok", "memory", f"{here['memory_bytes'] / 2**30:.1f} GiB")
    devices = [f"{d['name']} ({d['memory_bytes'] / 2**30:.0f} GiB)" for d in here["cuda_devices"]]
    yield Check("ok", "GPU", ", ".join(devices) or "none: models run on the CPU")
    yield from _pair_checks(engine, settings, choice)


def _pair_checks(engine: Engine, settings: Settings, choice: ModelChoice) -> Iterator[Check]:
    start = time.perf_counter()
    try:
        with output.libraries_unheard():
            info = engine.load(choice, lambda progress: None)
    except LoadError as error:
        yield Check("failed", "pair", str(error))
        return
    drafter = "" if info.drafters else " (no drafter)"
    yield Check(
        "ok",
        "pair",
        f"{info.name}{drafter} on {info.target.device}, {info.target.precision}, "
        f"{time.perf_counter() - start:.1f} s to load",
    )
    if (health := engine.health(lambda: False)) is not None:
        there = f"{health.seconds * 1e3:.3g} ms there and back" if health.seconds is not None else health.fault
        key = "a key is sent" if api_key() else "no key is sent"
        detail = f"{info.target.device.removeprefix(SERVED_BY)}: {there}, {key}"
        yield Check("failed" if health.seconds is None else "ok", "server", detail)
    for sentence in info.target.seen:
        yield Check("ok", "server", sentence)
    for note in info.notes:
        yield Check("warning", "note", note)
    names = ("target", "speculative") if info.drafters else ("target", "lookup")
    trial = replace(settings, strategies=names, processor="greedy", max_new_tokens=24, gamma=4, ignore_eos=True)
    try:
        results = measure(engine, [Prompt(("Name three colours.",))], trial, repeat=1, warmup=0)
    except BenchmarkError as error:
        yield Check("failed", "decoding", str(error))
        return
    for result in results:
        speed = result.figures.decode_tokens_per_second or 0.0
        status = result.lossless.status
        exact = status in (LosslessStatus.IDENTICAL, LosslessStatus.NEAR_TIES)
        words = str(status).replace("_", " ")
        yield Check(
            "ok" if exact else "failed",
            result.strategy,
            f"{result.figures.new_tokens} tokens, {speed:.1f} tok/s, {words}",
        )
