from __future__ import annotations

from pathlib import Path

from tests.support.base_install import printed_on_the_base_install
from tests.support.chat_server import Answer, ChatServer, anthropic_events

PROGRAM = """
import radixrt as rx

@rx.function(num_api_spec_tokens=8)
def program(s):
    s += rx.user("Hello") + rx.assistant(rx.gen("hi", stop="!"))

with rx.Scripted({"hi": "Hi"}) as model:
    print(program.run(backend=model)["hi"])
with rx.OpenAI("tiny", base_url=URL + "/v1") as openai:
    print(program.run(backend=openai)["hi"])
with rx.Anthropic("tiny", base_url=URL, api_key="k") as anthropic:
    print(program.run(backend=anthropic)["hi"])
try:
    rx.LiteLLM("acme/model")
except rx.NotSupported as error:
    print("litellm" in str(error))
"""


def test_chat_apis_and_scripts_need_no_extra(server: ChatServer, tmp_path: Path) -> None:
    openai = server.respond
    server.respond = lambda sent: (
        openai(sent) if sent.path.endswith("completions") else Answer(anthropic_events(["So!"]))
    )
    assert printed_on_the_base_install(f"URL = {server.url!r}\n{PROGRAM}", tmp_path) == "Hi\nHi\nSo\nTrue\n"
