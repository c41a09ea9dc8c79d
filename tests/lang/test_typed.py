"""Typed generation: a type goes in, a validated instance comes out."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

import radixrt as rx
from radixrt.errors import InvalidOutput, InvalidRequest
from radixrt.lang import ProgramState
from radixrt.lang.typed import typed_output
from radixrt.protocol.constraint import JsonSchema
from tests.lang.scripted import Reply, Scripted


class Item(pydantic.BaseModel):
    name: str
    price: float = 1.0


class Open(pydantic.BaseModel, extra="allow"):
    name: str


@dataclass
class Point:
    x: int
    properties: dict[str, int]
    next: Point | None = None


@dataclass
class Order:
    items: list[Item]


class Boat(TypedDict):
    name: str
    length: NotRequired[int]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Reading(msgspec.Struct):
    celsius: float


KINDS: list[tuple[Any, str, Any]] = [
    (Item, '{"name": "oar", "price": 2.5}', Item(name="oar", price=2.5)),
    (list[Item], '[{"name": "oar"}]', [Item(name="oar")]),
    (Order, '{"items": [{"name": "oar"}]}', Order([Item(name="oar")])),
    (Annotated[int, pydantic.Field(ge=3)], "4", 4),
    (Point, '{"x": 1, "properties": {"a": 2}, "next": {"x": 2, "properties": {}}}', Point(1, {"a": 2}, Point(2, {}))),
    (Boat, '{"name": "Constance"}', {"name": "Constance"}),
    (Colour, '"blue"', Colour.BLUE),
    (Literal["yes", "no"], '"no"', "no"),
    (list[Literal[1, 2]], "[1, 2]", [1, 2]),
    (Reading, '{"celsius": 20.5}', Reading(20.5)),
    (int, "-3", -3),
    (float, "0.5", 0.5),
    (bool, "true", True),
    (str, '"a \\"quoted\\" word"', 'a "quoted" word'),
    (int | None, "null", None),
    (dict[str, list[int]], '{"a": [1]}', {"a": [1]}),
]


@pytest.mark.parametrize(("kind", "text", "value"), KINDS, ids=[str(kind) for kind, _, _ in KINDS])
def test_the_variable_is_an_instance_and_the_text_stays_text(kind: Any, text: str, value: Any) -> None:
    backend = Scripted(lambda prompt, node: text)

    @rx.function
    def program(s: ProgramState) -> Any:
        s += "Value: " + rx.gen("x", schema=kind) + "!"
        return s["x"]

    state = program.run(backend=backend)
    assert state.ret_value == value
    assert type(state["x"]) is type(value)
    assert state.text() == f"Value: {text}!"
    constraint = backend.nodes[0].sampling.constraint
    assert isinstance(constraint, JsonSchema)
    assert constraint.schema == typed_output(kind).schema


def test_objects_are_closed_unless_their_type_is_open() -> None:
    """What a model would add to them could not be kept; a member that is called "properties" is no keyword."""
    assert json.loads(typed_output(Item).schema)["additionalProperties"] is False
    assert json.loads(typed_output(Open).schema)["additionalProperties"] is True
    point = json.loads(typed_output(Point).schema)["$defs"]["Point"]
    assert point["additionalProperties"] is False
    assert point["properties"]["properties"] == {"type": "object", "additionalProperties": {"type": "integer"}}


def test_several_choices_are_a_list_of_instances(backend: Scripted) -> None:
    backend.script = lambda prompt, node: "7"

    @rx.function
    def program(s: ProgramState) -> Any:
        s += rx.gen("x", schema=int, n=3)
        return s["x"]

    assert program.run().ret_value == [7, 7, 7]


def test_text_that_was_cut_fails_its_readers_and_nobody_else(backend: Scripted) -> None:
    backend.script = lambda prompt, node: (
        Reply(['{"name": "o'], reason="length") if prompt == "0" else '{"name": "oar"}'
    )

    @rx.function
    def program(s: ProgramState) -> Any:
        forks = s.fork(2)
        forks += lambda index: f"{index}" + rx.gen("x", schema=Item)
        with pytest.raises(rx.GenerationFailed, match="max_tokens") as failed:
            _ = forks[0]["x"]
        assert isinstance(failed.value.__cause__, InvalidOutput)
        assert isinstance(failed.value.__cause__, ValueError)
        assert failed.value.branch == "fork 0 of 2"
        assert forks[0].text() == '0{"name": "o'
        return forks[1]["x"]

    assert program.run().ret_value == Item(name="oar")


def test_a_value_that_the_schema_cannot_rule_out_is_validated_all_the_same(backend: Scripted) -> None:
    class Even(pydantic.BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def is_even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("odd")
            return value

    backend.script = lambda prompt, node: '{"number": 3}'

    @rx.function
    def program(s: ProgramState) -> Any:
        s += rx.gen("x", schema=Even)
        return s["x"]

    with pytest.raises(rx.GenerationFailed, match="odd"):
        program.run()


@pytest.mark.parametrize("kind", [3, "int", object, complex, list[complex], lambda: 1, {"type": "integer"}])
def test_what_has_no_schema_is_refused_where_it_is_written(kind: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        rx.gen("x", schema=kind)
    assert refused.value.field == "schema"


@pytest.mark.parametrize("other", [{"json_schema": {}}, {"regex": "a"}, {"json_object": True}, {"choices": ["a"]}])
def test_a_type_and_another_constraint_are_refused(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        rx.gen("x", schema=int, **other)


def test_pending_values_are_typed_and_read_with_get(backend: Scripted) -> None:
    backend.script = lambda prompt, node: '{"name": "oar"}'

    @rx.function
    def program(s: ProgramState) -> Any:
        item = s.gen("x", schema=Item)
        pieces = list(item)
        return item.get(), pieces, item.meta_info()["finish_reason"], repr(item)

    item, pieces, reason, shown = program.run().ret_value
    assert item == Item(name="oar")
    assert pieces == ['{"name": "oar"}']
    assert reason == "stop"
    assert shown == "<Pending x of program, main: complete>"
