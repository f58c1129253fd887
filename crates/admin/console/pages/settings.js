// @ts-check
// Sessions of this console, its look, and files to take away.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { blob, call, get, segment, session } from "../api.js";
import { stop } from "../feed.js";
import { forget, open, set, toast } from "../store.js";
import { Card, Choice, Facts, Head, Problem, said } from "../parts/bits.js";
import { ago, span } from "../parts/format.js";
import { show } from "../parts/preferences.js";
import { Table } from "../parts/table.js";
import { t } from "../parts/text.js";

async function leave() {
  try {
    await call("DELETE", "/api/v1/sessions");
  } catch {
    // It ends in this browser in any case.
  }
  stop();
  session.drop();
  forget();
  set({ in: false, why: null });
}

/** @param {string} path @param {string} name */
async function save(path, name) {
  try {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await blob(path));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    toast(said(error), true);
  }
}

/** @param {{ s: import("../store.js").State }} props */
export function Settings({ s }) {
  const [list, setList] = useState(/** @type {any[]|null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const load = () => get("/api/v1/sessions").then((answer) => setList(answer.sessions), setError);
  useEffect(() => void load(), [s.epoch]);
  const end = async (/** @type {any} */ one) => {
    try {
      await call("DELETE", `/api/v1/sessions/${segment(one.id)}`);
      await load();
    } catch (wrong) {
      toast(said(wrong), true);
    }
  };
  const halt = () => open("confirm", {
    title: t("stop.title"), text: t("stop.text"), verb: t("stop.do"), word: s.totals?.name || "stop",
    then: async () => { await call("POST", "/api/v1/stop"); toast(t("stop.done")); },
  });
  return h("div", { class: "stack" },
    h(Head, { title: t("nav.settings") }),
    h(Card, { title: t("settings.look") }, h(Facts, { rows: [
      [t("settings.theme"), h(Choice, { label: t("settings.theme"), value: s.theme, onChange: (one) => show(s.lang, one), options: [["auto", t("theme.auto")], ["light", t("theme.light")], ["dark", t("theme.dark")]] })],
      [t("settings.language"), h(Choice, { label: t("settings.language"), value: s.lang, onChange: (one) => show(one, s.theme), options: [["en", "English"], ["zh", "中文"]] })],
    ] })),
    h(Card, { title: t("settings.sessions"), body: false, end: h("button", { type: "button", class: "slim", onClick: leave }, t("settings.leave")) },
      error !== null && h("div", { class: "body" }, h(Problem, { error })),
      list && h(Table, {
        label: t("settings.sessions"), rows: list, id: (one) => one.id, sort: ["idle", 1],
        columns: [
          { key: "from", name: t("settings.from"), show: (one) => [h("b", { class: "mono" }, one.from), " ", one.own && h("span", { class: "tag" }, t("settings.own"))] },
          { key: "by", name: t("settings.by"), show: (one) => t(`settings.by.${one.by}`) },
          { key: "age", name: t("settings.age"), by: (one) => one.age_seconds, show: (one) => ago(one.age_seconds) },
          { key: "idle", name: t("settings.idle"), by: (one) => one.idle_seconds, show: (one) => ago(one.idle_seconds) },
          { key: "until", name: t("settings.until"), by: (one) => one.expires_seconds, show: (one) => t("cert.in", { span: span(one.expires_seconds) }) },
          { key: "end", name: "", bare: true, all: true, show: (one) => !one.own && h("button", { type: "button", class: "slim danger", onClick: () => end(one) }, t("settings.end")) },
        ],
        none: h("p", { class: "body soft" }, t("settings.none")),
      })),
    h(Card, { title: t("settings.files") }, h("div", { class: "row" },
      h("button", { type: "button", onClick: () => save("/metrics", "metrics.txt") }, t("settings.metrics")),
      h("button", { type: "button", onClick: () => save("/api/v1/openapi.json", "openapi.json") }, t("settings.openapi")),
      h("button", { type: "button", onClick: () => save("/api/v1/status", "status.json") }, t("settings.status")))),
    h(Card, { title: t("stop.card") }, h("div", { class: "row" }, h("span", { class: "soft" }, t("stop.hint")), h("button", { type: "button", class: "danger", onClick: halt }, t("stop.do")))));
}
