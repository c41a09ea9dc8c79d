"""Selects on the text side: one tree of options, what is scored of each, and what waits for the decision."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from radixrt.errors import InvalidRequest
from radixrt.protocol.events import Failed
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.options import Options, options_of
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids, Raw, Role, Segment, Text
from tests.text.chat_families import BOS, STABLE, UNSTABLE
from tests.text.conftest import MakeFrontend
from tests.text.told_worker import ToldWorker

GEN = SamplingParams(max_tokens=8)


def gen(id: int, parent: int | None, *segments: Segment) -> TreeNode:
    return TreeNode(id, parent, segments, GEN)


def fork(id: int, parent: int | None, *segments: Segment) -> TreeNode:
    return TreeNode(id, parent, segments)


def select(
    id: int, parent: int | None, segments: Sequence[Segment], texts: Sequence[str], unconditional: bool = False
) -> TreeNode:
    return TreeNode(id, parent, tuple(segments), select=Options(tuple(texts), unconditional))


def common(sequences: Sequence[Sequence[int]]) -> int:
    length = 0
    while all(len(ids) > length for ids in sequences) and len({ids[length] for ids in sequences}) == 1:
        length += 1
    return length


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        ("route=#", ["any", "billing_desk", "billing_bot"]),
        ("The word is ", ["in", "into", "into it"]),
        ("My system is ", ["Red", "Red Hat"]),
        ("Dear ", ["Zoe", "Max"]),
        ("Dear", [" Zoe", " Max"]),
        ("Dear", ["  x ", "\ty"]),
        ("The tide comes in tw", ["ice", "elve"]),
        ("Colour: ", ["grey"]),
        ("", ["Hello there", "Hello"]),
    ],
)
def test_options_are_scored_behind_all_that_they_share(
    prompt: str, options: list[str], make_frontend: MakeFrontend
) -> None:
    """D02, D06, D07: each context is the tokenisation of prompt and option; every option keeps at least a token."""
    frontend, _ = make_frontend("chatml", True)
    worker = ToldWorker(frontend)
    worker.submit(select(0, None, [Text(prompt)], options))
    whole = [[BOS, *frontend.tokenizer.encode(prompt + option).tolist()] for option in options]
    assert worker.option_contexts(0) == whole
    shared = min(common(whole), min(map(len, whole)) - 1)
    assert worker.contexts[0] == whole[0][:shared]
    worker.score_all()
    scores = worker.scores[0]
    assert scores.prefix_tokens == shared
    for option, ids, entry in zip(options, whole, scores.scored, strict=True):
        own = unpack_ids(entry.ids).tolist()
        assert own == ids[shared:]
        assert len(own) >= 1
        assert entry.logprobs == tuple(-1.0 - i for i in range(len(own)))
        assert frontend.tokenizer.decode(ids) == prompt + option


def test_nothing_merges_with_generated_tokens(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    worker = ToldWorker(frontend)
    worker.submit(gen(0, None, Text("The tide")), select(1, 0, [Text(" ")], ["tide", "harbour"]))
    before = list(worker.contexts[0])
    encode = frontend.tokenizer.encode
    worker_contexts = worker.option_contexts(1)
    assert worker_contexts == [[*before, *encode(" " + option)] for option in ("tide", "harbour")]
    directly = ToldWorker(frontend)
    directly.submit(gen(0, None, Text("The tide")), select(1, 0, [], ["tide", "tides"]))
    assert directly.nodes[1].segments == () or directly.contexts[1] != []
    assert directly.option_contexts(1) == [[*before, *encode(option)] for option in ("tide", "tides")]


def test_constants_before_a_fork_stay_as_they_are(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    worker = ToldWorker(frontend)
    worker.submit(fork(0, None, Text("The harb")), select(1, 0, [], ["our", "ours"]))
    encode = frontend.tokenizer.encode
    assert worker.option_contexts(1) == [[*encode("The harb"), *encode(option)] for option in ("our", "ours")]


def test_given_ids_and_special_tokens_end_what_merges(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    encode = frontend.tokenizer.encode
    worker = ToldWorker(frontend)
    worker.submit(select(0, None, [Raw("<|im_start|>harb")], ["our", "or"]))
    (start,) = frontend.tokenizer.encode_rendered("<|im_start|>").tolist()
    assert worker.option_contexts(0) == [[start, *encode("harb" + option)] for option in ("our", "or")]
    given = ToldWorker(frontend)
    given.submit(select(0, None, [Ids(pack_ids(encode("harb")))], ["our", "or"]))
    assert given.option_contexts(0) == [[*encode("harb"), *encode(option)] for option in ("our", "or")]


def test_what_looks_special_in_an_option_stays_text(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    worker = ToldWorker(frontend)
    worker.submit(select(0, None, [Text("x ")], ["<|im_end|>", "no"]))
    assert not set(worker.option_contexts(0)[0]) & set(frontend.tokenizer.special_ids.values())
    assert frontend.tokenizer.decode(worker.option_contexts(0)[0]) == "x <|im_end|>"


def test_with_nothing_before_the_options_stands_the_bos(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    assert not frontend.tokenizer.adds_bos
    worker = ToldWorker(frontend)
    worker.submit(select(0, None, [], ["yes", "no"]))
    assert worker.contexts[0] == [BOS]
    shared = ToldWorker(frontend)
    shared.submit(select(0, None, [Text("The ")], ["tide", "harbour"]))
    assert shared.contexts[0] == frontend.tokenizer.encode("The")[: len(shared.contexts[0])].tolist() != []


def test_without_a_bos_something_has_to_stand_before_the_options(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml", False, False)
    worker = ToldWorker(frontend)
    worker.submit(select(0, None, [], ["yes", "no"]), gen(1, 0, Text("!")))
    assert worker.nodes == {}
    assert (worker.failed[0].kind, worker.failed[0].field) == ("InvalidRequest", "prompt")
    assert worker.failed[1].field == "prompt"


@pytest.mark.parametrize("adds_bos", [False, True])
def test_unconditional_scores_are_of_the_same_tokens_alone(adds_bos: bool, make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml", adds_bos)
    worker = ToldWorker(frontend)
    options = ["tide", "harbour master"]
    worker.submit(select(0, None, [Text("The ")], options, unconditional=True))
    assert all(0 not in worker.scores for _ in [worker.score(node) for node in worker.scored_nodes()[:-1]])
    worker.score(worker.scored_nodes()[-1])
    scores = worker.scores[0]
    alone = [node for node in worker.scored_nodes() if node.parent is None]
    before = [BOS] if adds_bos else []
    for node, entry, bare in zip(alone, scores.scored, scores.unconditional, strict=True):
        assert bare.ids == entry.ids
        assert worker.contexts[node.id] == [*before, *unpack_ids(entry.ids)]
        assert node.score == len(before)


def test_what_continues_a_select_waits_for_the_decision(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    worker = ToldWorker(frontend)
    encode = frontend.tokenizer.encode
    worker.submit(
        select(0, None, [Text("The ")], ["tide", "harbour"]),
        fork(1, 0, Text(" is")),
        gen(2, 1, Text(" deep")),
        gen(3, 1, Text(" wide")),
        select(4, 2, [Text(" and ")], ["old", "new"]),
        gen(5, 4, Text("!")),
    )
    assert set(worker.nodes) == {0, -1, -2}
    with pytest.raises(InvalidRequest, match="no options"):
        worker.program.choose(0, 1)
    worker.score_all()
    for wrong in (-1, 2):
        with pytest.raises(InvalidRequest, match="options 0 to 1"):
            worker.program.choose(0, wrong)
    worker.take(worker.program.choose(0, 1))
    assert set(worker.nodes) == {0, -1, -2, 1, 2, 3, 4, -3, -4}
    assert worker.nodes[1].parent == -2
    chosen = [*encode("The harbour"), *encode(" is")]
    assert worker.contexts[2] == [*chosen, *encode(" deep")]
    assert worker.contexts[3] == [*chosen, *encode(" wide")]
    with pytest.raises(InvalidRequest):
        worker.program.choose(0, 0)
    for node in worker.scored_nodes()[2:]:
        worker.score(node)
    worker.take(worker.program.choose(4, 0))
    assert worker.contexts[5] == [*worker.contexts[-3], *encode("!")]
    worker.submit(gen(6, 0, Text("?")))
    assert worker.contexts[6] == [*encode("The harbour"), *encode("?")]


def test_a_node_without_options_cannot_be_chosen_from(make_frontend: MakeFrontend) -> None:
    worker = ToldWorker(make_frontend("chatml")[0])
    worker.submit(gen(0, None, Text("a")))
    for id in (0, 7):
        with pytest.raises(InvalidRequest) as caught:
            worker.program.choose(id, 0)
        assert caught.value.field == "node"


def test_a_failed_option_fails_the_select_and_what_waits_for_it(make_frontend: MakeFrontend) -> None:
    worker = ToldWorker(make_frontend("chatml")[0])
    worker.submit(select(0, None, [Text("a ")], ["b", "c", "d"], unconditional=True), gen(1, 0), gen(2, 1))
    worker.score(worker.scored_nodes()[0])
    worker.take(worker.program.receive(Failed(0, -2, 0, "PromptTooLong", "too long", "prompt")))
    assert {id: failed.kind for id, failed in worker.failed.items()} == dict.fromkeys((0, 1, 2), "PromptTooLong")
    assert sorted(worker.aborted) == [-6, -5, -4, -3]
    for id in (-3, -4, -5, -6):
        worker.take(worker.program.receive(Failed(0, id, 0, "Aborted", "aborted")))
    worker.submit(gen(3, 0))
    assert worker.failed[3].kind == "PromptTooLong"
    assert 0 not in worker.scores


def test_an_abort_of_a_select_ends_what_the_worker_has_and_what_waits(make_frontend: MakeFrontend) -> None:
    worker = ToldWorker(make_frontend("chatml")[0])
    worker.submit(select(0, None, [Text("a ")], ["b", "c"], unconditional=True), gen(1, 0), gen(2, None, Text("x")))
    worker.take(worker.program.abort(0))
    assert set(worker.failed) == {1}
    assert {0, -3, -4} <= set(worker.aborted)
    assert 2 not in worker.aborted
    worker.take(worker.program.receive(Failed(0, -1, 0, "Aborted", "aborted")))
    assert worker.failed[0].kind == "Aborted"


def test_a_held_select_can_be_aborted(make_frontend: MakeFrontend) -> None:
    worker = ToldWorker(make_frontend("chatml")[0])
    worker.submit(select(0, None, [Text("a ")], ["b", "c"]), select(1, 0, [], ["d", "e"]), gen(2, 1))
    worker.take(worker.program.abort(1))
    assert set(worker.failed) == {1, 2}
    worker.score_all()
    worker.take(worker.program.choose(0, 0))
    assert set(worker.nodes) == {0, -1, -2}


@pytest.mark.parametrize(("texts", "field"), [((), "choices"), (("a", ""), "choices[1]")])
def test_wrong_options_fail_their_node_alone(texts: tuple[str, ...], field: str, make_frontend: MakeFrontend) -> None:
    worker = ToldWorker(make_frontend("chatml")[0])
    worker.submit(select(0, None, [Text("a")], texts), gen(1, None, Text("b")))
    assert worker.failed[0].field == field
    assert set(worker.nodes) == {1}


def test_numbers_below_0_are_the_frontends_own(make_frontend: MakeFrontend) -> None:
    worker = ToldWorker(make_frontend("chatml")[0])
    worker.submit(gen(-1, None, Text("a")))
    assert worker.failed[-1].field == "id"


@pytest.mark.parametrize("family", UNSTABLE)
def test_where_conversations_are_rendered_whole_options_are_part_of_them(
    family: str, make_frontend: MakeFrontend
) -> None:
    frontend, oracle = make_frontend(family)
    worker = ToldWorker(frontend)
    asks: list[Segment] = [Role("user", "begin"), Text("Which tide?"), Role("user", "end"), Role("assistant", "begin")]
    worker.submit(
        select(0, None, [*asks, Text("The ")], ["harbour", "har"]),
        gen(
            1,
            0,
            Text(" is"),
            Role("assistant", "end"),
            Role("user", "begin"),
            Text("Why?"),
            Role("user", "end"),
            Role("assistant", "begin"),
        ),
    )
    asked = [{"role": "user", "content": "Which tide?"}]
    text = oracle.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    encode = frontend.tokenizer.encode_rendered
    assert worker.option_contexts(0) == [encode(text + "The " + option).tolist() for option in ("harbour", "har")]
    assert 1 not in worker.nodes
    worker.score_all()
    worker.take(worker.program.choose(0, 0))
    chat = [*asked, {"role": "assistant", "content": "The harbour is"}, {"role": "user", "content": "Why?"}]
    whole = oracle.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert frontend.tokenizer.decode(worker.contexts[1]) == frontend.tokenizer.decode(encode(whole))
    assert worker.nodes[1].parent is None


def test_a_select_below_a_generation_is_rendered_whole_when_that_is_known(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("qwen-3", True)
    worker = ToldWorker(frontend)
    turn: list[Segment] = [Role("user", "begin"), Text("Which?"), Role("user", "end"), Role("assistant", "begin")]
    worker.submit(gen(0, None, *turn), select(1, 0, [Role("assistant", "end"), *turn], ["tide", "harbour"]))
    assert set(worker.nodes) == {0}
    worker.answer(0, "the tide")
    assert [node.parent for node in worker.scored_nodes()] == [1, 1]
    text = frontend.tokenizer.decode(worker.option_contexts(1)[1])
    assert text.endswith("Which?\nassistant\nharbour")
    assert "the tide" in text


@pytest.mark.parametrize("family", UNSTABLE)
def test_a_part_of_a_conversation_rendered_whole_cannot_be_scored(family: str, make_frontend: MakeFrontend) -> None:
    worker = ToldWorker(make_frontend(family, True)[0])
    turn: list[Segment] = [Role("user", "begin"), Text("Which?"), Role("user", "end")]
    worker.submit(TreeNode(0, None, tuple(turn), score=0), TreeNode(1, 0, (Text("x"),), score=0))
    worker.submit(gen(2, None, *turn), TreeNode(3, 2, (Text("x"),), score=0))
    worker.answer(2, "yes")
    assert (worker.failed[1].field, worker.failed[3].field) == ("score", "score")
    worker.score(worker.nodes[0])
    assert worker.scores[0].prefix_tokens == 0


def test_a_scored_node_tells_its_own_tokens(make_frontend: MakeFrontend) -> None:
    frontend, _ = make_frontend("chatml")
    worker = ToldWorker(frontend)
    ids = frontend.tokenizer.encode("The tide comes in").tolist()
    worker.submit(TreeNode(0, None, (Text("The tide comes in"),), score=2))
    worker.score(worker.nodes[0])
    scores = worker.scores[0]
    assert unpack_ids(scores.scored[0].ids).tolist() == ids[2:]
    assert (scores.prefix_tokens, scores.unconditional) == (2, ())


@pytest.mark.parametrize(
    ("choices", "field"),
    [
        ([], "choices"),
        ("yes", "choices"),
        (None, "choices"),
        ({"a": 1}, "choices"),
        (["a", 1], "choices[1]"),
        (["", "a"], "choices[0]"),
        (["a", "\ud800"], "choices[1]"),
    ],
)
def test_what_are_no_options_is_refused_by_name(choices: object, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        options_of(choices)
    assert caught.value.field == field


def test_equal_options_are_one() -> None:
    """D05"""
    assert options_of(["yes", "yes", "no", " yes"]).texts == ("yes", "no", " yes")


@pytest.mark.parametrize("family", STABLE)
def test_options_in_a_turn_are_tokenised_like_the_rendered_prompt(family: str, make_frontend: MakeFrontend) -> None:
    """D07: also where the template trims contents, an option keeps its white space."""
    frontend, oracle = make_frontend(family)
    worker = ToldWorker(frontend)
    asks: list[Segment] = [Role("user", "begin"), Text("Which tide?"), Role("user", "end"), Role("assistant", "begin")]
    options = ["  the tide ", "the harbour"]
    worker.submit(select(0, None, asks, options), gen(1, 0, Text(" is")))
    asked = [{"role": "user", "content": "Which tide?"}]
    text = oracle.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    whole = [frontend.tokenizer.encode_rendered(text + option).tolist() for option in options]
    assert worker.option_contexts(0) == whole
    worker.score_all()
    worker.take(worker.program.choose(0, 0))
    assert worker.contexts[1] == [*whole[0], *frontend.tokenizer.encode(" is")]
