"""The worker's side of the socket: frames in, one engine step, events out."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from typing import TYPE_CHECKING, NoReturn

import msgspec
import zmq

from radixrt.protocol.messages import (
    PROTOCOL_VERSION,
    Abort,
    ClientMessage,
    CloseProgram,
    Events,
    FlushCache,
    GetStats,
    Hello,
    Refused,
    SubmitTree,
    WorkerMessage,
)
from radixrt.worker.idle_check import IdleCheck

if TYPE_CHECKING:
    from radixrt.worker.programs import Programs

log = logging.getLogger(__name__)

_FRAMES_A_STEP = 1024
"""No client can keep the engine from stepping by sending without pause."""


class Server:
    """Serves `programs` over a bound ROUTER socket, in the thread that calls `serve`."""

    def __init__(self, socket: zmq.Socket[bytes], programs: Programs) -> None:
        self._socket = socket
        self._programs = programs
        self._idle_check = IdleCheck(programs)
        self._decoder = msgspec.msgpack.Decoder(ClientMessage)
        self._encoder = msgspec.msgpack.Encoder()
        self._greeted: set[bytes] = set()
        self._dropped_frames = 0
        # Grammars are compiled in other threads, and a sleeping loop has to hear of it: through a pipe, since a ZMQ
        # socket belongs to one thread.
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(self._wake_reader, zmq.POLLIN)
        programs.on_grammar(self._wake)

    def serve(self) -> NoReturn:
        """Receive, step and send for ever. What the engine cannot answer with `Failed` comes out as its exception,
        and so does what an idle check finds."""
        while True:
            if not self._programs.busy or self._programs.stalled:
                self._sleep()
            self._receive()
            for client, events in self._programs.step().items():
                self._send(client, Events(tuple(events)))

    def _sleep(self) -> None:
        """Wait for a frame or a grammar; a long wait is used to check the cache."""
        if not self._programs.busy and not self._poller.poll(self._idle_check.wait_ms()):
            self._idle_check.run()
        self._poller.poll()
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_reader, 4096)

    def _wake(self) -> None:
        # A full pipe wakes the loop as well.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_writer, b"\0")

    def _receive(self) -> None:
        """Handle the frames that are there, without waiting for more."""
        for _ in range(_FRAMES_A_STEP):
            try:
                client, *payload = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            message = self._decode(client, payload)
            if message is not None:
                self._handle(client, message)

    def _decode(self, client: bytes, payload: list[bytes]) -> ClientMessage | None:
        """The message, or None for what a client may not send: that is counted and logged, and changes nothing."""
        if len(payload) != 1:
            self._drop(client, f"it has {len(payload)} parts, not one")
            return None
        try:
            message = self._decoder.decode(payload[0])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._drop(client, f"{len(payload[0])} bytes that are no message: {error}")
            return None
        if client not in self._greeted and not isinstance(message, Hello):
            self._drop(client, f"{type(message).__name__} came before Hello")
            return None
        return message

    def _drop(self, client: bytes, reason: str) -> None:
        self._dropped_frames += 1
        log.warning("dropped a frame of client %s: %s", client[:8].hex(), reason)

    def _handle(self, client: bytes, message: ClientMessage) -> None:
        match message:
            case Hello():
                self._greet(client, message)
            case SubmitTree():
                self._programs.submit(client, message)
            case Abort():
                self._programs.abort(client, message)
            case CloseProgram():
                self._programs.close(client, message)
            case FlushCache():
                self._programs.flush_cache()
                self._send_stats(client)
            case GetStats():
                self._send_stats(client)

    def _greet(self, client: bytes, hello: Hello) -> None:
        if hello.version == PROTOCOL_VERSION:
            self._greeted.add(client)
            self._send(client, self._programs.welcome)
        else:
            message = (
                f"the client speaks protocol version {hello.version}, this worker version {PROTOCOL_VERSION}: "
                "use the same release of radixrt on both sides"
            )
            self._send(client, Refused("WorkerUnavailable", message))

    def _send_stats(self, client: bytes) -> None:
        self._send(client, msgspec.structs.replace(self._programs.stats(), dropped_frames=self._dropped_frames))

    def _send(self, client: bytes, message: WorkerMessage) -> None:
        try:
            self._socket.send_multipart([client, self._encoder.encode(message)])
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            log.info("client %s has gone", client[:8].hex())
            self._greeted.discard(client)
            self._programs.drop_client(client)
