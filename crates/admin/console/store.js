// @ts-check
// The one state. Lines of the daemon are folded into it; everything that is drawn is drawn from it.

import { listed, stamp } from "./rows.js";
import { useEffect, useState } from "./vendor/hooks.js";

/** Lines of the log that are kept. */
const LOG_LINES = 2000;

/** Requests of each service that are kept, as the daemon keeps them. */
const REQUESTS = 200;

/** @typedef {import("./api-types.js").Figures} Figures a line of `/api/v1/events` */
/** @typedef {"list"|"lines"|"lost"|"total"|"whole"|"revision"|"after"|"gone"|"memory_bytes"|"troubled_services"|"troubled_services_total"|"troubled_clients"|"troubled_clients_total"} Lists */
/** @typedef {"drain_seconds"|"reload_error"|"descriptors_limit"|"udp"|"node"} Rare */
/** @typedef {Required<Omit<Figures, Lists | Rare>> & Pick<Figures, Rare>} Totals */
/** @typedef {{ streams: number, services: number, bytes_in: number, bytes_out: number, in_bytes_per_second: number, out_bytes_per_second: number }} Moved */
/** When a row came, as `unix_millis` of its line. @typedef {{ told?: number }} Told */
/** @typedef {import("./api-types.js").Service & Moved & Told & { id: string, kind: "service"|"forward"|"proxy"|"default", peer: string }} ServiceRow */
/** @typedef {Partial<Omit<import("./api-types.js").Client, "state">> & Moved & Told & { name: string, state: string, state_text: string, links: number, carriers?: import("./api-types.js").Carrier[] }} PeerRow */
/** @typedef {import("./api-types.js").Streams["list"][number] & { in_bytes_per_second: number, out_bytes_per_second: number }} StreamRow */
/** @typedef {import("./api-types.js").LogLines["lines"][number]} LogLine */
/** @typedef {import("./api-types.js").SeenRequest} RequestRow */

/**
 * @template T
 * @typedef {import("./rows.js").Rows<T>} Rows
 */

export const state = {
  /** Whether somebody is signed in. */
  in: false,
  /** Why the last session ended: a key of the texts. @type {string|null} */
  why: null,
  lang: /** @type {"en"|"zh"} */ ("en"),
  theme: /** @type {"auto"|"light"|"dark"} */ ("auto"),
  /** Segments of the address behind `#/`. @type {string[]} */
  route: [],
  /** When the daemon's last line came, by `performance.now()`; 0: none yet. */
  at: 0,
  /** Whether the daemon is out of reach. */
  lost: false,
  /** Counts connections: a plot whose count has changed asks for what it missed. */
  epoch: 0,
  /** @type {Totals|null} */ totals: null,
  /** @type {Rows<ServiceRow>|null} */ services: null,
  /** @type {Rows<PeerRow>|null} */ clients: null,
  /** @type {Rows<StreamRow>|null} */ streams: null,
  /** What needs somebody. @type {{ services: ServiceRow[], clients: PeerRow[], more: number }|null} */ needs: null,
  /** The services with the highest rates. @type {ServiceRow[]|null} */ busiest: null,
  /** The kept requests, the oldest first. @type {{ lost: number, memory_bytes: number, list: RequestRow[] }|null} */ requests: null,
  /** What changes slowly, four times a minute. @type {import("./api-types.js").Certificates|null} */ slow: null,
  /** @type {LogLine[]} */ log: [],
  logLost: 0,
  /** @type {{ name: string, props?: any }|null} */ dialog: null,
  /** @type {{ id: number, text: string, bad: boolean }[]} */ toasts: [],
};

/** @typedef {typeof state} State */

/** @type {Set<() => void>} */
const watchers = new Set();
let asked = false;
/** Counts what was drawn. */
let version = 0;

function changed() {
  if (asked) return;
  asked = true;
  queueMicrotask(() => {
    asked = false;
    version += 1;
    for (const watcher of watchers) watcher();
  });
}

/** @param {Partial<State>} some */
export function set(some) {
  Object.assign(state, some);
  changed();
}

/** Draws a component anew with each change. @returns {State} */
export function useStore() {
  const [, draw] = useState(0);
  const drawn = version;
  useEffect(() => {
    const watcher = () => draw((/** @type {number} */ n) => n + 1);
    watchers.add(watcher);
    // An answer may come between the first drawing and this.
    if (version !== drawn) watcher();
    return () => void watchers.delete(watcher);
  }, []);
  return state;
}

/**
 * Folds one line of `/api/v1/events` into the state. Returns false for a line of changes since a line
 * that is not the last one here.
 * @param {any} line
 */
export function fold(line) {
  state.at = performance.now();
  state.lost = false;
  switch (line.topic) {
    case "totals": state.totals = line; break;
    case "services":
    case "clients":
    case "streams": {
      const rows = listed(state[/** @type {"services"} */ (line.topic)], line);
      if (!rows) return false;
      Object.assign(state, { [line.topic]: rows });
      break;
    }
    case "needs": {
      const { troubled_services: services, troubled_clients: clients } = line;
      stamp([...services, ...clients], line);
      const more = line.troubled_services_total + line.troubled_clients_total - services.length - clients.length;
      state.needs = { services, clients, more };
      break;
    }
    case "busiest": state.busiest = line.list; break;
    case "requests": seen(line); break;
    case "log": {
      merge(line.lines);
      state.logLost += line.lost ?? 0;
      break;
    }
  }
  changed();
  return true;
}

/** Seconds since a row came, which its own seconds are older by now. @param {Told} row */
export const older = (row) => Math.max(0, Math.round(((state.totals?.unix_millis ?? 0) - (row.told ?? Infinity)) / 1000));

/** Puts requests that have changed in the place of the old ones. @param {any} line */
function seen(line) {
  /** @type {Map<number, RequestRow>} */
  const all = new Map((line.whole ? [] : state.requests?.list ?? []).map((one) => [one.id, one]));
  for (const one of line.list) all.set(one.id, one);
  /** @type {Record<string, number>} */
  const counts = {};
  const list = [...all.values()].sort((a, b) => b.id - a.id).filter((one) => (counts[one.service] = (counts[one.service] ?? 0) + 1) <= REQUESTS);
  state.requests = { lost: line.lost, memory_bytes: line.memory_bytes, list: list.reverse() };
}

/** Adds lines of the log that are not there yet, older or newer. @param {LogLine[]} lines */
export function merge(lines) {
  const [first, last] = [state.log[0]?.seq ?? Infinity, state.log.at(-1)?.seq ?? -1];
  const older = lines.filter((one) => one.seq < first && last >= 0);
  const newer = lines.filter((one) => one.seq > last);
  state.log = [...older, ...state.log, ...newer].slice(-LOG_LINES);
  changed();
}

/** Forgets what a daemon said: the next one may be another. */
export function forget() {
  set({ totals: null, services: null, clients: null, streams: null, needs: null, busiest: null, requests: null, slow: null, log: [], logLost: 0, at: 0, lost: false });
}

let toasts = 0;

/** Says something for a while. @param {string} text @param {boolean} [bad] */
export function toast(text, bad = false) {
  const id = ++toasts;
  set({ toasts: [...state.toasts.slice(-3), { id, text, bad }] });
  setTimeout(() => untoast(id), bad ? 12_000 : 5_000);
}

/** @param {number} id */
export const untoast = (id) => set({ toasts: state.toasts.filter((one) => one.id !== id) });

/** @param {string} name @param {any} [props] */
export const open = (name, props) => set({ dialog: { name, props } });
export const close = () => set({ dialog: null });

/** @param {string} path */
export const go = (path) => { location.hash = path; };
