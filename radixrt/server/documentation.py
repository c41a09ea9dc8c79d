"""Request bodies for `/docs`: routes read them themselves, so FastAPI has to be told."""

from __future__ import annotations

from typing import Any

import msgspec


def json_body(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """What a route passes as `openapi_extra` to say that its body is JSON of `kind`."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    body = {"required": True, "content": {"application/json": {"schema": _inlined(schema, components)}}}
    return {"requestBody": body}


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    """`schema` with what it refers to in place: FastAPI keeps the document's components to itself."""
    if isinstance(schema, list):
        return [_inlined(part, components) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(components[schema["$ref"]], components)
    return {name: _inlined(part, components) for name, part in schema.items()}
