// @ts-check
// Services and forwards: where they begin, where they lead, how they fare, and whether they work now.

import { h } from "../vendor/preact.js";
import { useState } from "../vendor/hooks.js";
import { call, segment } from "../api.js";
import { Empty, State, said } from "./bits.js";
import { bytes, millis, number, rate, sum } from "./format.js";
import { Table } from "./table.js";
import { t } from "./text.js";

/** @param {any} one */
const key = (one) => `${one.kind} ${one.peer} ${one.name} ${one.address}`;

/** Refused visitors by reason, unfolded on demand. @param {{ map: Record<string, number>|undefined }} props */
function Refused({ map }) {
  const all = sum(map);
  if (all === 0) return h("span", { class: "soft" }, number(0));
  return h("details", null, h("summary", null, number(all)),
    h("ul", { class: "small" }, Object.entries(map ?? {}).map(([reason, count]) => h("li", { key: reason }, `${t(`reason.${reason}`)}: ${number(count)}`))));
}

/** A stream through link and target, and what it said; beside it what else can be done. @param {{ name: string, more: any }} props */
function Test({ name, more }) {
  const [result, setResult] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    try {
      setResult(await call("POST", `/api/v1/services/${segment(name)}/test`));
    } catch (error) {
      setResult({ ok: false, tests: [{ ok: false, error: said(error) }] });
    }
    setBusy(false);
  };
  return h("div", null,
    h("div", { class: "row acts" }, more, h("button", { type: "button", class: "slim", disabled: busy, onClick: run }, t(busy ? "test.busy" : "test.do"))),
    h("div", { role: "status" }, result && h("ul", { class: "small tests" }, result.tests.map((/** @type {any} */ one, /** @type {number} */ index) =>
      h("li", { key: index, class: one.ok ? "well" : "ill" }, one.ok ? [
        one.rtt_micros != null && t("test.link", { time: millis(one.rtt_micros) }),
        one.dial_micros != null && t("test.dial", { time: millis(one.dial_micros) }),
        one.http_status != null && t("test.http", { status: one.http_status, time: millis(one.http_micros) }),
      ].filter(Boolean).join(" · ") || t("test.good") : one.error)))));
}

/** @param {any} one */
const visitors = (one) => one.streams + (one.flows ?? 0);

/**
 * @param {object} props
 * @param {any[]} props.rows
 * @param {string} [props.filter]
 * @param {boolean} [props.bare] without the column of the peer
 * @param {any} [props.none]
 * @param {(row: any) => any} [props.edit]
 * @param {number} [props.total]
 */
export function ServiceTable({ rows, filter, bare, none, edit, total }) {
  /** @type {import("./table.js").Column[]} */
  const columns = [
    { key: "name", name: t("col.name"), all: true, bare: true, by: (one) => one.name, show: (one) => [
      h("b", null, one.kind === "forward" ? one.address : one.name), " ", one.kind === "proxy" && h("span", { class: "tag" }, t("kind.proxy")),
      one.kind === "forward" ? h("span", { class: "sub mono" }, "→ ", one.target) : (one.address || one.target) && h("span", { class: "sub" }, h("span", { class: "mono" }, one.address), one.target && [one.address && " ", "→ ", h("span", { class: "mono" }, one.target)]),
      one.state !== "up" && one.state_text !== one.state && h("span", { class: "sub" }, one.state_text),
      one.targets && h(Targets, { list: one.targets })] },
    ...(bare ? [] : [{ key: "peer", name: t("col.peer"), by: (/** @type {any} */ one) => one.peer, show: (/** @type {any} */ one) => h("a", { href: `#/clients/${encodeURIComponent(one.peer)}` }, one.peer) }]),
    { key: "state", name: t("col.state"), by: (one) => one.state, show: (one) => h(State, { word: one.state, text: one.state_text }) },
    { key: "now", name: t("col.visitors"), num: true, by: visitors, show: (one) => [number(visitors(one)), h("span", { class: "sub" }, t("of.total", { total: number(one.streams_total + (one.flows_total ?? 0)) }))] },
    { key: "in", name: t("rate.in"), num: true, by: (one) => one.in_bytes_per_second, show: (one) => [rate(one.in_bytes_per_second), h("span", { class: "sub" }, bytes(one.bytes_in))] },
    { key: "out", name: t("rate.out"), num: true, by: (one) => one.out_bytes_per_second, show: (one) => [rate(one.out_bytes_per_second), h("span", { class: "sub" }, bytes(one.bytes_out))] },
    { key: "refused", name: t("refused"), num: true, by: (one) => sum(one.refused), show: (one) => h(Refused, { map: one.refused }) },
    { key: "test", name: "", bare: true, all: true, show: (one) => one.kind === "service" && one.state !== "refused" ? h(Test, { name: one.name, more: edit?.(one) }) : edit && h("div", { class: "row acts" }, edit(one)) },
  ];
  return h(Table, {
    label: t("nav.services"), columns, rows, total, filter, id: key, sort: ["name", 1],
    text: (one) => [one.name, one.peer, one.address, one.target, one.state, t(`state.${one.state}`), one.kind].join(" "),
    none: none ?? h(Empty, { icon: "services", title: t("services.none") }),
  });
}

/** Several targets of one service. @param {{ list: any[] }} props */
const Targets = ({ list }) => h("ul", { class: "sub" }, list.map((one) =>
  h("li", { key: one.target }, h(State, { word: one.state, text: one.state_text }), " ", h("span", { class: "mono" }, one.target), ` · ${t("target.weight", { weight: number(one.weight) })} · ${number(one.visitors)}`,
    one.down && ` · ${one.down.reason}`)));

