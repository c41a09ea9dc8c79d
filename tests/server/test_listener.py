"""Taking the port, or saying why it cannot be had."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from radixrt.config import WorkerConfig
from radixrt.errors import InvalidRequest
from radixrt.server.listener import listen, url_of
from radixrt.server.settings import ServerSettings, check


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("localhost", ""), ("0.0.0.0", "127.0.0.1")])
def test_any_free_port_can_be_had_and_its_url_reaches_it(host: str, shown: str) -> None:
    with listen(host, 0) as listener:
        url = url_of(listener)
        port = listener.getsockname()[1]
        assert url.startswith(f"http://{shown}")
        assert url.endswith(f":{port}")
        address = url.removeprefix("http://").rpartition(":")[0].strip("[]")
        with socket.create_connection((address, port)):
            listener.accept()[0].close()


def test_a_port_is_had_by_one_only() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(InvalidRequest, match=f"port {port} of 127.0.0.1 is in use") as caught:
            listen("127.0.0.1", port)
    assert caught.value.field == "port"
    listen("127.0.0.1", port).close()


def test_a_port_without_the_rights_for_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:  # Root may have any port, so the system's refusal has to be played.

        def refuse(*_: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(InvalidRequest, match="takes rights") as caught:
        listen("127.0.0.1", 80)
    assert caught.value.field == "port"


@pytest.mark.parametrize(
    ("host", "port", "field"),
    [("127.0.0.1", 70000, "port"), ("127.0.0.1", -1, "port"), ("203.0.113.1", 0, "host"), ("a" * 70, 0, "host")],
)
def test_an_address_that_is_none_is_refused(host: str, port: int, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        listen(host, port)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"drain_seconds": -1.0}, "drain_seconds"),
        ({"drain_seconds": float("nan")}, "drain_seconds"),
        ({"served_model_name": ""}, "served_model_name"),
        ({"worker": WorkerConfig(page_size=12)}, "page_size"),
    ],
)
def test_an_option_out_of_range_is_named(options: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(ServerSettings(**({"worker": WorkerConfig()} | options)))  # type: ignore[arg-type]
    assert caught.value.field == field
