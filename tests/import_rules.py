"""Which part of radixrt may import which, and a checker that reads a file's syntax tree to say where it does otherwise.

Every import counts, wherever it stands: in a function, under `if TYPE_CHECKING`, or as `import_module("...")`.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

ARROWS: dict[str, set[str]] = {
    "server": {"lang", "client", "text"},
    "lang": {"client"},
    "client": {"text"},
    "text": set(),
    "worker": {"scheduler", "grammar", "model"},
    "simulate": {"scheduler"},
    "scheduler": {"cache"},
    "cache": set(),
    "grammar": {"text"},
    "model": {"kernels", "text"},
    "kernels": set(),
    "protocol": set(),
    "errors": set(),
    "config": set(),
}
"""What each part imports directly; an arrow includes what lies behind it."""

PARTS = {"cli", *ARROWS}
TORCH_FREE = {"protocol", "text", "grammar", "cache", "scheduler", "simulate", "lang", "client", "errors", "config"}
BRINGS_TORCH = ("torch", "safetensors.torch", "transformers")


def allowed(part: str) -> set[str]:
    """The parts that `part` may import."""
    if part == "cli":
        return PARTS
    reached: set[str] = set()
    waiting = {part}
    while waiting:
        reached |= waiting
        waiting = set().union(*(ARROWS[name] for name in waiting)) - reached
    common = {"errors", "config"} if part in ("kernels", "errors", "config") else {"errors", "config", "protocol"}
    return reached | common


def package_files() -> Iterator[tuple[str, Path]]:
    """Every Python file of the package: its path inside `radixrt/`, with forward slashes, and where it lies."""
    package = ROOT / "radixrt"
    for folder, _, names in os.walk(package, followlinks=True):
        for name in names:
            if name.endswith(".py"):
                path = Path(folder, name)
                yield path.relative_to(package).as_posix(), path


def module_name(inside: str) -> str:
    """The module that a file of the package is: `lang/__init__.py` -> `radixrt.lang`."""
    steps = ["radixrt", *inside.removesuffix(".py").split("/")]
    return ".".join(steps[:-1] if steps[-1] == "__init__" else steps)


def violations(inside: str, source: str) -> list[str]:
    """What the file `inside` the package imports and must not: `FILE:LINE: why`, in the order of the tree walk."""
    part = part_of(module_name(inside))
    if part is None:
        return [f"{inside}:1: no rule says what this part may import"]
    found = []
    for line, name in _imports(ast.parse(source)):
        why = _objection(part, name)
        if why is not None:
            found.append(f"{inside}:{line}: {why}")
    return found


def imports_bare_folder(source: str) -> bool:
    """Whether the file imports `lang` or `kernels` by their folder's name, past the package."""
    return any(name is not None and _is_bare(name) for _, name in _imports(ast.parse(source)))


def _objection(part: str, name: str | None) -> str | None:
    if name is None:
        return None if part == "cli" else "an import whose target cannot be read"
    if name.startswith("."):
        return "a relative import"
    if _is_bare(name):
        return f"{name} must be imported as radixrt.{name}"
    if part in TORCH_FREE and any(_within(name, library) for library in BRINGS_TORCH):
        return f"{part} imports no torch, but here {name}"
    if _within(name, "radixrt"):
        target = part_of(name) or "cli"
        if target not in allowed(part):
            return f"{part} may not import {target} ({name})"
    return None


def part_of(module: str) -> str | None:
    """The part that a module of the package belongs to; None for a name that is no part."""
    steps = module.split(".")
    if len(steps) == 1 or steps[1] == "__main__":
        return "cli"
    return steps[1] if steps[1] in PARTS else None


def _is_bare(name: str) -> bool:
    return _within(name, "lang") or _within(name, "kernels")


def _within(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def _imports(tree: ast.AST) -> Iterator[tuple[int, str | None]]:
    """Line and dotted name of all that is imported; None where a name is computed, leading dots where relative."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(module=module, names=names, level=level):
                for alias in names:
                    yield node.lineno, "." * level + ".".join(filter(None, (module, alias.name)))
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if called in (
                "import_module",
                "__import__",
            ):
                yield node.lineno, _leading_text(node)


def _leading_text(call: ast.Call) -> str | None:
    """The called function's first argument, as far as it is constant text."""
    match call.args[:1]:
        case [ast.Constant(value=str(text))] | [ast.JoinedStr(values=[ast.Constant(value=str(text)), *_])]:
            return text
        case _:
            return None
