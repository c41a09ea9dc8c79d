"""How a `select` decides: methods that turn the options' log-probabilities into a choice.

A method is any callable that takes keyword arguments as `ChoicesSamplingMethod.__call__` does, and returns something
with a `decision` and a `meta_info`; SGLang's own methods are such callables too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from radixrt.errors import InvalidRequest

TokenEntry: TypeAlias = tuple[float | None, int, str | None]
"""A token's log-probability (None: nothing stands before it), its id, and no text (SGLang's third place)."""


@dataclass
class ChoicesDecision:
    """What a method decided."""

    decision: str
    """One of the options."""
    meta_info: dict[str, Any] | None = None
    """What `get_meta_info` is to tell, beside or in place of what it tells of every select."""


class Decides(Protocol):
    """What a select asks of a method."""

    def __call__(
        self,
        *,
        choices: list[str],
        normalized_prompt_logprobs: list[float],
        input_token_logprobs: list[list[TokenEntry]],
        output_token_logprobs: list[list[TokenEntry]],
        unconditional_token_logprobs: list[list[TokenEntry]] | None = None,
    ) -> Any: ...


class ChoicesSamplingMethod(ABC):
    """Base for methods: `choices_method=MyMethod()`."""

    @property
    def requires_unconditional_logprobs(self) -> bool:
        """Whether the options are also to be scored as texts of their own, without the prompt."""
        return False

    @abstractmethod
    def __call__(
        self,
        *,
        choices: list[str],
        normalized_prompt_logprobs: list[float],
        input_token_logprobs: list[list[TokenEntry]],
        output_token_logprobs: list[list[TokenEntry]],
        unconditional_token_logprobs: list[list[TokenEntry]] | None = None,
    ) -> ChoicesDecision:
        """Decide. Called on the event loop's thread, so it must not wait for anything.

        Args:
            choices: the options, each once.
            normalized_prompt_logprobs: of each option, the mean log-probability of its tokens.
            input_token_logprobs: of each option, its tokens after the longest common prefix of all options.
            output_token_logprobs: empty lists: nothing is generated.
            unconditional_token_logprobs: the same tokens without the prompt; None unless the method requires them.
        """


class TokenLengthNormalized(ChoicesSamplingMethod):
    """The highest mean log-probability a token, which favours a long option whose tail is predictable."""

    def __call__(
        self,
        *,
        choices: list[str],
        normalized_prompt_logprobs: list[float],
        input_token_logprobs: list[list[TokenEntry]],
        output_token_logprobs: list[list[TokenEntry]],
        unconditional_token_logprobs: list[list[TokenEntry]] | None = None,
    ) -> ChoicesDecision:
        return ChoicesDecision(choices[_first_best(normalized_prompt_logprobs)])


class GreedyTokenSelection(ChoicesSamplingMethod):
    """Token by token, the options with the likeliest next token remain, as in greedy decoding among them.

    Where an option has ended, its mean log-probability stands for its further tokens. Adds `greedy_logprob_matrix`: one
    row an option, one column a token.
    """

    def __call__(
        self,
        *,
        choices: list[str],
        normalized_prompt_logprobs: list[float],
        input_token_logprobs: list[list[TokenEntry]],
        output_token_logprobs: list[list[TokenEntry]],
        unconditional_token_logprobs: list[list[TokenEntry]] | None = None,
    ) -> ChoicesDecision:
        options = [_values(entries) for entries in input_token_logprobs]
        longest = max(map(len, options))
        matrix = [[*values, *[mean(values)] * (longest - len(values))] for values in options]
        remaining = list(range(len(choices)))
        for column in range(longest):
            best = max(matrix[row][column] for row in remaining)
            remaining = [row for row in remaining if matrix[row][column] == best]
        return ChoicesDecision(choices[remaining[0]], {"greedy_logprob_matrix": matrix})


class UnconditionalLikelihoodNormalized(ChoicesSamplingMethod):
    """The highest mean gain of log-probability that the prompt brings (Brown et al. 2020, section 2.4).

    Not biased towards options that are likely by themselves. A first token that nothing stands before counts as
    certain (the BOS does where the tokenizer writes one before every text). Adds
    `normalized_unconditional_prompt_logprobs`, the gains.
    """

    @property
    def requires_unconditional_logprobs(self) -> bool:
        return True

    def __call__(
        self,
        *,
        choices: list[str],
        normalized_prompt_logprobs: list[float],
        input_token_logprobs: list[list[TokenEntry]],
        output_token_logprobs: list[list[TokenEntry]],
        unconditional_token_logprobs: list[list[TokenEntry]] | None = None,
    ) -> ChoicesDecision:
        if unconditional_token_logprobs is None:
            raise ValueError("this method needs unconditional_token_logprobs")
        gains = [
            mean([given - alone for given, alone in zip(_values(inside), _values(bare), strict=True)])
            for inside, bare in zip(input_token_logprobs, unconditional_token_logprobs, strict=True)
        ]
        return ChoicesDecision(choices[_first_best(gains)], {"normalized_unconditional_prompt_logprobs": gains})


token_length_normalized = TokenLengthNormalized()
greedy_token_selection = GreedyTokenSelection()
unconditional_likelihood_normalized = UnconditionalLikelihoodNormalized()

CHOICES_METHODS: Mapping[str, ChoicesSamplingMethod] = {
    "token_length_normalized": token_length_normalized,
    "greedy_token_selection": greedy_token_selection,
    "unconditional_likelihood_normalized": unconditional_likelihood_normalized,
}
"""By name."""


def choices_method(given: Decides | str | None) -> Decides:
    """The method given by name or as an object; None: `token_length_normalized`.

    Raises `InvalidRequest` that names `choices_method` for an unknown name and for what cannot be called.
    """
    if given is None:
        return token_length_normalized
    if isinstance(given, str):
        if given not in CHOICES_METHODS:
            known = ", ".join(CHOICES_METHODS)
            raise InvalidRequest(f"choices_method is {given!r}; known are: {known}", field="choices_method")
        return CHOICES_METHODS[given]
    if not callable(given) or isinstance(given, type):
        raise InvalidRequest(
            f"choices_method is {given!r}; it must be a name or an object like token_length_normalized",
            field="choices_method",
        )
    return given


def method_name(method: Decides) -> str:
    """The name under which a method is reported: ours by their names, others by their function's or class's."""
    ours = next((name for name, known in CHOICES_METHODS.items() if known is method), None)
    return ours or getattr(method, "__name__", None) or type(method).__name__


def requires_unconditional(method: Decides) -> bool:
    """Whether the method wants the options scored without the prompt too."""
    return bool(getattr(method, "requires_unconditional_logprobs", False))


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)


def _values(entries: Sequence[TokenEntry]) -> list[float]:
    return [entry[0] or 0.0 for entry in entries]


def _first_best(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)
