// The service worker of a service: each request of its pages becomes messages to the page of the
// visit, which has the link.

/** A body up to this length is sent with its length, a longer one in chunks. */
const WHOLE = 8 << 20;

/** Bytes of a body in one message. */
const PIECE = 64 << 10;

/** The time for which a port is waited for, in milliseconds. */
const PATIENCE = 15000;

/** The time until a response begins, in milliseconds. After five minutes a browser ends an event of a
 * service worker, and with it the worker and each of its responses. */
const LATE = 280000;

/** Fields that are not for the browser: they concern the connection, or would keep the pages of the
 * service out of the frame in which this visit shows them. */
const HIDDEN = [
  "connection",
  "content-length",
  "keep-alive",
  "set-cookie",
  "strict-transport-security",
  "transfer-encoding",
  "upgrade",
  "x-frame-options",
];

const home = `${location.protocol}//visit.${location.host.slice(location.host.indexOf(".") + 1)}`;
let port;
let waiting = [];
let last = 0;
const asked = new Map();

addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));

addEventListener("message", (event) => {
  if (event.data !== "port" || !isKeeper(event.source)) return;
  port?.close();
  // The link of the former port is gone.
  for (const request of asked.values()) request.failed("The visit was opened anew. Try again.");
  port = event.ports[0];
  port.onmessage = ({ data }) => asked.get(data.id)?.[data.kind]?.(data);
  event.source.postMessage("set");
  for (const go of waiting.splice(0)) go(port);
});

addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (url.origin !== location.origin || url.pathname.startsWith("/.tunnel/")) return;
  event.respondWith(answer(event.request, url));
});

const isKeeper = (client) => client && new URL(client.url).pathname === "/.tunnel/frame";

/** The port to the page of the visit. */
async function reach() {
  const all = await clients.matchAll({ type: "window", includeUncontrolled: true });
  const keeper = all.find(isKeeper);
  if (!keeper) throw new Error(`The page of this visit is closed. Open ${home}/ and try again.`);
  if (port) return port;
  return new Promise((done, fail) => {
    waiting.push(done);
    if (waiting.length === 1) keeper.postMessage("need");
    setTimeout(() => fail(new Error("The page of this visit does not answer.")), PATIENCE);
  });
}

async function answer(request, url) {
  // A form of another site must not act in the name of this visitor. Pages of the service send theirs
  // from inside the frame.
  const isForm = request.mode === "navigate" && request.method !== "GET";
  if (isForm && request.referrer && new URL(request.referrer).origin !== location.origin) {
    return page(403, "Another site has sent this form.");
  }
  try {
    return await ask(request, await reach(), url);
  } catch (error) {
    return page(503, error.message);
  }
}

