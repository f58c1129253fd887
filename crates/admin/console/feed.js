// @ts-check
// The live figures: one answer of lines, asked for anew whenever it ends. Lists come whole at first,
// and then as what has changed.

import { Refusal, get, lines } from "./api.js";
import { fold, set, state } from "./store.js";

/** A daemon that says nothing for so long is lost: it has a line each second. A connection that
 * breaks says so at once. */
const SILENCE = 5000;
const AGAIN = 1000;
const SLOW = 15_000;

/** What each page looks at; `totals` is always asked for. @type {Record<string, string>} */
const TOPICS = {
  overview: "needs,busiest", clients: "clients,services", services: "services",
  streams: "streams:200", log: "log", requests: "requests,services", tools: "clients,services", enrol: "clients",
};

/** @type {AbortController|null} */
let current = null;
let topics = "";

/** Looks at what the page of this name shows, and a dialog over it. @param {string} page @param {string} [dialog] */
export function look(page, dialog = "") {
  const wanted = [...new Set(["totals", ...`${TOPICS[page] ?? ""},${TOPICS[dialog] ?? ""}`.split(",")])].filter(Boolean).join(",");
  if (wanted === topics && current) return;
  topics = wanted;
  current?.abort();
  current = new AbortController();
  void run(current.signal, wanted);
}

export function stop() {
  current?.abort();
  current = null;
  topics = "";
}

/** @param {AbortSignal} signal @param {string} wanted */
async function run(signal, wanted) {
  while (!signal.aborted) {
    const began = performance.now();
    const heard = { at: began, any: false };
    const one = new AbortController();
    const end = () => one.abort();
    signal.addEventListener("abort", end, { once: true });
    // A connection that is open and silent tells as little as none.
    const watch = setInterval(() => {
      if (performance.now() - heard.at > SILENCE) one.abort();
    }, 250);
    try {
      await lines(`/api/v1/events?changes=true&topics=${wanted}`, (line) => {
        heard.at = performance.now();
        if (!heard.any) set({ epoch: state.epoch + 1 });
        heard.any = true;
        // A line that goes on from one that did not come: the next answer begins with whole lists.
        if (!fold(line)) one.abort();
      }, one.signal);
    } catch (error) {
      if (signal.aborted || (error instanceof Refusal && error.status === 401)) return;
    } finally {
      clearInterval(watch);
      signal.removeEventListener("abort", end);
    }
    if (signal.aborted) return;
    // An answer ends after ten minutes also without a fault.
    if (!(heard.any && performance.now() - heard.at < SILENCE && (await answers()))) {
      if (signal.aborted) return;
      set({ lost: true });
    }
    await new Promise((done) => setTimeout(done, Math.max(0, began + AGAIN - performance.now())));
  }
}

/** Whether the daemon is there. */
async function answers() {
  return fetch("/healthz", { cache: "no-store", credentials: "omit" }).then((answer) => answer.ok, () => false);
}

/** What changes slowly: certificates. */
export async function refresh() {
  if (!state.in || document.hidden) return;
  try {
    set({ slow: await get("/api/v1/certificates") });
  } catch {
    // The feed says when the daemon is out of reach.
  }
}

/** Somebody is signed in. */
export function begin() {
  set({ in: true, why: null });
  void refresh();
}

setInterval(refresh, SLOW);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) void refresh();
});
