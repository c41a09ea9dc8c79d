"""The worker process from outside: its socket, its life line and its ends."""

from __future__ import annotations

import os
import pickle
import random
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from radixrt.client.worker_process import WorkerProcess
from radixrt.config import WorkerConfig
from radixrt.protocol.ids import pack_ids
from radixrt.protocol.messages import (
    PROTOCOL_VERSION,
    ClientMessage,
    CloseProgram,
    Events,
    GetStats,
    Hello,
    Refused,
    Stats,
    SubmitTree,
    TreeNode,
    Welcome,
    WorkerMessage,
)
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Ids
from radixrt.protocol.start import StartOrder, write_order
from tests.client.conftest import StartWorker
from tests.support.processes import is_running, wait_until
from tests.support.scripted_worker import SPOIL

ANSWER_SECONDS = 10


class Peer:
    """A plain DEALER socket: it may send what no client of ours would."""

    def __init__(self, address: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(address)

    def send(self, message: ClientMessage) -> None:
        self.socket.send(msgspec.msgpack.encode(message))

    def receive(self) -> WorkerMessage:
        assert self.socket.poll(ANSWER_SECONDS * 1000), "no answer"
        return msgspec.msgpack.decode(self.socket.recv(), type=WorkerMessage)

    def ask(self, message: ClientMessage) -> WorkerMessage:
        self.send(message)
        return self.receive()

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture
def worker(start_worker: StartWorker) -> WorkerProcess:
    return start_worker()


@pytest.fixture
def peer(worker: WorkerProcess) -> Iterator[Peer]:
    peer = Peer(worker.address)
    yield peer
    peer.close()


def socket_path(worker: WorkerProcess) -> Path:
    return Path(worker.address.removeprefix("ipc://"))


def echo(program: int, ids: list[int], max_tokens: int = 3) -> SubmitTree:
    node = TreeNode(0, None, (Ids(pack_ids(ids)),), SamplingParams(max_tokens=max_tokens))
    return SubmitTree(program, (node,))


def test_hello_is_answered_when_the_model_is_loaded(peer: Peer) -> None:
    welcome = peer.ask(Hello())
    assert isinstance(welcome, Welcome)
    assert welcome.model == "scripted"


def test_a_tree_comes_back_as_events(peer: Peer) -> None:
    peer.ask(Hello())
    peer.send(echo(7, [65, 66, 67]))
    events = []
    while not events or type(events[-1]).__name__ != "Finished":
        message = peer.receive()
        assert isinstance(message, Events)
        events += message.events
    assert [event.text for event in events[:-1]] == [b"A", b"B", b"C"]
    assert all(event.program == 7 for event in events)


def test_a_worker_whose_cache_contradicts_itself_ends_when_it_idles(
    worker: WorkerProcess, peer: Peer, capfd: pytest.CaptureFixture[str]
) -> None:
    peer.ask(Hello())
    peer.send(echo(1, [SPOIL, 65]))
    assert worker._process.wait(ANSWER_SECONDS) == 1
    assert "BrokenInvariant: spoilt by order" in capfd.readouterr().err


def test_only_the_user_may_enter_the_socket_directory(worker: WorkerProcess, peer: Peer) -> None:
    peer.ask(Hello())
    directory = socket_path(worker).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_ISSOCK(socket_path(worker).stat().st_mode)
    assert directory.parent == Path(tempfile.gettempdir())


def test_another_protocol_version_is_refused_and_the_worker_lives(peer: Peer) -> None:
    refused = peer.ask(Hello(version=PROTOCOL_VERSION + 1))
    assert isinstance(refused, Refused)
    assert f"protocol version {PROTOCOL_VERSION + 1}" in refused.message
    assert isinstance(peer.ask(Hello()), Welcome)


def test_what_comes_before_hello_is_dropped(peer: Peer) -> None:
    peer.send(GetStats())
    peer.send(echo(1, [65]))
    assert isinstance(peer.ask(Hello()), Welcome)
    stats = peer.ask(GetStats())
    assert isinstance(stats, Stats)
    assert stats.dropped_frames == 2
    assert stats.tokens_computed == 0


class Exploit:
    """Its pickle removes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.remove, (str(self.path),)


def test_bad_frames_are_counted_and_dropped_and_the_worker_lives(peer: Peer, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.touch()
    rng = random.Random(0)
    submit = msgspec.msgpack.encode(echo(1, [65]))
    frames = [
        pickle.dumps(Exploit(victim)),
        b"",
        *(rng.randbytes(rng.randrange(1, 200)) for _ in range(300)),
        *(submit[:length] for length in range(len(submit))),
        submit + b"\x00",
        b"\x91" * 100_000,  # arrays in arrays
        b"\xdd\xff\xff\xff\xff",  # an array that claims 4 Gi elements
        msgspec.msgpack.encode({"type": "no such message"}),
        msgspec.msgpack.encode({"type": "submit", "program": "one", "nodes": []}),
        msgspec.msgpack.encode({"type": "submit", "program": 2**63, "nodes": 1}),
        b"\x82\xa4type\xa5abort\xa7program\xc1",
        b"\x81\xa4type\xa4\xff\xfe\xfd\xfc",  # a tag that is not UTF-8
    ]
    assert isinstance(peer.ask(Hello()), Welcome)
    for frame in frames:
        peer.socket.send(frame)
    peer.socket.send_multipart([submit, submit])
    stats = peer.ask(GetStats())
    assert isinstance(stats, Stats)
    assert stats.dropped_frames == len(frames) + 1
    assert stats.tokens_computed == 0
    assert victim.exists()


def test_a_huge_frame_ends_its_own_connection_only(worker: WorkerProcess, peer: Peer) -> None:
    assert isinstance(peer.ask(Hello()), Welcome)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(ANSWER_SECONDS)
        raw.connect(str(socket_path(worker)))
        # ZMTP 3.0 by hand (rfc.zeromq.org/spec/23): greeting, READY, then a frame that claims 1 GiB.
        raw.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31))
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        raw.sendall(b"\x04" + bytes([len(ready)]) + ready)
        answered = b""
        while b"ROUTER" not in answered:
            answered += raw.recv(1024)
        raw.sendall(b"\x02" + struct.pack(">Q", 2**30) + bytes(1024))
        while piece := _received(raw):
            answered += piece
    assert isinstance(peer.ask(GetStats()), Stats)


def _received(raw: socket.socket) -> bytes:
    """What the peer sent; nothing when it has hung up."""
    try:
        return raw.recv(1024)
    except ConnectionResetError:
        return b""


def test_bytes_that_are_no_zmq_do_no_harm(worker: WorkerProcess, peer: Peer) -> None:
    assert isinstance(peer.ask(Hello()), Welcome)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(socket_path(worker)))
        raw.sendall(random.Random(0).randbytes(4096))
    assert isinstance(peer.ask(GetStats()), Stats)


def test_the_programs_of_a_client_that_has_gone_are_dropped(worker: WorkerProcess, peer: Peer) -> None:
    leaver = Peer(worker.address)
    leaver.ask(Hello())
    leaver.send(echo(1, [65], max_tokens=10**6))
    assert isinstance(leaver.receive(), Events)
    peer.ask(Hello())
    assert peer.ask(GetStats()).running == 1
    leaver.close()
    wait_until(lambda: peer.ask(GetStats()).running == 0, ANSWER_SECONDS)


def test_events_of_one_client_never_reach_another(worker: WorkerProcess, peer: Peer) -> None:
    other = Peer(worker.address)
    try:
        for one in (peer, other):
            one.ask(Hello())
        other.send(echo(1, [65], max_tokens=50))
        other.send(CloseProgram(2))
        peer.send(echo(1, [66], max_tokens=50))
        for one, byte in ((peer, b"B"), (other, b"A")):
            events = []
            while len(events) < 51:
                events += one.receive().events
            assert {event.text for event in events[:-1]} == {byte}
    finally:
        other.close()


@pytest.mark.parametrize("model", ["scripted", "slow"])
def test_a_worker_ends_at_once_when_its_life_line_closes(start_worker: StartWorker, model: str) -> None:
    worker = start_worker(model)
    wait_until(socket_path(worker).exists, ANSWER_SECONDS)
    assert is_running(worker.pid)
    worker._life_line.close()
    assert wait_until(lambda: not is_running(worker.pid), 2) < 2
    assert not socket_path(worker).parent.exists()


def test_sigterm_ends_a_worker_cleanly(worker: WorkerProcess, peer: Peer) -> None:
    peer.ask(Hello())
    os.kill(worker.pid, signal.SIGTERM)
    assert worker._process.wait(ANSWER_SECONDS) == 0
    assert not socket_path(worker).parent.exists()


def test_ctrl_c_leaves_the_worker_to_its_parent(worker: WorkerProcess, peer: Peer) -> None:
    peer.ask(Hello())
    os.kill(worker.pid, signal.SIGINT)
    assert isinstance(peer.ask(GetStats()), Stats)


PARENT = """
import sys, time
from radixrt.client import worker_process
from radixrt.config import WorkerConfig
from tests.support.processes import SCRIPTED_WORKER
worker_process.WORKER_COMMAND = SCRIPTED_WORKER
worker = worker_process.WorkerProcess(WorkerConfig(model="scripted"))
print(worker.pid, worker.address, flush=True)
{rest}
time.sleep(600)
"""
FORK = "import os\nif os.fork() == 0: time.sleep(3); os._exit(0)\n"


@pytest.mark.parametrize("rest", ["", FORK], ids=["alone", "with a fork that holds the pipe"])
def test_a_worker_does_not_outlive_a_parent_that_is_killed(rest: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT.format(rest=rest)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid, address = parent.stdout.readline().decode().split()
        path = Path(address.removeprefix("ipc://"))
        wait_until(path.exists, ANSWER_SECONDS)
        assert is_running(int(pid))
        parent.kill()
        wait_until(lambda: not is_running(int(pid)), 2)
        assert not path.parent.exists()


def test_a_worker_started_by_hand_says_so() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "radixrt.worker"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "started by radixrt, not by hand" in result.stderr


def test_a_worker_whose_parent_has_gone_before_it_could_bind_says_nothing(tmp_path: Path) -> None:
    """The socket's directory is removed with the parent: that there is none is no fault to tell of."""
    order = StartOrder(str(tmp_path / "removed"), os.getpid(), WorkerConfig(model="scripted"))
    command = [sys.executable, "-m", "tests.support.scripted_worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        write_order(worker.stdin, order)
        assert worker.wait(60) == 0
        worker.stdin.close()
        assert worker.stderr is not None
        assert worker.stderr.read() == b""
