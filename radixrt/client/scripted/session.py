"""One program's session with a scripted model."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from radixrt.client.conversation import Conversation
from radixrt.client.scripted.checks import checked_scores, checked_texts
from radixrt.client.scripted.replies import Answer, AnswerTo, Reply, Request
from radixrt.client.scripted.script import ScriptedRun
from radixrt.errors import Aborted, InvalidRequest, RadixError, ScriptMismatch
from radixrt.protocol.events import Failed, Finished, Piece, ScoredTokens, Scores, TextEvent, TokenLogprob, Usage
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.segments import Ids, Raw, Role, Segment, Text

_LOOK_SECONDS = 0.001
"""Between two looks at an event that a reply waits for: it may be set in any thread."""


class Host(Protocol):
    """What a session tells, and asks of, the model that it belongs to."""

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str: ...
    def note(self, request: Request) -> None: ...
    def note_mismatch(self, node: TreeNode, error: ScriptMismatch) -> None: ...


@dataclass(frozen=True, slots=True)
class _Context:
    """A branch's past: its text, and its turns."""

    prompt: str = ""
    conversation: Conversation = field(default_factory=Conversation)

    def with_text(self, text: str) -> _Context:
        return _Context(self.prompt + text, self.conversation.with_text(text))


class ScriptedSession:
    """The `client.backend.Session` of a `Scripted` model: callbacks of the event loop, no task and no thread."""

    def __init__(self, host: Host, run: int, script: ScriptedRun, on_event: Callable[[TextEvent], None]) -> None:
        self._host = host
        self._run = run
        self._script = script
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._nodes: dict[int, TreeNode] = {}
        self._answers: dict[int, AnswerTo] = {}
        """Of nodes that have not begun."""
        self._ready: deque[TreeNode] = deque()
        self._waiting: dict[int, list[TreeNode]] = {}
        """Nodes by the parent that they wait for."""
        self._live: dict[int, set[int]] = {}
        """The choices, by node, that have no end yet."""
        self._contexts: dict[int, _Context] = {}
        """What children continue, by node."""
        self._failed: dict[int, RadixError] = {}
        self._selects: dict[int, tuple[_Context, tuple[str, ...]]] = {}
        """Those that wait for their decision."""

    def submit(self, nodes: Sequence[TreeNode]) -> None:
        """Take nodes, parents first; see `client.backend.Session`."""
        for node in nodes:
            self._nodes[node.id] = node
            self._live[node.id] = set(range(node.ends))
            if node.ends:
                # By order of recording, whichever branch is the first to come here: so lists are dealt out the same
                # way each time.
                self._answers[node.id] = self._take(node)
            parent = node.parent
            if parent is None or parent in self._contexts or parent in self._failed:
                self._ready.append(node)
            else:
                self._waiting.setdefault(parent, []).append(node)
        self._loop.call_soon(self._begin_ready)

    def abort(self, node: int | None = None) -> None:
        """Abort a node and all below it, or every live node; see `client.backend.Session`."""
        for live in [id for id, choices in self._live.items() if choices and self._is_below(id, node)]:
            self._loop.call_soon(self._fail, live, Aborted("the generation was aborted"))

    def choose(self, node: int, option: int) -> None:
        """Go on with an option of a select; see `client.backend.Session`."""
        context, texts = self._selects.get(node, (None, ()))
        if context is None or not 0 <= option < len(texts):
            raise InvalidRequest(f"node {node} has no option {option} to choose", field="option")
        del self._selects[node]
        self._continue(node, context.with_text(texts[option]))

    def close(self) -> None:
        """End the program; see `client.backend.Session`."""
        self._closed = True

    def _take(self, node: TreeNode) -> AnswerTo:
        try:
            return self._script.take(node.origin)
        except ScriptMismatch as error:
            self._host.note_mismatch(node, error)
            return error

    def _is_below(self, node: int | None, top: int | None) -> bool:
        if top is None:
            return True
        while node is not None and node != top:
            node = self._nodes[node].parent
        return node is not None

    # From a node to its replies

    def _begin_ready(self) -> None:
        while self._ready and not self._closed:
            node = self._ready.popleft()
            if node.parent in self._failed:
                self._fail(node.id, self._failed[node.parent])
            elif node.id not in self._failed:
                self._begin(node)

    def _begin(self, node: TreeNode) -> None:
        parent = _Context() if node.parent is None else self._contexts[node.parent]
        context = self._extended(parent, node.segments)
        if not node.ends:
            self._continue(node.id, context)
            return
        choices = node.select.texts if node.select is not None else ()
        request = Request(self._run, node.id, node.origin, context.prompt, context.conversation, node.sampling, choices)
        self._host.note(request)
        try:
            answer = _answer(self._answers.pop(node.id), request)
            if node.select is not None:
                self._score(node, context, checked_scores(answer, request), cached=len(parent.prompt))
            elif node.sampling is not None:
                replies = checked_texts(answer, request, node.sampling)
                for choice, reply in enumerate(replies):
                    self._advance(node.id, choice, self._playing(node, choice, reply, context, len(parent.prompt)))
            else:
                raise InvalidRequest("a scripted model scores no prompts", field="score")
        except ScriptMismatch as error:
            self._host.note_mismatch(node, error)
            self._fail(node.id, error)
        except RadixError as error:
            self._fail(node.id, error)

    def _extended(self, context: _Context, segments: Sequence[Segment]) -> _Context:
        for segment in segments:
            match segment:
                case Text() | Raw():
                    context = context.with_text(segment.text)
                case Ids():
                    context = context.with_text(text_of_ids(segment.ids))
                case Role():
                    context = self._with_edge(context, segment)
        return context

    def _with_edge(self, context: _Context, edge: Role) -> _Context:
        conversation = context.conversation
        previous = [turn.role for turn in conversation.turns]
        prompt = context.prompt + self._host.role_text(previous, edge.role, edge.edge)
        return _Context(prompt, conversation.begin(edge.role) if edge.edge == "begin" else conversation.end())

    # From replies to events

    def _playing(self, node: TreeNode, choice: int, reply: Reply, context: _Context, cached: int) -> Iterator[float]:
        """Tell of one choice; each value is how many seconds to wait before the next step."""
        top = node.sampling.logprobs if node.sampling else None
        while reply.until is not None and not reply.until.is_set():
            yield _LOOK_SECONDS
        for piece in reply.pieces:
            if reply.delay:
                yield reply.delay
            logprobs = () if top is None else _certain(piece, top)
            texts = _texts(piece, node) if logprobs else {}
            self._on_event(Piece(0, node.id, choice, piece, ids_of(piece), logprobs, texts))
        if reply.error is not None:
            self._fail(node.id, reply.error, choice)
            return
        if reply.hidden_tokens:
            self._on_event(Piece(0, node.id, choice, "", ids_of("\0" * reply.hidden_tokens)))
        text = "".join(reply.pieces)
        usage = Usage(len(context.prompt), cached, len(text) + reply.hidden_tokens)
        self._live[node.id].discard(choice)
        scored = _scored_prompt(context.prompt, node) if choice == 0 else None
        texts = _texts(context.prompt, node) if scored is not None else {}
        self._on_event(
            Finished(0, node.id, choice, reply.reason, usage, kept=len(text), prompt=scored, token_texts=texts)
        )
        if choice == 0:
            self._continue(node.id, context.with_text(text))

    def _advance(self, node: int, choice: int, playing: Iterator[float]) -> None:
        if choice in self._live[node] and not self._closed:
            seconds = next(playing, None)
            if seconds is not None:
                self._loop.call_later(seconds, self._advance, node, choice, playing)

    def _score(self, node: TreeNode, context: _Context, scores: Sequence[Sequence[float]], cached: int) -> None:
        assert node.select is not None
        texts = node.select.texts
        scored = tuple(ScoredTokens(ids_of(text), tuple(values)) for text, values in zip(texts, scores, strict=True))
        # As if every character were as likely as any other where nothing stands before it.
        alone = tuple(ScoredTokens(ids_of(text), (-1.0,) * len(text)) for text in texts)
        self._live[node.id].clear()
        self._selects[node.id] = (context, texts)
        prompt = len(context.prompt)
        # The first option computes the prompt for the others.
        usage = Usage(sum(prompt + len(text) for text in texts), cached + (len(texts) - 1) * prompt, 0)
        self._on_event(Scores(0, node.id, scored, alone if node.select.unconditional else (), prompt, usage))

    # What becomes of the nodes below

    def _continue(self, node: int, context: _Context) -> None:
        self._contexts[node] = context
        self._release(node)

    def _fail(self, node: int, error: RadixError, choice: int | None = None) -> None:
        """Fail a choice, or all that live; with the first choice all that is below the node."""
        live = self._live[node]
        for failed in sorted(live) if choice is None else [choice]:
            if failed in live and not self._closed:
                live.discard(failed)
                self._on_event(Failed(0, node, failed, type(error).__name__, error.message, error.field))
        if node not in self._contexts and choice in (None, 0):
            self._failed[node] = error
            self._release(node)

    def _release(self, node: int) -> None:
        waiting = self._waiting.pop(node, ())
        if waiting:
            self._ready.extend(waiting)
            self._loop.call_soon(self._begin_ready)


