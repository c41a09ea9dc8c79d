"""What a frontend says of the end of a prompt, and what becomes of a token that was drawn anew."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from radixrt.errors import InvalidRequest
from radixrt.protocol.events import Finished, Tokens, Usage
from radixrt.protocol.ids import pack_ids
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Fork, Generated, Ids, Raw, Role, Segment, Text
from radixrt.text.frontend import Frontend
from tests.text.conftest import MakeFrontend
from tests.text.test_frontend_programs import Worker, turn

HEAL = SamplingParams(heal=True)


@pytest.mark.parametrize(
    ("segments", "ends_as_text"),
    [
        ([Text("So"), Text("")], True),
        ([Text("So <|im_end|>")], True),
        ([Raw("<|im_start|>user\nSo")], True),
        ([Raw("So<|im_end|>")], False),
        ([Raw("So"), Raw("")], True),
        ([Text("So"), Ids(pack_ids([40]))], False),
        ([Text("So"), Fork()], False),
        ([Text("So"), Generated(pack_ids([40]))], False),
        ([Role("assistant", "begin")], False),
        ([Role("assistant", "begin"), Text("So")], True),
        ([*turn("user", Text("So"))], False),
    ],
)
def test_only_text_that_somebody_wrote_may_be_drawn_anew(
    make_frontend: MakeFrontend, segments: Sequence[Segment], ends_as_text: bool
) -> None:
    assert make_frontend("chatml")[0].encode_to_generate(segments).ends_as_text is ends_as_text


@pytest.mark.parametrize("heal", [False, True])
def test_a_node_s_own_text_is_drawn_anew_if_it_is_to_be(make_frontend: MakeFrontend, heal: bool) -> None:
    worker = Worker(make_frontend("chatml")[0])
    sampling = SamplingParams(heal=heal)
    worker.submit(TreeNode(0, None, (Text("The ti"),), sampling))
    worker.submit(TreeNode(1, 0, (), sampling))
    worker.submit(TreeNode(2, 1, (Text(" so"),)))
    assert [node.heals for node in worker.released] == [heal, False, False]


def answer(worker: Worker, node: int, ids: list[int], text: str, healed: int) -> None:
    """Node `node` generates `ids`, of which the first stands for the last token of its prompt, too."""
    usage = Usage(1, 0, len(ids))
    worker._take(worker.program.receive(Tokens(0, node, 0, pack_ids(ids), text.encode())))
    worker._take(worker.program.receive(Finished(0, node, 0, "stop", usage, kept=len(ids), healed=healed)))


def ids_of(frontend: Frontend, *texts: str) -> list[int]:
    return [token for text in texts for token in frontend.tokenizer.encode(text).tolist()]


@pytest.mark.parametrize(("written", "first"), [("The", "The"), ("T", "Tell")])
def test_a_conversation_rendered_whole_has_what_was_generated_once(
    make_frontend: MakeFrontend, written: str, first: str
) -> None:
    """By its own ids where the token came back as it was, else by its text."""
    frontend, _ = make_frontend("qwen-3")
    assert not frontend.turns.prefix_stable
    assert [len(ids_of(frontend, text)) for text in (written, first)] == [1, 1]
    ids = ids_of(frontend, first, " me")
    said = (first + " me").removeprefix(written)
    worker = Worker(frontend)
    worker.submit(TreeNode(0, None, (*turn("user", Text("Why?")), Role("assistant", "begin"), Text(written)), HEAL))
    assert worker.released[0].heals
    answer(worker, 0, ids, said, healed=len(written))
    more = [Role("assistant", "end"), *turn("user", Text("And?")), Role("assistant", "begin")]
    worker.submit(TreeNode(1, 0, tuple(more), HEAL))
    text = frontend.tokenizer.decode(worker.contexts[1])
    assert text.count(written) == 1
    assert written + said in text


@pytest.mark.parametrize("context", [[], [Role("user", "begin")], [Text("It is "), Generated(pack_ids([40]))]])
def test_a_past_with_a_token_drawn_anew_has_the_tokens_that_the_worker_had(
    make_frontend: MakeFrontend, context: Sequence[Segment]
) -> None:
    frontend, _ = make_frontend("chatml")
    before = frontend.encode_prompt([*context, Text("The ti")]).tolist()
    generated = ids_of(frontend, "tide", " comes")
    past = [*context, Text("The ti"), Generated(pack_ids(generated), healed=2), Text("!")]
    assert frontend.encode_prompt(past).tolist() == [*before[:-1], *generated, *ids_of(frontend, "!")]


@pytest.mark.parametrize("before", [[], [Ids(pack_ids([40]))], [Fork()], [Text("a"), Generated(pack_ids([40]))]])
def test_a_token_drawn_anew_behind_no_text_is_refused(make_frontend: MakeFrontend, before: Sequence[Segment]) -> None:
    frontend, _ = make_frontend("chatml")
    with pytest.raises(InvalidRequest, match="no text stands before"):
        frontend.encode_prompt([*before, Generated(pack_ids([40]), healed=2)])
