// @ts-check
// One client, or one server of a client: links, services, rights, limits, the last refusal.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { call, get, segment } from "../api.js";
import { go, older, open, toast } from "../store.js";
import { Card, Empty, Facts, Head, State, standing, tone, useOrder } from "../parts/bits.js";
import { counts, loss } from "../parts/carriers.js";
import { ago, bytes, millis, number, rate, span } from "../parts/format.js";
import { Plot } from "../parts/plot.js";
import { ServiceTable } from "../parts/service-table.js";
import { Table } from "../parts/table.js";
import { t } from "../parts/text.js";

const RIGHTS = /** @type {const} */ (["tcp", "udp", "http", "tls", "forward", "visit"]);

/** @param {{ s: import("../store.js").State, of: string }} props */
export function ClientPage({ s, of }) {
  const [more, setMore] = useState(/** @type {any} */ (null));
  const [busy, order] = useOrder();
  const server = s.totals?.role === "server";
  const row = s.clients?.list.find((one) => one.name === of);
  useEffect(() => {
    if (!server) return;
    const one = new AbortController();
    const load = () => get(`/api/v1/clients/${segment(of)}`, one.signal).then(setMore, () => {});
    void load();
    const timer = setInterval(load, 5000);
    return () => { one.abort(); clearInterval(timer); };
  }, [of, server, s.epoch]);
  if (!s.clients) return h(Head, { title: of });
  if (!row) return h("div", null, h(Head, { title: of }), h(Card, { body: false }, h(Empty, { icon: "clients", title: t("client.unknown") }, h("p", null, h("a", { href: "#/clients" }, t("client.back"))))));
  const services = (s.services?.list ?? []).filter((one) => one.peer === of);
  const kick = () => order(async () => {
    await call("DELETE", `/api/v1/clients/${segment(of)}/session`);
    toast(t("client.kicked", { name: of }));
  });
  const reconnect = () => order(async () => {
    await call("POST", server ? `/api/v1/reconnect?client=${segment(of)}` : "/api/v1/reconnect");
    toast(t("client.reconnecting"));
  });
  const hold = () => order(async () => {
    const path = `/api/v1/clients/${segment(of)}/hold`;
    await (row.hold ? call("DELETE", path) : call("PUT", path, { body: {} }));
    toast(t(row.hold ? "client.released" : "client.held", { name: of }));
  });
  const revoke = () => open("confirm", {
    title: t("client.revoke.title", { name: of }), text: t("client.revoke.text"), verb: t("client.revoke"), word: of,
    then: async () => {
      await call("DELETE", `/api/v1/enrolments/${segment(of)}`);
      toast(t("client.revoked", { name: of }));
      go("#/clients");
    },
  });
  const since = older(row);
  // The text of the daemon has the seconds of the line that it came in.
  const text = row.stalled_seconds != null ? t("client.stalled", { span: span(row.stalled_seconds + since) }) : row.away_seconds != null ? t("client.away", { span: span(row.away_seconds + since) }) : row.state_text;
  const end = [
    h("button", { key: "again", type: "button", disabled: busy, onClick: reconnect }, t("client.reconnect")),
    server && h("button", { key: "hold", type: "button", disabled: busy, onClick: hold }, t(row.hold ? "client.release" : "client.hold")),
    server && row.links > 0 && h("button", { key: "kick", type: "button", disabled: busy, onClick: kick }, t("client.kick")),
    server && row.from === "enrolled" && h("button", { key: "revoke", type: "button", class: "danger", onClick: revoke }, t("client.revoke")),
  ];
  return h("div", { class: "stack" },
    h(Head, { title: of, end }, h("p", { class: "row" }, h(State, { word: standing(row), text }), tone(row.state) !== "good" && text !== row.state && text !== t(`state.${row.state}`) && h("span", null, text), row.hold && h(State, { word: "held" }))),
    row.refused && h("p", { class: "note-line bad" }, t("needs.refused", { reason: row.refused.reason, address: row.refused.address, ago: ago(row.refused.seconds_ago + since) })),
    h(Plot, { of: `client:${of}`, epoch: s.epoch, now: { unix_millis: s.clients.unix_millis, in: row.in_bytes_per_second, out: row.out_bytes_per_second } }),
    h("div", { class: "pair" },
      h(Card, { title: t("client.facts") }, h(Facts, { rows: [
        !!row.address && [t("client.address"), h("code", null, row.address)],
        !!row.from && [t("client.from"), t(`from.${row.from}`)],
        [t("col.links"), number(row.links ?? 0)],
        [t("col.streams"), number(row.streams ?? 0)],
        [t("rate.in"), `${rate(row.in_bytes_per_second)} (${bytes(row.bytes_in ?? 0)})`],
        [t("rate.out"), `${rate(row.out_bytes_per_second)} (${bytes(row.bytes_out ?? 0)})`],
        loss(row) != null && [t("col.loss"), `${number((loss(row) ?? 0) * 100, 2)} %`],
        row.away_seconds != null && [t("client.gone"), ago(row.away_seconds + since)],
        !!row.renewal && [t("client.renewal"), t("client.renewal.text")],
      ] })),
      server && h(Card, { title: t("client.rights") }, h(Facts, { rows: [
        ...RIGHTS.map((right) => /** @type {[string, any]} */ ([t(`right.${right}`), row.rights?.[right]?.length ? h("code", null, row.rights[right].join(", ")) : h("span", { class: "soft" }, t("right.none"))])),
        [t("right.shared"), row.rights?.shared ? t("right.allowed") : h("span", { class: "soft" }, t("right.denied"))],
        ...Object.entries(more?.limits ?? {}).filter(([, value]) => value != null).map(([key, value]) => /** @type {[string, any]} */ ([t(`limit.${key}`), key === "up" || key === "down" ? rate(/** @type {number} */ (value)) : number(/** @type {number} */ (value))])),
      ] }))),
    h(Card, { title: t("client.carriers"), body: false }, h(Carriers, { row })),
    h(Card, { title: t("nav.services"), body: false }, h(ServiceTable, { rows: services, bare: true })));
}