def ids_of(text: str) -> bytes:
    """The packed ids of `text`, one a character: its code point."""
    return array("i", map(ord, text)).tobytes()


def text_of_ids(ids: bytes) -> str:
    """The text that `ids_of` packed."""
    return "".join(map(chr, array("i", ids)))


def _answer(answer: AnswerTo, request: Request) -> Answer:
    """The answer, or what the callable answers. Raises `ScriptMismatch` for what the callable raises itself."""
    if not callable(answer):
        return answer
    try:
        return answer(request)
    except RadixError:
        raise
    except Exception as error:
        raise ScriptMismatch(f"the script raised {type(error).__name__}: {error}") from error


def _certain(text: str, top: int) -> tuple[TokenLogprob, ...]:
    """The log-probabilities of a text whose every token is the only one there could be."""
    return tuple(TokenLogprob(ord(letter), 0.0, ((ord(letter), 0.0),)[:top]) for letter in text)


def _scored_prompt(prompt: str, node: TreeNode) -> ScoredTokens | None:
    """What a gen is to tell of the tokens of its prompt: they are certain, too."""
    start = -1 if node.sampling is None else node.sampling.logprob_start_len
    if start < 0:
        return None
    logprobs = (None, *[0.0] * (len(prompt) - 1)) if prompt else ()
    return ScoredTokens(ids_of(prompt[start:]), logprobs[start:])


def _texts(text: str, node: TreeNode) -> dict[int, str]:
    """What the tokens of `text` are written as, if the node wants to know."""
    wanted = node.sampling is not None and node.sampling.return_text_in_logprobs
    return {ord(letter): letter for letter in text} if wanted else {}
