// @ts-check
// What goes through, and what needs a person.

import { h } from "../vendor/preact.js";
import { open } from "../store.js";
import { needs } from "../parts/needs.js";
import { Card, Empty, Head } from "../parts/bits.js";
import { bytes, memory, number, rate, rateParts } from "../parts/format.js";
import { Icon } from "../parts/icon.js";
import { Plot } from "../parts/plot.js";
import { t } from "../parts/text.js";

/** @param {any} props */
const Figure = ({ name, value, unit, note, href, mark }) =>
  h(href ? "a" : "div", { class: "figure", href },
    h("span", { class: "name" }, mark && h("i", { class: `key ${mark}` }), name),
    h("div", { class: "value" }, value, unit && h("small", null, unit)),
    h("div", { class: "note", title: note }, note || "\u00a0"));

/** @param {{ s: import("../store.js").State }} props */
export function Overview({ s }) {
  const a = s.totals;
  if (!a) return h(Head, { title: t("nav.overview") });
  const [ins, inUnit] = rateParts(a.in_bytes_per_second);
  const [outs, outUnit] = rateParts(a.out_bytes_per_second);
  const server = a.role === "server";
  return h("div", { class: "stack" },
    h(Head, { title: t("nav.overview"), end: server && h("button", { type: "button", class: "first", onClick: () => open("enrol") }, h(Icon, { name: "plus" }), t("enrol.open")) }),
    h("div", { class: "figures" },
      h(Figure, { name: t("rate.in"), mark: "in", value: ins, unit: inUnit, note: t("since.start", { bytes: bytes(a.bytes_in) }) }),
      h(Figure, { name: t("rate.out"), mark: "out", value: outs, unit: outUnit, note: t("since.start", { bytes: bytes(a.bytes_out) }) }),
      a.role !== "proxy" && h(Figure, { name: t(server ? "nav.clients" : "nav.servers"), href: "#/clients", value: number(a.peers_up), unit: t("of", { all: number(a.peers) }), note: t("connected.now") }),
      h(Figure, { name: t("nav.services"), href: "#/services", value: number(a.services_up), unit: t("of", { all: number(a.services) }), note: t("services.serve") }),
      h(Figure, { name: t("nav.streams"), href: "#/streams", value: number(a.streams + (a.flows ?? 0)), note: a.flows ? t("flows.of", { flows: number(a.flows) }) : t("open.now") }),
      h(Figure, { name: t("refused"), href: "#/services", value: number(a.refused), note: t("visitors.since") }),
      h(Figure, { name: t("memory"), value: memory(a.memory_used_bytes), note: t("of", { all: memory(a.memory_budget_bytes) }) }),
      h(Figure, { name: t("descriptors"), value: number(a.descriptors_open), note: a.descriptors_limit ? t("of", { all: number(a.descriptors_limit) }) : "" })),
    h(Plot, { of: "total", epoch: s.epoch, now: { unix_millis: a.unix_millis, in: a.in_bytes_per_second, out: a.out_bytes_per_second } }),
    h("div", { class: "pair" }, h(Needs, { s }), h(Busiest, { s })));
}

/** @param {{ s: import("../store.js").State }} props */
function Needs({ s }) {
  const list = needs(s);
  const more = Math.max(0, list.length - 12) + (s.needs?.more ?? 0);
  return h(Card, { title: t("needs.title"), body: false },
    list.length === 0 ? h(Empty, { icon: "good", title: t("needs.none") }, h("p", null, t("needs.none.text")))
      : h("ul", { class: "needs" }, list.slice(0, 12).map((one) =>
          h("li", { key: one.key, class: one.tone }, h(Icon, { name: one.tone }),
            h("div", { class: "what" }, h("b", null, one.of), " ", one.text),
            one.href && h("a", { class: "go", href: one.href, "aria-label": t("needs.open", { of: one.of }) }, t("open"))))),
    more > 0 && h("div", { class: "foot" }, t("needs.more", { count: number(more) })));
}

/** @param {{ s: import("../store.js").State }} props */
function Busiest({ s }) {
  const all = (s.busiest ?? []).map((one) => ({ ...one, both: one.in_bytes_per_second + one.out_bytes_per_second }));
  const top = all.filter((one) => one.both > 0).sort((x, y) => y.both - x.both).slice(0, 6);
  const most = top[0]?.both ?? 1;
  return h(Card, { title: t("busiest.title"), end: h("a", { href: "#/services" }, t("busiest.all")) },
    top.length === 0 ? h(Empty, { icon: "services", title: t("busiest.none") }, h("p", null, t(s.totals?.services ? "busiest.quiet" : "services.none.text")))
      : h("ul", { class: "bars" }, top.map((one) => h("li", { key: `${one.kind} ${one.peer} ${one.name} ${one.address}` },
          h("span", null, h("b", null, one.name), " ", h("span", { class: "soft" }, one.peer)),
          h("span", { class: "num" }, rate(one.both)),
          h("progress", { max: most, value: one.both, "aria-label": one.name })))));
}
