// A visit: the link in wasm, and around it what a page has: a WebSocket, a data channel, a timer,
// ports to service workers.

/** More unsent bytes stop the link, fewer let it go on. */
const FULL = 1 << 20;
const EMPTY = 256 << 10;

/** The pause before a further WebSocket grows from the first to the last, in milliseconds. */
const PAUSE = [300, 5000];

/** It is the first one again once a WebSocket has lived for so many milliseconds: a server that takes
 * the link and drops it is not asked again and again. */
const STABLE = 10000;

/** The time until a WebSocket is open, in milliseconds. */
const OPENS = 10000;

/** The slot of the data channel, and the bytes of one of its messages. */
const DIRECT = 0;
const MESSAGE = 16240;

/** How long a browser looks for its own addresses, in milliseconds. */
const GATHERS = 1000;

/** While a response arrives, the service worker hears of it at least this often, in milliseconds: the
 * timers of a page in the background may rest for a minute. */
const ALIVE = 5000;

/** A request without an answer fails after so many milliseconds if the link does not live. */
const PATIENCE = 8000;

/** What comes by a port: the service has code in the frame that hands ports on, so all of it is
 * checked. Bytes in a piece of a body, and in the fields of a request. */
const PIECE = 64 << 10;
const FIELDS = 256 << 10;

let module;

/** Compiles the link once. */
async function compiled() {
  module ??= WebAssembly.compileStreaming(fetch("/link.wasm"));
  try {
    return await module;
  } catch (error) {
    module = undefined;
    throw error;
  }
}

const text = new TextEncoder();
const utf8 = new TextDecoder();

/** Fields of a response are bytes; each is a character for a browser. No decoder does that: what is
 * called latin1 there is windows-1252. */
function characters(bytes) {
  let all = "";
  for (let from = 0; from < bytes.length; from += 4096) {
    all += String.fromCharCode(...bytes.subarray(from, from + 4096));
  }
  return all;
}

const isCount = (value, most) => Number.isSafeInteger(value) && value >= 0 && value <= most;
const isLine = (value) => typeof value === "string" && !value.includes("\n");

/** Whether a message of a port is a request. */
function isRequest({ method, target, fields, length }) {
  if (!isLine(method) || !isLine(target) || !Array.isArray(fields) || !fields.every(isLine)) {
    return false;
  }
  const all = fields.reduce((sum, field) => sum + field.length, method.length + target.length);
  const has = length === -1 || length === -2 || isCount(length, Number.MAX_SAFE_INTEGER);
  return all <= FIELDS && has;
}

export class Visit {
  /** `who`: { isCode, name, secret, service, token }; `told(word, rest)` hears of the state. */
  static async start(who, told) {
    const visit = new Visit(told);
    const instance = await WebAssembly.instantiate(await compiled(), {});
    visit.use(instance.exports);
    const seed = crypto.getRandomValues(new Uint8Array(32));
    const lines = [who.isCode ? "code" : "token", who.name, who.secret, who.service, who.token];
    const rest = text.encode(lines.join("\n"));
    const all = new Uint8Array(32 + rest.length);
    all.set(seed);
    all.set(rest, 32);
    visit.give(all);
    const length = visit.link.begin(visit.now());
    if (length) throw new Error(utf8.decode(visit.output(length)));
    visit.connect();
    return visit;
  }

  constructor(told) {
    this.told = told;
    this.sockets = new Set();
    this.slots = new Map();
    this.nextSlot = 1;
    this.requests = new Map();
    this.pause = PAUSE[0];
    this.state = "";
  }

  /** Takes the functions of the link. A link that fails cannot be used any more. */
  use(functions) {
    this.link = {};
    for (const [name, work] of Object.entries(functions)) {
      if (typeof work !== "function") {
        this.link[name] = work;
        continue;
      }
      this.link[name] = (...inputs) => {
        if (this.broken) return 0;
        try {
          return work(...inputs);
        } catch (error) {
          this.broken = true;
          this.ended = true;
          console.error(error);
          this.told("over", "broken");
          this.close();
          return 0;
        }
      };
    }
  }

  now() {
    return performance.now();
  }

  give(bytes) {
    if (!(bytes instanceof Uint8Array)) throw new TypeError("no bytes");
    const at = this.link.input(bytes.byteLength);
    new Uint8Array(this.link.memory.buffer, at, bytes.byteLength).set(bytes);
  }

  output(length) {
    return new Uint8Array(this.link.memory.buffer, this.link.output(), length).slice();
  }

