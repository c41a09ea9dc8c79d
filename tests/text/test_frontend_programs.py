"""The text side of a program: nodes to ids as they come, events to text, and failures to those that they concern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from radixrt.errors import InternalError
from radixrt.protocol.events import Failed, Finished, Piece, Tokens, Usage
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.origin import Origin
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids, Raw, Role, Segment, Text
from radixrt.text.frontend import Frontend, Release
from tests.text.chat_families import BOS, FAMILIES, WITH_SYSTEM
from tests.text.conftest import MakeFrontend

GEN = SamplingParams(max_tokens=8)


def turn(role: str, *content: Segment) -> list[Segment]:
    return [Role(role, "begin"), *content, Role(role, "end")]


def node(
    id: int, parent: int | None, segments: Sequence[Segment] = (), sampling: SamplingParams | None = GEN
) -> TreeNode:
    return TreeNode(id, parent, tuple(segments), sampling)


def finished(id: int, kept: int, choice: int = 0, tail: bytes = b"") -> Finished:
    return Finished(0, id, choice, "stop", Usage(1, 0, kept), kept=kept, tail=tail)


class Worker:
    """Keeps the contexts of released nodes, as a worker does, and answers with what it is told to say."""

    def __init__(self, frontend: Frontend) -> None:
        self.frontend = frontend
        self.program = frontend.open_program()
        self.contexts: dict[int, list[int]] = {}
        self.released: list[TreeNode] = []
        self.failed: dict[int, Failed] = {}

    def submit(self, *nodes: TreeNode) -> Release:
        return self._take(self.program.submit(nodes))

    def answer(self, id: int, text: str) -> Release:
        """Node `id` generates `text` and an end of turn."""
        assert id in self.contexts
        ids = self.frontend.tokenizer.encode(text)
        self.contexts[id] += ids.tolist()
        end = sorted(self.frontend.end_ids)[0]
        self._take(self.program.receive(Tokens(0, id, 0, pack_ids([*ids, end]), text.encode())))
        return self._take(self.program.receive(finished(id, len(ids))))

    def _take(self, release: Release) -> Release:
        for released in release.nodes:
            context = [] if released.parent is None else list(self.contexts[released.parent])
            for segment in released.segments:
                assert isinstance(segment, Ids)
                context += unpack_ids(segment.ids).tolist()
            self.contexts[released.id] = context
            self.released.append(released)
        self.failed |= {event.node: event for event in release.events if isinstance(event, Failed)}
        return release


def oracle_ids(oracle: Any, *messages: tuple[str, str]) -> list[int]:
    chat = [{"role": role, "content": content} for role, content in messages]
    ids: list[int] = oracle.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    return ids


@pytest.mark.parametrize("family", FAMILIES)
def test_a_chat_of_three_turns_has_the_ids_of_transformers_at_each(family: str, make_frontend: MakeFrontend) -> None:
    frontend, oracle = make_frontend(family, True)
    worker = Worker(frontend)
    setting = [("system", "You are a helpful assistant.")] if family in WITH_SYSTEM else []
    said = list(setting)
    first = [segment for role, content in setting for segment in turn(role, Text(content))]
    for i, (question, answer) in enumerate([("Hello there", "Yes."), ("How are you?", "The tide"), ("Why?", "No")]):
        segments = [*turn("user", Text(question)), Role("assistant", "begin")]
        before = first if i == 0 else [Role("assistant", "end")]
        worker.submit(node(i, i - 1 if i else None, [*before, *segments]))
        said.append(("user", question))
        expected = oracle_ids(oracle, *said)
        if family == "llama-2":  # it puts a space before an answer that was generated without one
            assert oracle.decode(worker.contexts[i]) == oracle.decode(expected)
        else:
            assert worker.contexts[i] == expected
        worker.answer(i, answer)
        said.append(("assistant", answer))
    assert not worker.failed


@pytest.mark.parametrize("family", WITH_SYSTEM)
def test_forks_of_forks_continue_what_they_share(family: str, make_frontend: MakeFrontend) -> None:
    frontend, oracle = make_frontend(family)
    worker = Worker(frontend)
    shared = ("system", "You are a helpful assistant.")
    worker.submit(node(0, None, turn("system", Text(shared[1])), None))
    worker.submit(*(node(i, 0, [*turn("user", Text(f"Question {i}")), Role("assistant", "begin")]) for i in (1, 2)))
    for i in (1, 2):
        assert worker.contexts[i] == oracle_ids(oracle, shared, ("user", f"Question {i}"))
        worker.answer(i, f"Answer {i}")
    worker.submit(node(3, 1, [Role("assistant", "end")], None))
    worker.submit(*(node(i, 3, [*turn("user", Text(f"Then {i}")), Role("assistant", "begin")]) for i in (4, 5)))
    for i in (4, 5):
        expected = oracle_ids(oracle, shared, ("user", "Question 1"), ("assistant", "Answer 1"), ("user", f"Then {i}"))
        assert worker.contexts[i] == expected
    assert not worker.failed


def test_constants_behind_generated_tokens_are_tokenised_by_themselves(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    worker = Worker(frontend)
    worker.submit(node(0, None, [Text("The ti")]))
    worker.answer(0, "de com")
    worker.submit(node(1, 0, [Text("es "), Text("in twice")]))
    pieces = ["The ti", "de com", "es in twice"]
    assert worker.contexts[1] == [id for piece in pieces for id in frontend.tokenizer.encode(piece).tolist()]
    assert worker.contexts[1] != frontend.tokenizer.encode("".join(pieces)).tolist()


def test_a_node_is_released_before_its_parent_is_finished(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    release = frontend.open_program().submit(
        [node(0, None, turn("user", Text("a"))), node(1, 0, [Role("user", "begin")])]
    )
    assert [(n.id, n.parent) for n in release.nodes] == [(0, None), (1, 0)]


def test_no_worker_is_told_where_a_node_was_recorded(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    recorded = TreeNode(0, None, (Text("a"),), sampling=SamplingParams(), origin=Origin("program", (), "x"))
    (released,) = frontend.open_program().submit([recorded]).nodes
    assert released.origin is None


def test_a_trimming_template_trims_constants_and_never_what_was_generated(make_frontend: MakeFrontend) -> None:
    frontend, oracle = make_frontend("llama-3")
    worker = Worker(frontend)
    worker.submit(node(0, None, [Role("user", "begin"), Text("  ")], None))
    worker.submit(node(1, 0, [Text("\n Hello "), Text("there \n"), Role("user", "end"), Role("assistant", "begin")]))
    assert worker.contexts[1] == oracle_ids(oracle, ("user", "Hello there"))
    worker.answer(1, "\n Yes \n")
    worker.submit(node(2, 1, [Role("assistant", "end")]))
    assert oracle.decode(worker.contexts[2]).endswith("\n\n\n Yes \n<|eot_id|>")


def test_a_trimming_template_leaves_what_lies_inside_a_content(make_frontend: MakeFrontend) -> None:
    frontend, oracle = make_frontend("llama-3")
    worker = Worker(frontend)
    worker.submit(node(0, None, [Role("user", "begin"), Text(" Hello")], None))
    worker.submit(node(1, 0, [Text(" there,")]))
    worker.answer(1, " how")
    worker.submit(node(2, 1, [Text(" are you? "), Role("user", "end")]))
    assert oracle.decode(worker.contexts[2]).endswith("user<|end_header_id|>\n\nHello there, how are you?<|eot_id|>")
    worker.submit(node(3, None, [Role("user", "begin")]))
    worker.answer(3, "Why")
    worker.submit(node(4, 3, [Text(" not"), Role("user", "end")]))
    assert oracle.decode(worker.contexts[4]).endswith("\n\nWhy not<|eot_id|>")


def test_bos_comes_once_down_a_path_of_empty_nodes(make_frontend: MakeFrontend) -> None:
    frontend, oracle = make_frontend("chatml", True)
    worker = Worker(frontend)
    worker.submit(node(0, None, (), None), node(1, 0, [Text("")], None), node(2, 1, [Text("Hello")], None))
    worker.submit(node(3, 2, [Text(" there")]), node(4, 1))
    assert [n.segments for n in worker.released[:2]] == [(), ()]
    hello = oracle("Hello")["input_ids"]
    assert hello[0] == BOS
    assert worker.contexts[3] == hello + oracle(" there", add_special_tokens=False)["input_ids"]
    assert worker.contexts[4] == [BOS]


def test_a_generation_from_nothing_needs_a_bos(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml", False, False)
    worker = Worker(frontend)
    worker.submit(node(0, None, (), None), node(1, 0), node(2, 0, [Text("Hello")]))
    assert worker.failed.keys() == {1}
    assert (worker.failed[1].kind, worker.failed[1].field) == ("InvalidRequest", "prompt")
    assert [n.id for n in worker.released] == [0, 2]


@pytest.mark.parametrize(
    ("segments", "field"),
    [
        ([Role("user", "end")], "role"),
        ([Text("\ud800")], "prompt"),
        (turn("two words", Text("a")), "role"),
        ([Ids(b"\x00")], "prompt"),
    ],
)
def test_a_wrong_node_fails_with_all_below_it_and_nothing_beside_it(
    segments: list[Segment], field: str, make_frontend: MakeFrontend
) -> None:
    frontend, _ = make_frontend("chatml")
    worker = Worker(frontend)
    root = node(0, None, [Text("a")], None)
    release = worker.submit(
        root, node(1, 0, segments, SamplingParams(n=2)), node(2, 1, [Text("b")]), node(3, 0, [Text("c")])
    )
    assert [n.id for n in release.nodes] == [0, 3]
    failures = [event for event in release.events if isinstance(event, Failed)]
    assert [(event.node, event.choice) for event in failures] == [(1, 0), (1, 1), (2, 0)]
    assert {(event.kind, event.field) for event in failures} == {("InvalidRequest", field)}
    assert len({event.message for event in failures}) == 1
    assert [event.node for event in worker.submit(node(4, 2)).events] == [4]


def test_unknown_parents_and_taken_ids_fail(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    worker = Worker(frontend)
    worker.submit(node(0, None, [Text("a")]), node(1, 9, [Text("b")]))
    assert (worker.failed[1].kind, worker.failed[1].field) == ("InvalidRequest", "parent")
    release = worker.submit(node(0, None, [Text("again")]))
    assert isinstance(release.events[0], Failed)
    assert release.events[0].field == "id"
    assert not release.nodes
    assert worker.submit(node(2, 0)).nodes  # the first of that id lives


def test_refused_roles_fail_in_the_templates_words(make_frontend: MakeFrontend) -> None:
    for family in ("gemma", "llama-2"):
        frontend, _ = make_frontend(family)
        worker = Worker(frontend)
        worker.submit(node(0, None, [*turn("user", Text("a")), *turn("user", Text("b")), Role("assistant", "begin")]))
        assert "must alternate" in worker.failed[0].message
        assert worker.failed[0].field == "messages"


def test_pieces_have_whole_characters_and_the_rest_comes_before_the_end(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    program = frontend.open_program()
    program.submit([node(0, None, [Text("a")], SamplingParams(n=2))])
    kiwi = "🥝".encode()
    received = []
    for event in [
        Tokens(0, 0, 0, pack_ids([40]), b"x" + kiwi[:2]),
        Tokens(0, 0, 1, pack_ids([41]), kiwi[:3]),
        Tokens(0, 0, 0, pack_ids([42]), kiwi[2:]),
        finished(0, 2),
        Tokens(0, 0, 1, pack_ids([43]), b""),
        finished(0, 2, choice=1),
    ]:
        received += program.receive(event).events
    pieces = [(e.choice, e.text, unpack_ids(e.ids).tolist()) for e in received if isinstance(e, Piece)]
    assert pieces == [(0, "x", [40]), (1, "", [41]), (0, "🥝", [42]), (1, "", [43]), (1, "\ufffd", [])]
    assert [isinstance(e, Finished) for e in received] == [False, False, False, True, False, False, True]


def test_a_failure_of_the_worker_is_passed_on_and_spreads_to_what_comes_later(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    program = frontend.open_program()
    program.submit([node(0, None, [Text("a")], SamplingParams(n=2))])
    other = Failed(0, 0, 1, "PromptTooLong", "too long", "prompt")
    assert program.receive(other).events == (other,)
    assert program.submit([node(1, 0)]).nodes  # children continue choice 0
    failed = Failed(0, 0, 0, "PromptTooLong", "too long", "prompt")
    assert program.receive(failed).events == (failed,)
    release = program.submit([node(2, 0)])
    assert not release.nodes
    assert [(e.node, e.kind, e.field) for e in release.events if isinstance(e, Failed)] == [
        (2, "PromptTooLong", "prompt")
    ]


def test_an_event_of_an_unknown_node_is_a_fault(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    with pytest.raises(InternalError, match="node 7"):
        frontend.open_program().receive(finished(7, 0))


class TestRenderedWhole:
    """Programs on a model whose chat template has to be rendered whole."""

    @pytest.fixture
    def worker(self, make_frontend: MakeFrontend) -> Worker:
        frontend, self.oracle = make_frontend("qwen-3")
        assert not frontend.turns.prefix_stable
        return Worker(frontend)

    def ask(self, id: int, parent: int | None, question: str) -> TreeNode:
        before = [] if parent is None else [Role("assistant", "end")]
        return node(id, parent, [*before, *turn("user", Text(question)), Role("assistant", "begin")])

    def test_a_node_waits_for_what_generates_above_it(self, worker: Worker) -> None:
        release = worker.submit(self.ask(0, None, "a"), self.ask(1, 0, "b"), self.ask(2, 1, "c"), self.ask(3, 0, "d"))
        assert [n.id for n in release.nodes] == [0]
        release = worker.answer(0, "x")
        assert [(n.id, n.parent) for n in release.nodes] == [(1, None), (3, None)]
        assert [n.id for n in worker.answer(1, "y").nodes] == [2]
        said = [("user", "a"), ("assistant", "x"), ("user", "b"), ("assistant", "y"), ("user", "c")]
        assert worker.contexts[2] == oracle_ids(self.oracle, *said)

    def test_the_template_strips_earlier_reasoning(self, worker: Worker) -> None:
        thought = "<think>\nthe tide\n</think>\n\nThe answer is yes."
        worker.submit(self.ask(0, None, "a"), self.ask(1, 0, "b"))
        worker.answer(0, thought)
        assert worker.contexts[1] == oracle_ids(self.oracle, ("user", "a"), ("assistant", thought), ("user", "b"))
        assert "the tide" not in self.oracle.decode(worker.contexts[1])

    def test_generated_ids_are_kept_where_their_text_is(self, worker: Worker) -> None:
        odd = [self.oracle.convert_tokens_to_ids(letter) for letter in "tide"]
        assert worker.frontend.tokenizer.encode("tide").tolist() != odd
        worker.submit(self.ask(0, None, "a"), self.ask(1, 0, "b"))
        worker.program.receive(Tokens(0, 0, 0, pack_ids(odd[:2]), b"ti"))
        worker.program.receive(Tokens(0, 0, 0, pack_ids([*odd[2:], 9]), b"de"))
        (released,) = worker.program.receive(finished(0, 3, tail=pack_ids([odd[3]]))).nodes
        (segment,) = released.segments
        assert isinstance(segment, Ids)
        ids = unpack_ids(segment.ids)
        windows = np.lib.stride_tricks.sliding_window_view(ids, len(odd))
        assert (windows == odd).all(axis=1).sum() == 1

    def test_an_answer_is_trimmed_as_the_template_trims_it(self, make_frontend: MakeFrontend) -> None:
        frontend, oracle = make_frontend("llama-2")
        worker = Worker(frontend)
        worker.submit(self.ask(0, None, "a"), self.ask(1, 0, "b"))
        worker.answer(0, "\n Yes \n")
        said = [("user", "a"), ("assistant", "\n Yes \n"), ("user", "b")]
        assert worker.contexts[1] == oracle_ids(oracle, *said)
        assert "[/INST] Yes </s>" in oracle.decode(worker.contexts[1])

    def test_the_first_choice_is_what_nodes_wait_for(self, worker: Worker) -> None:
        first = self.ask(0, None, "a")
        worker.submit(TreeNode(0, None, first.segments, SamplingParams(n=2)), self.ask(1, 0, "b"))
        worker.program.receive(Tokens(0, 0, 1, pack_ids([40]), b"x"))
        assert not worker.program.receive(finished(0, 1, choice=1)).nodes
        assert [n.id for n in worker.answer(0, "y").nodes] == [1]
        assert worker.contexts[1] == oracle_ids(self.oracle, ("user", "a"), ("assistant", "y"), ("user", "b"))

    def test_an_open_turn_goes_on_with_what_was_generated_in_it(self, worker: Worker) -> None:
        worker.submit(node(0, None, [*turn("user", Text("a")), Role("assistant", "begin"), Text("The ti")]))
        worker.submit(node(1, 0, [Text("es in")]))
        worker.answer(0, "de com")
        opened = oracle_ids(self.oracle, ("user", "a"))
        continued = [id for piece in ("de com", "es in") for id in worker.frontend.tokenizer.encode(piece).tolist()]
        with_prefix = self.oracle(self.oracle.decode(opened) + "The ti", add_special_tokens=False)["input_ids"]
        assert worker.contexts[1] == with_prefix + continued

    def test_held_nodes_fail_with_what_they_wait_for(self, worker: Worker) -> None:
        worker.submit(self.ask(0, None, "a"), self.ask(1, 0, "b"), self.ask(2, 1, "c"))
        release = worker.program.receive(Failed(0, 0, 0, "Aborted", "gone"))
        assert [(e.node, e.kind) for e in release.events if isinstance(e, Failed)] == [
            (0, "Aborted"),
            (1, "Aborted"),
            (2, "Aborted"),
        ]
        assert not release.nodes

    def test_a_failure_reaches_through_fork_points(self, worker: Worker) -> None:
        worker.submit(self.ask(0, None, "a"), node(1, 0, [Role("assistant", "end")], None))
        worker.program.receive(Failed(0, 0, 0, "Aborted", "gone"))
        release = worker.submit(node(2, 1, [*turn("user", Text("b")), Role("assistant", "begin")]))
        assert [(e.node, e.kind) for e in release.events if isinstance(e, Failed)] == [(2, "Aborted")]

    def test_an_abort_fails_what_is_held_and_names_what_the_worker_runs(self, worker: Worker) -> None:
        worker.submit(self.ask(0, None, "a"), self.ask(1, 0, "b"), self.ask(2, 1, "c"), self.ask(3, None, "d"))
        worker.answer(0, "x")
        worker.submit(self.ask(4, 3, "e"))
        release = worker.program.abort(0)
        assert [e.node for e in release.events if isinstance(e, Failed)] == [2]
        assert {0, 1} <= set(release.aborts)
        assert not {3, 4} & set(release.aborts)
        assert [n.id for n in worker.answer(3, "y").nodes] == [4]
        assert not worker.program.receive(Failed(0, 1, 0, "Aborted", "gone")).nodes

    def test_an_aborted_node_is_not_released_later(self, worker: Worker) -> None:
        worker.submit(self.ask(0, None, "a"), self.ask(1, 0, "b"), self.ask(2, 0, "c"))
        worker.program.abort(1)
        release = worker.answer(0, "x")
        assert [n.id for n in release.nodes] == [2]
        assert not [event for event in release.events if isinstance(event, Failed)]

    def test_an_abort_of_everything_fails_all_that_is_held(self, worker: Worker) -> None:
        worker.submit(self.ask(0, None, "a"), self.ask(1, 0, "b"), self.ask(2, 1, "c"))
        release = worker.program.abort()
        assert [e.node for e in release.events if isinstance(e, Failed)] == [1, 2]
        assert worker.program.abort().events == ()

    def test_programs_without_roles_are_not_held(self, worker: Worker) -> None:
        release = worker.submit(node(0, None, [Raw("<|im_start|>a")]), node(1, 0, [Text("b")]))
        assert [(n.id, n.parent) for n in release.nodes] == [(0, None), (1, 0)]
