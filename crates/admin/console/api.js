// @ts-check
// The one place that asks the daemon. The session's token stands in a header, never in a cookie. The
// header is not Authorization, which a reverse proxy with basic auth needs for its own password.

const KEY = "tunnel.session";

/** An answer that is no success: `status` 0 says that the daemon cannot be reached. */
export class Refusal extends Error {
  /** @param {number} status @param {string} text @param {string[]} [problems] */
  constructor(status, text, problems = []) {
    super(text);
    this.status = status;
    this.problems = problems;
  }
}

/** What happens when a session is over. @type {() => void} */
let onEnd = () => {};

/** @param {() => void} then */
export function whenSessionEnds(then) {
  onEnd = then;
}

export const session = {
  get: () => sessionStorage.getItem(KEY),
  /** @param {string} token */
  set: (token) => sessionStorage.setItem(KEY, token),
  drop: () => sessionStorage.removeItem(KEY),
};

/**
 * @param {string} method
 * @param {string} path below the origin
 * @param {{ body?: unknown, token?: string, signal?: AbortSignal, match?: string, keepalive?: boolean }} [more]
 */
async function ask(method, path, { body, token, signal, match, keepalive } = {}) {
  /** @type {Record<string, string>} */
  const headers = { "X-Tunnel-Token": token ?? session.get() ?? "" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (match) headers["If-Match"] = match;
  /** @type {RequestInit} */
  const init = { method, headers, signal, keepalive, cache: "no-store", credentials: "same-origin", redirect: "error" };
  if (body !== undefined) init.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal(0, "");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  if (answer.status === 401 && token === undefined) onEnd();
  throw new Refusal(answer.status, said.error ?? `${answer.status} ${answer.statusText}`, said.problems);
}

/**
 * The JSON of an answer; `undefined` for one without a body.
 *
 * @param {string} method
 * @param {string} path
 * @param {Parameters<typeof ask>[2]} [more]
 * @returns {Promise<any>}
 */
export async function call(method, path, more) {
  const answer = await ask(method, path, more);
  const text = await answer.text();
  return text === "" ? undefined : JSON.parse(text);
}

/** @param {string} path @param {AbortSignal} [signal] */
export const get = (path, signal) => call("GET", path, { signal });

/** A file for the person, as the daemon answers it. @param {string} path */
export async function blob(path) {
  return (await ask("GET", path)).blob();
}

/**
 * Calls `each` with every line of an answer that goes on. Ends with the answer.
 *
 * @param {string} path
 * @param {(line: any) => void} each
 * @param {AbortSignal} signal
 */
export async function lines(path, each, signal) {
  const answer = await ask("GET", path, { signal });
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) if (part !== "") each(JSON.parse(part));
  }
}

/** Puts a text of the daemon into a path. @param {string} part */
export const segment = (part) => encodeURIComponent(part);
