"""The state of a program written with `async def`: what has to be waited for is awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from radixrt.lang.appending import Appending
from radixrt.lang.group import Branches, join_branches
from radixrt.lang.streaming import read_async, text_steps, variable_steps
from radixrt.lang.tree import JoinMode, messages_of, text_of


class AsyncProgramState(Appending):
    """One branch of a run whose body is a coroutine: `ProgramState` with reading that is awaited.

    `s["name"]` gives what is known already, and raises `InvalidRequest` for what is still being generated: `await
    s.get("name")` waits for it.
    """

    def fork(self, size: int = 1) -> AsyncForkGroup:
        """`size` branches that continue this state independently of each other and of it.

        Raises `InvalidRequest` unless `size` is at least 1.
        """
        return AsyncForkGroup(self.branch, [AsyncProgramState(branch) for branch in self.branch.fork(size)])

    @asynccontextmanager
    async def copy(self) -> AsyncIterator[AsyncProgramState]:
        """One branch for the length of an `async with`, joined at its end as a fork of one."""
        group = self.fork(1)
        yield group[0]
        await group.join()

    def __getitem__(self, name: str) -> Any:
        return self.branch.read(name)

    async def get(self, name: str) -> Any:
        """The value of a variable, once it is known.

        Raises `UnknownVariable`, and `GenerationFailed` if it failed.
        """
        await self.branch.wait_async(self.branch.variables.generations_behind(name))
        return self.branch.read(name)

    async def get_meta_info(self, name: str) -> dict[str, Any] | list[dict[str, Any]] | None:
        """What `ProgramState.get_meta_info` tells."""
        generation = self.branch.last_generation(name)
        if generation is None:
            return None
        await self.branch.wait_async([generation])
        return generation.meta_infos()

    async def text(self) -> str:
        """All text: constants, what the chat template writes around turns, and what was generated."""
        await self.branch.wait_async(self.branch.generations())
        return text_of(self.branch.path())

    async def messages(self) -> list[dict[str, str]]:
        """The whole turns as chat messages; see `ProgramState.messages`."""
        await self.branch.wait_async(self.branch.generations())
        return messages_of(self.branch.path())

    def text_async_iter(self, var_name: str | None = None) -> AsyncIterator[str]:
        """Pieces of all text recorded so far, or of a variable, as they come; together they are the text."""
        if var_name is None:
            return read_async(self.branch, text_steps(self.branch, follow=False))
        return read_async(self.branch, variable_steps(self.branch, var_name, follow=False))

    async def sync(self) -> None:
        """Wait until all that this branch has recorded is generated, or has failed."""
        await self.branch.settle_async(self.branch.generations())

    async def error(self) -> BaseException | None:
        """The error that this branch ended in; None if all went well so far."""
        await self.sync()
        return self.branch.error()


class AsyncForkGroup(Branches[AsyncProgramState]):
    """The branches of a fork in a program written with `async def`."""

    async def join(self, mode: JoinMode = "gather_variable") -> None:
        """What `ForkGroup.join` does, awaited."""
        branches = self.branches_to_join(mode)
        for branch in branches:
            await branch.settle_async(branch.own_generations())
        join_branches(self.parent, branches, mode)
