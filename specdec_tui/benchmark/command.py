"""The `bench` command: load, check the prompts, measure, report. Progress goes to standard error."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from specdec_tui.backends.pair import LoadError, PairInfo, Progress, PromptError, ReportProgress
from specdec_tui.benchmark.environment import describe_environment
from specdec_tui.benchmark.report import as_json, as_sheet, note_lines, pass_lines
from specdec_tui.benchmark.run import (
    BenchmarkError,
    Engine,
    PromptChecker,
    Result,
    UnfitPrompt,
    check_prompts,
    measure,
)
from specdec_tui.benchmark.statistics import summarize
from specdec_tui.benchmark.suites import Prompt, builtin_suite, read_suite
from specdec_tui.doors import output, writing
from specdec_tui.doors.characters import json_text
from specdec_tui.settings import FIRST_ALONE, ModelChoice, SettingError, Settings, parse_path, reason_of

if TYPE_CHECKING:
    from typing import Protocol

    class LoadingEngine(Engine, PromptChecker, Protocol):
        def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo: ...


KEEP_EVERY = 30.0  # seconds after which the file gets what is there
STOP_AGAIN = 1.0  # seconds after which a stop that nobody has taken is raised again
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


class _Told(KeyboardInterrupt):
    """The process was asked to end by a signal other than ctrl+c."""

    def __init__(self, number: int) -> None:
        super().__init__(f"told to end by {signal.Signals(number).name}")
        self.status = 128 + number


@dataclass
class _Work:
    """What is there to report, however the work ends."""

    settings: Settings
    run: dict[str, int]
    path: Path | None
    """The file that is asked for; None where none is."""
    info: PairInfo | None = None
    turns: int = 0
    done: int = 0
    results: list[Result] = field(default_factory=list)
    stopped: str = ""
    """Why not all was measured; empty where all was."""
    kept_at: float = field(default_factory=time.monotonic)

    def report(self) -> dict[str, Any]:
        """What is there so far."""
        assert self.info is not None, "the load comes first"
        summaries, here = summarize(self.results), describe_environment()
        return as_json(self.results, summaries, self.info, self.settings, here, self.run, self.stopped)

    def keep(self) -> None:
        """Every now and then, between two turns: what kills the process must not take it all."""
        if self.path is None or writing.is_character_device(self.path) or time.monotonic() < self.kept_at + KEEP_EVERY:
            return
        self.stopped = "it is still at work, or was killed"
        with suppress(OSError):  # told at the end
            writing.send(self.path, [json_text(self.report()), "\n"])
        self.stopped, self.kept_at = "", time.monotonic()


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
    """Exit status: 0 measured, 1 a run failed, 2 bad input (SettingError is left to the caller), 128+n a signal.

    Whatever stops the work, what was measured until then is reported, as partial.
    """
    suite = _suite(prompts, prompts_file, suite_name)
    path = None if json_to in (None, "-") else parse_path(str(json_to))
    if path is not None and output.is_standard_output(path):
        json_to, path = "-", None
    if path is not None:
        _check_writable(path)
    work = _Work(settings, {"repeat": repeat, "warmup": warmup}, path)
    status = 0
    try:
        with _signals_stop():
            _measure(work, engine, suite, choice, strategies_named)
    except (LoadError, UnfitPrompt) as error:
        output.complain(str(error))
        return BAD_INPUT
    except KeyboardInterrupt as told:
        status, work.stopped = (told.status, str(told)) if isinstance(told, _Told) else (INTERRUPTED, "interrupted")
    except (BenchmarkError, PromptError) as error:
        status, work.stopped = FAILED, str(error)
    except Exception as error:  # a fault of ours or of a library's: what it cost minutes to measure is told first
        from specdec_tui.backends.errors import describe_error, is_out_of_memory

        if not is_out_of_memory(error):
            if not work.results:
                raise
            output.show_traceback(type(error), error, error.__traceback__)
        status, work.stopped = FAILED, describe_error(error)
    with _signals_wait():
        if work.stopped:
            output.complain(work.stopped)
        if work.results and work.info is not None:
            status = _report(work, work.info, json_to) or status
    return status


def _suite(prompts: Sequence[str], prompts_file: Path | None, name: str | None) -> list[Prompt]:
    if name is not None and (prompts or prompts_file is not None):
        raise SettingError("suite: a built-in suite and prompts of your own exclude each other")
    suite = [Prompt((text,)) for text in prompts if text.strip()]
    if prompts and not suite:
        raise SettingError("prompt: an empty prompt cannot be measured")
    if prompts_file is not None:
        suite += read_suite(prompts_file)
    return suite or builtin_suite("everyday" if name is None else name)


def _measure(work: _Work, engine: LoadingEngine, suite: Sequence[Prompt], choice: ModelChoice, named: bool) -> None:
    with output.libraries_unheard(), output.at_work("loading") as report:

        def loading(progress: Progress) -> None:
            counted = progress.fraction is not None
            report(progress.stage, round(100 * (progress.fraction or 0)), 100 if counted else None)

        def measuring(done: int, turns: int) -> None:
            work.done, work.turns = done, turns
            work.keep()
            report("measuring", done, turns)

        work.info = engine.load(choice, loading)
        work.settings = _runnable(work.settings, work.info, named)
        report("checking the prompts", 0, None)
        check_prompts(engine, suite, work.settings)
        report("warm-up", 0, None)
        measure(engine, suite, work.settings, **work.run, progress=measuring, results=work.results)


def _report(work: _Work, info: PairInfo, json_to: str | None) -> int:
    """Show and write what was measured. The exit status is 1 where it did not arrive where it was wanted.

    The table comes before the file: whatever becomes of that, the figures have been shown.
    """
    report = work.report()
    if json_to == "-":
        try:
            output.write_json(report)
        except BrokenPipeError:
            raise
        except OSError as error:
            output.give_up()
            return _kept_elsewhere(report, "standard output", error)
        return 0
    partial = f"PARTIAL, {work.done} of {work.turns or 'all'} turns are complete: {work.stopped}" * bool(work.stopped)
    summaries = summarize(work.results)
    sheet = as_sheet(work.results, summaries, info, partial)
    notes = [*info.notes, *note_lines(work.results, summaries), *pass_lines(work.results, info)]
    status = 0
    try:
        _show(sheet, notes, error=False)
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk: a person may still read it here
        output.give_up()
        output.complain(f"standard output: {reason_of(error)}")
        _show(sheet, notes, error=True)
        status = FAILED
    if work.path is not None:
        try:
            writing.send(work.path, [json_text(report), "\n"])
        except OSError as error:
            return _kept_elsewhere(report, str(work.path), error)
    return status


def _show(sheet: output.Sheet, notes: Sequence[str], *, error: bool) -> None:
    output.show(sheet, error=error)
    for note in notes:
        output.say(note, error=error)


def _kept_elsewhere(report: dict[str, Any], wanted: str, error: OSError) -> int:
    """The JSON could not be written where it was wanted: put it where there may be room. The exit status."""
    output.complain(f"{wanted}: {reason_of(error)}")
    try:
        descriptor, name = tempfile.mkstemp(prefix="specdec-tui-bench-", suffix=".json")
        try:
            writing.fill(descriptor, [json_text(report), "\n"])
        except OSError:
            Path(name).unlink()
            raise
        output.complain(f"the results are in {name} instead")
    except OSError as error:
        output.complain(f"nor could the results be kept in the folder for temporary files: {reason_of(error)}")
    return FAILED


@contextmanager
def _signals_stop() -> Iterator[None]:
    """Inside, being told to end is like ctrl+c: what was measured is kept.

    What the signal raises is raised again until the work is left: a library's callback, as that of a compiler,
    drops what is raised in it.
    """
    can_repeat = hasattr(signal, "setitimer")
    told: list[int] = []
    told_again = getattr(signal, "SIGALRM", None)

    def stop(number: int, _frame: FrameType | None) -> None:
        if not told or number != told_again:
            told[:] = [number]
        if can_repeat:
            signal.setitimer(signal.ITIMER_REAL, STOP_AGAIN)
        raise KeyboardInterrupt if told[0] == signal.SIGINT else _Told(told[0])

    with _handling(("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM"), stop):
        try:
            yield
        finally:
            if can_repeat and told:
                signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Inside, ctrl+c has no effect: a second one, pressed in impatience, must not lose what the first one kept."""
    with _handling(("SIGINT", "SIGTERM", "SIGHUP"), signal.SIG_IGN):
        yield


