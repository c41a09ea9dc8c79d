"""The model for users' own tests: what it replies, what it refuses, and what it keeps."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import pytest

import radixrt as rx
from radixrt import errors
from radixrt.client.loop import shared_loop
from radixrt.protocol.events import Failed, TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Text

ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, errors.RadixError)
    and kind not in (errors.RadixError, errors.GenerationFailed, errors.JoinFailed)
]
"""All that a single generation can fail with."""


@rx.function
def trip(s: rx.ProgramState, country: str) -> None:
    s += rx.user(f"The capital of {country}?")
    s += rx.assistant(rx.gen("answer", stop="\n"))
    forks = s.fork(2)
    forks += lambda i: f"Town {i}: " + rx.gen("town")
    forks.join()
    s += rx.select("mood", ["glad", "sad"])


def test_replies_stand_under_names_and_lists_are_dealt_out_in_the_order_of_recording() -> None:
    with rx.Scripted({"answer": "Paris", "town": ["Lyon", "Nice"], "mood": "sad"}) as model:
        for _ in range(2):
            s = trip.run("France", backend=model)
            assert (s["answer"], s["town"], s["mood"]) == ("Paris", ["Lyon", "Nice"], "sad")
    assert s.text().endswith("[user]The capital of France?[/user]\n[assistant]Paris[/assistant]\nsad")


def test_what_was_asked_is_kept() -> None:
    model = rx.Scripted({"answer": "Paris", "town": "Lyon", "mood": {"glad": -1, "sad": -2}})
    trip.run("France", temperature=0, backend=model)
    answer, first, second, mood = model.requests
    assert (answer.run, answer.program, answer.branch, answer.name) == (0, "trip", (), "answer")
    assert answer.prompt == "[user]The capital of France?[/user]\n[assistant]"
    assert answer.messages == [{"role": "user", "content": "The capital of France?"}]
    assert answer.sampling == SamplingParams(temperature=0, stop=("\n",))
    assert [request.branch for request in (first, second)] == [(0,), (1,)]
    assert second.prompt.endswith("[assistant]Paris[/assistant]\nTown 1: ")
    assert second.messages[-1] == {"role": "assistant", "content": "Paris"}
    assert (mood.sampling, mood.choices) == (None, ("glad", "sad"))


@pytest.mark.parametrize(
    ("replies", "texts"),
    [
        ("x", ["x", "x", "x"]),
        (["a", "b", "c"], ["a", "b", "c"]),
        ({None: ["a", "b"], "last": "c"}, ["a", "b", "c"]),
        (lambda request: f"<{request.prompt}>", ["<1>", "<1<1>2>", "<1<1>2<1<1>2>3>"]),
        ({None: ["a", lambda request: request.prompt[0]], "last": rx.Reply(["c", "d"], behind="3")}, ["a", "1", "cd"]),
    ],
)
def test_a_script_is_a_tree_a_list_or_a_callable(replies: Any, texts: list[str]) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += "1" + rx.gen() + "2" + rx.gen() + "3" + rx.gen("last")

    with rx.Scripted(replies) as model:
        assert program.run(backend=model).text() == "1{}2{}3{}".format(*texts)


def test_a_branch_has_its_own_replies_before_those_outside() -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        outer = s.fork(2)
        for f in outer:
            f += rx.gen("x")
            inner = f.fork(2)
            inner += rx.gen("y")
            inner.join()
        outer.join()

    tree = {"x": "outside", "y": "anywhere", 1: {"x": "one", 0: {"y": "one, zero"}}}
    with rx.Scripted(tree) as model:
        s = program.run(backend=model)
    assert s["x"] == ["outside", "one"]
    assert s["y"] == [["anywhere", "anywhere"], ["one, zero", "anywhere"]]


def test_choices_of_one_gen_are_a_tuple() -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.gen("x", n=2) + "|" + rx.gen("y")

    s = program.run(backend=rx.Scripted({"x": ("a", "b"), "y": "c"}))
    assert (s["x"], s.text()) == (["a", "b"], "a|c")


def run_one(expression: Any, replies: Any) -> tuple[rx.ProgramState, rx.Scripted]:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        for f in s.fork(1):
            f += "Say: " + expression

    model = rx.Scripted(replies)
    return program.run(backend=model), model


SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
MISFITS = [
    (rx.gen("x"), {"y": "a"}, r"no reply for 'x'; it has: \['y'\]"),
    (rx.gen(), {"y": "a"}, "what has no name"),
    (rx.gen("x") + rx.gen("x"), {"x": ["a"]}, r"\['x'\] has 1 replies"),
    (rx.gen("x", stop=["!", "?"]), "Why? Me.", r"stop string '\?'"),
    (rx.gen("x", stop_regex="[.!]"), "Why! Me", "has '!', which a stop_regex"),
    (rx.gen("x", regex="[0-9]+"), "12a", r"regex '\[0-9\]\+'"),
    (rx.gen("x", json_object=True), "[1]", "no JSON object"),
    (rx.gen("x", json_schema=SCHEMA), "{'age': 1}", "no JSON"),
    (rx.gen("x", json_schema=SCHEMA), '{"age": "old"}', r"\$\.age: 'old' is not of type 'integer'"),
    (rx.gen("x", n=3), ("a", "b"), "n=3, and the script 2"),
    (rx.gen("x"), {"x": {"a": 1.0}}, "scores of options"),
    (rx.gen("x"), rx.Reply("a", behind="Sing: "), "ends with 'Sing: '"),
    (rx.gen("x"), lambda request: request.nothing, "raised AttributeError"),
    (rx.select("x", ["a", "b"]), "c", "none of the options"),
    (rx.select("x", ["a", "b"]), {"x": {"a": -1.0}}, "scores for"),
    (rx.select("x", ["ab"]), {"x": {"ab": [-1.0]}}, "1 scores for the 2 characters"),
    (rx.select("x", ["a", "b"]), ("a", "b"), "several texts"),
]


@pytest.mark.parametrize(("expression", "replies", "problem"), MISFITS)
def test_what_no_model_could_have_replied_fails_the_node_and_the_check(
    expression: Any, replies: Any, problem: str
) -> None:
    s, model = run_one(expression, replies)
    failure = s.tree().nodes()[0].branches[0].nodes()[-1].generation.failure  # type: ignore[attr-defined]
    with pytest.raises(rx.ScriptMismatch, match=problem):
        raise failure.cause
    with pytest.raises(AssertionError, match=f"^program, branch 0, (x|unnamed gen): .*{problem}"):
        model.check()


def test_a_reply_that_was_cut_need_not_satisfy_its_constraint() -> None:
    _, model = run_one(rx.gen("x", regex="[0-9]{4}"), rx.Reply("12", reason="length"))
    model.check()


def test_what_no_run_asks_for_is_told_at_the_end() -> None:
    _, model = run_one(rx.gen("x"), {"x": ["a", "b"], 0: {"y": "c"}, "z": "d"})
    with pytest.raises(rx.ScriptMismatch) as caught:
        model.check()
    told = "['x'][1] was never asked for; ['z'] was never asked for; [0]['y'] was never asked for"
    assert str(caught.value) == told


def test_leaving_with_checks_unless_an_error_is_on_its_way() -> None:
    with pytest.raises(rx.ScriptMismatch, match="the script was never asked for"), rx.Scripted("never"):
        pass
    with pytest.raises(ZeroDivisionError), rx.Scripted("never"):
        raise ZeroDivisionError


@pytest.mark.parametrize("replies", [{"x": 3}, [None], {1: "a"}, {("x",): "a"}, {"x": {"a": "b"}}, {"x": ["a", ["b"]]}])
def test_what_is_no_reply_is_refused_at_once(replies: Any) -> None:
    with pytest.raises(rx.InvalidRequest) as refused:
        rx.Scripted(replies)
    assert refused.value.field == "replies"


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_what_the_generation_fails_with(kind: type[rx.RadixError]) -> None:
    model = rx.Scripted({"x": kind("no", field="somewhere")})
    with pytest.raises(rx.GenerationFailed) as failed:
        rx.function(lambda s: s.gen("x").get()).run(backend=model)
    assert type(failed.value.__cause__) is kind
    assert failed.value.field == "somewhere"


def test_failures_come_on_demand_and_siblings_stay_readable() -> None:
    @rx.function
    def program(s: rx.ProgramState) -> rx.ForkGroup:
        forks = s.fork(3)
        forks += "a" + rx.gen("x") + "b" + rx.gen("y")
        return forks

    too_long = rx.PromptTooLong("9 tokens, 8 fit", field="prompt")
    broken = rx.Reply("half", error=rx.WorkerUnavailable("it died"))
    with rx.Scripted({"x": "fine", "y": "too", 1: {"x": too_long}, 2: {"y": broken}}) as model:
        forks = program.run(backend=model).ret_value
        assert forks[0]["y"] == "too"
        with pytest.raises(rx.GenerationFailed) as failed:
            forks[1]["y"]
        assert isinstance(failed.value.__cause__, rx.PromptTooLong)
        assert failed.value.field == "prompt"
        assert forks[2]["x"] == "fine"
        with pytest.raises(rx.GenerationFailed, match="it died"):
            forks[2]["y"]


def test_pieces_are_streamed_as_they_come() -> None:
    go = threading.Event()

    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += "1" + rx.gen("x") + "2" + rx.gen("y")

    model = rx.Scripted({"x": rx.Reply(["a", "b"], delay=0.001), "y": rx.Reply("c", until=go)})
    s = program.run(backend=model, stream=True)
    pieces = []
    for piece in s.text_iter():
        pieces.append(piece)
        if "".join(pieces) == "1ab2":
            go.set()
    assert "".join(pieces) == s.text() == "1ab2c"
    assert go.is_set()  # the premise: the first text was read before the second came


def test_log_probabilities_are_those_of_a_certain_text() -> None:
    s, _ = run_one(rx.gen("x", logprobs=1), "no")
    branch = s.tree().nodes()[0].branches[0]  # type: ignore[attr-defined]
    meta = branch.last_generation("x").meta_info(branch.last_generation("x").choices[0])
    assert meta["output_token_logprobs"] == [(0.0, ord("n"), None), (0.0, ord("o"), None)]
    assert meta["output_top_logprobs"] == [[(0.0, ord("n"), None)], [(0.0, ord("o"), None)]]


@pytest.mark.parametrize(
    "method", ["token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized"]
)
@pytest.mark.parametrize("option", ["in", "into", "of"])
def test_every_method_decides_for_the_option_that_the_script_names(method: str, option: str) -> None:
    s, _ = run_one(rx.select("x", ["in", "into", "of"], choices_method=method), option)
    assert s.tree().nodes()[0].branches[0].nodes()[-1].generation.value() == option  # type: ignore[attr-defined]


def open_sessions(model: rx.Scripted, count: int) -> tuple[list[Any], list[TextEvent]]:
    events: list[TextEvent] = []
    return [model.open_program(events.append) for _ in range(count)], events


async def until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def test_an_abort_ends_a_node_and_all_below_it_and_nothing_else() -> None:
    never = threading.Event()
    model = rx.Scripted(lambda request: rx.Reply("x", until=never))

    async def abort() -> tuple[list[TextEvent], list[TextEvent]]:
        (session,), events = open_sessions(model, 1)
        params = SamplingParams()
        session.submit([TreeNode(0, None, (), sampling=params), TreeNode(1, 0, (), sampling=params)])
        session.submit([TreeNode(2, None, (), sampling=params)])
        await until(lambda: len(model.requests) == 2)
        session.abort(0)
        await until(lambda: len(events) == 2)
        of_first = list(events)
        session.abort()
        await until(lambda: len(events) == 3)
        never.set()
        await asyncio.sleep(0.01)
        session.close()
        return of_first, events

    of_first, events = shared_loop().run(abort())
    assert [event.node for event in of_first] == [0, 1]
    assert [event.node for event in events] == [0, 1, 2]
    assert all(isinstance(event, Failed) and event.kind == "Aborted" for event in events)


def test_nothing_comes_of_a_session_that_was_closed() -> None:
    async def close() -> list[TextEvent]:
        (session,), events = open_sessions(rx.Scripted(rx.Reply(["a", "b"], delay=0.05)), 1)
        session.submit([TreeNode(0, None, (), sampling=SamplingParams())])
        await until(lambda: events)
        session.close()
        await asyncio.sleep(0.1)
        return events

    assert len(shared_loop().run(close())) == 1


def test_scores_of_prompts_are_no_part_of_a_script() -> None:
    async def score() -> list[TextEvent]:
        (session,), events = open_sessions(rx.Scripted("x"), 1)
        session.submit([TreeNode(0, None, (Text("a"),), score=0)])
        await until(lambda: events)
        return events

    (event,) = shared_loop().run(score())
    assert isinstance(event, Failed)
    assert (event.kind, event.field) == ("InvalidRequest", "score")


def test_without_jsonschema_a_reply_need_only_be_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    schema = {**SCHEMA, "title": "seen by no other test"}
    _, model = run_one(rx.gen("x", json_schema=schema), '{"age": "old"}')
    model.check()
    _, model = run_one(rx.gen("x", json_schema=schema), "{age}")
    with pytest.raises(rx.ScriptMismatch, match="no JSON"):
        model.check()
