"""Where a `$ref` leads: to a place in the same schema, never to a file or over a network."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from radixrt.grammar.schema.errors import refused
from radixrt.grammar.schema.keywords import check
from radixrt.grammar.schema.load import Schema


class References:
    """The schemas that one schema's references lead to. Raises `InvalidConstraint` for an unsound schema."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._anchors: dict[str, str] = {}
        self._checked: set[str] = set()
        self._id = root.get("$id", "").removesuffix("#") if isinstance(root, dict) else ""
        for path, schema in check(root):
            self._checked.add(path)
            if isinstance(schema, dict):
                self._note(path, schema)

    def target(self, reference: str, path: str) -> tuple[str, Schema]:
        """Path and schema that `reference`, which stands at `path`, leads to."""
        base, _, fragment = reference.partition("#")
        if base not in ("", self._id):
            raise refused(path, "$ref", f"remote references are not supported, and {reference!r} is one")
        pointer = unquote(fragment)
        if pointer and not pointer.startswith("/"):
            if pointer not in self._anchors:
                raise refused(path, "$ref", f"{reference!r} leads nowhere: there is no $anchor {pointer!r}")
            pointer = self._anchors[pointer].removeprefix("#")
        value: Any = self._root
        for name in pointer.split("/")[1:]:
            value = _inside(value, name.replace("~1", "/").replace("~0", "~"))
            if value is _NOWHERE:
                raise refused(path, "$ref", f"{reference!r} leads nowhere: there is no {name!r} on the way")
        target = "#" + pointer
        if target not in self._checked:
            # Reached through a keyword that holds no schemas, it was not checked with the rest.
            self._checked.update(inner for inner, _ in check(value, target))
        return target, value

    def _note(self, path: str, schema: dict[str, Any]) -> None:
        if path != "#" and "$id" in schema:
            raise refused(path, "$id", "a schema inside the schema cannot have its own")
        if "$anchor" in schema:
            self._anchors[schema["$anchor"]] = path


_NOWHERE = object()


def _inside(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name, _NOWHERE)
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return value[int(name)]
    return _NOWHERE