@contextmanager
def _handling(names: Sequence[str], handler: Any) -> Iterator[None]:
    numbers = [number for name in names if (number := getattr(signal, name, None))]
    if threading.current_thread() is not threading.main_thread():  # where Python allows no handlers
        numbers = []
    # What is ignored stays so: under nohup, or in the background of a shell.
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _check_writable(path: Path) -> None:
    """Fail before minutes of measuring, not after."""
    try:
        writing.check(path)
    except OSError as error:
        raise SettingError(
            f"json: cannot write {path} ({reason_of(error)}): "
            "give a file in an existing folder, or - for standard output"
        ) from None


def _runnable(settings: Settings, info: PairInfo, named: bool) -> Settings:
    """Leave out strategies that need a drafter where there is none; LoadError when they were asked for by name."""
    from specdec_tui.decoding.strategies import STRATEGIES

    count = len(info.drafters)
    needed = {name: row.place + 1 for name, row in STRATEGIES.items() if row.needs_drafter} | {FIRST_ALONE: 1}
    missing = [name for name in settings.strategies if needed.get(name, 0) > count]
    if not missing:
        return settings
    rest = tuple(name for name in settings.strategies if name not in missing)
    if count and (named or not rest):
        most = max(needed[name] for name in missing)
        raise LoadError(f"strategies: {', '.join(missing)}: that takes {most} drafters (--drafter again), not {count}")
    if named or not rest:
        verb = "needs" if len(missing) == 1 else "need"
        raise LoadError(
            f"strategies: {', '.join(missing)} {verb} a drafter, and none is loaded: name one with --drafter"
        )
    output.say(f"left out, for want of a drafter: {', '.join(missing)}", error=True)
    return replace(settings, strategies=rest)
