// @ts-check
// Certificates and pins: whose, until when, and what a client has to trust.

import { h } from "../vendor/preact.js";
import { Card, Copy, Empty, Head, State } from "../parts/bits.js";
import { day, span } from "../parts/format.js";
import { Table } from "../parts/table.js";
import { t } from "../parts/text.js";

const DAYS = 14 * 86_400;

/** @param {{ seconds: number|undefined, at: number|undefined }} props */
const Until = ({ seconds, at }) => {
  if (seconds == null || at == null) return "–";
  const [tone, text] = seconds < 0 ? ["bad", t("state.expired")] : [seconds < DAYS ? "warn" : "good", t("cert.left", { span: span(seconds) })];
  return [h("span", { class: `state ${tone}` }, text), h("span", { class: "sub" }, day(at))];
};

/** @param {{ s: import("../store.js").State }} props */
export function Certificates({ s }) {
  const { slow } = s;
  if (!slow) return h("div", null, h(Head, { title: t("nav.certificates") }));
  const pins = slow.pins ?? [];
  return h("div", { class: "stack" }, h(Head, { title: t("nav.certificates") }),
    s.totals?.role !== "client" && h(Card, { title: t("cert.hosts"), body: false }, h(Table, {
      label: t("cert.hosts"), rows: slow.certificates ?? [], id: (one) => one.host, sort: ["until", 1],
      none: h(Empty, { icon: "certificates", title: t("cert.hosts.none") }, h("p", null, t("cert.hosts.none.text"))),
      columns: [
        { key: "host", name: t("cert.host"), all: true, bare: true, by: (one) => one.host, show: (one) => [h("b", null, one.host), one.error && h("span", { class: "sub" }, one.error)] },
        { key: "source", name: t("cert.source"), by: (one) => one.source, show: (one) => (one.error ? h(State, { word: "failed" }) : [t(`cert.source.${one.source}`), one.challenge && h("span", { class: "sub" }, one.challenge)]) },
        { key: "until", name: t("cert.until"), by: (one) => one.expires_seconds ?? -1, show: (one) => h(Until, { seconds: one.expires_seconds, at: one.expires_at }) },
        { key: "renews", name: t("cert.renews"), by: (one) => one.renews_seconds, show: (one) => (one.retry_seconds != null ? t("cert.retry", { span: span(one.retry_seconds) }) : one.renews_seconds != null ? t("cert.in", { span: span(one.renews_seconds) }) : "–") },
      ],
    })),
    pins.length > 0 && h(Card, { title: t(s.totals?.role === "client" ? "cert.pins.client" : "cert.pins") }, h("div", { class: "form" }, pins.map((/** @type {string} */ pin) => h(Copy, { key: pin, text: pin, label: t("cert.pin") })))));
}
