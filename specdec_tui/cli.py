"""The command line: run (default), serve, bench, replay, import, tour, models, doctor.

Nothing heavy is imported until a command needs it: `--help` answers without torch and Textual.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from specdec_tui import __version__
from specdec_tui.config_table import config_file
from specdec_tui.doors import output
from specdec_tui.setting_kinds import SWITCH, format_value
from specdec_tui.setting_sources import resolve, resolve_rest
from specdec_tui.settings import (
    FIELDS,
    ModelChoice,
    SettingError,
    Settings,
    flag_of,
    parse_path,
    parse_speed,
    quoted,
    reason_of,
    whole_characters,
)

COMMANDS = ("run", "serve", "bench", "replay", "import", "tour", "models", "doctor")
USAGE_ERROR = 2
_OF_A_SERVER = ("target_url", "target", "tokenizer")
_DRAWING = ("processor", "temperature", "top_k", "top_p", "seed")


class _Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are one clear line, without the usage block; its words go through the door."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(allow_abbrev=False, **arguments)

    def error(self, message: str) -> Any:
        output.complain(f"{message} (see {self.prog} --help)")
        self.exit(USAGE_ERROR)

    def _print_message(self, message: str, file: Any = None) -> None:
        if message:
            output.write(message, error=file is sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (0 done, 1 failed, 2 bad input)."""
    output.prepare()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        output.complain(f"unknown command {quoted(words[0])}: allowed are {', '.join(COMMANDS)}")
        return USAGE_ERROR
    if not words or words[0] not in (*COMMANDS, "-h", "--help", "--version"):
        words.insert(0, "run")
    try:
        options = _parser().parse_args(words)
        status = int(options.command_function(options))
        output.flush()
        return status
    except SettingError as error:
        output.complain(str(error))
        return USAGE_ERROR
    except BrokenPipeError:  # the reader of a pipe has gone
        output.give_up()
        return 1
    except OSError as error:  # a full disk behind the standard output
        output.give_up()
        where = f"{error.filename}: " if error.filename else ""
        output.complain(f"{where}{reason_of(error)}")
        return 1
    except MemoryError:
        output.complain("not enough memory: try a smaller model, dtype or int8")
        return 1
    except KeyboardInterrupt:
        output.complain("interrupted")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="specdec-tui",
        description="A terminal laboratory for speculative decoding. Without a command it opens the app.",
        epilog="Every setting can also come from SPECDEC_TUI_<NAME> or the user's config file.",
    )
    parser.add_argument("--version", action="version", version=f"specdec-tui {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, parser_class=_Parser)

    run = commands.add_parser("run", help="open the app (default)", description="Open the full-screen app.")
    run.add_argument("--prompt", default="", help="run this prompt as soon as the models are ready")
    _add_settings(run)
    run.set_defaults(command_function=_run)

    serve = commands.add_parser(
        "serve",
        help="open the app in browsers, on models loaded once",
        description="Serve the app to browsers: a tab has a run at a time, the models are loaded once for all.",
    )
    serve.add_argument("--host", default="127.0.0.1", help="the address to serve at; another than this demands a token")
    serve.add_argument("--port", default="8000", help="the port to serve at, 0: a free one (8000)")
    serve.add_argument(
        "--token",
        help="what a browser has to show, at least 16 characters, or 'auto': made up (SPECDEC_TUI_SERVE_TOKEN)",
    )
    serve.add_argument("--tabs", default="8", metavar="N", help="most tabs at once (8)")
    _add_settings(serve)
    serve.set_defaults(command_function=_serve)

    bench = commands.add_parser(
        "bench", help="measure the strategies without a screen", description="Measure strategies side by side."
    )
    bench.add_argument("--prompt", action="append", default=[], help="a prompt to measure (repeatable)")
    bench.add_argument("--prompts", metavar="FILE", help="JSON lines with 'prompt' or 'turns', and 'category'")
    bench.add_argument(
        "--suite",
        metavar="NAME",
        help="built-in prompts in place of your own: everyday (8, the default) or heldout (66 of six kinds)",
    )
    bench.add_argument("--repeat", default="3", metavar="N", help="timed repeats of every prompt (3)")
    bench.add_argument("--warmup", default="1", metavar="N", help="untimed runs of the first prompt before them (1)")
    bench.add_argument("--json", metavar="FILE", help="write the results as JSON to FILE, or - for standard output")
    _add_settings(bench, defaults={"insight": False})  # nothing of it is reported
    bench.set_defaults(command_function=_bench)

    replay = commands.add_parser(
        "replay", help="open a trace of a run", description="Open a trace in the app; no model is needed for it."
    )
    replay.add_argument("file", metavar="FILE", help="a trace: JSON lines, as the app keeps them")
    replay.add_argument("--race", metavar="SPEED", help="race its strategies at once: 1 is true time, 0.1 slower")
    _add_settings(replay, only=("theme",))
    replay.set_defaults(command_function=_replay)

    imported = commands.add_parser(
        "import",
        help="make a trace of what a server's own speculative decoding streamed",
        description="Make a trace of a recorded stream of vLLM or llama.cpp, and keep it like any run.",
    )
    imported.add_argument("file", metavar="FILE", help="a recording: JSON lines, see docs/imports.md")
    imported.add_argument("--record", action="store_true", help="ask the server at --target-url, and write FILE")
    imported.add_argument("--prompt", default="", help="what to ask it; sent as it is, without a chat template")
    imported.add_argument("--baseline", metavar="FILE", help="the same server's without drafts, to compare with")
    imported.add_argument("--output", metavar="FILE", help="write the trace to FILE in place of keeping it")
    _add_settings(imported, only=("target_url", "target", "max_new_tokens", *_DRAWING))
    imported.set_defaults(command_function=_import)

    tour = commands.add_parser(
        "tour",
        help="open the app with a guided tour of eight steps",
        description="Open the app with a guided tour: what a round is, why the text is the target's, when it pays.",
    )
    _add_settings(tour)
    tour.set_defaults(command_function=_tour)

    models = commands.add_parser(
        "models",
        help="presets, cached models and what fits",
        description="Presets, models in the local cache, and what fits into memory; or the GGUF files of a folder.",
    )
    models.add_argument("folder", metavar="FOLDER", nargs="?", help="list the GGUF files in it instead, or one file")
    _add_settings(models, only=("device", "dtype", "quantize", *_OF_A_SERVER))
    models.set_defaults(command_function=_models)

    doctor = commands.add_parser(
        "doctor",
        help="health check: versions, devices, the demo pair",
        description="Check versions, devices, memory and that a pair runs; exit status 0 when all is well.",
    )
    _add_settings(doctor, only=("device", "dtype", "weights", "preset", "drafter", *_OF_A_SERVER))
    doctor.set_defaults(command_function=_doctor)
    return parser


def _add_settings(
    parser: argparse.ArgumentParser, only: Sequence[str] = (), defaults: Mapping[str, bool] | None = None
) -> None:
    """One flag a setting. Values stay text here; `setting_sources.resolve` validates every source alike.

    `defaults`: switches that this command turns by itself, whatever environment and config file say.
    """
    for title, cls in (("models", ModelChoice), ("settings", Settings)):
        chosen = [f for f in fields(cls) if not only or f.name in only]
        group = parser.add_argument_group(title) if chosen else parser
        for f in chosen:
            kind = f.metadata["kind"]
            own = (defaults or {}).get(f.name)
            default = format_value(f.default if own is None else own)
            text = f"{f.metadata['help']}: {kind.allowed}" + (f" ({default})" if default else "")
            text = text.replace("%", "%%")
            if kind is SWITCH:
                # Both ways of a flag: `--cache off` as in palette and config file, and `--no-cache`.
                flag, fixed = flag_of(f.name), None if own is None else format_value(own)
                shown = f"{text}; --no-{flag} is off"
                group.add_argument(
                    f"--{flag}", nargs="?", const="on", default=fixed, metavar="on|off", help=shown, dest=f.name
                )
                group.add_argument(
                    f"--no-{flag}",
                    action="store_const",
                    const="off",
                    default=default,
                    help=argparse.SUPPRESS,
                    dest=f.name,
                )
            elif kind.joined is not None:
                shown = f"{text}; may be repeated"
                group.add_argument(f"--{flag_of(f.name)}", action="append", metavar="VALUE", help=shown, dest=f.name)
            else:
                group.add_argument(f"--{flag_of(f.name)}", metavar="VALUE", default=None, help=text, dest=f.name)


def _given(options: argparse.Namespace) -> dict[str, str]:
    values = {f.name: getattr(options, f.name, None) for cls in (Settings, ModelChoice) for f in fields(cls)}
    return {name: _as_text(name, value) for name, value in values.items() if value is not None}


def _as_text(name: str, value: Any) -> str:
    joined = FIELDS[name].metadata["kind"].joined
    return format_value(value) if joined is None else joined(value)


def _resolved(options: argparse.Namespace) -> tuple[Settings, ModelChoice]:
    return resolve(_given(options))


def _resolved_as_far_as_valid(options: argparse.Namespace) -> tuple[Settings, ModelChoice, Sequence[str]]:
    """For commands that run nothing with them: settings that are wrong in environment or config file are told."""
    settings, choice, problems = resolve_rest(_given(options))
    for problem in problems:
        output.complain(f"left out: {problem}")
    return settings, choice, problems


def _whole_number(name: str, text: str, low: int, high: int = 1_000_000) -> int:
    try:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
    except ValueError:
        raise SettingError(f"{name}: {quoted(text)} is not valid: give a whole number from {low} up") from None
    return value


def _run(options: argparse.Namespace) -> int:
    return _open(options, whole_characters(options.prompt))


def _tour(options: argparse.Namespace) -> int:
    return _open(options, tour=True)


def _open(options: argparse.Namespace, prompt: str = "", *, tour: bool = False) -> int:
    """The app on a pair of models."""
    settings, choice = _resolved(options)
    if not _on_a_terminal():
        return USAGE_ERROR
    from specdec_tui.tui.terminal.collector import begin_a_start

    begin_a_start()
    from specdec_tui.session import LocalEngine
    from specdec_tui.tui.app.own_themes import check_theme
    from specdec_tui.tui.app.program import run_app
    from specdec_tui.tui.commands.keymap import read_keymap

    check_theme(settings.theme)
    keymap, problems = read_keymap(config_file())
    for problem in problems:
        output.complain(problem)
    if problems:
        return USAGE_ERROR
    return run_app(LocalEngine(), settings, choice, prompt, keymap=keymap, tour=tour)


def _serve(options: argparse.Namespace) -> int:
    """The app in browsers, on a pair of models for all."""
    settings, choice = _resolved(options)
    from specdec_tui.serving.command import as_place, check_installed, serve

    place = as_place(options.host, options.port, options.token, options.tabs)
    check_installed()
    from specdec_tui.benchmark.environment import describe_environment
    from specdec_tui.loaded import Loaded
    from specdec_tui.serving.engine_server import EngineServer
    from specdec_tui.serving.messages import Welcome
    from specdec_tui.session import LocalEngine
    from specdec_tui.tui.app.own_themes import check_theme
    from specdec_tui.tui.commands.keymap import read_keymap

    check_theme(settings.theme)
    _, problems = read_keymap(config_file())
    for problem in problems:
        output.complain(problem)
    if problems:
        return USAGE_ERROR
    loaded = Loaded()
    return serve(
        place,
        lambda failed: EngineServer(
            Welcome(settings, choice),
            lambda progress: loaded.load(choice, progress),
            lambda: LocalEngine(loaded),
            describe_environment,
            failed,
        ),
    )


def _on_a_terminal() -> bool:
    """Whether the app can be opened; said where it cannot."""
    if output.is_terminal():
        return True
    output.complain("the app needs a terminal; use 'specdec-tui bench' to measure without one")
    return False


def _replay(options: argparse.Namespace) -> int:
    from specdec_tui.traces.files import read_trace
    from specdec_tui.traces.format import TraceError

    settings, choice, left_out = _resolved_as_far_as_valid(options)
    speed = None if options.race is None else parse_speed(options.race)
    try:
        path = parse_path(options.file)
        trace = read_trace(path)
    except TraceError as error:
        output.complain(str(error))
        return USAGE_ERROR
    if not _on_a_terminal():
        return USAGE_ERROR
    from specdec_tui.session import LocalEngine
    from specdec_tui.tui.app.program import run_app
    from specdec_tui.tui.app.recordings import Replay
    from specdec_tui.tui.commands.keymap import read_keymap

    keymap, wrong = read_keymap(config_file())
    replay = Replay(trace, speed, [*left_out, *wrong], path)
    return run_app(LocalEngine(), settings, choice, replay=replay, keymap=keymap)


def _import(options: argparse.Namespace) -> int:
    if options.record:
        return _record(options)
    from specdec_tui.importing import import_run

    baseline, output_to = (None if name is None else parse_path(name) for name in (options.baseline, options.output))
    return import_run(parse_path(options.file), baseline, output_to)


def _record(options: argparse.Namespace) -> int:
    from specdec_tui.recording import record

    if not options.prompt.strip():
        raise SettingError("prompt: --record needs one: give what to ask the server")
    settings, choice = _resolved(options)
    return record(parse_path(options.file), settings, choice, whole_characters(options.prompt))


def _bench(options: argparse.Namespace) -> int:
    from specdec_tui.benchmark.command import bench

    settings, choice = _resolved(options)
    repeat = _whole_number("repeat", options.repeat, 1)
    warmup = _whole_number("warmup", options.warmup, 0)
    from specdec_tui.session import LocalEngine

    return bench(
        LocalEngine(),
        settings,
        choice,
        prompts=options.prompt,
        prompts_file=None if options.prompts is None else parse_path(options.prompts),
        suite_name=options.suite,
        repeat=repeat,
        warmup=warmup,
        json_to=options.json,
        strategies_named=options.strategies is not None,
    )


def _models(options: argparse.Namespace) -> int:
    from specdec_tui.catalogue import show_files, show_models

    if options.folder is not None:
        return show_files(options.folder)
    _, choice, _ = _resolved_as_far_as_valid(options)
    return show_models(choice)


def _doctor(options: argparse.Namespace) -> int:
    from specdec_tui.doctor import show_health
    from specdec_tui.session import LocalEngine

    settings, choice, _ = _resolved_as_far_as_valid(options)
    return show_health(LocalEngine(), settings, choice)
