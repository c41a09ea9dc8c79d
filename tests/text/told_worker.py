"""A worker for the text side alone: it keeps what is released, and says what a test tells it to say."""

from __future__ import annotations

from radixrt.protocol.events import Failed, Finished, Scored, Scores, Tokens, Usage
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.segments import Ids
from radixrt.text.frontend import Frontend, Release


class ToldWorker:
    """Keeps the contexts of released nodes, as a worker does, and says what it is told to say."""

    def __init__(self, frontend: Frontend) -> None:
        self.tokenizer = frontend.tokenizer
        self.end = sorted(frontend.end_ids)[0]
        self.program = frontend.open_program()
        self.nodes: dict[int, TreeNode] = {}
        self.contexts: dict[int, list[int]] = {}
        self.failed: dict[int, Failed] = {}
        self.scores: dict[int, Scores] = {}
        self.aborted: list[int] = []

    def submit(self, *nodes: TreeNode) -> Release:
        return self.take(self.program.submit(nodes))

    def take(self, release: Release) -> Release:
        for node in release.nodes:
            assert node.id not in self.nodes
            context = [] if node.parent is None else list(self.contexts[node.parent])
            for segment in node.segments:
                assert isinstance(segment, Ids)
                context += unpack_ids(segment.ids).tolist()
            self.nodes[node.id], self.contexts[node.id] = node, context
        for event in release.events:
            if isinstance(event, Failed):
                assert event.node not in self.failed, "a node ended twice"
                self.failed[event.node] = event
            elif isinstance(event, Scores):
                self.scores[event.node] = event
        self.aborted += release.aborts
        return release

    def answer(self, id: int, text: str) -> None:
        ids = self.tokenizer.encode(text)
        self.contexts[id] += ids.tolist()
        self.take(self.program.receive(Tokens(0, id, 0, pack_ids([*ids, self.end]), text.encode())))
        self.take(self.program.receive(Finished(0, id, 0, "stop", Usage(1, 0, len(ids)), kept=len(ids))))

    def scored_nodes(self) -> list[TreeNode]:
        return [node for node in self.nodes.values() if node.score is not None]

    def score(self, node: TreeNode) -> Release:
        """Tell -1.0 for the first of the node's ids, -2.0 for the second, ..."""
        assert node.score is not None
        count = sum(len(unpack_ids(segment.ids)) for segment in node.segments if isinstance(segment, Ids)) - node.score
        usage = Usage(len(self.contexts[node.id]), 1, 0)
        return self.take(self.program.receive(Scored(0, node.id, tuple(-1.0 - i for i in range(count)), usage)))

    def score_all(self) -> None:
        for node in self.scored_nodes():
            if -1 not in self.scores:
                self.score(node)

    def option_contexts(self, id: int) -> list[list[int]]:
        """The whole context of each option of the select `id`, in order."""
        return [self.contexts[node.id] for node in self.nodes.values() if node.parent == id and node.score is not None]
