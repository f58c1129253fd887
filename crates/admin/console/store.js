// @ts-check
// The one state. Lines of the daemon are folded into it; everything that is drawn is drawn from it.

import { useEffect, useState } from "./vendor/hooks.js";

/** Lines of the log that are kept. */
const LOG_LINES = 2000;

/** @typedef {{ t: number[], in: (number|null)[], out: (number|null)[] }} Trace */

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
  /** @type {any} */ totals: null,
  /** @type {{ total: number, list: any[] }|null} */ services: null,
  /** @type {{ total: number, list: any[] }|null} */ clients: null,
  /** @type {{ total: number, list: any[] }|null} */ streams: null,
  /** The whole status, twice a minute. @type {any} */ status: null,
  /** @type {any[]} */ log: [],
  logLost: 0,
  /** @type {{ name: string, props?: any }|null} */ dialog: null,
  /** @type {{ id: number, text: string, bad: boolean }[]} */ toasts: [],
};

/** @typedef {typeof state} State */

/** @type {Set<() => void>} */
const watchers = new Set();
let asked = false;

function changed() {
  if (asked) return;
  asked = true;
  queueMicrotask(() => {
    asked = false;
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
  useEffect(() => {
    const watcher = () => draw((/** @type {number} */ n) => n + 1);
    watchers.add(watcher);
    return () => void watchers.delete(watcher);
  }, []);
  return state;
}

/** Folds one line of `/api/v1/events` into the state. @param {any} line */
export function fold(line) {
  state.at = performance.now();
  state.lost = false;
  switch (line.topic) {
    case "totals": state.totals = line; break;
    case "services": state.services = line; break;
    case "clients": state.clients = line; break;
    case "streams": state.streams = line; break;
    case "log": {
      const last = state.log.at(-1)?.seq ?? -1;
      const fresh = line.lines.filter((/** @type {any} */ one) => one.seq > last);
      state.log = [...state.log, ...fresh].slice(-LOG_LINES);
      state.logLost += line.lost ?? 0;
      break;
    }
  }
  changed();
}

/** Forgets what a daemon said: the next one may be another. */
export function forget() {
  set({ totals: null, services: null, clients: null, streams: null, status: null, log: [], logLost: 0, at: 0, lost: false });
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
