"""A visit of a private service by WebRTC. Standard input goes to the service, and what the service
says to standard output.

    visit.py https://tunnel.example.com:7443/webrtc laptop TOKEN home/echo SECRET

TOKEN is that of the client `laptop` at the server, SECRET that of `visitors` of the service."""

import asyncio
import base64
import hashlib
import hmac
import sys
import urllib.error
import urllib.request

from aiortc import RTCPeerConnection, RTCSessionDescription


def mac(key, data):
    return hmac.digest(key, data, "sha256")


def text(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def proof(token, context, offer):
    key = mac(token.encode(), b"Client Key")
    said = hashlib.sha256(f"tunnel offer\n{context}\n{offer}".encode()).digest()
    mask = mac(hashlib.sha256(key).digest(), said)
    return text(bytes(a ^ b for a, b in zip(key, mask)))


def signature(token, context, offer, answer):
    said = f"tunnel answer\n{context}\n{offer}\n{answer}".encode()
    return text(mac(mac(token.encode(), b"Server Key"), hashlib.sha256(said).digest()))


async def visit(url, name, token, service, secret):
    pc = RTCPeerConnection()
    channel = pc.createDataChannel(service.split("/")[1])
    is_open, arrived = asyncio.Event(), asyncio.Queue()
    channel.on("open", is_open.set)
    channel.on("message", arrived.put_nowait)
    channel.on("close", lambda: arrived.put_nowait(None))
    await pc.setLocalDescription(await pc.createOffer())
    offer, context = pc.localDescription.sdp, f"{name}\n{service}"
    headers = {
        "Content-Type": "application/sdp",
        "Authorization": f"Bearer {name}.{proof(token, context, offer)}",
        "Tunnel-Visit": proof(secret, context, offer),
    }
    request = urllib.request.Request(f"{url}/{service}", offer.encode(), headers)
    with await asyncio.to_thread(urllib.request.urlopen, request) as answered:
        answer, signed = answered.read().decode(), answered.headers["Tunnel-Visit"]
    assert signed == signature(secret, context, offer, answer), "the answer is not of the client"
    await pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    await is_open.wait()
    return pc, channel, arrived


async def main():
    pc, channel, arrived = await visit(*sys.argv[1:])

    async def send():
        while data := await asyncio.to_thread(sys.stdin.buffer.read1, 16_384):
            while channel.bufferedAmount > 1 << 20:
                await asyncio.sleep(0.01)
            channel.send(data)
        channel.send(b"")

    sending = asyncio.create_task(send())
    while data := await arrived.get():
        sys.stdout.buffer.write(data if isinstance(data, bytes) else data.encode())
        sys.stdout.buffer.flush()
    await sending
    await pc.close()
    sys.exit(data is None)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except urllib.error.HTTPError as refused:
        sys.exit(f"{refused.code}: {refused.read().decode().strip()}")
