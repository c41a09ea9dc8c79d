"""The methods by which a select decides, on log-probabilities that are given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from radixrt.errors import InvalidRequest
from radixrt.lang.choices import (
    CHOICES_METHODS,
    ChoicesDecision,
    Decides,
    TokenEntry,
    choices_method,
    greedy_token_selection,
    mean,
    method_name,
    requires_unconditional,
    token_length_normalized,
    unconditional_likelihood_normalized,
)

Values = Sequence[float | None]


def entries(values: Values) -> list[TokenEntry]:
    return [(value, index, None) for index, value in enumerate(values)]


def decide(method: Decides, options: dict[str, Values], alone: Sequence[Values] | None = None) -> ChoicesDecision:
    decision: ChoicesDecision = method(
        choices=list(options),
        normalized_prompt_logprobs=[mean([value or 0.0 for value in values]) for values in options.values()],
        input_token_logprobs=[entries(values) for values in options.values()],
        output_token_logprobs=[[] for _ in options],
        unconditional_token_logprobs=None if alone is None else [entries(values) for values in alone],
    )
    return decision


def test_the_mean_decides_by_default() -> None:
    """D04: a long option with a predictable tail wins by its mean, though it is less likely as a whole."""
    options: dict[str, Values] = {"cold": [-1.0], "internationalisation": [-3.0, -0.1, -0.1, -0.1]}
    assert decide(token_length_normalized, options).decision == "internationalisation"
    assert decide(greedy_token_selection, options).decision == "cold"


def test_of_equal_options_the_first_is_chosen() -> None:
    options: dict[str, Values] = {"a": [-1.0, -2.0], "b": [-2.0, -1.0], "c": [-1.5]}
    assert decide(token_length_normalized, options).decision == "a"
    same: dict[str, Values] = {"x": [-1.0], "y": [-1.0]}
    for name in ("greedy_token_selection", "token_length_normalized"):
        assert decide(CHOICES_METHODS[name], same).decision == "x"
    assert decide(unconditional_likelihood_normalized, same, [[None], [None]]).decision == "x"


def test_greedy_goes_on_with_the_options_of_the_likeliest_token() -> None:
    options: dict[str, Values] = {"ab": [-0.5, -3.0], "ac": [-0.5, -2.0], "b": [-1.0, -0.1]}
    decision = decide(greedy_token_selection, options)
    assert decision.decision == "ac"
    assert decision.meta_info == {"greedy_logprob_matrix": [[-0.5, -3.0], [-0.5, -2.0], [-1.0, -0.1]]}


@pytest.mark.parametrize(("tail", "chosen"), [(-0.2, "into"), (-2.0, "in")])
def test_greedy_lets_an_options_mean_stand_where_it_has_ended(tail: float, chosen: str) -> None:
    """D06: one option is the beginning of the other, and each can win."""
    decision = decide(greedy_token_selection, {"in": [-0.5], "into": [-0.5, tail]})
    assert decision.decision == chosen
    assert decision.meta_info == {"greedy_logprob_matrix": [[-0.5, -0.5], [-0.5, tail]]}


def test_the_gain_over_the_unconditional_likelihood_decides() -> None:
    options: dict[str, Values] = {"common": [-1.0, -1.0], "rare": [-2.0, -2.0]}
    decision = decide(unconditional_likelihood_normalized, options, [[-1.0, -1.5], [-8.0, -4.0]])
    assert decision.decision == "rare"
    assert decision.meta_info == {"normalized_unconditional_prompt_logprobs": [0.25, 4.0]}


def test_a_first_token_with_nothing_before_it_counts_as_certain() -> None:
    decision = decide(unconditional_likelihood_normalized, {"a": [-1.0, -1.0], "b": [-3.0]}, [[None, -2.0], [None]])
    assert decision.meta_info == {"normalized_unconditional_prompt_logprobs": [0.0, -3.0]}


def test_the_unconditional_method_needs_unconditional_scores() -> None:
    with pytest.raises(ValueError, match="unconditional_token_logprobs"):
        decide(unconditional_likelihood_normalized, {"a": [-1.0]})


def test_an_impossible_token_is_no_accident() -> None:
    options: dict[str, Values] = {"never": [-math.inf, -0.1], "perhaps": [-20.0]}
    for name in ("token_length_normalized", "greedy_token_selection"):
        assert decide(CHOICES_METHODS[name], options).decision == "perhaps"


def test_methods_are_known_by_name_and_report_it() -> None:
    for name, method in CHOICES_METHODS.items():
        assert choices_method(name) is choices_method(method) is method
        assert method_name(method) == name
    assert choices_method(None) is token_length_normalized
    assert [requires_unconditional(method) for method in CHOICES_METHODS.values()] == [False, False, True]


def test_a_users_method_is_reported_by_its_own_name() -> None:
    def longest(**given: Any) -> ChoicesDecision:
        return ChoicesDecision(max(given["choices"], key=len))

    class Shortest:
        def __call__(self, **given: Any) -> ChoicesDecision:
            return ChoicesDecision(min(given["choices"], key=len))

    assert method_name(choices_method(longest)) == "longest"
    assert method_name(choices_method(Shortest())) == "Shortest"
    assert not requires_unconditional(longest)


@pytest.mark.parametrize("wrong", ["best", "", 3, object(), type(token_length_normalized)])
def test_what_is_no_method_is_refused_by_name(wrong: Any) -> None:
    """D04: when the program is built, not when it runs."""
    with pytest.raises(InvalidRequest) as caught:
        choices_method(wrong)
    assert caught.value.field == "choices_method"
