// @ts-check
// What is published and forwarded, by whom, and how it fares.

import { h } from "../vendor/preact.js";
import { useState } from "../vendor/hooks.js";
import { call, get, segment } from "../api.js";
import { open, toast } from "../store.js";
import { Card, Empty, Head, useOrder } from "../parts/bits.js";
import { Icon } from "../parts/icon.js";
import { ServiceTable } from "../parts/service-table.js";
import { Filter } from "../parts/table.js";
import { t } from "../parts/text.js";

/** @param {{ s: import("../store.js").State }} props */
export function Services({ s }) {
  const [filter, setFilter] = useState("");
  const list = s.services?.list ?? [];
  const services = list.filter((one) => one.kind !== "forward");
  const forwards = list.filter((one) => one.kind === "forward");
  const client = s.totals?.role === "client";
  const acts = s.totals?.role === "proxy" ? undefined : (/** @type {any} */ row) => [row.kind === "service" && h(Test, { key: "test", row, client }), ...(client ? edit(row) : [])];
  const add = client && h("button", { type: "button", class: "first", onClick: () => open("service") }, h(Icon, { name: "plus" }), t("service.add"));
  return h("div", { class: "stack" },
    h(Head, { title: t("nav.services"), end: [h(Filter, { key: "filter", value: filter, onChange: setFilter, label: t("filter") }), add] }),
    s.services && h(Card, { title: forwards.length > 0 ? t("services.title") : undefined, body: false }, h(ServiceTable, {
      rows: services, total: forwards.length > 0 ? undefined : s.services.total, filter, edit: acts, bare: client && (s.totals?.peers ?? 0) < 2,
      none: h(Empty, { icon: "services", title: t("services.none") }, h("p", null, t(client ? "services.none.client" : "services.none.text")), add),
    })),
    forwards.length > 0 && h(Card, { title: t("forwards.title"), body: false }, h(ServiceTable, { rows: forwards, filter, edit: client ? edit : undefined, bare: client && (s.totals?.peers ?? 0) < 2 })));
}

/** Dials the target of a service, and shows each step. @param {{ row: any, client: boolean }} props */
function Test({ row, client }) {
  const [busy, order] = useOrder();
  const test = () => order(async () => {
    // A server may have a service of this name from several clients.
    const of = client ? "" : `?client=${segment(row.peer)}`;
    open("tested", { tested: await call("POST", `/api/v1/services/${segment(row.name)}/test` + of) });
  });
  return h("button", { type: "button", class: "slim plain", disabled: busy, onClick: test }, t(busy ? "tool.busy" : "service.test"));
}

/** What a client can do with what stands in its own file. @param {any} row */
const edit = (row) => [
  row.kind === "service" && h("button", { key: "edit", type: "button", class: "slim plain", onClick: () => change(row) }, t("service.edit")),
  h("button", { key: "end", type: "button", class: "slim plain", onClick: () => withdraw(row) }, t("service.withdraw")),
];

/** @param {any} row */
async function change(row) {
  try {
    const file = await get("/api/v1/config");
    const found = (file.config.services ?? []).find((/** @type {any} */ one) => one.name === row.name);
    if (!found) toast(t("service.elsewhere", { name: row.name }), true);
    else open("service", { old: found });
  } catch (error) {
    toast(String(error), true);
  }
}

/** @param {any} row */
const withdraw = (row) => open("confirm", {
  title: t("service.withdraw.title", { name: row.name }), text: t("service.withdraw.text"), verb: t("service.withdraw"),
  then: async () => {
    await call("PATCH", "/api/v1/lists", { body: { without: [row.kind === "forward" ? row.address : row.name] } });
    toast(t("service.withdrawn", { name: row.name }));
  },
});
