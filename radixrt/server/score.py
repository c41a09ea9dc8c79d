"""`/score`: how likely the model finds given text."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from radixrt.client.prompt_scoring import score_prompt
from radixrt.client.results import OptionScores, PromptScores, TokenScores
from radixrt.client.scoring import score_options
from radixrt.errors import InvalidRequest
from radixrt.protocol.events import Usage
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.segments import Ids
from radixrt.server.body import read_body
from radixrt.server.calls import encode
from radixrt.server.documentation import json_body
from radixrt.server.errors import naming
from radixrt.server.fields import terms
from radixrt.server.parts import Parts
from radixrt.server.prompts import PromptFields, check_tokenizer, given_prompts, is_batch
from radixrt.server.replies import json_reply
from radixrt.server.sse import while_connected


class ScoreRequest(PromptFields, kw_only=True):
    choices: list[str] | None = None
    """Options to score behind the prompt; without them the prompt's own tokens are scored."""
    unconditional: bool | None = None
    """Whether each option is also scored as a text of its own."""
    start: int | None = None
    """Without choices: the first token of the prompt to score; by default its first."""


def routes(parts: Parts) -> APIRouter:
    router = APIRouter()

    @router.post("/score", openapi_extra=json_body(ScoreRequest))
    async def score(request: Request) -> Response:
        """Log-probabilities of a prompt's own tokens, or of each of several options behind it."""
        body = await read_body(request, ScoreRequest)
        frontend = parts.frontend
        opened = partial(parts.supervisor.open, terms=terms(body, body.steps))
        name, given = given_prompts(body)
        check_tokenizer(body, frontend.tokenizer)
        if is_batch(body):
            raise InvalidRequest(f"{name} is a list of prompts; one is scored at a time", field=name)
        with naming({"prompt": name, "role": name, "messages": name}):
            if body.choices is None:
                if body.unconditional:
                    raise InvalidRequest("unconditional is true, but no choices are given", field="unconditional")
                (prompt,) = await encode(frontend, given[0])
                scoring = score_prompt(opened, frontend, [Ids(pack_ids(prompt.ids))], body.start or 0)
                told = _prompt_reply(await while_connected(request.receive, scoring))
                return json_reply(told | {"tokenizer": frontend.tokenizer.fingerprint})
            if body.start:
                raise InvalidRequest(
                    "start is given with choices, which are scored from their first token", field="start"
                )
            choosing = score_options(opened, given[0], body.choices, unpack_ids, unconditional=bool(body.unconditional))
            told = _options_reply(await while_connected(request.receive, choosing))
            return json_reply(told | {"tokenizer": frontend.tokenizer.fingerprint})

    return router


def _prompt_reply(scores: PromptScores) -> dict[str, Any]:
    return {**_tokens(scores.tokens), "start": scores.start, "usage": _usage(scores.usage)}


def _options_reply(scores: OptionScores) -> dict[str, Any]:
    options = []
    for option in scores.options:
        shown = {"text": option.text, **_tokens(option.tokens)}
        if option.unconditional is not None:
            shown["unconditional"] = _tokens(option.unconditional)
        options.append(shown)
    return {
        "options": options,
        "best": scores.options.index(scores.best),
        "prefix_tokens": scores.prefix_tokens,
        "usage": _usage(scores.usage),
    }


def _tokens(scores: TokenScores) -> dict[str, Any]:
    return {
        "ids": scores.ids.tolist(),
        "logprobs": list(scores.logprobs),
        "total": scores.total,
        "mean": scores.mean,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
