"""What `docs/coming-from-sglang.md` says is different from SGLang: tests of it, and the names of those elsewhere."""

from __future__ import annotations

import inspect
import re
import threading
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from radixrt.client.runtime import Runtime
from radixrt.lang import ProgramState, assistant, function, gen, user
from radixrt.protocol.segments import Text
from tests.import_rules import ROOT
from tests.lang.scripted import Reply, Scripted

SHOWN_ELSEWHERE = {
    "test_streaming": [
        "test_a_slow_reader_loses_nothing",
        "test_a_late_reader_gets_all_as_one_piece",
        "test_what_the_body_raises_is_raised_by_those_who_read",
    ],
    "test_programs": [
        "test_a_statement_after_an_error_raises_at_once",
        "test_several_choices_are_a_list_and_the_text_goes_on_with_the_first",
        "test_arguments_and_options_of_a_call_come_before_bound_ones",
        "test_a_program_called_inside_another_runs_on_the_caller_s_backend",
        "test_without_a_backend_the_error_says_what_to_do",
        "test_nothing_is_added_after_the_end",
        "test_meta_info_counts_tokens_and_says_why_it_ended",
    ],
    "test_forks": [
        "test_a_join_of_an_unknown_mode_or_a_second_time_is_refused",
        "test_concatenation_appends_text_and_generated_ids_and_gathers_nothing",
        "test_a_gather_keeps_what_the_parent_set_and_replaces_what_a_join_put_there",
        "test_a_list_that_a_branch_only_inherited_is_not_gathered",
        "test_after_an_assignment_a_joined_name_is_the_parent_s",
        "test_a_failed_branch_is_named_by_its_readers_and_by_the_join",
        "test_a_copy_is_isolated_and_gathers_lists_of_one",
        "test_a_branch_keeps_its_meta_info",
        "test_the_refusal_of_a_string_names_the_two_ways_that_work",
        "test_a_group_takes_expressions_lists_and_callables",
    ],
    "test_expressions": ["test_a_caller_s_lists_and_dicts_are_copied"],
    "test_options": [
        "test_parameters_stand_in_sglang_s_order",
        "test_a_number_s_own_ends_stand_beside_the_stops_of_the_gen_or_its_call",
        "test_a_regex_that_cannot_be_followed_raises_re_error_where_it_is_written",
    ],
    "test_selects": [
        "test_gen_with_choices_is_a_select",
        "test_a_wrong_select_is_refused_where_it_is_written",
        "test_a_select_without_choices_fails_as_an_assertion_too",
        "test_options_keep_their_white_space_and_equal_ones_are_one",
    ],
    "test_typed": ["test_the_variable_is_an_instance_and_the_text_stays_text"],
    "test_demands": ["test_what_a_backend_cannot_do_is_refused_where_it_is_appended"],
    "test_markup": ["test_markup_in_a_constant_is_text_and_said_once"],
    "test_backends": [
        "test_a_backend_without_a_cache_of_its_own_says_so",
        "test_the_cache_of_the_default_backend_or_of_the_one_given_is_flushed",
    ],
    "test_tracing": [
        "test_marked_arguments_stand_in_texts_by_their_names",
        "test_a_batch_computes_what_its_runs_share_before_any_of_them",
    ],
    "test_reasoning": [
        "test_text_and_context_keep_what_was_generated",
        "test_a_stream_of_the_variable_is_the_answer",
    ],
    "../client/test_engine": [
        "test_a_reply_is_a_dictionary_of_sglangs_form",
        "test_programs_run_on_an_engine_until_it_is_shut_down",
    ],
    "../client/chat_apis/test_unserved": ["test_what_is_not_served_says_so_and_what_to_use"],
    "../client/chat_apis/test_speculation": [
        "test_one_call_serves_the_whole_turn_and_says_so",
        "test_branches_of_a_turn_are_each_matched",
        "test_streams_add_up_to_the_text",
    ],
}


@pytest.mark.parametrize("module", SHOWN_ELSEWHERE)
def test_the_tests_that_show_the_other_differences_are_there(module: str) -> None:
    source = (Path(__file__).parent / f"{module}.py").read_text()
    assert [name for name in SHOWN_ELSEWHERE[module] if f"def {name}(" not in source] == []


