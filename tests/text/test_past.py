"""A program's past in the segments of one prompt has the tokens that it had when its nodes were sent one by one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import pack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.options import Options
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Chosen, Fork, Generated, Raw, Role, Segment, Text
from radixrt.text.frontend import Frontend
from tests.text.chat_families import BOS, FAMILIES, UNSTABLE
from tests.text.conftest import MakeFrontend
from tests.text.told_worker import ToldWorker

GEN = SamplingParams(max_tokens=8)
WORDS = ["tide", "the ti", "de", " boats", "  ", "\n", "har", "bour", " and", "<think>", "é", ".\n\n"]
words = st.lists(st.sampled_from(WORDS), max_size=4).map("".join)


class Path:
    """One path down a program's tree, sent node by node; `past` is what a whole prompt says of it."""

    def __init__(self, frontend: Frontend) -> None:
        self.worker = ToldWorker(frontend)
        self.past: list[Segment] = []
        self._length = 0

    def fork(self, *segments: Segment) -> None:
        self._submit(segments)
        self.past += [*segments, Fork()]

    def generate(self, text: str, *segments: Segment) -> None:
        self.worker.answer(self._submit(segments, sampling=GEN), text)
        self.past += [*segments, Generated(pack_ids(self.worker.tokenizer.encode(text)))]

    def select(self, texts: list[str], chosen: int, *segments: Segment) -> None:
        options = Options(tuple(texts))
        select = self._submit(segments, select=options)
        for node in self.worker.scored_nodes():
            if node.parent == select:
                self.worker.score(node)
        self.worker.take(self.worker.program.choose(select, chosen))
        self.past += [*segments, Chosen(options, chosen)]

    def context(self, *segments: Segment) -> list[int]:
        """What a generation behind `segments` gets to see."""
        return self.worker.contexts[self._submit(segments, sampling=GEN)]

    def _submit(
        self, segments: Sequence[Segment], *, sampling: SamplingParams | None = None, select: Options | None = None
    ) -> int:
        node = TreeNode(self._length, self._length - 1 if self._length else None, tuple(segments), sampling)
        self.worker.submit(msgspec.structs.replace(node, select=select))
        self._length += 1
        if (failed := self.worker.failed.get(node.id)) is not None:
            raise InvalidRequest(failed.message, field=failed.field)
        return node.id


def tokens(frontend: Frontend, *segments: Segment) -> list[int]:
    ids: list[int] = frontend.encode_prompt(segments).tolist()
    return ids


@st.composite
def stretches(draw: st.DrawFn, family: str | None) -> list[list[Segment]]:
    """What stands before each of a path's nodes: constants, and turns of user and assistant."""
    between = family not in UNSTABLE
    roles, open_role = ["user", "assistant"] * 8, False
    found: list[list[Segment]] = []
    for _ in range(draw(st.integers(1, 5))):
        segments: list[Segment] = []
        for _ in range(draw(st.integers(0, 4))):
            if family is not None and draw(st.booleans()):
                segments.append(Role(roles[0], "end" if open_role else "begin"))
                if open_role:
                    roles.pop(0)
                open_role = not open_role
            elif open_role or between:
                segments.append(draw(words.map(Text) | words.map(Raw)))
        found.append(segments)
    return found


@pytest.mark.parametrize("adds_bos", [False, True])
@pytest.mark.parametrize("family", [None, *FAMILIES])
@given(data=st.data())
@settings(max_examples=50)
def test_a_past_has_the_tokens_of_its_nodes(
    family: str | None, adds_bos: bool, data: st.DataObject, make_frontend: MakeFrontend
) -> None:
    frontend = make_frontend(family, adds_bos)[0]
    path = Path(frontend)
    begun: list[Segment] = []
    try:
        for segments in data.draw(stretches(family)):
            begun = [*path.past, *segments]
            match data.draw(st.sampled_from(["fork", "generate", "select"])):
                case "fork":
                    path.fork(*segments)
                case "generate":
                    path.generate(data.draw(words), *segments)
                case "select":
                    texts = data.draw(st.lists(words.filter(bool), min_size=1, max_size=3, unique=True))
                    path.select(texts, data.draw(st.integers(0, len(texts) - 1)), *segments)
        begun = [*path.past, Text(" so")]
        expected = path.context(Text(" so"))
    except InvalidRequest:
        # Generated between turns that have to be rendered whole: as one prompt it is refused, too.
        assert family in UNSTABLE
        with pytest.raises(InvalidRequest):
            tokens(frontend, *begun)
    else:
        assert tokens(frontend, *path.past, Text(" so")) == expected


def test_a_fork_is_a_border_for_the_tokenizer(make_frontend: MakeFrontend) -> None:
    frontend = make_frontend(None)[0]
    merged = tokens(frontend, Text("the har"), Text("bour"))
    forked = tokens(frontend, Text("the har"), Fork(), Text("bour"))
    assert merged == tokens(frontend, Text("the harbour")) != forked
    assert forked == [*tokens(frontend, Text("the har")), *tokens(frontend, Text("bour"))]


def test_what_was_generated_from_nothing_stands_behind_the_bos(make_frontend: MakeFrontend) -> None:
    frontend = make_frontend(None)[0]
    said = Generated(pack_ids(frontend.tokenizer.encode("tide")))
    assert tokens(frontend, said) == [BOS, *tokens(frontend, Text("tide"))]


@pytest.mark.parametrize("chosen", [-1, 2])
@pytest.mark.parametrize("family", [None, "qwen-3"])
def test_an_option_that_was_not_there_is_refused(family: str | None, chosen: int, make_frontend: MakeFrontend) -> None:
    frontend = make_frontend(family)[0]
    turn = [] if family is None else [Role("user", "begin")]
    with pytest.raises(InvalidRequest, match="options 0 to 1") as caught:
        tokens(frontend, *turn, Text("the "), Chosen(Options(("tide", "boats")), chosen))
    assert caught.value.field == "prompt"
