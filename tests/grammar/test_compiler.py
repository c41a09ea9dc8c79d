"""Compiling in threads: what is shared, cached, forgotten and refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, wait
from threading import Event

import pytest

from radixrt.errors import InternalError, InvalidConstraint, InvalidRequest
from radixrt.grammar.compiler import MOST_BYTES, GrammarCompiler
from radixrt.grammar.interface import Grammar
from radixrt.protocol.constraint import Choice, Constraint, JsonObject, JsonSchema, Regex
from radixrt.text.tokenizer import Tokenizer


@pytest.fixture
def compiler(letters: Tokenizer) -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(letters, capacity=3)
    yield compiler
    compiler.close()


def test_the_same_constraint_is_compiled_once(compiler: GrammarCompiler) -> None:
    futures = [compiler.submit(Regex("a{1,50}b*")) for _ in range(8)]
    wait(futures)
    assert len({id(future.result()) for future in futures}) == 1
    assert (compiler.misses, compiler.hits) == (1, 7)


def test_the_order_of_keys_is_meaning(compiler: GrammarCompiler) -> None:
    names = ['"a":{"type":"null"}', '"b":{"type":"null"}']
    texts = [f'{{"type":"object","properties":{{{",".join(order)}}}}}' for order in (names, names[::-1])]
    value = list(b'{"a":null,"b":null}')
    accepted = [compiler.compile(JsonSchema(text)).matcher().try_accept(value) == len(value) for text in texts]
    assert accepted == [True, False]


def test_errors_are_kept_too_and_nobody_shares_theirs(compiler: GrammarCompiler) -> None:
    first, second = compiler.submit(JsonSchema("false")), compiler.submit(JsonSchema("false"))
    wait([first, second])
    assert isinstance(first.exception(), InvalidConstraint)
    assert str(first.exception()) == str(second.exception())
    assert first.exception() is not second.exception()
    assert compiler.misses == 1


def test_the_least_recently_used_is_forgotten_but_not_taken_away(compiler: GrammarCompiler) -> None:
    kept = compiler.compile(Regex("a"))
    for pattern in "bcd":
        compiler.compile(Regex(pattern))
    assert compiler.misses == 4
    matcher = kept.matcher()
    matcher.accept(ord("a"))
    assert matcher.is_finished
    assert compiler.compile(Regex("a")) is not kept
    assert compiler.misses == 5
    compiler.compile(Regex("d"))
    assert compiler.misses == 5


def test_cancelling_disturbs_nobody_else(letters: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = GrammarCompiler(letters, threads=1)
    gate = Event()
    compile_now = compiler._compile

    def compile_later(constraint: Constraint) -> Grammar:
        gate.wait(20)
        return compile_now(constraint)

    monkeypatch.setattr(compiler, "_compile", compile_later)
    given_up, kept = compiler.submit(JsonObject()), compiler.submit(JsonObject())
    assert given_up.cancel()
    gate.set()
    assert kept.result(20).matcher().try_accept(list(b"{}")) == 2
    compiler.close()


def test_what_waits_when_the_compiler_closes_is_cancelled(letters: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = GrammarCompiler(letters, threads=1)
    gate, begun = Event(), Event()
    compile_now = compiler._compile

    def compile_later(constraint: Constraint) -> Grammar:
        begun.set()
        gate.wait(20)
        return compile_now(constraint)

    monkeypatch.setattr(compiler, "_compile", compile_later)
    running, waiting = compiler.submit(Regex("a")), compiler.submit(Regex("b"))
    begun.wait(20)
    waiting.add_done_callback(lambda _: gate.set())
    compiler.close()
    assert running.result(20).backend == "llguidance"
    assert waiting.cancelled()


def test_a_fault_of_ours_is_no_fault_of_the_constraint_and_is_not_kept(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_now = compiler._compile

    def fail(constraint: Constraint) -> Grammar:
        raise KeyError("lost")

    monkeypatch.setattr(compiler, "_compile", fail)
    with pytest.raises(InternalError, match="lost"):
        compiler.compile(JsonObject())
    monkeypatch.setattr(compiler, "_compile", compile_now)
    assert compiler.compile(JsonObject()).backend == "llguidance"


def test_a_huge_constraint_is_refused_unseen(compiler: GrammarCompiler) -> None:
    huge: list[Constraint] = [Regex("a" * (MOST_BYTES + 1)), Choice(("a" * MOST_BYTES, "b"))]
    for constraint in huge:
        with pytest.raises(InvalidConstraint, match=str(MOST_BYTES)):
            compiler.compile(constraint)
    assert compiler.misses == 0


def test_a_choice_of_nothing_is_refused(compiler: GrammarCompiler) -> None:
    with pytest.raises(InvalidConstraint, match="there are none"):
        compiler.compile(Choice(()))


def test_what_is_nested_too_deep_is_refused(compiler: GrammarCompiler) -> None:
    with pytest.raises(InvalidConstraint, match="nested too deep"):
        compiler.compile(Regex("(^|a)" * 3000))
    assert compiler.compile(Regex("a")).backend == "llguidance"


def test_many_distinct_constraints_leave_few_behind(compiler: GrammarCompiler) -> None:
    futures: list[Future[Grammar]] = [compiler.submit(JsonSchema(f'{{"const":{n}}}')) for n in range(200)]
    wait(futures)
    assert all(future.exception() is None for future in futures)
    assert len(compiler._cache) == 3


def test_an_unknown_backend_is_named(letters: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="nonesuch") as error:
        GrammarCompiler(letters, "nonesuch")
    assert error.value.field == "grammar_backend"
