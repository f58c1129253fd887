// @ts-check
import { h } from "../vendor/preact.js";
import { untoast } from "../store.js";
import { Icon } from "./icon.js";
import { t } from "./text.js";

/** @param {{ list: { id: number, text: string, bad: boolean }[] }} props */
export const Toasts = ({ list }) =>
  h("div", { class: "toasts", role: "status", "aria-live": "polite" },
    list.map((one) => h("div", { key: one.id, class: `toast ${one.bad ? "bad" : ""}` },
      h("p", null, one.text),
      h("button", { type: "button", class: "plain slim", "aria-label": t("dialog.close"), onClick: () => untoast(one.id) }, h(Icon, { name: "close" })))));
