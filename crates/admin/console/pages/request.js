// @ts-check
// One request with its response in full, as a line for a shell, and sent again.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { call, get, segment } from "../api.js";
import { Card, Copy, Facts, Head, Problem, useOrder } from "../parts/bits.js";
import { Body } from "../parts/body.js";
import { curl } from "../parts/curl.js";
import { bytes, clock, millis, number } from "../parts/format.js";
import { Icon } from "../parts/icon.js";
import { t } from "../parts/text.js";
import { Outcome } from "./requests.js";

/** @typedef {import("../api-types.js").RequestDetail} Detail */
/** @typedef {import("../api-types.js").HttpMessage} Message */

/** @param {{ list: Message["fields"] }} props */
const Fields = ({ list }) => h("dl", { class: "facts heads" }, list.map((one) => [h("dt", null, one.name), h("dd", { class: one.masked ? "soft" : "" }, one.value || "–")]));

/** @param {{ title: string, message: Message|undefined, first?: Detail }} props */
function MessageCard({ title, message }) {
  return h(Card, { title }, message ? h("div", { class: "stack" },
    h("p", { class: "mono" }, h("b", null, message.line)),
    h(Fields, { list: message.fields }),
    h(Body, { message, label: `${title}: ${t("request.body")}` }),
    !!message.trailers?.length && [h("h3", null, t("request.trailers")), h(Fields, { list: message.trailers })])
    : h("p", { class: "soft" }, t("request.no.message")));
}

/** Times and sizes. @param {{ one: Detail, addresses?: string[] }} props */
const Times = ({ one }) => h(Facts, { rows: [
  [t("request.status"), h(Outcome, { one })],
  [t("request.first"), millis(one.first_byte_micros)],
  [t("request.whole"), millis(one.whole_micros)],
  [t("rate.in"), bytes(one.request_bytes)],
  [t("rate.out"), bytes(one.response_bytes)],
  !!one.messages && [t("request.messages"), t("request.messages.both", { in: number(one.messages.in), out: number(one.messages.out) })],
] });

/** @param {{ s: import("../store.js").State, of: string }} props */
export function RequestPage({ s, of }) {
  const [one, setOne] = useState(/** @type {Detail|null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [secrets, setSecrets] = useState(false);
  const [line, setLine] = useState(false);
  const [again, setAgain] = useState(/** @type {Detail|null} */ (null));
  const [busy, order] = useOrder();
  // What is under way is asked for again when it has come further.
  const row = s.requests?.list.find((it) => String(it.id) === of);
  const key = row && [row.progress, row.status, row.messages?.in, row.messages?.out].join(" ");
  useEffect(() => {
    const asked = new AbortController();
    const path = `/api/v1/requests/${segment(of)}?secrets=${secrets ? 1 : 0}`;
    get(path, asked.signal).then((answer) => { setOne(answer); setError(null); }, (wrong) => { if (!asked.signal.aborted) setError(wrong); });
    return () => asked.abort();
  }, [of, secrets, key, s.epoch]);
  const replay = () => order(async () => setAgain(await call("POST", `/api/v1/requests/${segment(of)}/replay`)));
  const addresses = (s.services?.list ?? []).filter((it) => it.kind === "service" && it.name === one?.service).flatMap((it) => it.address.split(", "));
  const end = one?.request && [
    h("button", { key: "secrets", type: "button", "aria-pressed": String(secrets), onClick: () => setSecrets(!secrets) }, t("request.secrets")),
    h("button", { key: "curl", type: "button", "aria-expanded": String(line), onClick: () => setLine(!line) }, h(Icon, { name: "copy" }), t("request.curl")),
    h("button", { key: "replay", type: "button", class: "first", disabled: busy || one.no_replay !== undefined, title: one.no_replay, onClick: replay }, h(Icon, { name: "play" }), t("request.replay")),
  ];
  return h("div", { class: "stack" },
    h(Head, { title: one ? `${one.method} ${one.path}`.trim() || t("request.unread") : t("nav.requests"), end },
      h("p", { class: "row" }, h("a", { href: "#/requests" }, t("request.back")), one && h("span", null, `${one.service} · ${clock(one.unix_millis)} · ${one.visitor ?? "–"}`),
        one?.replay_of !== undefined && h("a", { href: `#/requests/${one.replay_of}` }, t("request.replay.of", { id: one.replay_of })),
        one?.no_replay && h("span", { class: "soft" }, t("request.no.replay", { why: one.no_replay })))),
    h(Problem, { error }),
    one?.request && line && h(Card, { title: t("request.curl") }, h("div", { class: "stack tight" },
      h(Copy, { text: curl(one.request, addresses), label: t("request.curl") }),
      one.request.fields.some((it) => it.masked) && h("p", { class: "soft small" }, t("request.curl.masked")),
      (one.request.body.cut || one.request.body.left_out) && h("p", { class: "soft small" }, t("request.curl.cut")))),
    again && h("div", { class: "pair", role: "region", "aria-label": t("request.compared") },
      h(Card, { title: t("request.before") }, h(Times, { one: /** @type {Detail} */ (one ?? again) })),
      h(Card, { title: h("a", { href: `#/requests/${again.id}` }, t("request.again", { id: again.id })), level: "h2" }, h(Times, { one: again }))),
    again && h("div", { class: "pair" },
      h(MessageCard, { title: t("request.response"), message: one?.response }),
      h(MessageCard, { title: t("request.response.again"), message: again.response })),
    one && !again && h(Card, { title: t("request.figures") }, h(Times, { one })),
    one?.request && h(MessageCard, { title: t("request.request"), message: one.request }),
    one?.interim?.map((message, index) => h(Card, { key: index, title: t("request.interim") }, h("div", { class: "stack" }, h("p", { class: "mono" }, message.line), h(Fields, { list: message.fields })))),
    one && !again && one.request && h(MessageCard, { title: t("request.response"), message: one.response }));
}
