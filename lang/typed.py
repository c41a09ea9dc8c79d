"""Typed generation: from a type to the JSON Schema of its values, and from generated JSON text to a value.

Types that involve Pydantic (models, its constrained types) are Pydantic's to describe and to validate; all others are
msgspec's: dataclasses, `TypedDict`, `Literal`, `Enum`, `list[...]`, `int` and so on, `msgspec.Struct`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args, get_type_hints, is_typeddict

import msgspec

from radixrt.errors import InvalidOutput, InvalidRequest


@dataclass(frozen=True, slots=True)
class TypedOutput:
    """A type as a generation needs it."""

    kind: Any
    schema: str
    """The JSON Schema of its values, as JSON text. Objects are closed, unless the type itself says otherwise: what a
    model adds to them would be dropped."""
    decode: Callable[[str], Any]

    def value(self, text: str) -> Any:
        """The value that `text` is. Raises `InvalidOutput` if it is none."""
        try:
            return self.decode(text)
        except ValueError as error:  # both libraries' errors are of this kind
            raise InvalidOutput(f"{text!r:.200} is no {type_name(self.kind)}: {error}", field="schema") from error


def typed_output(kind: Any) -> TypedOutput:
    """What a generation of values of the type `kind` needs.

    Raises `InvalidRequest` for what is no type, or a type whose values have no JSON Schema.
    """
    try:
        return _typed_output(kind)
    except TypeError as error:
        reason = str(error).rpartition("\n")[2]  # msgspec says first how to extend it
        raise InvalidRequest(
            f"schema is {type_name(kind)}, which no JSON Schema describes: {reason}", field="schema"
        ) from error


def type_name(kind: Any) -> str:
    """How messages call a type."""
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else repr(kind)


@lru_cache(maxsize=256)
def _typed_output(kind: Any) -> TypedOutput:
    if any(map(_is_pydantic, _types_in(kind, set()))):
        return _by_pydantic(kind)
    if not (isinstance(kind, type) or get_args(kind)):
        raise TypeError("it is no type")
    decoder = msgspec.json.Decoder(kind)
    return TypedOutput(kind, _closed(msgspec.json.schema(kind)), decoder.decode)


def _by_pydantic(kind: Any) -> TypedOutput:
    import pydantic  # not ours to install: whoever uses its types has it

    try:
        adapter = pydantic.TypeAdapter(kind)
        return TypedOutput(kind, _closed(adapter.json_schema()), adapter.validate_json)
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(str(error)) from error


def _types_in(kind: Any, seen: set[int]) -> Iterator[Any]:
    """`kind` and the types that it is made of."""
    if id(kind) in seen:
        return
    seen.add(id(kind))
    yield kind
    parts = [*get_args(kind), *getattr(kind, "__metadata__", ())]
    if dataclasses.is_dataclass(kind) or is_typeddict(kind):
        parts += get_type_hints(kind, include_extras=True).values()
    for part in parts:
        yield from _types_in(part, seen)


def _is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "__get_pydantic_core_schema__") or type(kind).__module__.partition(".")[0] == "pydantic"


def _closed(schema: dict[str, Any]) -> str:
    """The schema as JSON text, its objects closed where it says neither that they are open nor that they are closed."""

    def close(part: Any) -> Any:
        if isinstance(part, list):
            return [close(item) for item in part]
        if not isinstance(part, dict):
            return part
        closed = {key: close(value) for key, value in part.items()}
        # A member's name may be "properties": only where it holds members is it the keyword.
        if isinstance(part.get("properties"), dict) and part.get("type") == "object":
            closed.setdefault("additionalProperties", False)
        return closed

    return json.dumps(close(schema), ensure_ascii=False)
