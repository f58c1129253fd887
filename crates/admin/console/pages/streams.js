// @ts-check
// Who talks to what, and how much: the busiest 200, which go on each second until they are paused.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { call } from "../api.js";
import { toast } from "../store.js";
import { Card, Empty, Head, useOrder } from "../parts/bits.js";
import { bytes, rate } from "../parts/format.js";
import { Icon } from "../parts/icon.js";
import { page } from "../parts/keys.js";
import { Filter, Table } from "../parts/table.js";
import { t } from "../parts/text.js";

/** @param {{ one: any }} props */
function Close({ one }) {
  const [busy, order] = useOrder();
  const end = () => order(async () => {
    await call("DELETE", `/api/v1/streams/${one.id}`);
    toast(t("stream.closed", { id: one.id }));
  });
  return h("button", { type: "button", class: "slim danger", disabled: busy, "aria-label": t("stream.close.label", { id: one.id }), onClick: end }, t("stream.close"));
}

/** @param {{ s: import("../store.js").State }} props */
export function Streams({ s }) {
  const [filter, setFilter] = useState("");
  const [kept, setKept] = useState(/** @type {any} */ (null));
  const pause = () => setKept((/** @type {any} */ was) => (was ? null : s.streams));
  useEffect(() => {
    page.pause = pause;
    return () => { page.pause = null; };
  });
  const shown = kept ?? s.streams;
  return h("div", null,
    h(Head, {
      title: t("nav.streams"),
      end: [h(Filter, { key: "filter", value: filter, onChange: setFilter, label: t("filter") }),
        h("button", { key: "pause", type: "button", "aria-pressed": String(kept !== null), onClick: pause }, h(Icon, { name: kept ? "play" : "pause" }), t(kept ? "go.on" : "pause"))],
    }, kept && h("span", { role: "status" }, t("paused"))),
    h(Card, { body: false }, shown && h(Table, {
      label: t("nav.streams"), rows: shown.list, total: shown.total, filter, id: (one) => one.id, sort: ["both", -1],
      text: (one) => [one.id, one.peer, one.service, one.socket, one.kind].join(" "),
      none: h(Empty, { icon: "streams", title: t("streams.none") }, h("p", null, t("streams.none.text"))),
      columns: [
        { key: "service", name: t("col.service"), by: (one) => one.service, show: (one) => [h("b", null, one.service), " ", one.kind === "flow" && h("span", { class: "tag" }, "UDP")] },
        { key: "socket", name: t("col.visitor"), by: (one) => one.socket, show: (one) => h("span", { class: "mono" }, one.socket) },
        { key: "peer", name: t("col.peer"), by: (one) => one.peer, show: (one) => one.peer },
        { key: "both", name: t("col.rate"), num: true, by: (one) => one.in_bytes_per_second + one.out_bytes_per_second, show: (one) => rate(one.in_bytes_per_second + one.out_bytes_per_second) },
        { key: "in", name: t("rate.in"), num: true, by: (one) => one.bytes_in, show: (one) => [bytes(one.bytes_in), h("span", { class: "sub" }, rate(one.in_bytes_per_second))] },
        { key: "out", name: t("rate.out"), num: true, by: (one) => one.bytes_out, show: (one) => [bytes(one.bytes_out), h("span", { class: "sub" }, rate(one.out_bytes_per_second))] },
        { key: "id", name: t("col.number"), num: true, by: (one) => one.id, show: (one) => one.id },
        { key: "close", name: "", bare: true, all: true, show: (one) => h(Close, { one }) },
      ],
    })));
}
