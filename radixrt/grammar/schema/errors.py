"""How a schema is refused: where, which keyword, why."""

from __future__ import annotations

from radixrt.errors import InvalidConstraint


def refused(path: str, keyword: str, reason: str) -> InvalidConstraint:
    """`path` is a JSON pointer into the schema, such as `#/properties/age`."""
    return InvalidConstraint(f"json_schema {path}: {keyword}: {reason}", field="json_schema")


def step(path: str, *names: str | int) -> str:
    """The pointer, by as many steps longer."""
    escaped = (str(name).replace("~", "~0").replace("/", "~1") for name in names)
    return "/".join([path, *escaped])
