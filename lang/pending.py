"""What a `gen` or a `select` that was appended will come to, as a value to wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any, Generic, TypeVar, cast

from radixrt.lang.recording import Branch
from radixrt.lang.results import Generation
from radixrt.lang.streaming import generation_steps, read, read_async

T_co = TypeVar("T_co", covariant=True)


class Pending(Generic[T_co]):
    """The value of one generation: `await` it or call `get()`; iterate over it for the pieces of its text.

        name = s.gen("name", max_tokens=8)
        print(name.get())             # in a program written with `def`
        print(await name)             # in one written with `async def`
        async for piece in name: ...  # as they come; together they are the text

    All of these raise `GenerationFailed` if the generation failed. Nothing has to be awaited: what is not read is
    generated all the same.
    """

    __slots__ = ("_branch", "_generation")

    def __init__(self, branch: Branch, generation: Generation) -> None:
        self._branch = branch
        self._generation = generation

    def get(self) -> T_co:
        """The value, once it is known."""
        self._branch.wait([self._generation])
        return cast(T_co, self._generation.value())

    def __await__(self) -> Generator[Any, None, T_co]:
        yield from self._branch.wait_async([self._generation]).__await__()
        return cast(T_co, self._generation.value())

    def __iter__(self) -> Iterator[str]:
        return read(self._branch, generation_steps(self._generation))

    def __aiter__(self) -> AsyncIterator[str]:
        return read_async(self._branch, generation_steps(self._generation))

    def meta_info(self) -> dict[str, Any]:
        """What is known by now of the (first choice of the) generation; see `ProgramState.get_meta_info`."""
        return self._generation.meta_info(self._generation.choices[0])

    def __repr__(self) -> str:
        state = "complete" if self._generation.complete else "running"
        return f"<Pending {self._generation.node} of {self._generation.program}, {self._generation.branch}: {state}>"
