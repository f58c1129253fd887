// A visit: the link in wasm, and around it what a page has: a WebSocket, a timer, ports to service
// workers.

/** More unsent bytes stop the link, fewer let it go on. */
const FULL = 1 << 20;
const EMPTY = 256 << 10;

/** The pause before a further WebSocket grows from the first to the last, in milliseconds. */
const PAUSE = [300, 5000];

/** While a response arrives, the service worker hears of it at least this often, in milliseconds: the
 * timers of a page in the background may rest for a minute. */
const ALIVE = 5000;

/** A request without an answer fails after so many milliseconds if the link does not live. */
const PATIENCE = 8000;

let module;

/** Compiles the link once. */
async function compiled() {
  module ??= WebAssembly.compileStreaming(fetch("/link.wasm"));
  return module;
}

const text = new TextEncoder();
/** Fields of a response are bytes; each is a character here. */
const latin = new TextDecoder("latin1");
const utf8 = new TextDecoder();

export class Visit {
  /** `who`: { isCode, name, secret, service, token }; `told(word, rest)` hears of the state. */
  static async start(who, told) {
    const visit = new Visit(told);
    const instance = await WebAssembly.instantiate(await compiled(), {});
    visit.link = instance.exports;
    const seed = crypto.getRandomValues(new Uint8Array(32));
    const lines = [who.isCode ? "code" : "token", who.name, who.secret, who.service, who.token];
    const rest = text.encode(lines.join("\n"));
    const all = new Uint8Array(32 + rest.length);
    all.set(seed);
    all.set(rest, 32);
    visit.give(all);
    const length = visit.link.begin();
    if (length) throw new Error(utf8.decode(visit.output(length)));
    visit.connect();
    return visit;
  }

  constructor(told) {
    this.told = told;
    this.slots = new Map();
    this.nextSlot = 1;
    this.requests = new Map();
    this.pause = PAUSE[0];
    this.state = "";
  }

  now() {
    return performance.now();
  }

  give(bytes) {
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
    socket.onopen = () => {
      this.slots.set(slot, socket);
      this.link.dial(this.now(), slot);
      this.pump();
    };
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") return;
      this.give(new Uint8Array(data));
      this.link.handle(this.now(), slot);
      this.pump();
    };
    socket.onclose = () => {
      const was = this.slots.delete(slot);
      this.link.lost(this.now(), slot);
      this.pump();
      if (!this.closed && !this.ended) {
        // A WebSocket that never opened is no news for the link.
        if (!was && this.state !== "live") this.told((this.state = "offline"), "");
        clearTimeout(this.redial);
        this.redial = setTimeout(() => this.connect(), this.pause * (0.75 + Math.random() / 2));
        this.pause = Math.min(this.pause * 2, PAUSE[1]);
      }
    };
  }

  /** Ends the visit. */
  close() {
    this.closed = true;
    clearTimeout(this.redial);
    clearTimeout(this.timer);
    for (const socket of this.slots.values()) socket.close();
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
      do {
        for (let length; (length = this.link.poll(this.now())) && !this.closed; ) {
          this.take(this.output(length));
        }
        wait = this.closed ? -1 : this.link.tick(this.now());
      } while (wait === 0);
    } finally {
      this.pumping = false;
    }
    clearTimeout(this.timer);
    if (wait > 0) {
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
        return this.slots.get(number)?.close();
      case 3:
        return request?.head(latin.decode(bytes));
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
        if (word === "live" || word === "visiting") this.pause = PAUSE[0];
        return this.told(word, rest);
      }
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
        if (!this.slots.has(slot)) return;
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
    const pending = new Set();
    const drop = (id) => {
      const number = numbers.get(id);
      if (number === undefined) return;
      numbers.delete(id);
      this.requests.delete(number);
      this.link.cancel(this.now(), number);
      this.turn();
    };
    port.onmessage = ({ data }) => {
      const { id, kind } = data;
      const number = numbers.get(id);
      if (kind === "ask") {
        const say = (message, moved = []) => port.postMessage({ id, ...message }, moved);
        const failed = (word) => {
          numbers.delete(id);
          say({ kind: "failed", text: words(word, this.state) });
        };
        if (this.closed) return failed("over");
        const lines = [data.method, data.target, host, ...data.fields];
        this.give(text.encode(lines.join("\n")));
        const asked = this.link.ask(this.now(), data.length);
        if (!asked) return failed("bad");
        numbers.set(id, asked);
        let answered = false;
        const look = () => {
          if (answered || !numbers.has(id)) return;
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
            say({ kind: "body", bytes }, [bytes.buffer]);
          },
          end: () => {
            numbers.delete(id);
            say({ kind: "end" });
          },
          room: () => say({ kind: "room" }),
          failed: (word) => {
            answered = true;
            failed(word);
          },
        });
      } else if (kind === "cancel") {
        return drop(id);
      } else if (number === undefined || this.closed) {
        return;
      } else if (kind === "body") {
        this.give(data.bytes);
        if (!this.link.body(this.now(), number)) port.postMessage({ id, kind: "room" });
      } else if (kind === "end") {
        this.link.end_body(this.now(), number);
      } else if (kind === "took") {
        this.link.took(this.now(), number, data.bytes);
      }
      this.turn();
    };
    return () => [...numbers.keys()].forEach(drop);
  }
}
