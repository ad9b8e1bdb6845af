"""Text goes out and files go in and out through `specdec_tui/doors` alone: a walk over the code finds no other way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import specdec_tui

PACKAGE = Path(specdec_tui.__file__).parent

# Calls by their bare name, by the module they belong to, and methods by their name alone.
BUILTINS = {"print", "open", "input", "breakpoint"}
FUNCTIONS = {
    "os": {"open", "fdopen", "write", "writev", "pwrite", "sendfile", "replace", "rename", "truncate", "dup2", "link"}
    | {"symlink", "popen", "system", "mkfifo", "mknod", "posix_spawn"},
    "io": {"open", "FileIO", "open_code"},
    "codecs": {"open"},
    "shutil": {"copy", "copy2", "copyfile", "copyfileobj", "copytree", "move", "make_archive", "unpack_archive"},
    "gzip": {"open", "GzipFile"},
    "bz2": {"open", "BZ2File"},
    "lzma": {"open", "LZMAFile"},
    "tarfile": {"open", "TarFile"},
    "zipfile": {"ZipFile"},
    "fileinput": {"input", "FileInput"},
    "linecache": {"getline", "getlines"},
    "urllib.request": {"urlretrieve"},
    "torch": {"save", "load"},
    "numpy": {"save", "savez", "savetxt", "load", "loadtxt", "fromfile", "memmap"},
    "safetensors.numpy": {"save_file"},
    "safetensors.torch": {"save_file"},
    "tempfile": {"mkstemp", "NamedTemporaryFile", "TemporaryFile", "SpooledTemporaryFile", "mkdtemp"},
    "logging": {"StreamHandler", "FileHandler", "basicConfig"},
    "traceback": {"print_exc", "print_exception", "print_stack", "print_tb"},
    "warnings": {"warn"},
    "rich": {"print", "inspect", "print_json"},
    "rich.console": {"Console"},
    "json": {"dump"},
    "csv": set[str](),
}
METHODS = {"write_text", "write_bytes", "read_text", "read_bytes", "write", "writelines", "rename", "print_exc"}
METHODS |= {"touch", "tofile", "symlink_to", "hardlink_to", "save_pretrained"}
# Processes, which write where we do unless their output is led elsewhere.
PROCESSES = {"run", "Popen", "call", "check_call"}
OF_FILES = {"mode", "encoding", "buffering", "errors", "newline"}
MODELS = {"model", "target"}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
DOORS = {"characters", "output", "reading", "writing"}

ALLOWED: dict[str, tuple[set[str], str]] = {
    "doors/output.py": (
        {"open", "os.open", "os.dup2", "rich.console.Console", ".write", "sys.stdout", "sys.stderr"},
        "the door to standard output and standard error",
    ),
    "doors/reading.py": ({"os.open", "os.fdopen"}, "the door for files on the way in"),
    "doors/writing.py": (
        {"os.open", "os.fdopen", "os.replace", "io.FileIO", ".writelines", ".write", ".read_bytes"},
        "the door for files on the way out",
    ),
    "benchmark/command.py": ({"tempfile.mkstemp"}, "a name in the system's folder, filled through the door"),
    "benchmark/suites.py": ({".read_text"}, "a resource of the package itself"),
    "backends/demo.py": (
        {".open", ".rename", ".write", ".write_text", "zipfile.ZipFile"},
        "builds the demo pair in a folder that it made itself",
    ),
    "backends/demo_download.py": ({".open", ".write"}, "parts of downloads, of a known size"),
    "backends/memory.py": ({".read_text"}, "files of the kernel"),
    "backends/template_process.py": ({"sys.stdout", "json.dump"}, "a process of its own, whose output is its answer"),
    "backends/weights.py": ({"torch.load"}, "names and types alone, of weight files that were looked at before"),
    "serving/command.py": (
        {"logging.basicConfig", "sys.__stderr__"},
        "what the web server says, where nobody hears it",
    ),
    "serving/pages.py": ({".open"}, "a tab's place at the engine, no file"),
    "serving/tab_process.py": ({".write"}, "packets to an app's process, by its pipe"),
    "tui/terminal/page_driver.py": ({".write"}, "the app draws through it on a page"),
    "traces/store.py": ({"os.link", "os.open", "os.replace"}, "takes a name that no other program can take"),
    "tui/app/program.py": ({"sys.stdout", "sys.stderr"}, "the way to leave"),
    "tui/terminal/driver.py": ({".write", "sys.__stderr__"}, "the app draws through it on the terminal"),
    "tui/terminal/writer.py": ({"os.open", "os.write"}, "what is drawn, on its way to the terminal"),
    "tui/terminal/terminal.py": (
        {"os.dup2", "os.fdopen", "sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"},
        "gives the app its terminal, and all others a log",
    ),
    "cli.py": ({"sys.stderr"}, "argparse says by it which of the two it means"),
}


def ways(tree: ast.Module) -> Iterator[str]:
    """Every way by which this code could get past the doors."""
    named: dict[str, str] = {}  # what an imported name stands for
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                named[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                named[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            full = named.get(node.id, f"builtins.{node.id}")
            module, _, name = full.rpartition(".")
            if name in FUNCTIONS.get(module, ()) or (module == "sys" and name in STREAMS):
                yield full
            elif module in ("builtins", "io") and name in BUILTINS:
                yield name
        elif isinstance(node, ast.Attribute):
            base = _dotted(node.value, named)
            if node.attr in FUNCTIONS.get(base, ()) or (base == "sys" and node.attr in STREAMS):
                yield f"{base}.{node.attr}"
            elif base == "builtins" and node.attr in BUILTINS:
                yield node.attr
            elif node.attr in METHODS and base.split(".")[-1] not in DOORS:
                yield f".{node.attr}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "open":
            base = _dotted(node.func.value, named)
            if base in FUNCTIONS | {"builtins": ()}:
                continue  # found already
            first = node.args[0] if node.args else None
            mode = isinstance(first, ast.Constant) and isinstance(first.value, str)
            bare = not node.args and not node.keywords and base.split(".")[-1] not in MODELS
            if mode or bare or any(keyword.arg in OF_FILES for keyword in node.keywords):
                yield ".open"
        if isinstance(node, ast.Call):
            module, _, name = _dotted(node.func, named).rpartition(".")
            led = {keyword.arg for keyword in node.keywords}
            if (
                module == "subprocess"
                and name in PROCESSES
                and not ("capture_output" in led or led >= {"stdout", "stderr"})
            ):
                yield f"subprocess.{name}"


def _dotted(node: ast.expr, named: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return named.get(node.id, node.id)
    return f"{_dotted(node.value, named)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_module_goes_past_the_doors(path: Path) -> None:
    found = set(ways(ast.parse(path.read_text(encoding="utf-8"))))
    allowed, _ = ALLOWED.get(path.relative_to(PACKAGE).as_posix(), (set[str](), "no reason"))
    assert found <= allowed, f"{path.name} goes past the doors by {found - allowed}: see specdec_tui/doors"


@pytest.mark.parametrize("name", ALLOWED)
def test_no_module_is_allowed_more_than_it_does(name: str) -> None:
    allowed, reason = ALLOWED[name]
    found = set(ways(ast.parse((PACKAGE / name).read_text(encoding="utf-8"))))
    assert reason and not allowed - found, f"{name} has no more need of {allowed - found}"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("print('x')", {"print"}),
        ("from builtins import print as say\nsay('x')", {"print"}),
        ("import builtins\nbuiltins.open('x')", {"open"}),
        ("say = print", {"print"}),
        ("import os\nos.open('x', 0)", {"os.open"}),
        ("import os as system\nsystem.replace('x', 'y')", {"os.replace"}),
        ("from os import replace as move\nmove('x', 'y')", {"os.replace"}),
        ("from io import open", set()),
        ("from io import open\nopen('x')", {"io.open"}),
        ("path.open('rb')", {".open"}),
        ("path.open(mode='w')", {".open"}),
        ("path.open()", {".open"}),
        ("path.open(mode=how)", {".open"}),
        ("model.open()", set()),
        ("path.touch()", {".touch"}),
        ("import gzip\ngzip.open('x')", {"gzip.open"}),
        ("import torch\ntorch.save(x, 'x')", {"torch.save"}),
        ("import subprocess\nsubprocess.run(['x'])", {"subprocess.run"}),
        ("from subprocess import Popen\nPopen(['x'], stdout=1)", {"subprocess.Popen"}),
        ("import subprocess\nsubprocess.run(['x'], capture_output=True)", set()),
        ("path.open(encoding='utf-8')", {".open"}),
        ("model.open(use_cache=True)", set()),
        ("path.write_text('x')", {".write_text"}),
        ("path.read_text(encoding='utf-8')", {".read_text"}),
        ("file.write(b'x')", {".write"}),
        ("from specdec_tui.doors import output\noutput.write('x')", set()),
        ("import sys\nsys.stderr.write('x')", {"sys.stderr", ".write"}),
        ("from sys import stdout as out\nout.flush()", {"sys.stdout"}),
        ("import sys\nsys.__stdout__", {"sys.__stdout__"}),
        ("from rich.console import Console\nConsole()", {"rich.console.Console"}),
        ("import rich.console\nrich.console.Console()", {"rich.console.Console"}),
        ("from rich import print\nprint('x')", {"rich.print"}),
        ("import shutil\nshutil.copyfile('x', 'y')", {"shutil.copyfile"}),
        ("import tempfile\ntempfile.mkstemp()", {"tempfile.mkstemp"}),
        ("import traceback\ntraceback.print_exc()", {"traceback.print_exc", ".print_exc"}),
    ],
)
def test_the_walk_finds_what_goes_past_the_doors(code: str, found: set[str]) -> None:
    assert set(ways(ast.parse(code))) - {".print_exc"} == found - {".print_exc"}


QUESTIONS = {"exists", "is_file", "is_dir", "is_symlink"}
"""Of pathlib: they raise where a folder on the way is closed, or a name too long; those of os.path say no."""


def unguarded(tree: ast.Module) -> Iterator[str]:
    """Questions of pathlib that nothing around them catches the errors of."""
    guarded: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            caught = {name for handler in node.handlers if handler.type for name in _names(handler.type)}
        elif isinstance(node, ast.With):
            caught = {name for item in node.items if "suppress" in ast.unparse(item) for name in _names(item)}
        else:
            continue
        if caught & {"OSError", "Exception"}:
            guarded |= {inner for part in node.body for inner in ast.walk(part)}
    for node in ast.walk(tree):
        asked = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in QUESTIONS
        if asked and node not in guarded and not ast.unparse(node).startswith("os.path."):
            yield ast.unparse(node)


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_question_whether_a_file_is_there_ends_in_an_error(path: Path) -> None:
    assert list(unguarded(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("path.exists()", ["path.exists()"]),
        ("os.path.exists(path)", []),
        ("try:\n path.is_file()\nexcept (OSError, ValueError):\n path.is_dir()", ["path.is_dir()"]),
        ("try:\n path.is_file()\nexcept FileNotFoundError:\n pass", ["path.is_file()"]),
        ("with suppress(OSError):\n path.is_dir()", []),
    ],
)
def test_the_walk_finds_questions_that_end_in_an_error(code: str, found: list[str]) -> None:
    assert list(unguarded(ast.parse(code))) == found
