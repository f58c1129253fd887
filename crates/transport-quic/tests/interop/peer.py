"""The other end of the interoperability tests: QUIC by aioquic, which shares no code with quinn.

As `client PORT` it dials and checks what comes back; as `server PORT-FILE CERT KEY` it sends back all
that it gets. Lanes lie on streams as crates/transport-quic does it: the first byte of each direction
of the first bidirectional stream is a mark, further streams are unidirectional."""

import asyncio
import hashlib
import socket
import ssl
import sys
from pathlib import Path

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.tls import Epoch

ALPN = "tunnel/1"
MARK = b"\x01"
CHANGE_KEYS = b"change keys"
FIRST = 0  # The client's first bidirectional stream (RFC 9000 section 2.1).


def is_unidirectional(stream):
    return stream & 2 != 0


def pattern(seed, length):
    """Bytes that differ everywhere."""
    return hashlib.shake_128(seed.to_bytes(8, "big")).digest(length)


class Peer(QuicConnectionProtocol):
    """Keeps what comes, by stream."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.got, self.ended, self.datagrams = {}, set(), []
        self.handshake = self.close_event = None
        self.changed = asyncio.Event()

    def quic_event_received(self, event):
        if isinstance(event, events.HandshakeCompleted):
            self.handshake = event
        elif isinstance(event, events.StreamDataReceived):
            self.got[event.stream_id] = self.got.get(event.stream_id, b"") + event.data
            if event.end_stream:
                self.ended.add(event.stream_id)
        elif isinstance(event, events.DatagramFrameReceived):
            self.datagrams.append(event.data)
        elif isinstance(event, events.ConnectionTerminated):
            self.close_event = event
        self.react(event)
        self.changed.set()

    def react(self, event):
        pass

    def send(self, stream, data, end=False):
        self._quic.send_stream_data(stream, data, end)
        self.transmit()

    async def until(self, what, holds):
        async def wait():
            while not holds():
                assert self.close_event is None, f"closed: {self.close_event}"
                self.changed.clear()
                await self.changed.wait()

        try:
            await asyncio.wait_for(wait(), 30)
        except asyncio.TimeoutError:
            raise AssertionError(f"not within 30 s: {what}") from None
        print(f"ok: {what}", flush=True)


class Echo(Peer):
    """Sends back what it gets: on the first stream at once, of others the whole on one of its own."""

    def react(self, event):
        if isinstance(event, events.DatagramFrameReceived):
            self._quic.send_datagram_frame(event.data)
        elif isinstance(event, events.StreamDataReceived) and event.stream_id == FIRST:
            # Its first byte is the mark, and so is ours.
            self._quic.send_stream_data(FIRST, event.data, event.end_stream)
        elif isinstance(event, events.StreamDataReceived) and event.end_stream:
            own = self._quic.get_next_available_stream_id(is_unidirectional=True)
            data = self.got.pop(event.stream_id)
            if data == CHANGE_KEYS:
                # From here on aioquic opens no packet under the former keys, as RFC 9001 section 6.5
                # would have it. So the other end asks when nothing else is in flight.
                self.request_key_update()
            self._quic.send_stream_data(own, data, True)


async def streams(peer, seeds, length):
    """Unidirectional streams there, as many back with the same bytes."""
    sent = sorted(pattern(seed, length) for seed in seeds)
    known = set(peer.got)
    for data in sent:
        stream = peer._quic.get_next_available_stream_id(is_unidirectional=True)
        peer.send(stream, data, True)
    new = lambda: [s for s in peer.ended if s not in known and is_unidirectional(s)]
    what = f"{len(sent)} unidirectional streams of {length} bytes there and back"
    await peer.until(what, lambda: len(new()) >= len(sent))
    assert sorted(peer.got[stream] for stream in new()) == sent, "not the bytes that were sent"


async def datagrams(peer):
    """The same datagram again and again."""
    while True:
        peer._quic.send_datagram_frame(b"datagram")
        peer.transmit()
        await asyncio.sleep(0.2)


async def client(port):
    tickets = []
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=[ALPN], max_datagram_frame_size=65_536
    )
    configuration.verify_mode = ssl.CERT_NONE
    for turn in ["new", "resumed"]:
        configuration.session_ticket = tickets[-1] if tickets else None
        dial = connect(
            "127.0.0.1",
            port,
            configuration=configuration,
            create_protocol=Peer,
            session_ticket_handler=tickets.append,
        )
        async with dial as peer:
            await conversation(peer, turn)


async def conversation(peer, turn):
    shaken = peer.handshake
    assert shaken.alpn_protocol == ALPN, shaken
    assert shaken.session_resumed == (turn == "resumed"), shaken
    print(f"ok: handshake of a {turn} session", flush=True)
    retried = peer._quic._retry_source_connection_id is not None
    print(f"retried: {retried}", flush=True)

    # Before anything else: until then the server does not know us.
    first = peer._quic.get_next_available_stream_id()
    assert first == FIRST
    word = pattern(0, 100_000)
    peer.send(first, MARK + word)
    await peer.until("the first lane there and back", lambda: peer.got.get(first) == MARK + word)
    await streams(peer, range(1, 41), 50_000)

    # A datagram may be lost (RFC 9221 section 5.2): behind the packets of the streams on a busy
    # machine, the buffer of a socket may be full.
    repeating = asyncio.create_task(datagrams(peer))
    await peer.until("a datagram there and back", lambda: b"datagram" in peer.datagrams)
    repeating.cancel()
    assert set(peer.datagrams) == {b"datagram"}, peer.datagrams

    # After a change of keys aioquic opens no packet under the former keys. So the answers to the
    # repeated datagrams come first, as in `CHANGE_KEYS` of the other direction.
    answered = -1
    while len(peer.datagrams) != answered:
        answered = len(peer.datagrams)
        await asyncio.sleep(0.3)

    keys = peer._quic._cryptos[Epoch.ONE_RTT].send
    phase = keys.key_phase
    peer.request_key_update()
    await streams(peer, range(100, 110), 20_000)
    assert keys.key_phase != phase
    print("ok: keys were updated", flush=True)

    # Another id, and then another port: what a client does that moves on purpose.
    peer.change_connection_id()
    old = peer._transport
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: peer, local_addr=("::", 0), family=socket.AF_INET6)
    assert peer._transport is not old
    await streams(peer, range(200, 210), 20_000)
    print("ok: another port", flush=True)
    old.close()

    peer.send(first, b"", True)
    await peer.until("the end of the first lane", lambda: first in peer.ended)


async def server(file, certificate, key):
    configuration = QuicConfiguration(
        is_client=False, alpn_protocols=[ALPN], max_datagram_frame_size=65_536
    )
    configuration.load_cert_chain(certificate, key)
    server = await serve(
        "127.0.0.1", 0, configuration=configuration, create_protocol=Echo, retry=True
    )
    port = server._transport.get_extra_info("sockname")[1]
    Path(file + ".new").write_text(str(port))
    Path(file + ".new").rename(file)
    await asyncio.Event().wait()


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    asyncio.run(client(int(rest[0])) if role == "client" else server(*rest))
