"""The `bench` command: load, measure, report. Progress goes to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from specdec_tui.backends.pair import LoadError, PairInfo, Progress, ReportProgress
from specdec_tui.benchmark.environment import describe_environment
from specdec_tui.benchmark.report import as_json, as_table
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
    repeat: int,
    warmup: int,
    json_to: str | None,
) -> int:
    """Exit status: 0 measured, 1 a run failed, 2 bad input (SettingError is left to the caller)."""
    suite = [Prompt((text,)) for text in prompts if text.strip()]
    if prompts and not suite:
        raise SettingError("prompt: an empty prompt cannot be measured")
    if prompts_file is not None:
        suite += read_suite(prompts_file)
    suite = suite or builtin_suite()
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
    )
    try:
        with bar:
            task = bar.add_task("loading", total=None)

            def loading(progress: Progress) -> None:
                total = None if progress.fraction is None else 100
                bar.update(task, description=progress.stage, total=total, completed=100 * (progress.fraction or 0))

            info = engine.load(choice, loading)
            bar.update(task, description="warm-up", total=None)
            results = measure(
                engine,
                suite,
                settings,
                repeat=repeat,
                warmup=warmup,
                progress=lambda done, total: bar.update(task, description="measuring", completed=done, total=total),
            )
    except LoadError as error:
        errors.print(f"specdec-tui: {error}", markup=False)
        return 2
    except BenchmarkError as error:
        errors.print(f"specdec-tui: {error}", markup=False)
        return 1
    summaries = summarize(results)
    if json_to is not None:
        report = as_json(
            results, summaries, info, settings, describe_environment(), {"repeat": repeat, "warmup": warmup}
        )
        text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False)
        if json_to == "-":
            print(text)
            return 0
        Path(json_to).write_text(text + "\n", encoding="utf-8")
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(as_table(results, summaries, info))
    for note in info.notes:
        console.print(note, markup=False)
    return 0


def _check_writable(path: Path) -> None:
    """Fail before minutes of measuring, not after."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise SettingError(f"json: cannot write {path}: give a file in an existing folder, or - for standard output")
