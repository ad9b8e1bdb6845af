"""Make a drafter for a Llama target by distillation, on one GPU: see README.md beside this file.

python tools/distil_drafter.py generate|train|evaluate|export|all --run FOLDER --target FOLDER …
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from distil.evaluate import EvaluationSettings, evaluate, read_prompts, table
from distil.export import export
from distil.files import write_json
from distil.generate import MODES, GenerationSettings, generate
from distil.llama import from_state, load_llama
from distil.student import hugging_face_state
from distil.train import TrainingSettings, load_student, train

_SUITES = Path(__file__).resolve().parents[1] / "specdec_tui" / "benchmark"


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _add_fields(parser: argparse.ArgumentParser, settings: type) -> None:
    for each in fields(settings):
        default: Any = each.default
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=type(default), default=default)


def _values(settings: type, arguments: argparse.Namespace) -> dict[str, Any]:
    return {each.name: getattr(arguments, each.name) for each in fields(settings) if hasattr(arguments, each.name)}


def make_parser() -> argparse.ArgumentParser:
    """The command line; stages share `--run`, `--target`, `--device`, and candidates share one generation."""
    parser = argparse.ArgumentParser(prog="distil_drafter.py", description=__doc__)
    stages = parser.add_subparsers(dest="stage", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--run", type=Path, help="folder that keeps everything of this run")
    common.add_argument("--target", type=Path, required=True, help="Hugging Face folder of the target")
    common.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    suites = argparse.ArgumentParser(add_help=False)
    suites.add_argument(
        "--prompts",
        type=Path,
        action="append",
        help="JSON lines of held-out prompts (repeatable; default: the suites of the benchmark)",
    )
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default="drafter", help="name of the candidate")
    card = argparse.ArgumentParser(add_help=False)
    card.add_argument("--out", type=Path, help="folder to write (default: export beside the candidate's checkpoint)")
    card.add_argument("--target-name", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    card.add_argument("--target-licence", default="Apache-2.0")
    writing = argparse.ArgumentParser(add_help=False)
    writing.add_argument("--mode", choices=MODES, default=MODES[0], help="fastest way of decoding to try on a GPU")
    training = argparse.ArgumentParser(add_help=False)
    training.add_argument("--no-compile", action="store_true", help="train without torch.compile")

    stage = stages.add_parser("generate", parents=[common, suites, writing], help="the target writes the text")
    _add_fields(stage, GenerationSettings)
    _add_budget(stage)
    stage = stages.add_parser("train", parents=[common, named, training], help="train one candidate")
    _add_fields(stage, TrainingSettings)
    _add_budget(stage)
    stage = stages.add_parser("evaluate", parents=[common, named, suites], help="acceptance on held-out prompts")
    stage.add_argument("--drafter", type=Path, help="judge this Hugging Face folder instead of a candidate")
    stage.add_argument("--json", type=Path, help="file for the figures (default: beside the candidate's checkpoint)")
    stage.add_argument("--new-tokens", type=int, default=EvaluationSettings().new_tokens)
    stage.add_argument("--samples", type=int, default=EvaluationSettings().samples)
    stages.add_parser("export", parents=[common, named, card], help="write the Hugging Face folder")
    stage = stages.add_parser(
        "all", parents=[common, named, suites, card, writing, training], help="all four, in a row"
    )
    for name, value in (("generate", 8.0), ("train", 12.0)):
        stage.add_argument(f"--{name}-minutes", type=float, default=value)
        stage.add_argument(f"--{name}-tokens", type=float)
    stage.add_argument("--generation-batch", type=int, default=GenerationSettings().batch)
    stage.add_argument("--length", type=int, default=GenerationSettings().length)
    _add_fields(stage, TrainingSettings)
    return parser


def _add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, help="wall time of the stage, start included")
    parser.add_argument("--tokens", type=float, help="exact amount (1e8), for a run that can be repeated")


def _budget(tokens: float | None, minutes: float | None) -> tuple[int | None, float | None]:
    if not tokens and not minutes:
        raise SystemExit("name --minutes or --tokens")
    return (int(tokens) if tokens else None), minutes


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


def _train(arguments: argparse.Namespace, budget: tuple[Any, Any]) -> None:
    settings = TrainingSettings(**_values(TrainingSettings, arguments))
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
    drafter_folder: Path | None = getattr(arguments, "drafter", None)
    file: Path | None = getattr(arguments, "json", None)
    if file is None and drafter_folder is None:
        file = arguments.run / "models" / arguments.name / "evaluation.json"
        if file.exists():
            _tell(f"evaluation of {arguments.name} is finished: {file}")
            return
    device = torch.device(arguments.device)
    target = load_llama(arguments.target, device, torch.float32)
    if drafter_folder is not None:
        drafter = load_llama(drafter_folder, device, torch.float32)
    else:
        student = load_student(arguments.run, arguments.name, arguments.target)
        rounded = {name: value.bfloat16() for name, value in hugging_face_state(student).items()}  # as exported
        drafter = from_state(student.shape, rounded, device, torch.float32)
    begun = time.monotonic()
    prompts = read_prompts(_suites(arguments))
    result = evaluate(target, drafter, _tokenizer(arguments.target), prompts, settings, _tell)
    result["seconds"] = round(time.monotonic() - begun, 1)
    if file is not None:
        write_json(file, result)
    print(table(result), flush=True)


def _export(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out or arguments.run / "models" / arguments.name / "export"
    size = export(arguments.run, arguments.name, arguments.target, out, arguments.target_name, arguments.target_licence)
    _tell(f"{out}: {size / 1e6:.1f} MB of weights")


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer  # a second of importing that training does not need

    return AutoTokenizer.from_pretrained(folder)


def main(words: Sequence[str] | None = None) -> None:
    """Run one stage, or all; SystemExit with a line of explanation where that is impossible."""
    arguments = make_parser().parse_args(words)
    if arguments.run is None and getattr(arguments, "drafter", None) is None:
        raise SystemExit("name --run")
    if arguments.run is not None:
        arguments.run.mkdir(parents=True, exist_ok=True)
    stage = arguments.stage
    if stage == "generate":
        settings = GenerationSettings(**_values(GenerationSettings, arguments))
        _generate(arguments, settings, _budget(arguments.tokens, arguments.minutes))
    elif stage == "train":
        _train(arguments, _budget(arguments.tokens, arguments.minutes))
    elif stage == "evaluate":
        _evaluate(arguments, EvaluationSettings(new_tokens=arguments.new_tokens, samples=arguments.samples))
    elif stage == "export":
        _export(arguments)
    else:
        written = GenerationSettings(batch=arguments.generation_batch, length=arguments.length, seed=arguments.seed)
        _generate(arguments, written, _budget_of(arguments, "generate"))
        _train(arguments, _budget_of(arguments, "train"))
        _evaluate(arguments, EvaluationSettings())
        _export(arguments)


def _budget_of(arguments: argparse.Namespace, stage: str) -> tuple[int | None, float | None]:
    """A number of tokens replaces the minutes, so that the run can be repeated exactly."""
    tokens = getattr(arguments, f"{stage}_tokens")
    return _budget(tokens, None if tokens else getattr(arguments, f"{stage}_minutes"))


if __name__ == "__main__":
    main()
