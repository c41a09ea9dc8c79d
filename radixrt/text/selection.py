"""A select while it is scored: the worker's nodes that it became, and what has come back of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from radixrt.protocol.events import Scored, ScoredTokens, Scores, Usage
from radixrt.protocol.ids import IdArray, pack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.segments import Ids
from radixrt.text.select_plan import SelectPlan


class Selection:
    """The node itself becomes a fork point of what all options share, with a scored node below it for each option.

    Options are also scored alone, if asked for, by nodes of their own that continue nothing.
    """

    def __init__(self, spec: TreeNode, plan: SelectPlan, ids: Iterator[int]) -> None:
        """`ids` gives numbers for nodes that no node of the program has."""
        self.plan = plan
        self._spec = spec
        self._options = [next(ids) for _ in plan.options]
        unconditional = spec.select is not None and spec.select.unconditional
        self._alone = [next(ids) for _ in plan.options] if unconditional else []
        self._scored: dict[int, Scored] = {}
        self.chosen: int | None = None
        """The option that children continue."""

    @property
    def open(self) -> list[int]:
        """The worker's scored nodes of which nothing has come."""
        return [id for id in (*self._options, *self._alone) if id not in self._scored]

    @property
    def complete(self) -> bool:
        """Whether all scores are there."""
        return not self.open

    def nodes(self, parent: int | None) -> Iterator[TreeNode]:
        """What the worker gets, to continue its node `parent`."""
        plan = self.plan
        yield TreeNode(self._spec.id, parent, segments_of(plan.shared))
        for id, ids in zip(self._options, plan.options, strict=True):
            yield TreeNode(id, self._spec.id, segments_of(ids), score=0)
        for id, ids in zip(self._alone, plan.options if self._alone else (), strict=True):
            yield TreeNode(id, None, segments_of(np.concatenate([plan.alone, ids])), score=len(plan.alone))

    def node_of(self, option: int) -> int:
        """The worker's node of an option."""
        return self._options[option]

    def take(self, event: Scored) -> None:
        """Take in one node's scores."""
        self._scored[event.node] = event

    def scores(self, program: int) -> Scores:
        """All scores, once complete."""
        first = self._scored[self._options[0]].usage
        return Scores(
            program,
            self._spec.id,
            tuple(self._tokens(self._options)),
            tuple(self._tokens(self._alone)),
            prefix_tokens=first.prompt_tokens - len(self.plan.options[0]),
            usage=Usage(
                sum(scored.usage.prompt_tokens for scored in self._scored.values()),
                sum(scored.usage.cached_tokens for scored in self._scored.values()),
                completion_tokens=0,
            ),
        )

    def _tokens(self, nodes: list[int]) -> Iterator[ScoredTokens]:
        for id, ids in zip(nodes, self.plan.options if nodes else (), strict=True):
            yield ScoredTokens(pack_ids(ids), self._scored[id].logprobs)


def segments_of(ids: IdArray) -> tuple[Ids, ...]:
    """Ids as the segments of a worker's node."""
    return (Ids(pack_ids(ids)),) if ids.size else ()
