// @ts-check
// The frame of every page: menu, state of the daemon, how old the figures are.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { open } from "../store.js";
import { State } from "./bits.js";
import { number, span } from "./format.js";
import { Icon, Mark } from "./icon.js";
import { show } from "./preferences.js";
import { t } from "./text.js";

/** Pages that are in the bar of a narrow screen; the others are behind "more". */
const FIRST = ["overview", "clients", "services", "streams"];

/** The pages in their order. @param {import("../store.js").State} s */
export const pages = (s) =>
  ["overview", ...(s.totals?.role === "proxy" ? [] : ["clients"]), "services", "streams", ...(s.totals?.node ? ["cluster"] : []), ...(s.totals?.role === "client" ? ["requests"] : []), "log", "config", "tools", "certificates", "settings"];

/** @param {{ at: number, lost: boolean }} props */
function Age({ at, lost }) {
  const [, draw] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => draw((/** @type {number} */ n) => n + 1), 500);
    return () => clearInterval(timer);
  }, []);
  if (at === 0) return null;
  const seconds = Math.max(0, (performance.now() - at) / 1000);
  return h("span", { class: lost ? "" : "age" }, t("age", { span: seconds < 10 ? `${number(seconds, 1)} ${t("unit.s")}` : span(seconds) }));
}

/** Name of a page; on a client its "clients" are servers. @param {string} page @param {any} totals */
export const title = (page, totals) => t(page === "clients" && totals?.role === "client" ? "nav.servers" : `nav.${page}`);

/** @param {any} props */
export function Shell({ s, page, children }) {
  const { totals } = s;
  const counts = /** @type {Record<string, number>} */ ({ clients: totals?.peers, services: totals?.services, streams: totals && totals.streams + (totals.flows ?? 0) });
  const dark = s.theme === "dark" || (s.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  const word = s.lost ? "lost" : totals?.state ?? "connecting";
  return h("div", { class: `shell ${s.lost ? "stale" : ""}` },
    h("nav", { class: "menu", "aria-label": t("nav.label") },
      h("div", { class: "brand" }, h(Mark, null), h("span", null, "tunnel")),
      pages(s).map((name) =>
        h("a", { key: name, href: `#/${name}`, class: FIRST.includes(name) ? "" : "extra", "aria-current": name === page ? "page" : undefined, title: title(name, totals) },
          h(Icon, { name }), h("span", null, title(name, totals)),
          counts[name] !== undefined && h("span", { class: "count" }, number(counts[name])))),
      h("button", { type: "button", class: "more", onClick: () => open("more") }, h(Icon, { name: "more" }), h("span", null, t("nav.more"))),
      h("div", { class: "gap" }),
      totals && h("span", { class: "brand version" }, h("span", { class: "soft" }, t("version", { version: totals.version })))),
    h("div", { class: "main" },
      h("header", { class: "bar" },
        h("span", { class: "who" }, totals ? [t(`role.${totals.role}`), " ", totals.name || (/^(127\.|\[|localhost)/.test(location.hostname) ? "" : location.hostname)] : "tunnel"),
        h(State, { word, text: totals?.state_text }),
        totals && !s.lost && h("span", { class: "age" }, t("uptime", { span: span(totals.uptime_seconds) })),
        h("div", { class: "end" },
          !s.lost && h(Age, { at: s.at, lost: false }),
          h("button", { type: "button", class: "plain keys-button", "aria-label": t("keys.all"), title: t("keys.all"), onClick: () => open("keys") }, h(Icon, { name: "keys" })),
          h("button", { type: "button", class: "plain", "aria-label": t(dark ? "theme.light" : "theme.dark"), title: t(dark ? "theme.light" : "theme.dark"), onClick: () => show(s.lang, dark ? "light" : "dark") }, h(Icon, { name: dark ? "sun" : "moon" })),
          h("button", { type: "button", class: "plain", lang: s.lang === "en" ? "zh" : "en", onClick: () => show(s.lang === "en" ? "zh" : "en", s.theme) }, s.lang === "en" ? "中文" : "English"))),
      s.lost && h("div", { class: "lost", role: "alert" }, h(Icon, { name: "unplug" }), h("span", null, t("lost")), h(Age, { at: s.at, lost: true })),
      h("main", { class: "content", id: "content" }, children)));
}
