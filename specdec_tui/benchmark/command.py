"""The `bench` command: load, measure, report. Progress goes to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from specdec_tui.backends.pair import LoadError, PairInfo, Progress, PromptError, ReportProgress
from specdec_tui.benchmark.environment import describe_environment
from specdec_tui.benchmark.report import as_json, as_table, note_lines
from specdec_tui.benchmark.run import BenchmarkError, Engine, measure
from specdec_tui.benchmark.statistics import summarize
from specdec_tui.benchmark.suites import Prompt, builtin_suite, read_suite
from specdec_tui.settings import ModelChoice, SettingError, Settings

if TYPE_CHECKING:
    from typing import Protocol

    class LoadingEngine(Engine, Protocol):
        def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo: ...


def bench(
    engine: LoadingEngine,
    settings: Settings,
    choice: ModelChoice,
    *,
    prompts: Sequence[str],
    prompts_file: Path | None,
    suite_name: str | None = None,
    repeat: int,
    warmup: int,
    json_to: str | None,
    strategies_named: bool = False,
) -> int:
    """Exit status: 0 measured, 1 a run failed, 2 bad input (SettingError is left to the caller)."""
    if suite_name is not None and (prompts or prompts_file is not None):
        raise SettingError("suite: a built-in suite and prompts of your own exclude each other")
    suite = [Prompt((text,)) for text in prompts if text.strip()]
    if prompts and not suite:
        raise SettingError("prompt: an empty prompt cannot be measured")
    if prompts_file is not None:
        suite += read_suite(prompts_file)
    suite = suite or builtin_suite("everyday" if suite_name is None else suite_name)
    if json_to not in (None, "-"):
        _check_writable(Path(str(json_to)))
    errors = Console(stderr=True, highlight=False)
    bar = ProgressBar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    try:
        with bar:
            task = bar.add_task("loading", total=None)

            def loading(progress: Progress) -> None:
                total = None if progress.fraction is None else 100
                bar.update(task, description=progress.stage, total=total, completed=100 * (progress.fraction or 0))

            info = engine.load(choice, loading)
            settings = _runnable(settings, info, strategies_named, errors)
            bar.update(task, description="warm-up", total=None)
            results = measure(
                engine,
                suite,
                settings,
                repeat=repeat,
                warmup=warmup,
                progress=lambda done, total: bar.update(task, description="measuring", completed=done, total=total),
            )
    except (LoadError, BenchmarkError, PromptError) as error:
        errors.print(f"specdec-tui: {error}", markup=False, soft_wrap=True)
        return 2 if isinstance(error, LoadError) else 1
    summaries = summarize(results)
    if json_to is not None:
        report = as_json(
            results, summaries, info, settings, describe_environment(), {"repeat": repeat, "warmup": warmup}
        )
        text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False)
        if json_to == "-":
            print(text, flush=True)
            return 0
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(as_table(results, summaries, info))
    for note in (*info.notes, *note_lines(results, summaries)):
        console.print(note, markup=False)
    if json_to is not None:  # last: what was measured has been shown, whatever becomes of the file
        Path(json_to).write_text(text + "\n", encoding="utf-8")
    return 0


def _check_writable(path: Path) -> None:
    """Fail before minutes of measuring, not after."""
    existed = path.exists()
    try:
        path.open("a").close()
    except OSError as error:
        raise SettingError(
            f"json: cannot write {path} ({error.strerror}): give a file in an existing folder, or - for standard output"
        ) from None
    if not existed:
        path.unlink()


def _runnable(settings: Settings, info: PairInfo, named: bool, errors: Console) -> Settings:
    """Leave out strategies that need a drafter where there is none; LoadError when they were asked for by name."""
    from specdec_tui.decoding.strategies import STRATEGIES

    missing = [name for name in settings.strategies if STRATEGIES[name].needs_drafter and info.drafter is None]
    if not missing:
        return settings
    rest = tuple(name for name in settings.strategies if name not in missing)
    if named or not rest:
        verb = "needs" if len(missing) == 1 else "need"
        raise LoadError(
            f"strategies: {', '.join(missing)} {verb} a drafter, and none is loaded: name one with --drafter"
        )
    errors.print(f"left out, for want of a drafter: {', '.join(missing)}", markup=False)
    return replace(settings, strategies=rest)
