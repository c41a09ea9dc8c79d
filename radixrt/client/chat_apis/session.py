"""One program's session with a chat API: each of its generations is a call, unless an earlier call wrote it already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from radixrt.client.chat_apis.ahead import Ahead, needs_its_own_call
from radixrt.client.chat_apis.api import Call, ChatApi, Delta
from radixrt.client.chat_apis.caller import Caller, Outcome
from radixrt.client.chat_apis.tally import Tally
from radixrt.client.chat_apis.turn import write_turn
from radixrt.client.conversation import Conversation
from radixrt.errors import Aborted, InternalError, InvalidRequest, NotSupported, RadixError
from radixrt.protocol.events import Failed, Finished, Piece, TextEvent, Usage
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids, Raw, Role, Segment, Text

_SHOWN = 80
"""Characters of a text in messages."""


@dataclass(frozen=True, slots=True)
class _Context:
    """A branch's past, and what the API has written past it."""

    conversation: Conversation = field(default_factory=Conversation)
    ahead: Ahead | None = None

    def with_text(self, text: str) -> _Context:
        return _Context(self.conversation.with_text(text), self.ahead and self.ahead.behind(text))


class ChatSession:
    """The `client.backend.Session` of chat APIs: a task of the event loop for each node."""

    def __init__(self, name: str, api: ChatApi, tally: Tally, on_event: Callable[[TextEvent], None]) -> None:
        """`name`: what messages call the backend. `tally`: counts what is done here too."""
        self._caller = Caller(name, api, tally)
        self._on_event = on_event
        self._nodes: dict[int, TreeNode] = {}
        self._children: dict[int, list[TreeNode]] = {}
        self._contexts: dict[int, asyncio.Future[_Context | RadixError]] = {}
        """What children continue, or why they cannot."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._live: dict[int, set[int]] = {}
        """The choices, by node, that have no end yet."""

    def submit(self, nodes: Sequence[TreeNode]) -> None:
        """Take nodes, parents first; see `client.backend.Session`."""
        loop = asyncio.get_running_loop()
        for node in nodes:
            self._nodes[node.id] = node
            if node.parent is not None:
                self._children.setdefault(node.parent, []).append(node)
            self._contexts[node.id] = loop.create_future()
            self._live[node.id] = set(range(node.ends))
            self._tasks[node.id] = loop.create_task(self._run(node))

    def abort(self, node: int | None = None) -> None:
        """Abort a node and all below it, or every live node; see `client.backend.Session`."""
        loop = asyncio.get_running_loop()
        for id in [id for id in self._tasks if self._is_below(id, node)]:
            if self._live[id]:
                self._tasks.pop(id).cancel()
                loop.call_soon(self._fail, id, Aborted("the generation was aborted"))

    def choose(self, node: int, option: int) -> None:
        """Refused: no chat API has selects."""
        raise InvalidRequest(f"node {node} has no option {option} to choose", field="option")

    def close(self) -> None:
        """End the program; see `client.backend.Session`."""
        for choices in self._live.values():
            choices.clear()
        for task in self._tasks.values():
            task.cancel()

    def _is_below(self, node: int | None, top: int | None) -> bool:
        if top is None:
            return True
        while node is not None and node != top:
            node = self._nodes[node].parent
        return node is not None

    async def _run(self, node: TreeNode) -> None:
        try:
            before: _Context | RadixError = _Context()
            if node.parent is not None:
                before = await asyncio.shield(self._contexts[node.parent])
            if isinstance(before, RadixError):
                raise before
            context = self._extended(before, node.segments)
            if node.sampling is not None:
                context = await self._generate(node, node.sampling, context)
            elif node.ends:
                raise NotSupported(f"{self._caller.name} scores no texts", field="choices")
            if not self._contexts[node.id].done():
                self._contexts[node.id].set_result(context)
        except RadixError as error:
            self._fail(node.id, error)
        except Exception as error:
            self._fail(node.id, InternalError(f"{self._caller.name}: {type(error).__name__}: {error}"))
        finally:
            self._tasks.pop(node.id, None)

    def _extended(self, context: _Context, segments: Sequence[Segment]) -> _Context:
        """The context with the constants and roles of a node. Raises `NotSupported` for what the API cannot be sent."""
        for segment in segments:
            match segment:
                case Text(text=text):
                    context = self._with_constant(context, text)
                case Raw(text=text) if not self._caller.api.takes_turns:
                    context = self._with_constant(context, text)
                case Role(role=role, edge="begin"):
                    context = _Context(context.conversation.begin(role))
                case Role():
                    context = _Context(context.conversation.end())
                case Raw() | Ids():
                    raise NotSupported(f"{self._caller.name} takes no rendered prompts and no token ids", field="raw")
        return context

    def _with_constant(self, context: _Context, text: str) -> _Context:
        if not self._caller.api.takes_turns or context.conversation.role is not None:
            return context.with_text(text)
        if text.strip():
            raise NotSupported(f"{self._caller.name} takes text in turns only, not {text[:_SHOWN]!r}", field="role")
        return context

    async def _generate(self, node: TreeNode, sampling: SamplingParams, context: _Context) -> _Context:
        """Generate, and tell of it; what continues it. Raises as `write_turn`."""
        taken = context.ahead and context.ahead.take(sampling)
        if taken:
            self._caller.tally.calls_saved += 1
            self._tell(node.id, Delta(0, taken.text))
            self._finish(node.id, Outcome(taken.text, [taken.end], ahead=taken.rest), speculated=True)
            return _Context(context.conversation.with_text(taken.text), taken.rest)
        conversation = context.conversation
        beyond = _tokens_beyond(node, sampling)
        continues = self._caller.api.continues_turns
        if beyond or (conversation.text.strip() and not continues):
            following = list(self._following(node))
            outcome = await write_turn(self._caller, conversation, sampling, beyond, following)
            self._tell(node.id, Delta(0, outcome.text))
        else:
            # White space that a turn begins with is nothing to continue.
            asked = conversation if continues else replace(conversation, text="")
            outcome = await self._caller.call(Call(asked, sampling), partial(self._tell, node.id))
        self._finish(node.id, outcome)
        return _Context(conversation.with_text(outcome.text), outcome.ahead)

    def _following(self, node: TreeNode) -> Iterator[TreeNode]:
        """The generations recorded behind this one, in its turn and before a fork."""
        while True:
            children = self._children.get(node.id, [])
            if len(children) != 1 or children[0].sampling is None:
                return
            node = children[0]
            if not all(isinstance(segment, Text) for segment in node.segments):
                return
            yield node

    # What is told

    def _tell(self, node: int, delta: Delta) -> None:
        if (delta.text or delta.logprobs) and delta.choice in self._live[node]:
            self._on_event(Piece(0, node, delta.choice, delta.text, b"", delta.logprobs, dict(delta.token_texts)))

    def _finish(self, node: int, outcome: Outcome, *, speculated: bool = False) -> None:
        for end in outcome.ends:
            if end.choice not in self._live[node]:
                continue
            self._live[node].discard(end.choice)
            usage = outcome.usage
            if end.choice:
                # An API counts what all choices took together: choice 0 has it.
                usage = Usage(usage.prompt_tokens, usage.cached_tokens, 0)
            self._on_event(
                Finished(
                    program=0,
                    node=node,
                    choice=end.choice,
                    reason=end.reason,
                    usage=usage,
                    matched=end.matched,
                    time_to_first_token=outcome.time_to_first_token,
                    time=outcome.time,
                    speculated=speculated,
                )
            )

    def _fail(self, node: int, error: RadixError) -> None:
        live, self._live[node] = self._live[node], set()
        if not self._contexts[node].done():
            self._contexts[node].set_result(error)
        for choice in sorted(live):
            self._on_event(Failed(0, node, choice, type(error).__name__, error.message, error.field))


def _tokens_beyond(node: TreeNode, sampling: SamplingParams) -> int:
    """How many tokens the API may write past a generation. Without a stop string it goes to the end of its turn."""
    allowed = node.origin.num_api_spec_tokens if node.origin else None
    return (allowed or 0) if sampling.stop and not needs_its_own_call(sampling) else 0
