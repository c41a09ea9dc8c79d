from __future__ import annotations

import time

import pytest

from radixrt.errors import GenerationFailed, InvalidRequest, JoinFailed, PromptTooLong
from radixrt.lang import ProgramState, function, gen, user
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.segments import Ids, Role, Text
from tests.lang.scripted import Reply, Scripted, ids_of


@pytest.mark.usefixtures("unhurried")
def test_siblings_arrive_together_below_one_fork_point(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "shared "
        forks = s.fork(5)
        for i, f in enumerate(forks):
            f += f"own {i}" + gen("x") + gen("y")
        forks.join()

    program.run()
    (batch,) = backend.submitted
    point, *nodes = batch
    assert (point.segments, point.sampling) == ((Text("shared "),), None)
    assert [node.segments for node in nodes[::2]] == [(Text(f"own {i}"),) for i in range(5)]
    assert {node.parent for node in nodes[::2]} == {point.id}
    assert [node.parent for node in nodes[1::2]] == [node.id for node in nodes[::2]]


def test_the_parent_goes_on_from_the_fork_point(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a"
        forks = s.fork(1)
        forks[0] += "b" + gen("x")
        s += "c" + gen("y")

    program.run()
    assert sorted(backend.prompts.values()) == ["ab", "ac"]
    assert backend.nodes[1].parent == backend.nodes[2].parent == backend.nodes[0].id


@pytest.mark.parametrize("size", [1, 3])
def test_fork_as_the_first_statement(backend: Scripted, size: int) -> None:
    """D08."""

    @function
    def program(s: ProgramState) -> list[str]:
        forks = s.fork(size)
        for i, f in enumerate(forks):
            f += ""
            f += f"branch {i}:" + gen("x")
        forks.join()
        return [f.text() for f in forks]

    s = program.run()
    assert [node.parent for node in backend.nodes] == [None] * size
    assert s["x"] == [f"r{i}" for i in range(size)]
    assert s.ret_value == [f"branch {i}:r{i}" for i in range(size)]


def test_results_are_in_branch_order_whatever_the_order_of_finishing(backend: Scripted) -> None:
    """D08."""
    backend.script = lambda prompt, node: Reply([prompt], delay=0.02 * (3 - int(prompt)))

    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(3)
        forks += lambda i: str(i) + gen("x")
        forks.join()

    assert program.run()["x"] == ["0", "1", "2"]


def test_forks_of_forks_do_not_see_each_other(backend: Scripted) -> None:
    """D08."""

    @function
    def program(s: ProgramState) -> list[str]:
        s["shared"] = ["root"]
        texts = []
        outer = s.fork(2)
        for i, f in enumerate(outer):
            f += f"{i}"
            f["mine"] = i
            f["shared"].append(i)
            inner = f.fork(2)
            for j, g in enumerate(inner):
                g += f".{j}" + gen("leaf")
                assert (g["mine"], g["shared"]) == (i, ["root", i])
                g["inner only"] = j
            texts += [g.text() for g in inner]
            inner.join()
            assert f["leaf"] == [text[3:] for text in texts[-2:]]
        assert "inner only" in outer[0]
        assert "mine" not in s
        outer.join()
        return texts

    s = program.run()
    assert [text[:3] for text in s.ret_value] == ["0.0", "0.1", "1.0", "1.1"]
    assert s["shared"] == ["root"]
    assert s["mine"] == [0, 1]
    assert s["inner only"] == [[0, 1], [0, 1]]
    assert [len(leaves) for leaves in s["leaf"]] == [2, 2]


@pytest.mark.parametrize("size", [0, -1, 1.5, "2"])
def test_a_fork_of_no_branches_is_a_value_error(backend: Scripted, size: int) -> None:
    """D08."""

    @function
    def program(s: ProgramState) -> None:
        s.fork(size)

    with pytest.raises(ValueError, match="at least 1"):
        program.run()


def test_branches_that_add_nothing_join(backend: Scripted) -> None:
    """D08."""

    @function
    def program(s: ProgramState) -> None:
        s += "a"
        s.fork(2).join()
        s.fork(2).join("concate_and_append")
        s += gen("x")

    assert program.run().text() == "ar1"


def test_a_gather_keeps_what_the_parent_set_and_replaces_what_a_join_put_there(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        s["kept"] = "parent's"
        s += gen("said")
        s["inherited"] = []
        for round_ in range(2):
            forks = s.fork(3)
            for i, f in enumerate(forks):
                f["kept"] = "branch's"
                f += gen("said")
                f["gathered"] = (round_, i)
                if i != 1:
                    f["some"] = i
            forks.join()
        s["gathered"].append("own")  # the list is the parent's now

    s = program.run()
    assert s["kept"] == "parent's"
    assert s["said"] == "r0"
    assert s["gathered"] == [(1, 0), (1, 1), (1, 2), "own"]
    assert s["some"] == [0, 2]
    assert s["inherited"] == []


def test_a_list_that_a_branch_only_inherited_is_not_gathered(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        first = s.fork(2)
        first += gen("x")
        first.join()
        second = s.fork(2)
        second += gen("y")
        second.join()

    s = program.run()
    assert s["x"] == ["r0", "r1"]
    assert s["y"] == ["r2", "r3"]


def test_after_an_assignment_a_joined_name_is_the_parent_s(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        for value in ("a", "b"):
            forks = s.fork(1)
            forks[0]["x"] = value
            forks.join()
            s["x"] = s["x"] + ["assigned"]

    assert program.run()["x"] == ["a", "assigned", "assigned"]


def test_concatenation_appends_text_and_generated_ids_and_gathers_nothing(backend: Scripted) -> None:
    backend.script = lambda prompt, node: Reply([f"r{node.id}"], hidden_tokens=1)

    @function
    def program(s: ProgramState) -> bool:
        s += "head "
        forks = s.fork(2)
        for i, f in enumerate(forks):
            f += f"[{i}]" + gen("x") + "."
        forks.join("concate_and_append")
        s += "tail" + gen("y")
        return "x" in s

    s = program.run()
    assert s.text() == "head [0]r1.[1]r2.tailr3"
    assert s.ret_value is False
    last = backend.nodes[-1]
    assert backend.prompts[last.id] == "head [0]r1.[1]r2.tail"
    assert last.segments == (
        Text("[0]"),
        Ids(ids_of("r1")),
        Text(".[1]"),
        Ids(ids_of("r2")),
        Text(".tail"),
    )


def test_concatenation_inside_a_branch_that_is_concatenated_keeps_ids_and_turns(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        outer = s.fork(1)
        outer[0] += user("hello")
        inner = outer[0].fork(2)
        inner += gen("x")
        inner.join("concate_and_append")
        outer.join("concate_and_append")
        s += gen("y")

    s = program.run()
    assert s.messages() == [{"role": "user", "content": "hello"}]
    ids = [text.encode() and Ids(ids_of(text)) for text in s.text().split("\n")[-1].partition("r2")[1:2]]
    assert backend.nodes[-1].segments[-1] == ids[0]
    assert backend.nodes[-1].segments[:3] == (Role("user", "begin"), Text("hello"), Role("user", "end"))


def test_a_join_of_an_unknown_mode_or_a_second_time_is_refused(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(2)
        with pytest.raises(ValueError, match="gather_variable"):
            forks.join("sideways")  # type: ignore[arg-type]
        forks.join()
        with pytest.raises(InvalidRequest, match="joined already"):
            forks.join()
        with pytest.raises(InvalidRequest, match="has been joined"):
            forks[0] += "more"

    program.run()


def fail_branch_1(prompt: str, node: TreeNode) -> Reply | str:
    return Reply([], error=PromptTooLong("900 tokens, 512 fit")) if "branch 1" in prompt else "fine"


def test_a_failed_branch_is_named_by_its_readers_and_by_the_join(backend: Scripted) -> None:
    """D09."""
    backend.script = fail_branch_1

    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(3)
        for i, f in enumerate(forks):
            f += f"branch {i}" + gen("x")
        with pytest.raises(GenerationFailed, match=r"program, fork 1 of 3, x: 900 tokens") as read:
            forks[1]["x"]
        assert isinstance(read.value.__cause__, PromptTooLong)
        assert forks[0]["x"] == forks[2]["x"] == "fine"
        with pytest.raises(JoinFailed, match="fork 1 of 3") as join:
            forks.join()
        (failure,) = join.value.exceptions
        assert isinstance(failure, GenerationFailed)
        assert (failure.branch, type(failure.__cause__)) == ("fork 1 of 3", PromptTooLong)
        assert "x" not in s
        s += gen("still running")

    started = time.monotonic()
    assert program.run()["still running"] == "fine"
    assert time.monotonic() - started < 5


def test_a_failure_ends_all_below_it_and_names_where_it_was(backend: Scripted) -> None:
    backend.script = fail_branch_1

    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(2)
        for i, f in enumerate(forks):
            f += f"branch {i}" + gen("x")
            inner = f.fork(2)
            inner += "." + gen("y")
            f.branch.assign("inner", inner)
        assert forks[0]["inner"][1]["y"] == "fine"
        with pytest.raises(GenerationFailed, match="fork 1 of 2, x: 900"):
            forks[1]["inner"][0]["y"]

    program.run()


def test_a_group_takes_expressions_lists_and_callables(backend: Scripted) -> None:
    backend.script = lambda prompt, node: f"<{prompt[-1]}>"

    @function
    def program(s: ProgramState) -> list[str]:
        forks = s.fork(2)
        forks += lambda i: f"{i}"
        forks += gen("x")
        forks += ["a", "b" + gen("y")]
        forks += ("c", "d")
        forks[0] += "!"
        for refused in ("text", 7, ["too short"]):
            with pytest.raises(ValueError, match="branches take"):
                forks += refused  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="not replaced"):
            forks[0] = forks[1]
        assert (len(forks), [f.text() for f in forks[0:1]]) == (2, ["0<0>ac!"])
        return [f.text() for f in forks]

    assert program.run().ret_value == ["0<0>ac!", "1<1>b<b>d"]


def test_the_refusal_of_a_string_names_the_two_ways_that_work(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += "text"  # type: ignore[arg-type]

    with pytest.raises(ValueError, match=r"for f in forks: f \+= text.*lambda i: text"):
        program.run()


def test_a_copy_is_isolated_and_gathers_lists_of_one(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> str:
        s += "a" + gen("x")
        s["list"] = [1]
        with s.copy() as t:
            t += "b" + gen("secret")
            t["list"].append(2)
            assert t["list"] == [1, 2]
            seen = t.text()
        s += "c"
        return seen

    s = program.run()
    assert (s.text(), s.ret_value) == ("ar0c", "ar0br1")
    assert (s["secret"], s["list"]) == (["r1"], [1])


def test_a_branch_keeps_its_meta_info(backend: Scripted) -> None:
    @function
    def program(s: ProgramState) -> list[int]:
        s += gen("before")
        forks = s.fork(2)
        for i, f in enumerate(forks):
            f += "x" * i + gen("x")
        forks.join()
        assert forks[1].get_meta_info("before") == s.get_meta_info("before")
        return [f.get_meta_info("x")["prompt_tokens"] for f in forks]  # type: ignore[call-overload, index]

    assert program.run().ret_value == [2, 3]
