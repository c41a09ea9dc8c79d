"""Nodes as bodies of requests: docs/server.md has the fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from radixrt.protocol.constraint import Choice, Constraint, JsonObject, JsonSchema, Regex
from radixrt.protocol.options import Options
from radixrt.protocol.packing import unpack
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Chosen, Fork, Generated, Ids, Raw, Role, Segment, Text
from radixrt.protocol.terms import ProgramTerms

Body = dict[str, Any]


def prompt_body(context: Sequence[Segment], terms: ProgramTerms, generated: int, fingerprint: str | None) -> Body:
    """What every request of a program says: its prompt, and the program's terms after `generated` generations."""
    body: Body = {"segments": [_segment(segment) for segment in context], "priority": terms.priority}
    if terms.cache_salt is not None:
        body["cache_salt"] = terms.cache_salt
    if terms.steps is not None:
        body["steps"] = max(terms.steps - generated, 1)
    if fingerprint is not None:
        body["tokenizer"] = fingerprint
    return body


def generate_body(params: SamplingParams) -> Body:
    """Beside the prompt, for `/generate`."""
    sampling: Body = msgspec.to_builtins(params)
    sampling["max_tokens"] = params.max_tokens
    for name in ("constraint", "logprobs", "logprob_start_len", "return_text_in_logprobs"):
        sampling.pop(name, None)
    if params.constraint is not None:
        sampling |= _constraint(params.constraint)
    body: Body = {"sampling_params": sampling, "stream": True, "incremental": True}
    if params.logprobs is not None or params.logprob_start_len >= 0:
        # A server tells none of the prompt's log-probabilities without those of the output.
        body |= {
            "return_logprob": True,
            "top_logprobs_num": params.logprobs or 0,
            "logprob_start_len": params.logprob_start_len,
            "return_text_in_logprobs": params.return_text_in_logprobs,
        }
    return body


def select_body(options: Options) -> Body:
    """Beside the prompt, for `/score` with choices."""
    return {"choices": options.texts, "unconditional": options.unconditional}


def _segment(segment: Segment) -> Body:
    match segment:
        case Text(text=text):
            return {"text": text}
        case Raw(text=text):
            return {"raw": text}
        case Ids(ids=ids):
            return {"ids": unpack(ids).tolist()}
        case Role(role=role, edge=edge):
            return {"role": role, "edge": edge}
        case Fork():
            return {"fork": True}
        case Generated(ids=ids, healed=healed):
            return {"generated": unpack(ids).tolist()} | ({"healed": healed} if healed else {})
        case Chosen(options=options, chosen=chosen):
            return {"choices": options.texts, "chosen": chosen}


def _constraint(constraint: Constraint) -> Body:
    match constraint:
        case JsonSchema(schema=schema):
            return {"json_schema": schema}
        case JsonObject():
            return {"structured_outputs": {"json_object": True}}
        case Regex(pattern=pattern):
            return {"regex": pattern}
        case Choice(options=options):
            return {"choices": options}
