"""Make a drafter for a Llama target by distillation, on one GPU: see README.md beside this file.

python tools/distil_drafter.py generate|train|evaluate|export|all --run FOLDER --target FOLDER …
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import torch
from distil import arguments as reading
from distil.evaluate import EvaluationSettings, conditions, evaluate, read_prompts, table
from distil.export import check_out, export
from distil.files import Refused, brief, read_json, write_json
from distil.generate import MODES, GenerationSettings, generate
from distil.gguf_files import load_packed
from distil.llama import from_state, load_llama, read_config, read_shape
from distil.openings import chat_pieces
from distil.student import hugging_face_state
from distil.target import name_and_licence
from distil.train import TrainingSettings, load_student, train

_SUITES = Path(__file__).resolve().parents[1] / "specdec_tui" / "benchmark"


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _add_fields(parser: reading.Parser, settings: type) -> None:
    for each in fields(settings):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=reading.of_field(each), default=each.default)


def _values(settings: type, arguments: argparse.Namespace) -> dict[str, Any]:
    return {each.name: getattr(arguments, each.name) for each in fields(settings) if hasattr(arguments, each.name)}


def make_parser() -> reading.Parser:
    """The command line; stages share `--run`, `--target`, `--device`, and candidates share one generation."""
    parser = reading.Parser(prog="distil_drafter.py", description=__doc__)
    stages = parser.add_subparsers(dest="stage", required=True)
    common = reading.Parser(add_help=False)
    common.add_argument("--run", type=Path, help="folder that keeps everything of this run")
    common.add_argument("--target", type=Path, required=True, help="Hugging Face folder of the target")
    common.add_argument("--device", type=reading.device, default="cuda" if torch.cuda.is_available() else "cpu")
    suites = reading.Parser(add_help=False)
    suites.add_argument(
        "--prompts",
        type=Path,
        action="append",
        help="JSON lines of held-out prompts (repeatable; default: the suites of the benchmark)",
    )
    named = reading.Parser(add_help=False)
    named.add_argument("--name", type=reading.plain_name, default="drafter", help="name of the candidate")
    card = reading.Parser(add_help=False)
    card.add_argument("--out", type=Path, help="folder to write (default: export beside the candidate's checkpoint)")
    card.add_argument(
        "--target-name", type=reading.one_line, help="MAKER/MODEL for the card (known: the demo target's)"
    )
    card.add_argument("--target-licence", type=reading.one_line, help="licence of the target, for the card (as above)")
    writing = reading.Parser(add_help=False)
    writing.add_argument("--mode", choices=MODES, default=MODES[0], help="fastest way of decoding to try on a GPU")
    training = reading.Parser(add_help=False)
    training.add_argument("--no-compile", action="store_true", help="train without torch.compile")

    stage = stages.add_parser("generate", parents=[common, suites, writing], help="the target writes the text")
    _add_fields(stage, GenerationSettings)
    _add_budget(stage)
    stage = stages.add_parser("train", parents=[common, named, training], help="train one candidate")
    _add_fields(stage, TrainingSettings)
    _add_budget(stage)
    stage = stages.add_parser("evaluate", parents=[common, named, suites], help="acceptance on held-out prompts")
    stage.add_argument("--drafter", type=Path, help="judge this folder or GGUF file instead of a candidate")
    stage.add_argument("--json", type=Path, help="file for the figures (default: beside the candidate's checkpoint)")
    stage.add_argument("--new-tokens", type=reading.whole(1), default=EvaluationSettings().new_tokens)
    stage.add_argument("--samples", type=reading.whole(1), default=EvaluationSettings().samples)
    stages.add_parser("export", parents=[common, named, card], help="write the Hugging Face folder")
    stage = stages.add_parser(
        "all", parents=[common, named, suites, card, writing, training], help="all four, in a row"
    )
    for name, value in (("generate", 8.0), ("train", 12.0)):
        stage.add_argument(f"--{name}-minutes", type=reading.number(above_zero=True), default=value)
        stage.add_argument(f"--{name}-tokens", type=reading.amount)
    stage.add_argument("--generation-batch", type=reading.whole(1), default=GenerationSettings().batch)
    stage.add_argument("--length", type=reading.whole(1), default=GenerationSettings().length)
    _add_fields(stage, TrainingSettings)
    return parser


def _add_budget(parser: reading.Parser) -> None:
    parser.add_argument("--minutes", type=reading.number(above_zero=True), help="wall time of the stage with its start")
    parser.add_argument("--tokens", type=reading.amount, help="exact amount (1e8), for a run that can be repeated")


def _budget(arguments: argparse.Namespace) -> tuple[int | None, float | None]:
    return arguments.tokens, arguments.minutes


def _budget_of(arguments: argparse.Namespace, stage: str) -> tuple[int | None, float | None]:
    """A number of tokens replaces the minutes, so that the run can be repeated exactly."""
    tokens = getattr(arguments, f"{stage}_tokens")
    return tokens, None if tokens else getattr(arguments, f"{stage}_minutes")


def _check(arguments: argparse.Namespace) -> None:
    """Refuse, before any work, what one argument alone does not show."""
    run: Path | None = arguments.run
    drafter: Path | None = getattr(arguments, "drafter", None)
    if run is None and drafter is None:
        raise Refused("name --run")
    if run is not None and run.exists() and not run.is_dir():
        raise Refused(f"--run {run} is not a folder")
    if "tokens" in arguments and arguments.tokens is None and arguments.minutes is None:
        raise Refused("name --minutes or --tokens")
    read_shape(arguments.target)
    if drafter is not None and not drafter.is_file():
        read_shape(drafter)
    file: Path | None = getattr(arguments, "json", None)
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise Refused(f"--json {file} cannot be written: name a file in a folder that is there")
    if "out" in arguments:
        arguments.out = arguments.out or arguments.run / "models" / arguments.name / "export"
        check_out(arguments.out, arguments.run, arguments.target)
        arguments.target_name, arguments.target_licence = name_and_licence(
            arguments.target, arguments.target_name, arguments.target_licence
        )


def _suites(arguments: argparse.Namespace) -> list[Path]:
    named: list[Path] | None = arguments.prompts
    return named or sorted(_SUITES.glob("*.jsonl"))


def _generate(arguments: argparse.Namespace, settings: GenerationSettings, budget: tuple[Any, Any]) -> None:
    turns = [turn for prompt in read_prompts(_suites(arguments)) for turn in prompt.turns]
    device, tokenizer = torch.device(arguments.device), _tokenizer(arguments.target)
    generate(arguments.run, arguments.target, tokenizer, settings, *budget, turns, device, arguments.mode, _tell)
    gc.collect()  # the author's cache is most of a GPU, and training looks at what is free
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _train(arguments: argparse.Namespace, settings: TrainingSettings, budget: tuple[Any, Any]) -> None:
    device = torch.device(arguments.device)
    train(
        arguments.run,
        arguments.name,
        arguments.target,
        settings,
        *budget,
        device,
        not arguments.no_compile,
        _tell,
    )


def _evaluate(arguments: argparse.Namespace, settings: EvaluationSettings) -> None:
    named: Path | None = getattr(arguments, "drafter", None)
    file: Path | None = getattr(arguments, "json", None)
    prompts = read_prompts(_suites(arguments))
    student = None
    if named is None:
        student = load_student(arguments.run, arguments.name, arguments.target)
    if file is None and student is not None:
        file = arguments.run / "models" / arguments.name / "evaluation.json"
        earlier = read_json(file)
        before = earlier.get("conditions")
        if before == conditions(prompts, settings):
            _tell(f"evaluation of {arguments.name} is finished: {file}")
            print(table(earlier), flush=True)
            return
        if before:
            _tell(f"evaluation of {arguments.name} is done anew: its prompts or settings are others than before")
    device = torch.device(arguments.device)
    if named is not None:
        load = load_packed if named.is_file() else load_llama
        drafter = load(named, device, torch.float32)
    elif student is not None:
        rounded = {name: value.bfloat16() for name, value in hugging_face_state(student).items()}  # as exported
        drafter = from_state(student.shape, rounded, device, torch.float32)
    target = load_llama(arguments.target, device, torch.float32)
    begun = time.monotonic()
    most = read_config(arguments.target).get("max_position_embeddings")
    result = evaluate(target, drafter, _tokenizer(arguments.target), prompts, settings, _tell, most)
    result["seconds"] = round(time.monotonic() - begun, 1)
    if file is not None:
        write_json(file, result)
    print(table(result), flush=True)


def _export(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out
    size = export(arguments.run, arguments.name, arguments.target, out, arguments.target_name, arguments.target_licence)
    _tell(f"{out}: {size / 1e6:.1f} MB of weights")


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer  # a second of importing that training does not need

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        chat_pieces(tokenizer)
    except Exception as error:  # files, tokenizers and templates fail in ways of their own
        raise Refused(f"{folder} has no tokenizer with a chat template that works here ({brief(error)})") from error
    vocab = read_shape(folder).vocab
    if len(tokenizer) > vocab:
        raise Refused(f"{folder} has a tokenizer of {len(tokenizer):,} tokens for a vocabulary of {vocab:,}")
    return tokenizer


def main(words: Sequence[str] | None = None) -> None:
    """Run one stage, or all; SystemExit with status 2 after a line of explanation where that is impossible."""
    arguments = make_parser().parse_args(words)
    try:
        _check(arguments)
        _run(arguments)
    except Refused as refusal:
        _leave(2, str(refusal))
    except OSError as error:
        _leave(2, f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        _leave(130, "stopped; the same command goes on from here")


def _leave(status: int, why: str) -> NoReturn:
    print(f"distil_drafter.py: {' '.join(why.split())}", file=sys.stderr, flush=True)
    raise SystemExit(status)


def _run(arguments: argparse.Namespace) -> None:
    stage = arguments.stage
    if stage == "generate":
        _generate(arguments, GenerationSettings(**_values(GenerationSettings, arguments)), _budget(arguments))
    elif stage == "train":
        _train(arguments, TrainingSettings(**_values(TrainingSettings, arguments)), _budget(arguments))
    elif stage == "evaluate":
        _evaluate(arguments, EvaluationSettings(new_tokens=arguments.new_tokens, samples=arguments.samples))
    elif stage == "export":
        _export(arguments)
    else:
        trained = TrainingSettings(**_values(TrainingSettings, arguments))
        written = GenerationSettings(batch=arguments.generation_batch, length=arguments.length, seed=arguments.seed)
        _generate(arguments, written, _budget_of(arguments, "generate"))
        _train(arguments, trained, _budget_of(arguments, "train"))
        _evaluate(arguments, EvaluationSettings())
        _export(arguments)


if __name__ == "__main__":
    main()
