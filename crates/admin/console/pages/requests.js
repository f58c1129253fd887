// @ts-check
// The last requests of visitors, as they come: what was asked, what the target answered, how long it
// took.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { go } from "../store.js";
import { Card, Empty, Head } from "../parts/bits.js";
import { bytes, clock, memory, millis, number } from "../parts/format.js";
import { Icon } from "../parts/icon.js";
import { page } from "../parts/keys.js";
import { Filter, Table } from "../parts/table.js";
import { t } from "../parts/text.js";

/** @typedef {import("../api-types.js").SeenRequest} Seen */

const CLASSES = ["", "1", "2", "3", "4", "5"];

/** How good a status is. @param {number|undefined} status */
const tone = (status) => (status === undefined ? "" : status < 400 ? "good" : status < 500 ? "warn" : "bad");

/** The status, or how far the request has come. @param {{ one: Seen }} props */
export const Outcome = ({ one }) =>
  h("span", { class: `state ${one.progress === "cut" ? "bad" : tone(one.status)}` },
    one.status ?? t(one.progress === "complete" ? "request.other" : `request.${one.progress}`),
    one.status !== undefined && one.progress !== "complete" && ` ${t(`request.${one.progress}`)}`);

/** @param {Seen} one */
const words = (one) => [one.method, one.path, one.status, one.service, one.visitor, one.progress].join(" ");

/** A choice of few, as a list that opens. @param {any} props */
const Pick = ({ label, value, options, onChange }) =>
  h("select", { "aria-label": label, value, onChange: (/** @type {any} */ e) => onChange(e.target.value) },
    options.map((/** @type {[string, string]} */ [one, text]) => h("option", { key: one, value: one }, text)));

/** @param {{ s: import("../store.js").State }} props */
export function Requests({ s }) {
  const [filter, setFilter] = useState("");
  const [group, setGroup] = useState("");
  const [method, setMethod] = useState("");
  const [service, setService] = useState("");
  const [kept, setKept] = useState(/** @type {Seen[]|null} */ (null));
  const pause = () => setKept((/** @type {Seen[]|null} */ was) => (was ? null : s.requests?.list ?? null));
  useEffect(() => {
    page.pause = pause;
    return () => { page.pause = null; };
  });
  const all = kept ?? s.requests?.list;
  /** @param {(one: Seen) => string} by */
  const each = (by) => [...new Set((all ?? []).map(by).filter(Boolean))].sort().map((one) => [one, one]);
  const rows = (all ?? []).filter((one) =>
    (group === "" || String(one.status).startsWith(group)) && (method === "" || one.method === method) && (service === "" || one.service === service));
  return h("div", null,
    h(Head, {
      title: t("nav.requests"),
      end: [h(Filter, { key: "filter", value: filter, onChange: setFilter, label: t("filter") }),
        h(Pick, { key: "service", label: t("col.service"), value: service, onChange: setService, options: [["", t("request.services")], ...each((one) => one.service)] }),
        h(Pick, { key: "method", label: t("request.method"), value: method, onChange: setMethod, options: [["", t("request.methods")], ...each((one) => one.method)] }),
        h(Pick, { key: "class", label: t("request.status"), value: group, onChange: setGroup, options: CLASSES.map((one) => [one, one === "" ? t("request.statuses") : `${one}xx`]) }),
        h("button", { key: "pause", type: "button", "aria-pressed": String(kept !== null), onClick: pause }, h(Icon, { name: kept ? "play" : "pause" }), t(kept ? "go.on" : "pause"))],
    }, h("span", { class: "small", role: "status" }, kept ? t("paused") : s.requests && t(s.requests.lost > 0 ? "requests.lost" : "requests.kept", { count: number(s.requests.list.length), memory: memory(s.requests.memory_bytes), lost: number(s.requests.lost) }))),
    h(Card, { body: false }, all && h(Table, {
      label: t("nav.requests"), rows, filter, id: (one) => String(one.id), sort: ["id", -1], text: words, onRow: (one) => go(`#/requests/${one.id}`),
      none: all.length === 0 && h(Empty, { icon: "requests", title: t("requests.none") }, h("p", null, t("requests.none.text"))),
      columns: [
        { key: "id", name: t("request.time"), by: (one) => one.id, show: (one) => h("time", { dateTime: new Date(one.unix_millis).toISOString() }, clock(one.unix_millis)) },
        { key: "path", name: t("request.request"), all: true, by: (one) => one.path, show: (one) => h("a", { href: `#/requests/${one.id}`, class: "mono" }, h("b", null, one.method || "–"), " ", one.path || t("request.unread")) },
        { key: "status", name: t("request.status"), by: (one) => one.status, show: (one) => [h(Outcome, { one }), one.replay_of !== undefined && [" ", h("span", { class: "tag" }, t("request.replay.of", { id: one.replay_of }))], one.messages && [" ", h("span", { class: "tag" }, "WebSocket")]] },
        { key: "service", name: t("col.service"), by: (one) => one.service, show: (one) => one.service },
        { key: "visitor", name: t("col.visitor"), by: (one) => one.visitor, show: (one) => h("span", { class: "mono" }, one.visitor ?? "–") },
        { key: "took", name: t("request.took"), num: true, by: (one) => one.whole_micros, show: (one) => millis(one.whole_micros) },
        { key: "in", name: t("rate.in"), num: true, by: (one) => one.request_bytes, show: (one) => bytes(one.request_bytes) },
        { key: "out", name: t("rate.out"), num: true, by: (one) => one.response_bytes, show: (one) => bytes(one.response_bytes) },
      ],
    })));
}
