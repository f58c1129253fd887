"""The other end of the interoperability tests: WebRTC by aiortc, which shares no code with the crate
webrtc. Arguments: the role (`offer` or `answer`), the address of the signalling, and the number of
bytes in each direction."""

import asyncio
import hashlib
import random
import sys
import urllib.request

import aioice.ice
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

MESSAGE = 16_384
CLOSED = 1 << 20  # Bytes of the channel that closes without an end.

# Everything stays on this machine; aioice leaves the loopback interface out.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]


async def http(method, address, body=None):
    def ask():
        data = body.encode() if body is not None else None
        request = urllib.request.Request(address, data=data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    return await asyncio.to_thread(ask)


class Stream:
    """Bytes over a channel: messages, an empty one as the end."""

    def __init__(self, channel):
        self.channel, self.arrived = channel, asyncio.Queue()
        self.room, self.is_open = asyncio.Event(), asyncio.Event()
        channel.bufferedAmountLowThreshold = 256 << 10
        channel.on("bufferedamountlow", self.room.set)
        channel.on("message", self.arrived.put_nowait)
        channel.on("close", lambda: self.arrived.put_nowait(None))
        channel.on("open", self.is_open.set)
        if channel.readyState == "open":
            self.is_open.set()

    async def send(self, data):
        await self.is_open.wait()
        for at in range(0, len(data), MESSAGE):
            while self.channel.bufferedAmount > 1 << 20:
                self.room.clear()
                await self.room.wait()
            self.channel.send(data[at : at + MESSAGE])

    async def finish(self):
        await self.is_open.wait()
        self.channel.send(b"")

    async def drained(self):
        while self.channel.bufferedAmount > 0:
            await asyncio.sleep(0.01)

    async def read(self):
        """The next bytes; `b""`: the end; `None`: the channel was closed."""
        return await self.arrived.get()

    async def read_all(self):
        data = bytearray()
        while piece := await self.read():
            data += piece
        assert piece == b"", "closed before the end"
        return bytes(data)


async def offer(signalling, count):
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    echo = Stream(pc.createDataChannel("echo"))
    await pc.setLocalDescription(await pc.createOffer())
    answer = await http("POST", signalling + "/offer", pc.localDescription.sdp)
    await pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))

    sent = random.Random(7).randbytes(count)
    back = asyncio.ensure_future(echo.read_all())
    await echo.send(sent)
    await echo.finish()
    back = await back
    hashes = [hashlib.sha256(data).hexdigest() for data in (sent, back)]
    assert hashes[0] == hashes[1], hashes
    print("ok: echo", hashes[0], flush=True)

    closing = Stream(pc.createDataChannel("close"))
    await closing.send(sent[:CLOSED])
    await closing.drained()
    closing.channel.close()
    print("ok: close", flush=True)

    aborted = Stream(pc.createDataChannel("abort"))
    await aborted.send(b"x")
    assert await aborted.read() is None, "an abort is no end"
    print("ok: abort", flush=True)
    await http("POST", signalling + "/said", "ok")
    await pc.close()


async def answer(signalling, _):
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    channels = asyncio.Queue()
    pc.on("datachannel", lambda channel: channels.put_nowait(Stream(channel)))
    offer = await http("GET", signalling + "/offer")
    await pc.setRemoteDescription(RTCSessionDescription(offer, "offer"))
    await pc.setLocalDescription(await pc.createAnswer())
    await http("POST", signalling + "/answer", pc.localDescription.sdp)
    stream = await channels.get()
    print("ok: label", stream.channel.label, flush=True)
    while piece := await stream.read():
        await stream.send(piece)
    assert piece == b"", "closed before the end"
    await stream.finish()
    while await stream.read() is not None:
        pass
    await http("POST", signalling + "/said", "ok")
    await pc.close()


if __name__ == "__main__":
    role, signalling, count = sys.argv[1:]
    run = {"offer": offer, "answer": answer}[role](signalling, int(count))
    # The test ends first: 60 s, and 1 s for each 300 kB.
    asyncio.run(asyncio.wait_for(run, 100 + int(count) / 200_000))