  /** Dials the server. */
  connect() {
    if (this.closed) return;
    const slot = this.nextSlot++;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/.tunnel/link`, "tunnel.1");
    socket.binaryType = "arraybuffer";
    this.sockets.add(socket);
    const late = setTimeout(() => socket.close(), OPENS);
    let opened;
    socket.onopen = () => {
      clearTimeout(late);
      if (this.closed) return socket.close();
      opened = this.now();
      this.slots.set(slot, socket);
      this.link.dial(this.now(), slot);
      this.pump();
    };
    socket.onmessage = ({ data }) => {
      if (typeof data === "string" || this.closed) return;
      this.give(new Uint8Array(data));
      this.link.handle(this.now(), slot);
      this.pump();
    };
    socket.onclose = () => {
      clearTimeout(late);
      this.sockets.delete(socket);
      this.slots.delete(slot);
      if (this.closed) return;
      this.link.lost(this.now(), slot);
      this.pump();
      if (this.closed || this.ended) return;
      // A WebSocket that never opened is no news for the link.
      if (opened === undefined && this.state !== "live") this.told((this.state = "offline"), "");
      if (opened !== undefined && this.now() - opened > STABLE) this.pause = PAUSE[0];
      clearTimeout(this.redial);
      this.redial = setTimeout(() => this.connect(), this.pause * (0.75 + Math.random() / 2));
      this.pause = Math.min(this.pause * 2, PAUSE[1]);
    };
  }

  /** Offers a data channel to the client that has the service. The server answers STUN at `ports`. */
  async seek(ports) {
    this.direct?.connection?.close();
    const direct = (this.direct = {});
    const offer = (description) => {
      if (this.direct !== direct || this.closed) return;
      this.give(text.encode(description));
      this.link.offer(this.now());
      this.turn();
    };
    try {
      const urls = ports.map((port) => `stun:${location.hostname}:${port}`);
      const made = new RTCPeerConnection({ iceServers: urls.length ? [{ urls }] : [] });
      direct.connection = made;
      this.carry(direct, made.createDataChannel("tunnel", { protocol: "tunnel/1" }));
      made.onconnectionstatechange = () => {
        if (["failed", "closed"].includes(made.connectionState)) this.leave(direct);
      };
      await made.setLocalDescription();
      await new Promise((done) => {
        const look = () => made.iceGatheringState === "complete" && done();
        made.onicegatheringstatechange = look;
        look();
        setTimeout(done, GATHERS);
      });
      offer(made.localDescription.sdp);
    } catch (error) {
      // This browser has none, or its user forbids it. The visit goes on through the server.
      console.info(`no data channel: ${error.message}`);
      offer("");
    }
  }

  carry(direct, channel) {
    channel.binaryType = "arraybuffer";
    const slot = {
      send: (bytes) => {
        try {
          for (let from = 0; from < bytes.length; from += MESSAGE) {
            channel.send(bytes.subarray(from, from + MESSAGE));
          }
        } catch {
          this.leave(direct);
        }
      },
      get bufferedAmount() {
        return channel.bufferedAmount;
      },
      close: () => this.leave(direct),
    };
    channel.onopen = () => {
      if (this.direct !== direct || this.closed) return;
      this.slots.set(DIRECT, slot);
      this.link.dial(this.now(), DIRECT);
      this.turn();
    };
    channel.onmessage = ({ data }) => {
      if (this.direct !== direct || this.closed) return;
      if (typeof data !== "string") {
        this.give(new Uint8Array(data));
        this.link.handle(this.now(), DIRECT);
        return this.turn();
      }
      if (data !== "end") return;
      // The other side ends the channel when it knows that its bytes have come.
      channel.send("received");
      this.leave(direct);
    };
    channel.onclose = () => this.leave(direct);
  }

  answer(sdp) {
    const { direct } = this;
    const taken = direct?.connection?.setRemoteDescription({ type: "answer", sdp });
    taken?.catch(() => this.leave(direct));
  }

  /** The data channel is over. */
  leave(direct) {
    if (!direct || this.direct !== direct) return;
    this.direct = undefined;
    this.slots.delete(DIRECT);
    direct.connection?.close();
    if (this.closed) return;
    this.link.lost(this.now(), DIRECT);
    this.turn();
  }

  /** Ends the visit. */
  close() {
    this.closed = true;
    this.leave(this.direct);
    clearTimeout(this.redial);
    clearTimeout(this.timer);
    for (const socket of this.sockets) socket.close();
    for (const request of this.requests.values()) request.failed("over");
    this.requests.clear();
    this.slots.clear();
  }

  /** Takes what the link has made, and arms the timer. */
  pump() {
    if (this.pumping || this.closed) return;
    this.pumping = true;
    let wait = -1;
    try {
      // The time makes news as well, and news change the time that comes next.
      for (let more = true; more && !this.closed; ) {
        wait = this.link.tick(this.now());
        more = false;
        for (let length; !this.closed && (length = this.link.poll(this.now())); more = true) {
          this.take(this.output(length));
        }
      }
    } finally {
      this.pumping = false;
    }
    clearTimeout(this.timer);
    if (wait >= 0 && !this.closed) {
      this.timer = setTimeout(() => this.pump(), Math.min(wait + 1, 60000));
    }
    // What the timer's turn has made.
    if (this.more && !this.closed) {
      this.more = false;
      queueMicrotask(() => this.pump());
    }
  }

  /** Something was given to the link. */
  turn() {
    if (this.pumping) this.more = true;
    else this.pump();
  }

  take(news) {
    const number = new DataView(news.buffer).getUint32(1, true);
    const bytes = news.subarray(5);
    const request = this.requests.get(number);
    switch (news[0]) {
      case 1:
        return this.send(number, bytes);
      case 2:
        return number === DIRECT ? this.leave(this.direct) : this.slots.get(number)?.close();
      case 3:
        return request?.head(characters(bytes));
      case 4:
        return request ? request.body(bytes) : this.link.took(this.now(), number, bytes.length);
      case 5:
        this.requests.delete(number);
        return request?.end();
      case 6:
        this.requests.delete(number);
        return request?.failed(utf8.decode(bytes));
      case 7:
        return request?.room();
      case 8: {
        const [word, rest = ""] = utf8.decode(bytes).split(/ (.*)/s);
        this.state = word;
        this.ended = word === "over" || word === "enrolled";
        return this.told(word, rest);
      }
      case 9:
        return void this.seek(utf8.decode(bytes).split(" ").filter(Boolean));
      case 10:
        return this.answer(utf8.decode(bytes));
    }
  }

  send(slot, bytes) {
    const socket = this.slots.get(slot);
    if (!socket) return;
    socket.send(bytes);
    if (socket.bufferedAmount > FULL && !socket.paused) {
      socket.paused = true;
      this.link.pause(slot, 1);
      const look = () => {
        if (this.slots.get(slot) !== socket) return;
        if (socket.bufferedAmount > EMPTY) return void setTimeout(look, 10);
        socket.paused = false;
        this.link.pause(slot, 0);
        this.turn();
      };
      setTimeout(look, 10);
    }
  }

  /** Answers the requests that come by a port. `words`: makes the sentence of a failure. `alive`:
   * tells the service worker to stay. */
  serve(port, host, words, alive) {
    let told = this.now();
    const numbers = new Map();
    // The bytes of each response that were sent by the port and have not left it.
    const waits = new Map();
    const drop = (id) => {
      const number = numbers.get(id);
      if (number === undefined) return;
      numbers.delete(id);
      waits.delete(id);
      this.requests.delete(number);
      this.link.cancel(this.now(), number);
      this.turn();
    };
    const ask = (data) => {
      const { id } = data;
      const say = (message, moved = []) => port.postMessage({ id, ...message }, moved);
      const failed = (word) => {
        numbers.delete(id);
        waits.delete(id);
        say({ kind: "failed", text: words(word, this.state) });
      };
      if (this.closed) return failed("over");
      if (!isRequest(data)) return failed("bad");
      const lines = [data.method, data.target, host, ...data.fields];
      this.give(text.encode(lines.join("\n")));
      const asked = this.link.ask(this.now(), data.length);
      if (!asked) return failed("bad");
      numbers.set(id, asked);
      waits.set(id, 0);
      let answered = false;
      const look = () => {
        if (answered || numbers.get(id) !== asked) return;
        if (this.state === "live") return void setTimeout(look, PATIENCE);
        drop(id);
        failed("slow");
      };
      setTimeout(look, PATIENCE);
      this.requests.set(asked, {
        head: (head) => {
          answered = true;
          const [first, ...fields] = head.split("\n");
          const [status, reason = ""] = first.split(/ (.*)/s);
          const pairs = fields.map((field) => field.split(/:(.*)/s).slice(0, 2));
          say({ kind: "head", status: Number(status), reason, fields: pairs });
        },
        body: (bytes) => {
          if (this.now() - told > ALIVE) {
            told = this.now();
            alive();
          }
          waits.set(id, waits.get(id) + bytes.length);
          say({ kind: "body", bytes }, [bytes.buffer]);
        },
        end: () => {
          numbers.delete(id);
          waits.delete(id);
          say({ kind: "end" });
        },
        room: () => say({ kind: "room" }),
        failed: (word) => {
          answered = true;
          failed(word);
        },
      });
    };
    port.onmessage = ({ data }) => {
      if (!data || !isCount(data.id, Number.MAX_SAFE_INTEGER)) return;
      const { id, kind, bytes } = data;
      const number = numbers.get(id);
      if (kind === "ask") {
        if (number === undefined) ask(data);
      } else if (number === undefined || this.closed) {
        return;
      } else if (kind === "body" && bytes instanceof Uint8Array && bytes.length <= PIECE) {
        this.give(bytes);
        if (!this.link.body(this.now(), number)) port.postMessage({ id, kind: "room" });
      } else if (kind === "end") {
        this.link.end_body(this.now(), number);
      } else if (kind === "took" && isCount(bytes, waits.get(id))) {
        waits.set(id, waits.get(id) - bytes);
        this.link.took(this.now(), number, bytes);
      } else {
        // It was cancelled, or makes no sense.
        return drop(id);
      }
      this.turn();
    };
    return () => {
      [...numbers.keys()].forEach(drop);
      port.close();
    };
  }
}