function ask(request, to, url) {
  const id = ++last;
  const say = (message, moved = []) => to.postMessage({ id, ...message }, moved);
  return new Promise(async (respond) => {
    let stream;
    let room = () => {};
    let pull = () => {};
    let over = false;
    const late = setTimeout(() => {
      cancel();
      respond(page(504, "The service gave no answer in the time for which a browser waits."));
    }, LATE);
    const forget = () => {
      over = true;
      clearTimeout(late);
      asked.delete(id);
      room();
      pull();
    };
    const cancel = () => {
      if (!over) say({ kind: "cancel" });
      forget();
    };
    asked.set(id, {
      head({ status, reason, fields }) {
        clearTimeout(late);
        const body = new ReadableStream(
          {
            start: (controller) => (stream = controller),
            cancel,
          },
          new ByteLengthQueuingStrategy({ highWaterMark: 256 << 10 }),
        );
        // Bytes that wait here count as unread for the link.
        respond(response(request, status, reason, fields, body));
      },
      body({ bytes }) {
        const give = () => {
          try {
            stream.enqueue(bytes);
            if (!over) say({ kind: "took", bytes: bytes.byteLength });
          } catch {
            cancel();
          }
        };
        queue.push(give);
        drain();
      },
      end() {
        queue.push(() => {
          try {
            stream.close();
          } catch {
            // Nobody reads it any more.
          }
        });
        forget();
        drain();
      },
      room: () => room(),
      failed({ text }) {
        forget();
        if (stream) stream.error(new Error(text));
        else respond(page(502, text));
      },
    });
    // A stream that is full is looked at again: a service worker has no other way to wait for room
    // without keeping a promise for each piece.
    const queue = [];
    let looking = false;
    const drain = () => {
      while (queue.length && (over || !stream || stream.desiredSize > 0)) queue.shift()();
      if (queue.length && !looking) {
        looking = true;
        setTimeout(() => {
          looking = false;
          drain();
        }, 20);
      }
    };
    const fields = [...request.headers].map(([name, value]) => `${name}: ${value}`);
    fields.push("accept-encoding: gzip", `x-forwarded-proto: ${url.protocol.slice(0, -1)}`);
    if (request.referrer.startsWith(location.origin)) fields.push(`referer: ${request.referrer}`);
    if (request.method !== "GET" && request.method !== "HEAD") {
      fields.push(`origin: ${location.origin}`);
    }
    const { method } = request;
    const ask = (length) =>
      say({ kind: "ask", method, target: url.pathname + url.search, fields, length });
    try {
      const has = method !== "GET" && method !== "HEAD";
      if (!has) return ask(-1);
      const { whole, pieces, more } = await begun(request);
      ask(more ? -2 : whole);
      for (let bytes; !over && (bytes = pieces.shift() ?? (more && (await more()))); ) {
        for (let from = 0; from < bytes.length && !over; from += PIECE) {
          const free = new Promise((done) => (room = done));
          say({ kind: "body", bytes: bytes.slice(from, from + PIECE) });
          await free;
        }
      }
      if (!over) say({ kind: "end" });
    } catch (error) {
      cancel();
      respond(page(502, `The request was not sent: ${error.message}`));
    }
  });
}

/** The body of a request: all of it, or its first pieces and how to get more. */
async function begun(request) {
  if (!request.body) {
    // A browser without streams in requests.
    const all = new Uint8Array(await request.arrayBuffer());
    return { whole: all.length, pieces: all.length ? [all] : [] };
  }
  const reader = request.body.getReader();
  const more = async () => (await reader.read()).value;
  const pieces = [];
  let whole = 0;
  for (let bytes; (bytes = await more()); ) {
    pieces.push(bytes);
    whole += bytes.length;
    if (whole > WHOLE) return { whole, pieces, more };
  }
  return { whole, pieces };
}

function response(request, status, statusText, fields, body) {
  const headers = new Headers();
  let coding = "";
  for (const [name, value] of fields) {
    const lower = name.toLowerCase();
    if (lower === "content-encoding") coding = value.trim().toLowerCase();
    else if (lower === "content-security-policy") {
      const rules = value.split(";").filter((rule) => !/^\s*frame-ancestors\b/i.test(rule));
      headers.append(name, rules.join(";"));
    } else if (!HIDDEN.includes(lower)) {
      try {
        headers.append(name, value.trim());
      } catch {
        // No field of a browser.
      }
    }
  }
  headers.append("content-security-policy", `frame-ancestors 'self' ${home}`);
  if (coding === "gzip" || coding === "deflate") {
    body = body.pipeThrough(new DecompressionStream(coding));
  } else if (coding && coding !== "identity") {
    headers.set("content-encoding", coding);
  }
  const isEmpty = [204, 205, 304].includes(status) || request.method === "HEAD";
  return new Response(isEmpty ? null : body, { status, statusText: plain(statusText), headers });
}

const plain = (text) => text.replace(/[^\t -~]/g, "");

/** A page of this worker itself: a sentence, and a way to try again. */
function page(status, sentence) {
  const escaped = sentence.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const text = `<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>No answer</title>
<style>
body { font: 16px/1.5 system-ui, "Liberation Sans", sans-serif; max-width: 34rem; margin: 3rem auto;
  padding: 0 1rem; background: light-dark(#fff, #14171c); color: light-dark(#1b1f24, #e6e9ee); }
a { color: light-dark(#0a58ca, #7cb2ff); }
</style>
<p id="sentence">${escaped}</p><p><a href="">Try again</a></p>`;
  const policy = `default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self' ${home}`;
  const headers = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "content-security-policy": policy,
  };
  return new Response(text, { status, headers });
}
