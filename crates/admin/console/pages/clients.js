// @ts-check
// On a server its clients, on a client its servers: who is there, over what, and why one is not.

import { h } from "../vendor/preact.js";
import { useState } from "../vendor/hooks.js";
import { go, older, open } from "../store.js";
import { Card, Empty, Head, State, standing } from "../parts/bits.js";
import { ago, millis, number, rate, span } from "../parts/format.js";
import { Icon } from "../parts/icon.js";
import { loss, quickest, transports } from "../parts/carriers.js";
import { title } from "../parts/shell.js";
import { Filter, Table } from "../parts/table.js";
import { t } from "../parts/text.js";

/** @param {string} name */
const href = (name) => `#/clients/${encodeURIComponent(name)}`;

/** Since when a client is away, or why it was refused. @param {any} row */
function since(row) {
  const more = older(row);
  if (row.refused && row.refused.seconds_ago + more < 3600) return t("client.refused", { reason: row.refused.reason, ago: ago(row.refused.seconds_ago + more) });
  if (row.stalled_seconds != null && row.stalled_seconds + more > 0) return t("client.stalled", { span: span(row.stalled_seconds + more) });
  if (row.away_seconds != null) return t("client.away", { span: span(row.away_seconds + more) });
  return row.address ?? "";
}

/** @param {{ s: import("../store.js").State }} props */
export function Clients({ s }) {
  const [filter, setFilter] = useState("");
  const server = s.totals?.role !== "client";
  const list = s.clients?.list ?? [];
  const columns = [
    { key: "name", name: t("col.name"), all: true, bare: true, by: (/** @type {any} */ c) => c.name,
      show: (/** @type {any} */ c) => [h("a", { href: href(c.name) }, h("b", null, c.name)), h("span", { class: "sub" }, since(c))] },
    { key: "state", name: t("col.state"), by: standing, show: (/** @type {any} */ c) => h(State, { word: standing(c), text: c.state_text }) },
    { key: "over", name: t("col.over"), by: transports, show: (/** @type {any} */ c) => transports(c) || "–" },
    { key: "links", name: t("col.links"), num: true, by: (/** @type {any} */ c) => c.links, show: (/** @type {any} */ c) => number(c.links ?? 0) },
    { key: "rtt", name: t("col.rtt"), num: true, by: quickest, show: (/** @type {any} */ c) => millis(quickest(c)) },
    { key: "loss", name: t("col.loss"), num: true, by: loss, show: (/** @type {any} */ c) => { const part = loss(c); return part == null ? "–" : `${number(part * 100, 2)} %`; } },
    { key: "streams", name: t("col.streams"), num: true, by: (/** @type {any} */ c) => c.streams, show: (/** @type {any} */ c) => number(c.streams ?? 0) },
    { key: "in", name: t("rate.in"), num: true, by: (/** @type {any} */ c) => c.in_bytes_per_second, show: (/** @type {any} */ c) => rate(c.in_bytes_per_second) },
    { key: "out", name: t("rate.out"), num: true, by: (/** @type {any} */ c) => c.out_bytes_per_second, show: (/** @type {any} */ c) => rate(c.out_bytes_per_second) },
  ];
  const enrol = server && h("button", { type: "button", class: "first", onClick: () => open("enrol") }, h(Icon, { name: "plus" }), t("enrol.open"));
  return h("div", null,
    h(Head, { title: title("clients", s.totals), end: [h(Filter, { key: "filter", value: filter, onChange: setFilter, label: t("filter") }), enrol] }),
    h(Card, { body: false }, s.clients && h(Table, {
      label: title("clients", s.totals), columns, rows: list, total: s.clients.total, filter, id: (c) => c.name, sort: ["name", 1],
      text: (c) => [c.name, c.state, t(`state.${standing(c)}`), c.address, transports(c)].join(" "),
      onRow: (c) => go(href(c.name)),
      none: h(Empty, { icon: "clients", title: t("clients.none") }, h("p", null, t("clients.none.text")), enrol),
    })));
}
