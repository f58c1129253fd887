// @ts-check
// Does it work, how fast, and over what: active check, round trips, throughput, what stands between.

import { h } from "../vendor/preact.js";
import { useState } from "../vendor/hooks.js";
import { call, get } from "../api.js";
import { Card, Choice, Empty, Facts, Head, Problem, State, said } from "../parts/bits.js";
import { bytes, memory, millis, number, rate, span } from "../parts/format.js";
import { Table } from "../parts/table.js";
import { t } from "../parts/text.js";

/** Something that is measured when a person asks. @param {any} props */
function Tool({ title, text, verb, run, show, wait, more }) {
  const [result, setResult] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [busy, setBusy] = useState(false);
  const start = async () => {
    setBusy(true);
    setError(null);
    try {
      setResult(await run());
    } catch (wrong) {
      setError(wrong);
      setResult(null);
    }
    setBusy(false);
  };
  return h(Card, { title, body: false, end: [more, h("button", { key: "go", type: "button", class: "first slim", disabled: busy, onClick: start }, busy ? t("tool.busy") : verb)] },
    h("div", { "aria-live": "polite" },
      error !== null && h("div", { class: "body" }, h(Problem, { error })),
      busy ? h("p", { class: "body soft" }, wait ?? t("tool.busy")) : result ? show(result) : error === null && h("p", { class: "body soft" }, text)));
}

/** Round trips of links. @param {{ links: any[], omitted: number }} props */
const Trips = ({ links, omitted }) => h("div", null, h(Table, {
  label: t("tool.ping"), rows: links, id: (one) => `${one.peer} ${one.link}`, sort: ["micros", -1],
  none: h(Empty, { icon: "unplug", title: t("tool.nolinks") }, h("p", null, t("tool.nolinks.text"))),
  columns: [
    { key: "peer", name: t("col.peer"), by: (one) => one.peer, show: (one) => h("b", null, one.peer) },
    { key: "link", name: t("col.link"), num: true, by: (one) => one.link, show: (one) => number(one.link) },
    { key: "over", name: t("col.over"), by: (one) => one.transport, show: (one) => one.transport },
    { key: "address", name: t("client.address"), show: (one) => h("span", { class: "mono" }, one.address) },
    { key: "micros", name: t("col.rtt"), num: true, by: (one) => one.micros ?? Infinity, show: (one) => (one.error ? h("span", { class: "state bad" }, one.error) : millis(one.micros)) },
  ],
}), omitted > 0 && h("p", { class: "foot" }, t("tool.omitted", { count: number(omitted) })));

/** @param {{ name: string, one: any }} props */
const Way = ({ name, one }) => h("div", null, h("h3", null, name),
  h("p", { class: "speed" }, rate(one.bits_per_second / 8)),
  h("p", { class: "soft small" }, t("speed.in", { bytes: bytes(one.bytes), span: millis(one.micros) })),
  h("p", { class: "small" }, t(`speed.limit.${one.limit}`)),
  (one.client_busy_percent != null || one.server_busy_percent != null) && h("p", { class: "soft small" }, t("speed.busy", { client: number(one.client_busy_percent ?? 0), server: number(one.server_busy_percent ?? 0) })));

/** @param {any} nat */
const natRows = (nat) => /** @type {[string, any][]} */ ([
  [t("nat.udp"), h(State, { word: nat.udp })],
  ...["ipv4", "ipv6"].filter((one) => nat[one]).map((one) => [one === "ipv4" ? "IPv4" : "IPv6", `${t(`nat.mapping.${nat[one].mapping}`)} · ${t(`nat.filtering.${nat[one].filtering}`)}`]),
  ...nat.servers.map((/** @type {any} */ one) => [t("nat.server"), [h("code", null, one.address), " → ", one.outer ? h("code", null, one.outer) : one.error ?? "–"]]),
  ...(nat.router ? [[t("nat.router"), nat.router.protocol ? `${nat.router.protocol} ${nat.router.outer ?? ""}` : nat.router.error ?? t("nat.router.none")]] : []),
  ...nat.peers.map((/** @type {any} */ one) => [t(`nat.peer.${one.peer}`), h(State, { word: one.path })]),
]);

/** @param {{ s: import("../store.js").State }} props */
export function Tools({ s }) {
  const [seconds, setSeconds] = useState(5);
  const client = s.totals?.role === "client";
  const udp = s.totals?.udp;
  return h("div", { class: "stack" }, h(Head, { title: t("nav.tools") }),
    h(Tool, { title: t("tool.check"), text: t("tool.check.text"), verb: t("tool.check.do"), run: active, show: (/** @type {any} */ one) => [h("p", { class: "body" }, h(State, { word: one.ok ? "up" : "failed" })), h(Trips, one)] }),
    h(Tool, { title: t("tool.ping"), text: t("tool.ping.text"), verb: t("tool.ping.do"), run: () => get("/api/v1/ping?timeout_millis=2000"), show: (/** @type {any} */ one) => [one.trouble && h("p", { class: "body" }, one.trouble), h(Trips, one)] }),
    client && h(Tool, {
      title: t("tool.speed"), text: t("tool.speed.text"), verb: t("tool.speed.do"), wait: t("tool.speed.wait", { span: span(seconds * 2) }),
      more: h(Choice, { key: "s", label: t("tool.speed.span"), value: seconds, onChange: setSeconds, options: [2, 5, 15].map((one) => /** @type {[number, string]} */ ([one, span(one)])) }),
      run: () => call("POST", "/api/v1/speedtest", { body: { millis: seconds * 1000 } }),
      show: (/** @type {any} */ one) => h("div", { class: "body pair" }, h(Way, { name: t("speed.up"), one: one.up }), h(Way, { name: t("speed.down"), one: one.down })),
    }),
    client && h(Tool, { title: t("tool.nat"), text: t("tool.nat.text"), verb: t("tool.nat.do"), run: () => get("/api/v1/nat"), show: (/** @type {any} */ one) => h("div", { class: "body" }, h(Facts, { rows: natRows(one) })) }),
    udp && h(Card, { title: t("tool.udp") }, h(Facts, { rows: [[t("tool.udp.receive"), memory(udp.receive_buffer_bytes)], [t("tool.udp.send"), memory(udp.send_buffer_bytes)]] }), udp.receive_buffer_bytes < 1 << 20 && h("p", { class: "note-line warn" }, t("needs.buffer", { size: number(udp.receive_buffer_bytes / 1024) }))));
}

/** A check that fails has an answer as well. */
async function active() {
  const answer = await fetchCheck();
  if (!answer.links) throw new Error(answer.error);
  return answer;
}

async function fetchCheck() {
  try {
    return await get("/status");
  } catch (error) {
    return { error: said(error) };
  }
}
