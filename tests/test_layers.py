"""The layers of the design: an import may only point down, and the light modules stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import specdec_tui

PACKAGE = Path(specdec_tui.__file__).parent

# From the top to the bottom. The command line stands above the app because it launches it.
LAYERS = [
    {"__main__"},
    {"cli"},
    {"tui", "doctor", "catalogue"},
    {"session"},
    {"strategy_run"},
    {"traces", "benchmark"},
    {"decoding"},
    {"backends"},
    {"settings", "data_folder", "glossary", ""},
    {"doors"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
LIGHT = [
    "specdec_tui",
    "specdec_tui.cli",
    "specdec_tui.settings",
    "specdec_tui.glossary",
    "specdec_tui.session",
    "specdec_tui.strategy_run",
    "specdec_tui.traces.report",
    "specdec_tui.traces.store",
    "specdec_tui.decoding.records",
    "specdec_tui.decoding.figures",
    "specdec_tui.backends.pair",
    "specdec_tui.backends.presets",
]


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module}
    return {name for name in found if name.split(".")[0] == "specdec_tui"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    own_rank = RANK["" if own == "__init__" else own]
    for name in _imports(path):
        layer = [*name.split("."), ""][1]
        assert RANK[layer] >= own_rank, f"{path.name} imports {name}, which lies above it"


# The rooms of `tui/` and which of them each may import.
ROOMS = {
    "lines": set[str](),
    "terminal": {"lines"},
    "tokens": {"lines"},
    "figures": {"lines"},
    "inspector": {"tokens", "figures", "lines"},
    "commands": {"lines"},
    "panes": {"tokens", "figures", "commands", "lines"},
    "screens": {"commands", "figures", "lines"},
    "prompt": {"commands", "lines"},
    "app": {"lines", "terminal", "tokens", "figures", "inspector", "panes", "commands", "screens", "prompt"},
}


@pytest.mark.parametrize("path", sorted((PACKAGE / "tui").rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rooms_of_the_screen_import_only_what_lies_below_them(path: Path) -> None:
    *_, room = path.relative_to(PACKAGE / "tui").parts[:-1] or ("",)
    others = {name.split(".")[2] for name in _imports(path) if name.startswith("specdec_tui.tui.")} - {room}
    assert others <= (ROOMS[room] if room else set()), f"{room}/{path.name} imports {others - ROOMS.get(room, set())}"


def test_the_tests_of_the_screen_lie_in_the_same_rooms() -> None:
    folders = {path.parent.name for path in (Path(__file__).parent / "tui").glob("*/test_*.py")}
    assert (
        folders == set(ROOMS) == {path.name for path in (PACKAGE / "tui").iterdir() if (path / "__init__.py").exists()}
    )


def test_decoding_knows_no_files_network_or_screen() -> None:
    forbidden = {"pathlib", "socket", "urllib", "textual", "rich", "transformers", "json", "os"}
    for path in (PACKAGE / "decoding").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        roots = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        roots |= {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
        assert not roots & forbidden, f"{path.name} imports {roots & forbidden}"


def test_light_modules_import_neither_torch_nor_textual() -> None:
    code = "import sys\n" + "\n".join(f"import {name}" for name in LIGHT)
    code += "\nprint(sorted({'torch', 'textual', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_imports_neither_torch_nor_textual() -> None:
    code = (
        "import sys\nfrom specdec_tui.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'textual', 'transformers', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
