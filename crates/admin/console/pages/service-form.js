// @ts-check
// A service of a client: new, or changed in the file. Fields, diff, apply.

import { h } from "../vendor/preact.js";
import { useState } from "../vendor/hooks.js";
import { call, get } from "../api.js";
import { close, toast } from "../store.js";
import { Problem } from "../parts/bits.js";
import { Judgement, apply, check, outcome, stale } from "../parts/change.js";
import { Dialog } from "../parts/dialog.js";
import { t } from "../parts/text.js";

/** @param {any} config @param {any} old @param {any} value */
function patch(config, old, value) {
  if (old) return [{ op: "replace", path: `/services/${config.services.findIndex((/** @type {any} */ one) => one.name === old.name)}`, value: { ...old, ...value } }];
  return [Array.isArray(config.services) ? { op: "add", path: "/services/-", value } : { op: "add", path: "/services", value: [value] }];
}

/** @param {{ old?: any }} props */
export function ServiceForm({ old }) {
  const [name, setName] = useState(old?.name ?? "");
  const [target, setTarget] = useState(typeof old?.target === "string" ? old.target : "");
  const [open, setOpen] = useState(typeof old?.public === "string" ? old.public : "");
  const [judged, setJudged] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [busy, setBusy] = useState(false);
  const input = (/** @type {(text: string) => void} */ put) => (/** @type {any} */ event) => { put(event.target.value); setJudged(null); };
  const look = async () => {
    const file = await get("/api/v1/config");
    const order = patch(file.config, old, { name, target, public: open });
    setJudged({ ...(await check(order)), order });
  };
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      if (!judged?.ok) await look();
      else {
        const answer = await apply(judged.order, judged.etag);
        toast(outcome(answer), answer.failed?.length > 0);
        close();
      }
    } catch (wrong) {
      // The file has changed under the diff: the fields stay, the diff is made anew.
      if (stale(wrong)) await look().catch(() => {});
      setError(wrong);
    }
    setBusy(false);
  };
  const once = async () => {
    setError(null);
    try {
      await call("PATCH", "/api/v1/lists", { body: { publish: [`${open}=${target}`], options: { name: name || null } } });
      toast(t("service.added", { name: name || open }));
      close();
    } catch (wrong) {
      setError(wrong);
    }
  };
  return h(Dialog, { title: old ? t("service.edit.title", { name: old.name }) : t("service.add"), broad: true },
    h("form", { class: "form", onSubmit: submit },
      h("div", { class: "two" },
        h("label", { class: "field" }, t("service.target"), h("input", { required: true, value: target, placeholder: "http://127.0.0.1:3000", autocomplete: "off", spellcheck: false, onInput: input(setTarget) }), h("small", null, t("service.target.hint"))),
        h("label", { class: "field" }, t("service.public"), h("input", { required: true, value: open, placeholder: "tcp://:10080", autocomplete: "off", spellcheck: false, onInput: input(setOpen) }), h("small", null, t("service.public.hint")))),
      h("label", { class: "field" }, t("col.name"), h("input", { required: true, value: name, disabled: Boolean(old), placeholder: "web", autocomplete: "off", spellcheck: false, onInput: input(setName) })),
      judged && h(Judgement, { judged }),
      h(Problem, { error }),
      h("div", { class: "row last" },
        error !== null && !old && h("button", { type: "button", onClick: once }, t("service.once")),
        h("button", { type: "button", onClick: close }, t("dialog.cancel")),
        h("button", { type: "submit", class: "first", disabled: busy }, t(judged?.ok ? "config.apply" : "config.check")))));
}
