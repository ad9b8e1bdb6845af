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
    {"serving"},
    {"tui", "doctor", "catalogue", "importing", "recording"},
    {"session", "gamma_sweep"},
    {"playing", "what_ifs", "loaded"},
    {"strategy_run", "strategy_parts", "warming"},
    {"run_settings"},
    {"traces", "benchmark"},
    {"several_drafters"},
    {"decoding"},
    {"backends"},
    {"setting_sources"},
    {"settings", "data_folder", "glossary", ""},
    {"theme_files"},
    {"setting_kinds", "config_table"},
    {"variables"},
    {"doors"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
LIGHT = [
    "specdec_tui",
    "specdec_tui.cli",
    "specdec_tui.settings",
    "specdec_tui.glossary",
    "specdec_tui.session",
    "specdec_tui.loaded",
    "specdec_tui.strategy_parts",
    "specdec_tui.strategy_run",
    "specdec_tui.playing",
    "specdec_tui.what_ifs",
    "specdec_tui.gamma_sweep",
    "specdec_tui.traces.report",
    "specdec_tui.traces.store",
    "specdec_tui.traces.served.trace",
    "specdec_tui.importing",
    "specdec_tui.decoding.records",
    "specdec_tui.decoding.figures",
    "specdec_tui.backends.pair",
    "specdec_tui.backends.presets",
    "specdec_tui.backends.remote.client",
]


def _imports(code: str, package: str) -> set[str]:
    """All names of this package that the code of a module in `package` imports, however it spells them."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "specdec_tui"}


def _imports_of(path: Path) -> set[str]:
    return _imports(path.read_text(encoding="utf-8"), ".".join(path.relative_to(PACKAGE.parent).parent.parts))


def _above(names: set[str], own: str) -> set[str]:
    """Those of the names that lie above the layer `own`."""
    return {name for name in names if RANK.get([*name.split("."), ""][1], RANK[""]) < RANK[own]}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    above = _above(_imports_of(path), "" if own == "__init__" else own)
    assert not above, f"{path.name} imports {above}, above it"


@pytest.mark.parametrize(
    "code",
    [
        "import specdec_tui.session",
        "import specdec_tui.session as s",
        "from specdec_tui import session",
        "from specdec_tui.session import LocalEngine",
        "from .. import session",
        "from ..session import LocalEngine",
        "def later():\n    from specdec_tui import session",
    ],
)
def test_an_import_that_points_up_is_found_however_it_is_written(code: str) -> None:
    assert _above(_imports(code, "specdec_tui.decoding"), "decoding")
    assert not _above(_imports(code, "specdec_tui.tui"), "tui")


# The rooms of `tui/` and which of them each may import.
ROOMS = {
    "lines": set[str](),
    "terminal": {"lines"},
    "tokens": {"lines"},
    "figures": {"commands", "lines"},
    "inspector": {"tokens", "figures", "commands", "lines"},
    "commands": {"lines"},
    "panes": {"tokens", "figures", "commands", "lines"},
    "race": {"tokens", "figures", "panes"},
    "screens": {"commands", "figures", "lines"},
    "prompt": {"commands", "lines"},
    "lab": {"commands", "figures", "lines"},
    "tour": {"commands", "figures"},
    "app": {
        *("lines", "terminal", "tokens", "figures", "inspector", "panes", "commands", "screens", "prompt", "lab"),
        *("race", "tour"),
    },
}


def _rooms(names: set[str]) -> set[str]:
    return {name.split(".")[2] for name in names if name.startswith("specdec_tui.tui.")}


@pytest.mark.parametrize("path", sorted((PACKAGE / "tui").rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rooms_of_the_screen_import_only_what_lies_below_them(path: Path) -> None:
    *_, room = path.relative_to(PACKAGE / "tui").parts[:-1] or ("",)
    others = _rooms(_imports_of(path)) - {room}
    assert others <= (ROOMS[room] if room else set()), f"{room}/{path.name} imports {others - ROOMS.get(room, set())}"


@pytest.mark.parametrize(
    "code", ["from specdec_tui.tui import panes", "from ..panes import pane", "from .. import panes"]
)
def test_a_room_that_is_entered_from_below_is_found_however_it_is_written(code: str) -> None:
    assert _rooms(_imports(code, "specdec_tui.tui.lines")) == {"panes"}


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


def test_the_screen_is_up_before_torch_and_what_draws_plots_are_imported() -> None:
    code = "import sys, specdec_tui.tui.app.app\n"
    code += "print(sorted({'torch', 'transformers', 'numpy', 'textual_plot'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


NOT_AT_A_START = (
    "filelock",
    "httpx2",
    "importlib.metadata",
    "msgspec",
    "tomlkit",
    "specdec_tui.benchmark",
    "specdec_tui.tui.commands.palette",
    "specdec_tui.tui.figures.chart_cells",
    "specdec_tui.tui.inspector",
    "specdec_tui.tui.lab",
    "specdec_tui.tui.race.lanes",
    "specdec_tui.tui.screens",
    "specdec_tui.tui.tour.steps",
)


def test_what_the_screen_does_not_show_at_a_start_is_imported_when_it_is_wanted() -> None:
    program = ("session", "tui.app.own_themes", "tui.app.program", "tui.commands.keymap")  # as the command line has it
    code = "import sys\n" + "\n".join(f"import specdec_tui.{name}" for name in program)
    code += "\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "specdec_tui.tui.app.app" in loaded
    early = [name for name in loaded if any(f"{name}.".startswith(f"{late}.") for late in NOT_AT_A_START)]
    assert not early


def test_help_imports_neither_torch_nor_textual() -> None:
    code = (
        "import sys\nfrom specdec_tui.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'textual', 'transformers', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
