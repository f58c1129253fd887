// The service worker of a service: each request of its pages becomes messages to the page of the
// visit, which has the link.

/** A body up to this length is sent with its length, a longer one in chunks. */
const WHOLE = 8 << 20;

/** Bytes of a body in one message. */
const PIECE = 64 << 10;

/** The time for which a port is waited for, and after which it is asked for again, in milliseconds. */
const PATIENCE = 15000;
const AGAIN = 2000;

/** Requests at a time; further ones wait. */
const AT_ONCE = 128;

/** Navigations that were sent once more to the same address, and the time that they count, in
 * milliseconds: a browser that names no page before an address would be sent without end. */
const BOUNCES = 3;
const BOUNCED = 5000;

/** The time until a response begins, in milliseconds. After five minutes a browser ends an event of a
 * service worker, and with it the worker and each of its responses. */
const LATE = 280000;

/** Fields that are not for the browser: they concern the connection, or more than the origin of the
 * service, or would keep its pages out of the frame in which this visit shows them. */
const HIDDEN = [
  "clear-site-data",
  "connection",
  "content-length",
  "keep-alive",
  "origin-agent-cluster",
  "proxy-authenticate",
  "proxy-connection",
  "service-worker-allowed",
  "set-cookie",
  "set-cookie2",
  "strict-transport-security",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "x-frame-options",
];

/** Fields of a request that this worker writes itself. */
const OURS = ["accept-encoding", "origin", "referer", "x-forwarded-proto"];

const home = `${location.protocol}//visit.${location.host.slice(location.host.indexOf(".") + 1)}`;
let port;
let last = 0;
let neededAt = 0;
const asked = new Map();
const waiting = new Set();
const turns = [];
const bounced = new Map();

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
  for (const go of waiting) go(port);
  waiting.clear();
});

addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (url.origin !== location.origin || url.pathname.startsWith("/.tunnel/")) return;
  event.respondWith(answer(event.request, url));
});

const isKeeper = (client) =>
  client?.frameType === "nested" && new URL(client.url).pathname === "/.tunnel/frame";

/** The port to the page of the visit. */
async function reach() {
  const all = await clients.matchAll({ type: "window", includeUncontrolled: true });
  const keeper = all.find(isKeeper);
  if (!keeper) throw new Error(`The page of this visit is closed. Open ${home}/ and try again.`);
  if (port) return port;
  return new Promise((done, fail) => {
    waiting.add(done);
    // The page may not have heard the last time.
    if (performance.now() - neededAt > AGAIN) {
      neededAt = performance.now();
      keeper.postMessage("need");
    }
    setTimeout(() => {
      waiting.delete(done);
      fail(new Error("The page of this visit does not answer."));
    }, PATIENCE);
  });
}

/** Waits until few requests are under way. */
async function turn() {
  if (asked.size >= AT_ONCE) await new Promise((go) => turns.push(go));
}

/** Whether an address is one of a page of this service. */
function isOwn(address) {
  try {
    return new URL(address).origin === location.origin;
  } catch {
    return false;
  }
}

/** Whether another site may have sent this request: a navigation that does not come from a page of
 * this service. Only pages of this service make other requests that come here. A browser tells this
 * worker neither the origin of a form nor `Sec-Fetch-Site`, but the page before, unless that page
 * hides itself; so a request without a page before it counts as one of another site. */
const isForeign = (request) => request.mode === "navigate" && !isOwn(request.referrer);

async function answer(request, url) {
  if (isForeign(request)) {
    if (request.method !== "GET" && request.method !== "HEAD") {
      return page(
        403,
        "This form was not sent to the service: it is of another site, or of a page that hides its " +
          "own address (no-referrer).",
      );
    }
    // A link may lead here, as with cookies that are SameSite=Lax. A frame may not: it would ask in
    // the name of this visitor, although nobody sees its answer.
    if (request.destination !== "document") return bounce(url);
  } else if (request.mode === "navigate") {
    bounced.delete(addressOf(url));
  }
  try {
    const to = await reach();
    await turn();
    return await ask(request, to, url);
  } catch (error) {
    return page(503, error.message);
  }
}

const addressOf = (url) => url.pathname + url.search;

/** Sends a frame to the same address once more, now from a page of this service. That page runs in
 * frames of this visit and of the service alone. */
