"""One program's session with a server: a request for each node, sent when what it continues is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Protocol

from radixrt.client.endpoint.errors import error_of_body
from radixrt.client.endpoint.http import Http
from radixrt.client.endpoint.nodes import EndpointNode
from radixrt.client.endpoint.replies import Chunk, OptionsScored, PromptScored, decoded
from radixrt.client.endpoint.requests import Body, generate_body, prompt_body, select_body
from radixrt.errors import Aborted, InternalError, InvalidRequest, NotSupported, RadixError, TokenizerChanged
from radixrt.protocol.events import Failed, Scores, TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.options import Options
from radixrt.protocol.packing import pack
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Chosen, Generated
from radixrt.protocol.terms import ProgramTerms, check


class Host(Protocol):
    """What a session asks of, and tells, the endpoint that it belongs to."""

    @property
    def http(self) -> Http: ...

    def prefetch_turns(self) -> None:
        """Ask for the words around turns that somebody may read soon."""
        ...

    def forget(self, session: EndpointSession) -> None:
        """The session has ended."""
        ...


class EndpointSession:
    """The `client.backend.Session` of a `RuntimeEndpoint`. The server keeps nothing of it between two requests."""

    def __init__(self, host: Host, on_event: Callable[[TextEvent], None], terms: ProgramTerms) -> None:
        """Raises `InvalidRequest` for wrong terms."""
        check(terms)
        self._host = host
        self._on_event = on_event
        self._terms = terms
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[int, EndpointNode] = {}
        self._waiting: dict[EndpointNode, list[EndpointNode]] = {}
        """Nodes by the node whose end they wait for."""
        self._tasks: dict[EndpointNode, asyncio.Task[None]] = {}
        """The requests on their way."""
        self._generations = 0
        """Sent so far."""
        self._fingerprint: str | None = None
        """Of the tokenizer that the program's ids are of."""
        self._closed = False

    def submit(self, nodes: Sequence[TreeNode]) -> None:
        """Send nodes, parents first; see `client.backend.Session`."""
        for spec in nodes:
            parent = None if spec.parent is None else self._nodes.get(spec.parent)
            node = EndpointNode(spec, parent)
            error = self._why_not(node)
            if spec.id not in self._nodes:
                self._nodes[spec.id] = node
            if error is not None:
                self._fail(node, error)
            elif spec.ends:
                self._send_when_known(node)
        self._host.prefetch_turns()

    def abort(self, node: int | None = None) -> None:
        """Abort a node and all below it, or every live node; see `client.backend.Session`."""
        top = None if node is None else self._nodes.get(node)
        if node is None or top is not None:
            for live in [one for one in self._nodes.values() if one.open and (top is None or one.is_below(top))]:
                self._fail(live, Aborted("the request was aborted"))

    def choose(self, node: int, option: int) -> None:
        """Go on with an option of a select; see `client.backend.Session`."""
        chosen = self._nodes.get(node)
        if chosen is None or chosen.spec.select is None or not chosen.scored or chosen.end is not None:
            raise InvalidRequest(f"node {node} has no options to choose from now", field="node")
        count = len(chosen.spec.select.texts)
        if not 0 <= option < count:
            raise InvalidRequest(f"option is {option}; node {node} has options 0 to {count - 1}", field="option")
        chosen.end = Chosen(Options(chosen.spec.select.texts), option)
        self._release(chosen)

    def close(self) -> None:
        """End the program: requests on their way are cancelled, which ends them in the server."""
        self._closed = True
        self._host.prefetch_turns()
        for task in self._tasks.values():
            task.cancel()
        self._host.forget(self)

    def lose(self, error: RadixError) -> None:
        """The endpoint is closed: what is live fails."""
        for node in [node for node in self._nodes.values() if node.open]:
            self._fail(node, error)

    def _why_not(self, node: EndpointNode) -> RadixError | None:
        spec = node.spec
        if spec.id in self._nodes or spec.id < 0:
            problem = "is below 0" if spec.id < 0 else "was already submitted"
            return InvalidRequest(f"node {spec.id} {problem}", field="id")
        if spec.parent is not None and node.parent is None:
            message = f"node {spec.id} continues node {spec.parent}, which was not submitted before it"
            return InvalidRequest(message, field="parent")
        if spec.score is not None and node.parent is not None:
            return NotSupported("a server scores whole prompts only: this one continues another node", field="score")
        return node.error_above

    # From a node to its request

    def _send_when_known(self, node: EndpointNode) -> None:
        awaited = node.awaited
        if awaited is not None:
            self._waiting.setdefault(awaited, []).append(node)
            return
        task = self._tasks[node] = self._loop.create_task(self._run(node))
        task.add_done_callback(lambda _: self._tasks.pop(node, None))

    async def _run(self, node: EndpointNode) -> None:
        """Send the node's request, and tell what comes of it."""
        body = prompt_body(node.context(), self._terms, self._generations, self._fingerprint)
        spec = node.spec
        try:
            if spec.sampling is not None:
                self._generations += 1
                await self._generate(node, spec.sampling, body)
            elif spec.select is not None:
                await self._select(node, spec.select, body)
            else:
                await self._score(node, body | {"start": spec.score})
        except RadixError as error:
            self._fail(node, error)
        except Exception as error:
            # A fault of ours: but who waits for this node must not wait for ever.
            self._fail(node, InternalError(f"a request failed for a reason of its own: {error!r}"))
            raise

    async def _generate(self, node: EndpointNode, params: SamplingParams, body: Body) -> None:
        ids: list[list[int]] = [[] for _ in range(params.n)]
        async with aclosing(self._host.http.events("/generate", body | generate_body(params))) as events:
            async for event in events:
                chunk = decoded(event, Chunk)
                if chunk.error is not None:
                    raise error_of_body(chunk.error)
                self._note_tokenizer(chunk.tokenizer)
                ids[chunk.index] += chunk.output_ids
                if (piece := chunk.piece(node.spec.id)) is not None:
                    self._tell(node, piece)
                if (end := chunk.end(node.spec.id, ids[chunk.index])) is not None:
                    self._tell(node, end)
                    node.open.discard(end.choice)
                    if end.choice == 0:
                        node.end = Generated(pack(chunk.meta_info.context_ids), end.healed)
                        self._release(node)
        if node.open:
            raise InternalError(f"{self._host.http.base_url} ended a stream without the end of choice {min(node.open)}")

    async def _select(self, node: EndpointNode, options: Options, body: Body) -> None:
        reply = decoded(await self._host.http.post("/score", body | select_body(options)), OptionsScored)
        self._note_tokenizer(reply.tokenizer)
        self._tell_scores(node, reply.scores(node.spec.id))

    async def _score(self, node: EndpointNode, body: Body) -> None:
        reply = decoded(await self._host.http.post("/score", body), PromptScored)
        self._note_tokenizer(reply.tokenizer)
        self._tell_scores(node, reply.scores(node.spec.id))

    def _note_tokenizer(self, fingerprint: str) -> None:
        if self._fingerprint is None:
            self._fingerprint = fingerprint
        elif fingerprint != self._fingerprint:
            raise TokenizerChanged(
                f"{self._host.http.base_url} answers with the tokenizer {fingerprint:.12}, and before with "
                f"{self._fingerprint:.12}: run the program anew"
            )

    # From what has become of a node to those who wait for it

    def _release(self, node: EndpointNode) -> None:
        for waiting in self._waiting.pop(node, ()):
            if waiting.error is None:
                self._send_when_known(waiting)

    def _tell_scores(self, node: EndpointNode, scores: Scores) -> None:
        node.scored = True
        self._tell(node, scores)
        node.open.clear()

    def _tell(self, node: EndpointNode, event: TextEvent) -> None:
        """Let the loop deliver an event: a receiver is never called from inside its own call."""
        if event.choice in node.open:
            self._loop.call_soon(self._deliver, event)

    def _fail(self, node: EndpointNode, error: RadixError) -> None:
        """End what is live of a node, and all that waits for it."""
        if not isinstance(node.end, Generated | Chosen):
            node.error = error
        if (task := self._tasks.get(node)) is not None and task is not asyncio.current_task():
            task.cancel()
        for choice in sorted(node.open):
            failed = Failed(0, node.spec.id, choice, type(error).__name__, error.message, error.field)
            self._loop.call_soon(self._deliver, failed)
        node.open.clear()
        for waiting in self._waiting.pop(node, ()):
            self._fail(waiting, error)

    def _deliver(self, event: TextEvent) -> None:
        if not self._closed:
            self._on_event(event)
