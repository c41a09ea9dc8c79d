"""API speculative execution: one call for a turn of several generations, where the API wrote it as the program does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import radixrt as rx
from tests.support.chat_server import Answer, ChatServer, in_turn, openai_events

WRITTEN = "Name: Ada\nJob: poet\nBorn: 1815"


@rx.function(num_api_spec_tokens=64)
def person(s: rx.ProgramState) -> None:
    s += rx.user("Who?")
    s += rx.assistant(
        "Name: "
        + rx.gen("name", stop="\n", max_tokens=8)
        + "\nJob: "
        + rx.gen("job", stop="\n")
        + "\nBorn: "
        + rx.gen("born", stop="\n")
    )


def says(*texts: str) -> Callable[[Any], Answer]:
    usage = {"prompt_tokens": 5, "completion_tokens": 20}
    return in_turn(*(Answer(openai_events([text], usage=usage)) for text in texts))


@pytest.fixture
def fresh(server: ChatServer) -> Iterator[rx.OpenAI]:
    """A server that begins each turn anew."""
    with rx.OpenAI("tiny", base_url=server.url + "/v1") as backend:
        yield backend


@pytest.fixture
def continuing(server: ChatServer) -> Iterator[rx.OpenAI]:
    """A server that continues turns."""
    with rx.OpenAI("tiny", base_url=server.url + "/v1", prefill="continue_final_message") as backend:
        yield backend


def test_one_call_serves_the_whole_turn_and_says_so(server: ChatServer, fresh: rx.OpenAI) -> None:
    server.respond = says(WRITTEN)
    s = person.run(backend=fresh)
    assert (s["name"], s["job"], s["born"]) == ("Ada", "poet", "1815")
    assert s.messages()[-1]["content"] == WRITTEN
    (body,) = server.bodies
    assert body["messages"] == [{"role": "user", "content": "Who?"}]
    assert body["max_tokens"] == 8 + 64
    assert "stop" not in body
    assert (fresh.tally.calls, fresh.tally.calls_saved) == (1, 2)
    name, job, born = (s.get_meta_info(each) for each in ("name", "job", "born"))
    assert "speculated" not in name  # type: ignore[operator]
    assert (name["completion_tokens"], name["matched_stop"]) == (20, "\n")  # type: ignore[index, call-overload]
    assert job["speculated"] is born["speculated"] is True  # type: ignore[index, call-overload]
    assert (job["completion_tokens"], job["matched_stop"]) == (0, "\n")  # type: ignore[index, call-overload]
    assert (born["finish_reason"], born["matched_stop"]) == ("stop", None)  # type: ignore[index, call-overload]


def test_without_it_a_generation_behind_text_of_its_turn_is_refused_with_a_hint(fresh: rx.OpenAI) -> None:
    @rx.function
    def program(s: rx.ProgramState) -> None:
        s += rx.assistant("Name: " + rx.gen("name"))

    with pytest.raises(rx.NotSupported, match="num_api_spec_tokens"):
        program.run(backend=fresh)


def test_a_server_that_continues_turns_is_asked_for_the_rest_of_one(server: ChatServer, continuing: rx.OpenAI) -> None:
    server.respond = says("Ada\nJob: poet\nBorn: 1815")
    s = person.run(backend=continuing)
    assert s.messages()[-1]["content"] == WRITTEN
    assert server.bodies[0]["messages"][-1] == {"role": "assistant", "content": "Name: "}
    assert (continuing.tally.calls, continuing.tally.calls_saved) == (1, 2)


def test_a_mismatch_takes_a_further_call_from_there(server: ChatServer, continuing: rx.OpenAI) -> None:
    server.respond = says("Ada\nShe was a poet.", "poet\nBorn: 1815")
    s = person.run(backend=continuing)
    assert s.messages()[-1]["content"] == WRITTEN
    assert server.bodies[1]["messages"][-1] == {"role": "assistant", "content": "Name: Ada\nJob: "}
    assert (continuing.tally.calls, continuing.tally.calls_saved) == (2, 1)


def test_what_was_cut_before_a_stop_takes_a_further_call(server: ChatServer, continuing: rx.OpenAI) -> None:
    long = Answer(openai_events(["Ada\nJob: po"], reason="length"))
    server.respond = in_turn(long, Answer(openai_events(["poet\nBorn: 1815"])))
    assert person.run(backend=continuing).messages()[-1]["content"] == WRITTEN
    assert continuing.tally.calls_saved == 1


def test_a_server_that_begins_anew_is_asked_again_until_it_writes_the_turn(
    server: ChatServer, fresh: rx.OpenAI
) -> None:
    server.respond = says("Sure! Name: Ada", "Name: Eve\nAge: 3", WRITTEN)
    s = person.run(backend=fresh)
    assert s.messages()[-1]["content"] == WRITTEN
    assert (fresh.tally.calls, fresh.tally.calls_saved, fresh.tally.completion_tokens) == (3, 2, 60)
    meta = s.get_meta_info("name")
    assert isinstance(meta, dict)
    assert meta["completion_tokens"] == 60


def test_of_several_tries_the_best_is_kept_and_the_rest_fails(server: ChatServer, fresh: rx.OpenAI) -> None:
    part = "Name: Ada\nJob: poet\nAge: 3"
    server.respond = says("Sure!", part, "Name: Eve", "Name: Eve\nJob: nun", "Sure!", "No.")
    s = person.run(backend=fresh)
    assert (s["name"], s["job"]) == ("Ada", "poet")
    with pytest.raises(rx.GenerationFailed, match=r"born: .*'Name: Ada\\nJob: poet\\nBorn: '.*'No\.'") as failed:
        s["born"]
    assert isinstance(failed.value.__cause__, rx.TurnNotFollowed)
    assert len(server.sent) == 6


def test_what_is_recorded_later_is_matched_all_the_same(server: ChatServer, fresh: rx.OpenAI) -> None:
    @rx.function(num_api_spec_tokens=64)
    def program(s: rx.ProgramState) -> None:
        with s.assistant():
            s += "Name: " + rx.gen("name", stop="\n")
            s += f"\n{'Job' if s['name'] == 'Ada' else 'Age'}: " + rx.gen("job", stop="\n")

    server.respond = says(WRITTEN)
    assert program.run(backend=fresh)["job"] == "poet"
    assert fresh.tally.calls_saved == 1


def test_branches_of_a_turn_are_each_matched(server: ChatServer, continuing: rx.OpenAI) -> None:
    @rx.function(num_api_spec_tokens=64)
    def program(s: rx.ProgramState) -> None:
        s += rx.user("Who?") + rx.assistant_begin() + "Name: " + rx.gen("name", stop="\n")
        forks = s.fork(2)
        forks += ["\nJob: " + rx.gen("x", stop="\n"), "\nPet: " + rx.gen("x", stop="\n")]
        forks.join()

    server.respond = says("Ada\nJob: poet\n", "a cat")
    s = program.run(backend=continuing)
    assert s["x"] == ["poet", "a cat"]
    assert (continuing.tally.calls, continuing.tally.calls_saved) == (2, 1)


def test_the_next_turn_is_a_call_of_its_own(server: ChatServer, fresh: rx.OpenAI) -> None:
    @rx.function(num_api_spec_tokens=64)
    def program(s: rx.ProgramState) -> None:
        s += rx.assistant(rx.gen("a", stop="\n")) + rx.user("And?") + rx.assistant(rx.gen("b", stop="\n"))

    server.respond = says("one\ntwo", "three\n")
    s = program.run(backend=fresh)
    assert (s["a"], s["b"]) == ("one", "three")
    assert server.bodies[1]["messages"][0] == {"role": "assistant", "content": "one"}


DIFFERENT: list[tuple[str, dict[str, Any]]] = [
    ("temperature", {"temperature": 0.5}),
    ("seed", {"seed": 3}),
    ("n", {"n": 2}),
    ("json", {"json_object": True}),
    ("logprobs", {"logprobs": 0}),
]


@pytest.mark.parametrize(("why", "options"), DIFFERENT)
def test_what_is_sampled_in_another_way_is_not_taken_from_there(
    server: ChatServer, continuing: rx.OpenAI, why: str, options: dict[str, Any]
) -> None:
    @rx.function(num_api_spec_tokens=64)
    def program(s: rx.ProgramState) -> None:
        s += rx.assistant("1" + rx.gen("a", stop="\n") + "\n2" + rx.gen("b", **options))

    server.respond = in_turn(
        Answer(openai_events(["one\n2two"])), Answer(openai_events([["2"], ["3"]] if why == "n" else ["2"]))
    )
    s = program.run(backend=continuing)
    assert (s["a"], s["b"]) == ("one", ["2", "3"] if why == "n" else "2")
    assert continuing.tally.calls_saved == 0


@pytest.mark.parametrize(
    ("options", "field"),
    [
        *(({"n": 2}, "n"), ({"json_object": True}, "constraint"), ({"logprobs": 1}, "logprobs")),
        ({"min_tokens": 2, "stop": "\n"}, "min_tokens"),
    ],
)
def test_what_cannot_be_written_with_its_turn_fails(server: ChatServer, options: dict[str, Any], field: str) -> None:
    @rx.function(num_api_spec_tokens=64)
    def program(s: rx.ProgramState) -> None:
        s += rx.assistant("1" + rx.gen("a", **options))

    with rx.OpenAI("tiny", base_url=server.url + "/v1", extra_options=["min_tokens"]) as fresh:
        error = program.run(backend=fresh).error()
    assert isinstance(error, rx.GenerationFailed)
    assert isinstance(error.__cause__, rx.NotSupported)
    assert error.field == field
    assert server.sent == []


def test_a_generation_without_a_stop_has_the_rest_of_its_turn(server: ChatServer, continuing: rx.OpenAI) -> None:
    @rx.function(num_api_spec_tokens=64)
    def program(s: rx.ProgramState) -> None:
        s += rx.assistant("1" + rx.gen("a", max_tokens=9))

    server.respond = says("one\n2two")
    assert program.run(backend=continuing)["a"] == "one\n2two"
    assert server.bodies[0]["max_tokens"] == 9


def test_plain_text_is_written_ahead_too(server: ChatServer) -> None:
    @rx.function(num_api_spec_tokens=64)
    def program(s: rx.ProgramState) -> None:
        s += "Q: Who?\nName:" + rx.gen("name", stop="\n") + "\nJob:" + rx.gen("job", stop="\n")

    server.respond = in_turn(Answer(openai_events([" Ada\nJob: po", "et\n"], route="completions")))
    with rx.OpenAI("tiny", base_url=server.url + "/v1", is_chat_model=False) as backend:
        s = program.run(backend=backend)
        assert s.text() == "Q: Who?\nName: Ada\nJob: poet"
        assert (backend.tally.calls, backend.tally.calls_saved) == (1, 1)


def test_streams_add_up_to_the_text(server: ChatServer, fresh: rx.OpenAI) -> None:
    server.respond = says(WRITTEN)
    s = person.run(backend=fresh, stream=True)
    assert "".join(s.text_iter()) == s.text()
    assert s.messages()[-1]["content"] == WRITTEN


def test_other_backends_pay_it_no_heed() -> None:
    with rx.Scripted({"name": "Ada", "job": "poet", "born": "1815"}) as model:
        s = person.run(backend=model)
    assert s.messages()[-1]["content"] == WRITTEN
    meta = s.get_meta_info("job")
    assert isinstance(meta, dict)
    assert "speculated" not in meta


@pytest.mark.parametrize("given", [0, -1, "8", 1.5])
def test_a_number_of_tokens_below_one_is_refused(given: Any) -> None:
    with pytest.raises(rx.InvalidRequest) as refused:

        @rx.function(num_api_spec_tokens=given)
        def program(s: rx.ProgramState) -> None: ...

    assert refused.value.field == "num_api_spec_tokens"


def test_a_trace_may_ask_for_what_a_run_may(fresh: rx.OpenAI, server: ChatServer) -> None:
    drawn = str(person.trace(backend=fresh))
    assert "gen born" in drawn
    assert drawn.endswith("complete")
    assert server.sent == []