function bounce(url) {
  const now = performance.now();
  for (const [address, { at }] of bounced) if (now - at > BOUNCED) bounced.delete(address);
  const before = bounced.get(addressOf(url))?.times ?? 0;
  if (before >= BOUNCES) {
    return page(
      403,
      "This browser hides the page before an address, so that a frame of the service cannot be told " +
        "from that of another site. The link “New tab” shows the service.",
    );
  }
  bounced.set(addressOf(url), { at: now, times: before + 1 });
  const nonce = crypto.randomUUID();
  const text = `<!doctype html><title>Visit</title><script nonce="${nonce}">
const to = location.href;
history.replaceState(null, "", "/.tunnel/go");
location.replace(to);
</script>`;
  const policy = `default-src 'none'; script-src 'nonce-${nonce}'; frame-ancestors 'self' ${home}`;
  return own(200, text, policy);
}

function ask(request, to, url) {
  const id = ++last;
  const say = (message, moved = []) => to.postMessage({ id, ...message }, moved);
  return new Promise(async (respond) => {
    let stream;
    let room = () => {};
    let over = false;
    const late = setTimeout(() => {
      cancel();
      respond(page(504, "The service gave no answer in the time for which a browser waits."));
    }, LATE);
    const forget = () => {
      if (over) return;
      over = true;
      clearTimeout(late);
      asked.delete(id);
      turns.shift()?.();
      room();
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
        try {
          respond(response(request, status, reason, fields, body));
        } catch (error) {
          cancel();
          respond(page(502, `This browser does not take the answer: ${error.message}`));
        }
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
    const fields = [...request.headers]
      .filter(([name]) => !OURS.includes(name) && !name.startsWith("sec-fetch-"))
      .map(([name, value]) => `${name}: ${value}`);
    // A part of a compressed answer cannot be decompressed.
    if (!request.headers.has("range")) fields.push("accept-encoding: gzip");
    fields.push(`x-forwarded-proto: ${url.protocol.slice(0, -1)}`);
    if (isOwn(request.referrer) && !new URL(request.referrer).pathname.startsWith("/.tunnel/")) {
      fields.push(`referer: ${request.referrer}`);
    }
    if (request.method !== "GET" && request.method !== "HEAD") {
      fields.push(`origin: ${location.origin}`);
    }
    fields.push(...fetched(request));
    const { method } = request;
    const ask = (length) =>
      say({ kind: "ask", method, target: addressOf(url), fields, length });
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

/** What a browser says of the origin of a request, by which a service refuses those of other sites.
 * Of a navigation from a page of the service nothing is said: it may have been redirected. */
function fetched(request) {
  if (request.mode === "navigate" && !isForeign(request)) return [];
  return [
    `sec-fetch-site: ${isForeign(request) ? "cross-site" : "same-origin"}`,
    `sec-fetch-mode: ${request.mode}`,
    `sec-fetch-dest: ${request.destination || "empty"}`,
  ];
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
  const connection = fields.filter(([name]) => name.toLowerCase() === "connection");
  const closes = connection.flatMap(([, value]) => value.toLowerCase().split(/[\s,]+/));
  let coding = "";
  for (const [name, value] of fields) {
    const lower = name.toLowerCase();
    if (lower === "content-encoding") coding = value.trim().toLowerCase();
    else if (!HIDDEN.includes(lower) && !closes.includes(lower)) {
      headers.append(name, changed(lower, value.trim()));
    }
  }
  headers.append("content-security-policy", `frame-ancestors 'self' ${home}`);
  // Services share a domain. Each is kept apart from its neighbours, also in its process.
  headers.set("origin-agent-cluster", "?1");
  if (coding === "gzip" || coding === "deflate") {
    body = body.pipeThrough(new DecompressionStream(coding));
  } else if (coding && coding !== "identity") {
    headers.set("content-encoding", coding);
  }
  const isEmpty = [204, 205, 304].includes(status) || request.method === "HEAD";
  return new Response(isEmpty ? null : body, { status, statusText: plain(statusText), headers });
}

/** A field as this visit needs it. */
function changed(name, value) {
  switch (name) {
    case "content-security-policy":
      // Each of several policies, which commas separate, may name who shows the page in a frame.
      return value
        .split(",")
        .map((policy) => policy.split(";").filter((rule) => !/^\s*frame-ancestors\b/i.test(rule)))
        .map((rules) => rules.join(";"))
        .join(",");
    case "referrer-policy":
      // Forms of the service are known by their page. Other sites learn as little as before.
      return value.replace(/\bno-referrer\b(?!-)/gi, "same-origin");
    default:
      return value;
  }
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
  return own(status, text, policy);
}

function own(status, text, policy) {
  const headers = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "content-security-policy": policy,
    "origin-agent-cluster": "?1",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
  };
  return new Response(text, { status, headers });
}
