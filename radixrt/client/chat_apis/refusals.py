"""What HTTP statuses and error bodies of chat APIs mean as radixrt's errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from radixrt.errors import (
    ApiUnavailable,
    InvalidRequest,
    ModelNotFound,
    NotAuthorized,
    PromptTooLong,
    RadixError,
)

_UNAUTHORIZED = (401, 403)
_TRY_AGAIN = (408, 409, 425, 429)
_SHOWN = 500
"""Characters of a body that is no JSON."""


def worth_a_retry(status: int) -> bool:
    """Whether the same request may succeed a little later."""
    return status in _TRY_AGAIN or status >= 500


def error_of(api: str, status: int, body: bytes) -> RadixError:
    """The error for a reply that is none, in the form of OpenAI, of Anthropic, or of a server that has its own."""
    given = _error_object(body)
    message = f"{api} answered {status}: {given.get('message') or body.decode(errors='replace')[:_SHOWN]}"
    if status in _UNAUTHORIZED:
        return NotAuthorized(message, field="api_key")
    if worth_a_retry(status):
        return ApiUnavailable(message)
    if given.get("code") == "context_length_exceeded":
        return PromptTooLong(message, field=_field(given))
    if given.get("code") == "model_not_found" or given.get("type") == "not_found_error":
        return ModelNotFound(message, field="model")
    return InvalidRequest(message, field=_field(given))


def error_in_stream(api: str, given: Mapping[str, Any]) -> RadixError:
    """The error for one that came after the reply had begun."""
    message = f"{api} broke its reply off: {given.get('message') or dict(given)}"
    if given.get("type") == "invalid_request_error":
        return InvalidRequest(message, field=_field(given))
    return ApiUnavailable(message)


def _error_object(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    if not isinstance(parsed, dict):
        return {}
    error = parsed.get("error", parsed)
    if isinstance(error, dict):
        return error
    return {"message": error} if isinstance(error, str) else parsed


def _field(given: Mapping[str, Any]) -> str | None:
    field = given.get("param")
    return field if isinstance(field, str) else None
