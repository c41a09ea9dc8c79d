"""Whether two schemas have no value in common, as far as that is easy to prove: then `oneOf` is `anyOf`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from radixrt.grammar.schema.errors import step
from radixrt.grammar.schema.load import Schema
from radixrt.grammar.schema.references import References
from radixrt.grammar.schema.satisfiable import types_of
from radixrt.grammar.schema.values import finite_values, identity, type_of

_DEEPEST = 12
_MOST_STEPS = 100_000
"""Comparisons for one schema: alternatives of alternatives multiply. Beyond, nothing counts as proven."""


@dataclass
class _Facts:
    """What holds for every value of a schema."""

    types: set[str]
    values: list[Any] | None = None
    required: set[str] = field(default_factory=set)
    members: dict[str, list[tuple[Schema, str]]] = field(default_factory=dict)
    closed_to: list[set[str]] = field(default_factory=list)
    """Sets of names besides which there are no others."""
    low: float = -math.inf
    high: float = math.inf


class Disjointness:
    def __init__(self, references: References) -> None:
        self._references = references
        self._steps = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether so much was compared that nothing is proven any more."""
        return self._steps > _MOST_STEPS

    def holds(self, one: Schema, one_path: str, other: Schema, other_path: str, depth: int = 0) -> bool:
        """True only if no value satisfies both."""
        self._steps += 1
        if self.is_exhausted:
            return False
        if one is False or other is False:
            return True
        if isinstance(one, bool) or isinstance(other, bool) or depth > _DEEPEST:
            return False
        for a, a_path, b, b_path in ((one, one_path, other, other_path), (other, other_path, one, one_path)):
            for keyword in ("anyOf", "oneOf"):
                options = list(enumerate(a.get(keyword, ())))
                if options and all(
                    self.holds(option, step(a_path, keyword, number), b, b_path, depth + 1)
                    for number, option in options
                ):
                    return True
            if "$ref" in a:
                target, inner = self._references.target(a["$ref"], a_path)
                if self.holds(inner, target, b, b_path, depth + 1):
                    return True
        return self._contradict(self._facts(one, one_path), self._facts(other, other_path), depth)

    def _contradict(self, one: _Facts, other: _Facts, depth: int) -> bool:
        common = one.types & other.types
        if not common:
            return True
        for a, b in ((one, other), (other, one)):
            if a.values is not None and not any(self._may_be(value, b) for value in a.values):
                return True
        if common <= {"integer", "number"}:
            return one.high < other.low or other.high < one.low
        if common == {"object"}:
            return self._members_contradict(one, other, depth) or self._members_contradict(other, one, depth)
        return False

    def _may_be(self, value: Any, facts: _Facts) -> bool:
        if facts.values is not None:
            return identity(value) in map(identity, facts.values)
        return type_of(value) in facts.types

    def _members_contradict(self, one: _Facts, other: _Facts, depth: int) -> bool:
        """Whether a member that `one` requires cannot be what both say it is."""
        for name in one.required:
            if any(name not in names for names in other.closed_to):
                return True
            if any(
                self.holds(*mine, *theirs, depth + 1)
                for mine in one.members.get(name, [(True, "")])
                for theirs in other.members.get(name, [])
            ):
                return True
        return False

    def _facts(self, schema: dict[str, Any], path: str) -> _Facts:
        facts = _Facts(types_of(schema), finite_values(schema, path, self._references))
        self._collect(schema, path, facts, 0)
        return facts

    def _collect(self, schema: Schema, path: str, facts: _Facts, hops: int) -> None:
        if isinstance(schema, bool) or hops > _DEEPEST:
            return
        facts.types &= types_of(schema)
        facts.required |= set(schema.get("required", ()))
        for name, inner in schema.get("properties", {}).items():
            facts.members.setdefault(name, []).append((inner, step(path, "properties", name)))
        if schema.get("additionalProperties") is False and "patternProperties" not in schema:
            facts.closed_to.append(set(schema.get("properties", {})))
        # Exclusive bounds may touch; that they then have nothing in common is not worth the care.
        facts.low = max(facts.low, schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
        facts.high = min(facts.high, schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
        for number, inner in enumerate(schema.get("allOf", ())):
            self._collect(inner, step(path, "allOf", number), facts, hops + 1)
        if "$ref" in schema:
            target, inner = self._references.target(schema["$ref"], path)
            self._collect(inner, target, facts, hops + 1)