/** @param {{ row: any }} props */
const Carriers = ({ row }) => h(Table, {
  label: t("client.carriers"), rows: (row.carriers ?? []).map((/** @type {any} */ one, /** @type {number} */ index) => ({ ...one, index })), id: (one) => String(one.index), sort: ["over", 1],
  none: h(Empty, { icon: "unplug", title: t("carriers.none") }, h("p", null, t(row.away_seconds != null ? "carriers.away" : "carriers.text", { span: span((row.away_seconds ?? 0) + older(row)) }))),
  columns: [
    { key: "over", name: t("col.over"), by: (one) => one.transport, show: (one) => [h("b", null, one.transport), one.standby && h("span", { class: "tag" }, t("carriers.standby"))] },
    { key: "peer", name: t("client.address"), show: (one) => h("code", null, one.peer) },
    { key: "rtt", name: t("col.rtt"), num: true, by: (one) => one.rtt_micros, show: (one) => millis(one.rtt_micros) },
    { key: "lost", name: t("carriers.lost"), num: true, by: (one) => counts(one)?.[1], show: (one) => { const pair = counts(one); return pair ? `${number(pair[1])} / ${number(pair[0])}` : "–"; } },
    { key: "window", name: t("carriers.window"), num: true, show: (one) => { const w = one.quic?.window_bytes ?? one.kcp?.window_bytes; return w ? bytes(w) : one.tcp?.queue_bytes != null ? t("carriers.queue", { bytes: bytes(one.tcp.queue_bytes) }) : "–"; } },
    { key: "fec", name: t("carriers.repair"), num: true, show: (one) => (one.kcp ? t("carriers.fec", { parity: number(one.kcp.parity_packets), recovered: number(one.kcp.recovered_packets) }) : "–") },
    { key: "cipher", name: t("carriers.cipher"), show: (one) => (one.cipher ?? "–").replace(/^TLS_/, "") },
  ],
});
