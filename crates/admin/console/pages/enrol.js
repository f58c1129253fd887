// @ts-check
// A new client: name and rights, then one line for the other machine, and the news that it came.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { call } from "../api.js";
import { close, go } from "../store.js";
import { Copy, Problem } from "../parts/bits.js";
import { Dialog } from "../parts/dialog.js";
import { span } from "../parts/format.js";
import { Icon } from "../parts/icon.js";
import { Qr } from "../parts/qr.js";
import { t } from "../parts/text.js";

/** @param {string} text */
const list = (text) => text.split(/[\s,]+/).filter(Boolean);

/** @param {{ s: import("../store.js").State }} props */
export function Enrol({ s }) {
  const [name, setName] = useState("");
  const [ports, setPorts] = useState("10000-10999");
  const [hosts, setHosts] = useState("");
  const [forward, setForward] = useState("");
  const [shared, setShared] = useState(false);
  const [code, setCode] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [left, setLeft] = useState(0);
  useEffect(() => {
    if (!code) return;
    const tick = () => setLeft(Math.max(0, Math.round((code.until - performance.now()) / 1000)));
    tick();
    const timer = setInterval(tick, 500);
    return () => clearInterval(timer);
  }, [code]);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setError(null);
    try {
      const order = { name, allow_tcp: list(ports), allow_udp: list(ports), allow_http: list(hosts), allow_forward: list(forward), ...(shared && { allow_shared: true }) };
      const answer = await call("POST", "/api/v1/enrolments", { body: order });
      setCode({ ...answer, until: performance.now() + (answer.valid_seconds ?? 600) * 1000 });
    } catch (wrong) {
      setError(wrong);
    }
  };
  const came = code && s.clients?.list.find((one) => one.name === name && (one.state === "connected" || one.state === "stalled"));
  const field = (/** @type {string} */ key, /** @type {string} */ value, /** @type {(text: string) => void} */ put, /** @type {any} */ more) =>
    h("label", { class: "field" }, t(`enrol.${key}`),
      h("input", { value, autocomplete: "off", spellcheck: false, onInput: (/** @type {any} */ e) => put(e.target.value), ...more }),
      h("small", null, t(`enrol.${key}.hint`)));
  if (came) {
    return h(Dialog, { title: t("enrol.came.title", { name }) },
      h("div", { class: "form" },
        h("p", { class: "note-line good", role: "status" }, h(Icon, { name: "good" }), h("span", null, t("enrol.came", { name, address: came.address ?? came.carriers?.[0]?.peer ?? "" }))),
        h("div", { class: "row last" },
          h("button", { type: "button", onClick: close }, t("dialog.done")),
          h("button", { type: "button", class: "first", onClick: () => { close(); go(`#/clients/${encodeURIComponent(name)}`); } }, t("enrol.show")))));
  }
  if (code) {
    const command = code.command ?? `tunnel client --enroll ${code.code}`;
    return h(Dialog, { title: t("enrol.ready", { name }), broad: true },
      h("div", { class: "form" },
        h("p", null, t("enrol.run")),
        h("div", { class: code.qr ? "enrolled" : "" },
          h("div", { class: "form" },
            h(Copy, { text: command, label: t("enrol.command") }),
            h("p", { class: `note-line ${left === 0 ? "bad" : ""}`, role: "status" }, left === 0 ? t("enrol.over") : [t("enrol.waits"), " ", h("b", { "aria-hidden": "true" }, span(left))])),
          code.qr && h(Qr, { code: code.qr, label: t("enrol.qr") })),
        h("div", { class: "row last" },
          left === 0 && h("button", { type: "button", class: "first", onClick: () => setCode(null) }, t("enrol.again")),
          h("button", { type: "button", onClick: close }, t("dialog.done")))));
  }
  return h(Dialog, { title: t("enrol.open") },
    h("form", { class: "form", onSubmit: submit },
      field("name", name, setName, { required: true, pattern: "[A-Za-z0-9._\\-]{1,64}", placeholder: "home", autofocus: true }),
      field("ports", ports, setPorts, {}),
      field("hosts", hosts, setHosts, { placeholder: "app.example.com" }),
      field("forward", forward, setForward, { placeholder: "10.0.0.0/8:*" }),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: shared, onChange: (/** @type {any} */ e) => setShared(e.target.checked) }), t("enrol.shared")),
      h(Problem, { error }),
      h("div", { class: "row last" },
        h("button", { type: "button", onClick: close }, t("dialog.cancel")),
        h("button", { type: "submit", class: "first" }, t("enrol.do")))));
}
