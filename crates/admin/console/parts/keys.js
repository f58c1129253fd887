// @ts-check
// The keyboard: `g` and a letter go to a page, `/` to the filter, `?` shows all keys.

import { go, open, state } from "../store.js";

/** Letters behind `g`. @type {Record<string, string>} */
export const PLACES = {
  o: "overview", c: "clients", s: "services", t: "streams", r: "requests", l: "log",
  u: "cluster", f: "config", x: "tools", e: "certificates", p: "settings",
};

/** What waits for the key `p` of a page that goes on by itself. @type {{ pause: (() => void)|null }} */
export const page = { pause: null };

/** How long `g` waits for its letter. */
const WAIT = 1500;

export function listen() {
  let since = -WAIT;
  addEventListener("keydown", (event) => {
    const at = /** @type {HTMLElement} */ (event.target);
    if (!state.in || event.ctrlKey || event.metaKey || event.altKey) return;
    if (state.dialog || at.closest?.("input, textarea, select, [contenteditable]")) return;
    if (performance.now() - since < WAIT) {
      since = -WAIT;
      const place = PLACES[event.key];
      if (place) {
        event.preventDefault();
        go(`#/${place}`);
        return;
      }
    }
    switch (event.key) {
      case "g": since = performance.now(); break;
      case "/": {
        const field = document.getElementById("filter");
        if (field) { event.preventDefault(); field.focus(); }
        break;
      }
      case "n": {
        event.preventDefault();
        if (state.totals?.role === "server") open("enrol");
        else if (state.totals?.role === "client") open("service");
        break;
      }
      case "p": page.pause?.(); break;
      case "?": open("keys"); break;
    }
  });
}
