"""What a `gen` says under SGLang's names, over what the call of its program says."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import radixrt as rx
from radixrt.errors import InvalidConstraint, InvalidPattern, InvalidRequest
from radixrt.lang import ProgramState, function, gen, gen_int, gen_string
from radixrt.lang.options import given_options, sampling_params
from radixrt.protocol.constraint import Regex
from radixrt.protocol.sampling import SamplingParams
from tests.lang.scripted import Scripted


def params(given: dict[str, Any], **defaults: Any) -> SamplingParams:
    return sampling_params(given_options(given), given_options(defaults))


def test_parameters_stand_in_sglang_s_order() -> None:
    kinds = inspect.signature(gen).parameters.values()
    positional = [p.name for p in kinds if p.kind is p.POSITIONAL_OR_KEYWORD]
    theirs = (
        "name max_tokens min_tokens n stop stop_token_ids stop_regex temperature top_p top_k min_p frequency_penalty "
        "presence_penalty ignore_eos return_logprob logprob_start_len top_logprobs_num return_text_in_logprobs dtype "
        "choices choices_method regex json_schema"
    )
    assert positional == theirs.split()


@pytest.mark.parametrize("dtype", [int, "int"])
def test_a_number_s_own_ends_stand_beside_the_stops_of_the_gen_or_its_call(dtype: Any) -> None:
    stop = [";"]
    assert params({"dtype": dtype, "stop": stop}).stop == (";", " ", "\n")
    assert params({"dtype": dtype, "stop": "#"}, stop="|").stop == ("#", " ", "\n")
    assert params({"dtype": dtype}, stop="|").stop == ("|", " ", "\n")
    assert params({"dtype": dtype}).stop == (" ", "\n")
    assert stop == [";"]


@pytest.mark.parametrize(
    ("dtype", "right", "wrong"),
    [
        (int, ["0", "-12", "+7 \n"], ["", "1.5", "--1"]),
        (float, ["1", "-.5", "12.25 "], ["1.", ".", "1e5"]),
        (bool, ["True", "False"], ["true", ""]),
        (str, ['""', '"né 3"'], ["x", '"a"b"', '"a.b"']),
    ],
)
def test_a_dtype_is_a_pattern(dtype: type, right: list[str], wrong: list[str]) -> None:
    for given in (dtype, dtype.__name__):
        constraint = params({"dtype": given}).constraint
        assert isinstance(constraint, Regex)
        assert all(re.fullmatch(constraint.pattern, text) for text in right)
        assert not any(re.fullmatch(constraint.pattern, text) for text in wrong)


def test_gen_int_and_gen_string_are_gens_with_a_dtype() -> None:
    assert gen_int("age", 8, stop="\n", temperature=0) == gen("age", 8, stop="\n", temperature=0, dtype=int)
    assert gen_string("motto", n=2) == gen("motto", n=2, dtype="str")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"dtype": complex}, "dtype"),
        ({"dtype": "integer"}, "dtype"),
        ({"dtype": int, "regex": "a"}, "regex"),
        ({"dtype": int, "json_schema": {}}, "json_schema"),
        ({"return_logprob": 1}, "return_logprob"),
        ({"top_logprobs_num": 21, "return_logprob": True}, "top_logprobs_num"),
        ({"top_logprobs_num": "2"}, "top_logprobs_num"),
        ({"top_logprobs_num": True, "return_logprob": True}, "top_logprobs_num"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 1, "return_logprob": True}, "return_logprob"),
        ({"logprobs": 1, "top_logprobs_num": 1}, "top_logprobs_num"),
    ],
)
def test_what_is_wrong_in_itself_is_refused_where_it_is_written(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        gen("x", **options)
    assert caught.value.field == field


@pytest.mark.parametrize("pattern", ["([a-z", "*a", r"(a)\1", "(?=a)b", "a{3,1}", r"[\d-z]"])
def test_a_regex_that_cannot_be_followed_raises_re_error_where_it_is_written(pattern: str) -> None:
    for kind in (re.error, InvalidPattern, InvalidConstraint):
        with pytest.raises(kind) as caught:
            gen("x", regex=pattern)
        assert isinstance(caught.value, InvalidPattern)
        assert caught.value.field == "regex"
        assert str(caught.value).startswith("regex: ")
        assert caught.value.msg == caught.value.message


def test_log_probabilities_may_be_asked_for_in_two_halves() -> None:
    assert params({"return_logprob": True}).logprobs == 0
    assert params({"return_logprob": True, "top_logprobs_num": 3}).logprobs == 3
    assert params({"return_logprob": True}, top_logprobs_num=3).logprobs == 3
    assert params({"top_logprobs_num": 2}, return_logprob=True).logprobs == 2
    assert params({}, top_logprobs_num=3).logprobs is None
    assert params({"return_logprob": False}, logprobs=4).logprobs is None
    assert params({"logprobs": 1}, return_logprob=True, top_logprobs_num=3).logprobs == 1


def test_top_log_probabilities_without_log_probabilities_are_refused_where_they_are_appended(
    backend: Scripted,
) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += gen("x", top_logprobs_num=2)

    assert program.run(return_logprob=True)["x"] == "r0"
    with pytest.raises(InvalidRequest) as caught:
        program.run()
    assert caught.value.field == "top_logprobs_num"
    assert [node.sampling.logprobs for node in backend.nodes if node.sampling] == [2]


def test_a_choice_among_options_takes_no_notice_of_a_dtype() -> None:
    assert isinstance(gen("x", choices=["a"], dtype=int), type(rx.select("x", ["a"])))
