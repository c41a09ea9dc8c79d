"""What the backends on chat APIs have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal

from radixrt.client.backend import Capabilities
from radixrt.client.chat_apis.api import ChatApi
from radixrt.client.chat_apis.session import ChatSession
from radixrt.client.chat_apis.tally import Tally
from radixrt.client.loop import shared_loop
from radixrt.errors import InvalidRequest
from radixrt.protocol.events import TextEvent
from radixrt.protocol.terms import NO_TERMS, ProgramTerms, check


class ApiBackend:
    """A `client.backend.Backend` on an API. `shutdown`, or leaving `with`, closes its connections."""

    def __init__(self, name: str, capabilities: Capabilities, api: ChatApi) -> None:
        """`name`: what messages call it."""
        self.name = name
        self.capabilities = capabilities
        self.tally = Tally()
        """What programs have cost."""
        self._api = api

    def __enter__(self) -> ApiBackend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Close the connections; a program that runs later opens new ones."""
        shared_loop().run(self._api.close())

    def open_program(self, on_event: Callable[[TextEvent], None], terms: ProgramTerms = NO_TERMS) -> ChatSession:
        """Open a program; see `client.backend.Backend`. No API takes terms. Called on the event loop's thread."""
        check(terms)
        return ChatSession(self.name, self._api, self.tally, on_event)

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        """What a state's text has around a turn: "USER:" and a line's end. What the model sees is the API's to say."""
        return f"{role.upper()}:" if edge == "begin" else "\n"


def required_key(api_key: str | None, given: str | None, variable: str) -> str:
    """The API's key: `api_key`, else `given` by the environment. Raises `InvalidRequest` if there is none."""
    key = api_key or given
    if not key:
        raise InvalidRequest(f"api_key is missing: give it, or set {variable}", field="api_key")
    return key