def test_the_runtime_has_the_options_that_the_page_names() -> None:
    page = (ROOT / "docs" / "coming-from-sglang.md").read_text()
    rows = [line.split("|")[1:3] for line in page.splitlines() if re.match(r"  \| `", line)]
    assert len(rows) == 7
    named = {
        name for theirs, ours in rows for name in re.findall(r"`(\w+)[=`]", theirs if ours == " the same " else ours)
    }
    assert "kv_memory" in named
    assert named - set(inspect.signature(Runtime).parameters) == set()


def test_a_batch_calls_the_function_once_an_item_and_leaves_the_items_alone(backend: Scripted) -> None:
    """There, a batch traces the function first, and a run puts bound arguments into the caller's dict."""
    calls: list[str] = []

    @function
    def program(s: ProgramState, dish: str, cook: str = "Mo") -> None:
        calls.append(dish)
        s += dish + cook + gen("x")

    items: list[dict[str, Any]] = [{"dish": "soup"}, {"dish": "pie"}]
    stop = ["."]
    before = deepcopy(items)
    states = program.bind(cook="Ines").run_batch(items, stop=stop)
    assert [state.text() for state in states] == ["soupInesr0", "pieInesr0"]
    assert sorted(calls) == ["pie", "soup"]
    assert (items, stop) == (before, ["."])


def test_bind_keeps_what_the_decorator_was_told(backend: Scripted) -> None:
    @function(steps=3, num_api_spec_tokens=64)
    def program(s: ProgramState, name: str) -> None:
        s += name + gen("x")

    program.bind(name="x").run()
    origin = backend.nodes[0].origin
    assert origin is not None
    assert (backend.terms[0].steps, origin.num_api_spec_tokens) == (3, 64)


def test_gens_without_a_name_are_no_variable_and_keep_their_texts_apart(backend: Scripted) -> None:
    """There, they share the key None."""

    @function
    def program(s: ProgramState) -> Any:
        s += gen() + "," + gen() + "," + gen("x")
        return None in s  # type: ignore[operator]

    state = program.run()
    assert state.text() == "r0,r1,r2"
    assert state.ret_value is False
    assert state["x"] == "r2"


def test_messages_strip_the_white_space_that_a_turn_begins_with_and_nothing_else_does(backend: Scripted) -> None:
    backend.script = lambda prompt, node: "  two \n"

    @function
    def program(s: ProgramState) -> None:
        s += user("\n one ") + assistant(gen("x")) + user(" three" + gen("y"))

    state = program.run()
    assert [message["content"] for message in state.messages()] == ["one ", "two \n", "three  two \n"]
    assert state["x"] == "  two \n"
    assert "[user]\n one [/user]\n[assistant]  two \n[/assistant]" in state.text()
    assert Text("\n one ") in backend.nodes[0].segments


def test_run_returns_when_all_is_generated() -> None:
    """There, when the function has ended."""
    answered = threading.Event()
    backend = Scripted(lambda prompt, node: Reply(["done"], until=answered))

    @function
    def program(s: ProgramState) -> None:
        s += gen("x")
        threading.Timer(0.1, answered.set).start()

    state = program.run(backend=backend, timeout=10)
    assert answered.is_set()
    assert all(generation.complete for generation in state.branch.generations())


def test_a_fork_does_not_wait_for_what_stands_before_it() -> None:
    """There, `fork` waits until all before it is generated."""
    asked = threading.Event()
    backend = Scripted(lambda prompt, node: Reply(["done"], until=asked))

    @function
    def program(s: ProgramState) -> Any:
        s += gen("before")
        forks = s.fork(2)
        forks += gen("x")
        asked.set()
        forks.join()
        return s["x"]

    assert program.run(backend=backend, timeout=10).ret_value == ["done", "done"]


def test_the_caller_s_error_is_raised_where_it_happens_and_text_never_hangs(backend: Scripted) -> None:
    """There, what cannot be appended fails in another thread, and `text()` may wait for ever after it."""

    @function
    def program(s: ProgramState) -> None:
        s += "one"
        with pytest.raises(ValueError, match="takes strings and expressions"):
            s += 7  # type: ignore[arg-type]
        s += "two"

    assert program.run(timeout=10).text() == "onetwo"
