"""Request trees over the engine: which node may start, what it continues, and who is told.

A node waits for its parent, then becomes a request for each of its choices; choice 0 is what its children continue. A
node that is to be scored becomes one request.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np

from radixrt.cache.next_uses import NextUses
from radixrt.errors import Aborted, InvalidRequest, RadixError
from radixrt.protocol.events import Event, Failed, Finished, Scored, Tokens
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.messages import Abort, CloseProgram, Stats, SubmitTree, TreeNode, Welcome
from radixrt.protocol.sampling import SamplingParams, check
from radixrt.protocol.terms import check as check_terms
from radixrt.scheduler.request import Origin
from radixrt.worker.engine import Engine, EngineEvent, Progress, fresh_seed
from radixrt.worker.generation import Completion
from radixrt.worker.request_tree import Node, Program, prompt_of, subtree
from radixrt.worker.scoring import ScoreCompletion


class Programs:
    """The open programs of all clients. `step` runs the engine and says what became of their nodes."""

    def __init__(self, engine: Engine, welcome: Welcome) -> None:
        self.welcome = welcome
        self._engine = engine
        self._programs: dict[tuple[bytes, int], Program] = {}
        self._numbers = itertools.count()
        self._next_uses = NextUses(engine.scheduler.cache)
        self._owners: dict[int, Node] = {}
        """The node of each live request."""
        self._events: dict[bytes, list[Event]] = {}
        """What is to be told with the next step."""
        self._blocked_aborts: Counter[str] = Counter()

    @property
    def busy(self) -> bool:
        """Whether there is something to compute or to tell."""
        return self._engine.busy or bool(self._events)

    @property
    def stalled(self) -> bool:
        """Whether a step would bring nothing until a grammar is compiled; `on_grammar` tells when that is."""
        return self._engine.stalled and not self._events

    def on_grammar(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, from any thread, when a grammar is compiled."""
        self._engine.grammars.on_ready = wake

    def submit(self, client: bytes, message: SubmitTree) -> None:
        """Take in nodes of a program, which the first of them opens. What is wrong with a node becomes its `Failed`."""
        key = (client, message.program)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = Program(client, message.program, message.terms)
        for spec in message.nodes:
            self._submit_node(program, spec)
        self._next_uses.submitted(program)

    def abort(self, client: bytes, message: Abort) -> None:
        """Abort a node and all below it, or every open node of the program; each open choice gets its `Failed`."""
        program = self._programs.get((client, message.program))
        if program is None:
            return
        aborted = Aborted("the request was aborted")
        if message.node is None:
            for node in list(program.nodes.values()):
                self._fail(node, aborted)
        elif (root := program.nodes.get(message.node)) is not None:
            for below in list(subtree(root)):
                self._fail(below, aborted)

    def close(self, client: bytes, message: CloseProgram) -> None:
        """Abort what is live, without events, and forget the program's contexts."""
        program = self._programs.pop((client, message.program), None)
        if program is None:
            return
        for node in program.nodes.values():
            self._drop_requests(node)
            node.children.clear()
        program.nodes.clear()  # With these two no cycle is left for the collector (`worker/garbage.py`).
        self._next_uses.closed(program)

    def drop_client(self, client: bytes) -> None:
        """Close every program of a client that is gone."""
        for owner, program in list(self._programs):
            if owner == client:
                self.close(client, CloseProgram(program))
        self._events.pop(client, None)

    def step(self) -> dict[bytes, list[Event]]:
        """One engine step; all that is to be told since the last one, by client."""
        for event in self._engine.step():
            self._take(event)
        events, self._events = self._events, {}
        return events

    def flush_cache(self) -> None:
        """Forget every cached prefix that no running request holds."""
        self._engine.scheduler.cache.flush()

    def check_invariants(self) -> None:
        """Recount cache and queue; raises `BrokenInvariant` where something does not add up."""
        self._engine.scheduler.check_invariants()

    def stats(self) -> Stats:
        """Counters and gauges of engine, scheduler and cache (`dropped_frames` is the process's to fill)."""
        scheduler = self._engine.scheduler
        cache, counters = scheduler.cache, scheduler.counters
        return Stats(
            pages_free=cache.free_pages,
            pages_owned=cache.owned_pages,
            pages_tree=cache.tree_pages,
            leases=cache.leases,
            waiting=scheduler.waiting,
            running=len(scheduler.running),
            steps=counters.steps,
            tokens_computed=counters.tokens_computed,
            prompt_tokens=counters.prompt_tokens,
            cached_tokens=counters.cached_tokens,
            evicted_pages=cache.counters.evicted_pages,
            evictions=cache.counters.evictions,
            preemptions=counters.preemptions,
            page_copies=counters.page_copies,
            aborts=dict(self._engine.aborts + self._blocked_aborts),
            dropped_frames=0,
        )

    def _submit_node(self, program: Program, spec: TreeNode) -> None:
        parent = None if spec.parent is None else program.nodes.get(spec.parent)
        # What is more than a request may ask for is refused when it starts, and must not cost memory before.
        node = Node(spec, program, next(self._numbers), parent, open_choices=set(range(spec.ends)))
        if (spec.sampling is not None) + (spec.score is not None) + (spec.select is not None) > 1:
            message = f"node {spec.id} is to do several things; a node samples, is scored or selects"
            self._fail(node, InvalidRequest(message, field="score"))
            return
        if spec.id in program.nodes:
            self._fail(node, InvalidRequest(f"node {spec.id} was already submitted", field="id"))
            return
        program.nodes[spec.id] = node
        if parent is not None:
            parent.children.append(node)
            if parent.error is not None:
                self._fail(node, parent.error)
            elif parent.complete:
                self._start(node)
        elif spec.parent is not None:
            self._fail(node, InvalidRequest(f"node {spec.id} continues unknown node {spec.parent}", field="parent"))
        else:
            self._start(node)

    def _start(self, *nodes: Node) -> None:
        """The parents' contexts are known: generate, or (a fork point) pass the context on to the children."""
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if node.error is not None:
                continue  # Aborted while it waited.
            try:
                check_terms(node.program.terms)
                node.context = prompt_of(node)
                if node.spec.score is not None:
                    self._score(node, node.spec.score)
                elif node.spec.sampling is None:
                    node.complete = True
                    pending += reversed(node.children)
                else:
                    self._generate(node, node.spec.sampling)
            except RadixError as error:
                self._fail(node, error)

    def _generate(self, node: Node, params: SamplingParams) -> None:
        check(params)  # Before as many requests are made as it asks for.
        self._engine.check_queue(params.n)
        seed = fresh_seed(params)
        origin = _origin(node)
        node.program.generations += 1
        heals = node.spec.heals and _own_tokens(node) > 0
        for choice in range(params.n):
            request = self._engine.add(node.context, params, seed=seed, choice=choice, origin=origin, heals=heals)
            node.requests[request] = choice
            self._owners[request] = node

    def _score(self, node: Node, first: int) -> None:
        own = _own_tokens(node)
        if not 0 <= first <= own:
            raise InvalidRequest(f"score is {first}; the node has {own} tokens of its own", field="score")
        request = self._engine.add_scoring(node.context, len(node.context) - own + first, origin=_origin(node))
        node.requests[request] = 0
        self._owners[request] = node

    def _take(self, event: EngineEvent) -> None:
        node = self._owners[event.request]
        program, spec = node.program, node.spec
        choice = node.requests[event.request]
        if isinstance(event, Progress):
            ids = pack_ids(event.ids)
            self._tell(program, Tokens(program.id, spec.id, choice, ids, event.text, event.logprobs))
            return
        self._forget(event.request)
        if isinstance(event, Completion):
            self._finish(node, choice, event)
        elif isinstance(event, ScoreCompletion):
            node.open_choices.discard(choice)
            self._tell(program, Scored(program.id, spec.id, event.logprobs, event.usage))
            self._complete(node)
        else:
            self._tell_failed(node, choice, event.error)
            if choice == 0:
                self._fail_dependents(node, event.error)

    def _finish(self, node: Node, choice: int, event: Completion) -> None:
        end = event.end
        node.open_choices.discard(choice)
        self._tell(
            node.program,
            Finished(
                program=node.program.id,
                node=node.spec.id,
                choice=choice,
                reason=end.reason,
                usage=event.usage,
                matched=end.matched,
                kept=end.kept,
                tail=end.tail,
                healed=event.healed,
                time_to_first_token=event.time_to_first_token,
                time=event.time,
                prompt=event.prompt,
            ),
        )
        if choice == 0:
            prompt = node.context[:-1] if event.healed else node.context
            node.context = np.concatenate([prompt, event.output[: end.kept], unpack_ids(end.tail)])
            self._complete(node)

    def _complete(self, node: Node) -> None:
        """The node's context is known: its children can start."""
        node.complete = True
        self._next_uses.completed(node)
        self._start(*reversed(node.children))

    def _fail(self, node: Node, error: RadixError) -> None:
        """End what is open of a node, and of all that waits for it, with an error."""
        self._end_choices(node, error)
        self._fail_dependents(node, error)

    def _fail_dependents(self, node: Node, error: RadixError) -> None:
        if node.complete:
            return
        for below in subtree(node):
            if below.error is None:
                below.error = error.with_traceback(None)  # Its frames hold the node.
                if below is not node:
                    self._end_choices(below, error)

    def _end_choices(self, node: Node, error: RadixError) -> None:
        if isinstance(error, Aborted) and node.parent is not None and not node.parent.complete:
            self._blocked_aborts["blocked"] += len(node.open_choices)
        self._drop_requests(node)
        for choice in sorted(node.open_choices):
            self._tell_failed(node, choice, error)

    def _drop_requests(self, node: Node) -> None:
        for request in list(node.requests):
            self._engine.abort(request)
            self._forget(request)

    def _forget(self, request: int) -> None:
        node = self._owners.pop(request)
        del node.requests[request]

    def _tell_failed(self, node: Node, choice: int, error: RadixError) -> None:
        node.open_choices.discard(choice)
        kind = type(error).__name__
        self._tell(node.program, Failed(node.program.id, node.spec.id, choice, kind, error.message, error.field))

    def _tell(self, program: Program, event: Event) -> None:
        self._events.setdefault(program.client, []).append(event)


def _origin(node: Node) -> Origin:
    program = node.program
    return Origin(program.namespace, node.siblings, program.terms.priority, program.work_left)


def _own_tokens(node: Node) -> int:
    """Of a node that starts, the tokens that it adds to its parent's context."""
    return len(node.context) - (0 if node.parent is None else len(node.parent.context))
