"""The house: imports point one way, no cycle hides inside a function, and the map in CONTRIBUTING is true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "boxqte"
MAP = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST_LINES = 600
MOST_MODULES_IN_THE_ROOT = 8


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for full in names:
            part = full
            while part and part not in known:
                part = part.rpartition(".")[0]
            if part and part not in (name, "boxqte"):
                found.add(part)
    return found


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = modules()
    graph = {name: imported(name, path, known) for name, path in known.items() if name != "boxqte"}
    done: set[str] = set()

    def walk(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, f"a cycle: {' -> '.join((*way[way.index(name) :], name))}"
        if name not in done:
            for other in sorted(graph[name]):
                walk(other, (*way, name))
            done.add(name)

    for name in graph:
        walk(name, ())
    assert len(done) == len(graph) > 100


def rooms_of_the_map() -> list[str]:
    cells = re.findall(r"^\| (`[^|]*`) \|", MAP, re.M)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_the_map_names_every_room_once_and_nothing_else() -> None:
    there = {f"{path.name}/" for path in PACKAGE.iterdir() if (path / "__init__.py").exists() and path.name != "_core"}
    there |= {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("_")}
    assert sorted(rooms_of_the_map()) == sorted(there)


def test_the_order_of_the_map_is_that_of_the_linter() -> None:
    linted = re.search(r"layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.S)
    assert linted is not None
    layers = re.findall(r'"(\w+)"', linted[1])
    listed = [name.removesuffix("/").removesuffix(".py") for name in rooms_of_the_map()]
    assert [name for name in listed if name in layers] == layers[::-1]


def test_the_walk_of_a_question_names_functions_that_exist_and_goes_down_once_and_up_once() -> None:
    walk = re.findall(r"^    ([\w/]+\.py): ([\w.]+) ", MAP, re.M)
    assert len(walk) > 8
    rooms = ["cli", "api", "answers", "questions", "engines"]
    for file, name in walk:
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        for part in name.split("."):
            found = [
                node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == part
            ]
            assert found, f"CONTRIBUTING: {file} has no {name}"
            tree = found[0]  # type: ignore[assignment]
    depths = [rooms.index(file.split("/")[0]) for file, _ in walk if file.split("/")[0] in rooms]
    turn = depths.index(max(depths))
    assert depths[:turn] == sorted(depths[:turn])


def test_files_stay_short_and_the_root_small() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES, path
    for path in (ROOT / "src" / "core").rglob("*.?pp"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES, path
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_MODULES_IN_THE_ROOT


def test_the_oracle_shares_no_code_with_us() -> None:
    """It takes our models and spaces, as data; it computes nothing with our code."""
    data = {"TreeEnsemble", "Property", "Fairness", "Robustness", "Attribute", "Space"}
    for name in ("naive.py", "naive_classes.py", "naive_rules.py"):
        tree = ast.parse((ROOT / "tests" / name).read_text(encoding="utf-8"))
        ours = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("boxqte")]
        assert {alias.name for node in ours for alias in node.names} <= data, name
