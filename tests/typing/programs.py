"""What type checkers know of programs: checked by `make lint`, never run."""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict, assert_type

import radixrt as rx
from radixrt.lang import AsyncProgram, AsyncProgramState, Pending, Program, ProgramState
from radixrt.lang.expressions import Gen


@dataclass
class Item:
    name: str


class Boat(TypedDict):
    name: str


@rx.function
async def coroutine(s: AsyncProgramState) -> None:
    assert_type(await s.gen("x", schema=Item), Item)
    assert_type(await s.gen("x", schema=list[Item]), list[Item])
    assert_type(await s.gen("x", schema=Boat), Boat)
    assert_type(await s.gen("x", schema=Literal["a", "b"]), Any)
    assert_type(await s.gen("x", max_tokens=3, temperature=0), str)
    assert_type(await s.gen("x", n=3), Any)
    assert_type(await s.select("x", ["a"]), str)
    s.gen("x", temprature=0)  # type: ignore[call-overload]
    async for piece in s.gen("x"):
        assert_type(piece, str)


@rx.function
def plain(s: ProgramState) -> None:
    assert_type(s.gen("x", schema=Item), Pending[Item])
    assert_type(s.gen("x", schema=Item).get(), Item)
    assert_type(rx.gen("x", schema=int), Gen[int])
    rx.gen("x", temprature=0)  # type: ignore[call-overload]


@rx.function(steps=3)
async def with_options(s: AsyncProgramState) -> None: ...


assert_type(coroutine, AsyncProgram)
assert_type(plain, Program)
assert_type(with_options, AsyncProgram)
assert_type(plain.run(), ProgramState)
assert_type(plain.bind(temperature=0), Program)
