// A data channel straight to the client that has the service. What both ends have to say for it
// goes through the link, so that the server learns no address.

/** Bytes of a message: fourteen packets of SCTP, which leave in one go. */
const MESSAGE = 16240;

/** The time for which a browser gathers addresses, and that of a trial, in milliseconds. */
const GATHER = 1000;
const TRIAL = 20000;

/** The pause between trials grows from the first to the last. */
const PAUSE = [15000, 600000];

/** Kinds of signals. */
const DECLINE = 1;
const OFFER = 2;
const ANSWER = 3;

const text = new TextEncoder();
const utf8 = new TextDecoder();

export class Direct {
  /** `open(channel, binding)`: a channel is open; its `onmessage` and `onclose` are the caller's. */
  constructor(signal, stun, open) {
    Object.assign(this, { signal, stun, open, round: 0, pause: PAUSE[0] });
    this.seek();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.drop();
  }

  drop() {
    this.peer?.close();
    this.peer = undefined;
  }

  /** The direct path is gone, or was not found. */
  later() {
    this.drop();
    clearTimeout(this.timer);
    if (this.closed) return;
    this.timer = setTimeout(() => this.seek(), this.pause);
    this.pause = Math.min(this.pause * 2, PAUSE[1]);
  }

  async seek() {
    if (typeof RTCPeerConnection === "undefined") return;
    this.drop();
    clearTimeout(this.timer);
    const round = ++this.round;
    const urls = this.stun.map((port) => `stun:${location.hostname}:${port}`);
    const peer = new RTCPeerConnection({ iceServers: urls.length ? [{ urls }] : [] });
    this.peer = peer;
    const channel = peer.createDataChannel("tunnel", { protocol: "tunnel/1" });
    channel.binaryType = "arraybuffer";
    channel.onopen = async () => {
      clearTimeout(this.timer);
      this.pause = PAUSE[0];
      const binding = await bound(peer);
      if (peer !== this.peer) return;
      const lane = new Lane(channel, () => peer === this.peer && this.later());
      this.open(lane, binding);
    };
    this.timer = setTimeout(() => this.later(), TRIAL);
    try {
      await peer.setLocalDescription();
      await gathered(peer);
      if (peer !== this.peer) return;
      const said = text.encode(peer.localDescription.sdp);
      const bytes = new Uint8Array(6 + said.length);
      bytes[0] = 1;
      new DataView(bytes.buffer).setUint32(1, round);
      bytes[5] = OFFER;
      bytes.set(said, 6);
      if (said.length > 4000 || !this.signal(bytes)) this.later();
    } catch {
      this.later();
    }
  }

  /** What the other end says. */
  async hear(bytes) {
    if (bytes.length < 6 || bytes[0] !== 1) return;
    const round = new DataView(bytes.buffer, bytes.byteOffset).getUint32(1);
    const peer = this.peer;
    if (round !== this.round || !peer) return;
    if (bytes[5] === DECLINE) return this.later();
    if (bytes[5] !== ANSWER || peer.signalingState !== "have-local-offer") return;
    try {
      await peer.setRemoteDescription({ type: "answer", sdp: utf8.decode(bytes.subarray(6)) });
    } catch {
      if (peer === this.peer) this.later();
    }
  }
}

/** A channel as the connections of a visit are. */
class Lane {
  constructor(channel, ended) {
    this.channel = channel;
    channel.onclose = () => {
      ended();
      this.onclose?.();
    };
    channel.onmessage = ({ data }) => {
      // The other end sends nothing more: this carrier is over.
      if (typeof data === "string") return data === "end" && this.close();
      this.onmessage?.(new Uint8Array(data));
    };
  }

  get bufferedAmount() {
    return this.channel.bufferedAmount;
  }

  send(bytes) {
    if (this.channel.readyState !== "open") return;
    for (let from = 0; from < bytes.length; from += MESSAGE) {
      this.channel.send(bytes.subarray(from, from + MESSAGE));
    }
  }

  close() {
    this.channel.close();
  }
}

/** Waits until the browser knows its addresses, or long enough. */
function gathered(peer) {
  return new Promise((done) => {
    const look = () => peer.iceGatheringState === "complete" && done();
    peer.addEventListener("icegatheringstatechange", look);
    setTimeout(done, GATHER);
    look();
  });
}

/** What both ends see of the connection: the hash of the hashes of both certificates. */
async function bound(peer) {
  const hashes = [peer.localDescription, peer.remoteDescription].map(({ sdp }) =>
    sdp.match(/^a=fingerprint:sha-256 ([0-9A-F:]+)/im)[1].split(":").map((hex) => parseInt(hex, 16)),
  );
  return new Uint8Array(await crypto.subtle.digest("SHA-256", Uint8Array.from(hashes.flat())));
}
