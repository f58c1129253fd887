// @ts-check
// How a test of a service went: each step with its time, or why it ended.

import { h } from "../vendor/preact.js";
import { close } from "../store.js";
import { State } from "./bits.js";
import { Dialog } from "./dialog.js";
import { number } from "./format.js";
import { t } from "./text.js";

/** @param {number} micros */
const took = (micros) => `${number(micros / 1000, 2)} ms`;

/** @param {{ tested: import("../api-types.js").Tested }} props */
export function TestedDialog({ tested }) {
  return h(Dialog, { title: t("tested.title", { name: tested.service }), broad: true },
    h("div", { class: "form" },
      tested.link_micros != null && h("p", null, t("tested.link", { client: tested.client ?? "", span: took(tested.link_micros) })),
      tested.targets.length === 0 && h("p", { class: "note-line warn" }, t("tested.none")),
      tested.targets.map((one) => h("section", { class: "form", key: one.target, "aria-label": one.target },
        h("div", { class: "row" }, h("b", { class: "mono" }, one.target), h(State, { word: one.ok ? "up" : "failed" })),
        h("dl", { class: "facts" }, one.steps.map((step) => [
          h("dt", null, t(`tested.step.${step.step}`)),
          h("dd", null, took(step.micros), step.found && [" · ", h("span", { class: "mono" }, step.found)])])),
        one.error && h("p", { class: "problem", role: "alert" }, one.error))),
      h("div", { class: "row last" }, h("button", { type: "button", class: "first", autofocus: true, onClick: close }, t("dialog.done")))));
}
