"""All eleven."""

from __future__ import annotations

from benchmarks.programs import (
    chat,
    few_shot_choice,
    few_shot_select,
    generative_agents,
    json_decoding,
    judge,
    react_agent,
    retrieval,
    skeleton_of_thought,
    tree_of_thought,
)

SHAPES = {
    shape.name: shape
    for shape in (
        few_shot_choice.SHAPE,
        few_shot_select.SHAPE,
        react_agent.SHAPE,
        generative_agents.SHAPE,
        tree_of_thought.SHAPE,
        skeleton_of_thought.SHAPE,
        judge.SHAPE,
        json_decoding.SHAPE,
        chat.SHORT,
        chat.LONG,
        retrieval.SHAPE,
    )
}
"""By name, in the order of the paper."""
