// @ts-check
// The log as it is written: follow, filter, levels, the audit apart, more words for ten minutes.

import { h } from "../vendor/preact.js";
import { useEffect, useLayoutEffect, useRef, useState } from "../vendor/hooks.js";
import { call, get } from "../api.js";
import { set, toast } from "../store.js";
import { Card, Choice, Empty, Head, said } from "../parts/bits.js";
import { clock, number, span } from "../parts/format.js";
import { Icon } from "../parts/icon.js";
import { page } from "../parts/keys.js";
import { Filter } from "../parts/table.js";
import { t } from "../parts/text.js";

const LEVELS = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];
const MINUTES = 10;
/** Lines that are drawn: more are reached by the filter. */
const SHOWN = 500;

/** What goes back to the old level by itself; it outlives the page. @type {{ timer: number, until: number, before: string }|null} */
let louder = null;

async function quiet() {
  if (!louder) return;
  clearTimeout(louder.timer);
  const { before } = louder;
  louder = null;
  try {
    await call("PUT", "/api/v1/log", { body: { filter: before } });
    toast(t("log.back", { filter: before }));
  } catch (error) {
    toast(said(error), true);
  }
  set({});
}

async function loud() {
  try {
    const { filter } = await get("/api/v1/log");
    await call("PUT", "/api/v1/log", { body: { filter: "debug" } });
    louder = { before: filter, until: Date.now() + MINUTES * 60_000, timer: Number(setTimeout(quiet, MINUTES * 60_000)) };
  } catch (error) {
    toast(said(error), true);
  }
  set({});
}

/** @param {{ s: import("../store.js").State }} props */
export function Log({ s }) {
  const [filter, setFilter] = useState("");
  const [part, setPart] = useState("all");
  const [level, setLevel] = useState("TRACE");
  const [kept, setKept] = useState(/** @type {any[]|null} */ (null));
  const end = useRef(/** @type {HTMLElement|null} */ (null));
  const follows = useRef(true);
  const pause = () => setKept((/** @type {any} */ was) => (was ? null : s.log));
  useEffect(() => {
    page.pause = pause;
    return () => { page.pause = null; };
  });
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const lines = (kept ?? s.log).filter((one) =>
    (part === "all" || (part === "audit") === (one.target === "audit")) && LEVELS.indexOf(one.level) <= LEVELS.indexOf(level)
    && words.every((word) => `${one.target} ${one.text}`.toLowerCase().includes(word))).slice(-SHOWN);
  useLayoutEffect(() => {
    if (end.current && follows.current && !kept) end.current.scrollTop = end.current.scrollHeight;
  }, [lines.at(-1)?.seq, lines.length]);
  const scrolled = (/** @type {any} */ event) => {
    const at = event.currentTarget;
    follows.current = at.scrollHeight - at.scrollTop - at.clientHeight < 40;
  };
  const tools = [
    h(Filter, { key: "filter", value: filter, onChange: setFilter, label: t("filter") }),
    h("select", { key: "level", "aria-label": t("log.level"), value: level, onChange: (/** @type {any} */ e) => setLevel(e.target.value) },
      LEVELS.map((one) => h("option", { key: one, value: one }, t(`level.${one}`)))),
    h("button", { key: "pause", type: "button", "aria-pressed": String(kept !== null), onClick: pause }, h(Icon, { name: kept ? "play" : "pause" }), t(kept ? "go.on" : "pause")),
    louder ? h("button", { key: "loud", type: "button", onClick: quiet }, t("log.quiet", { span: span((louder.until - Date.now()) / 1000) }))
      : h("button", { key: "loud", type: "button", onClick: loud }, t("log.loud", { minutes: number(MINUTES) })),
  ];
  return h("div", null,
    h(Head, { title: t("nav.log"), end: tools }),
    h(Card, { title: h(Choice, { label: t("log.part"), value: part, onChange: setPart, options: [["all", t("log.all")], ["audit", t("log.audit")], ["rest", t("log.rest")]] }), level: "div", body: false,
      end: h("span", { class: "soft small", role: "status" }, kept ? t("paused") : s.logLost > 0 ? t("log.lost", { count: number(s.logLost) }) : t("log.follows")) },
      lines.length === 0 ? h(Empty, { icon: "log", title: t("log.none") }, h("p", null, t("log.none.text")))
        : h("ul", { class: "log", ref: end, tabindex: 0, "aria-label": t("nav.log"), onScroll: scrolled }, lines.map((one) =>
            h("li", { key: one.seq },
              h("time", { dateTime: new Date(one.unix_millis).toISOString() }, clock(one.unix_millis)),
              h("span", { class: one.level }, one.level),
              h("span", { class: "what" }, one.target === "audit" && [h("span", { class: "tag" }, t("log.audit")), " "], one.text))))));
}
