// @ts-check
import { h } from "../vendor/preact.js";
import { close } from "../store.js";
import { Dialog } from "./dialog.js";
import { Icon } from "./icon.js";
import { PLACES } from "./keys.js";
import { pages } from "./shell.js";
import { t } from "./text.js";

/** All keys. @param {{ s: import("../store.js").State }} props */
export function Keys({ s }) {
  const letter = Object.fromEntries(Object.entries(PLACES).map(([key, place]) => [place, key]));
  const rows = [
    ...pages(s).map((page) => [["g", letter[page]], t(`nav.${page}`)]),
    [["/"], t("keys.filter")], [["n"], t(s.totals?.role === "server" ? "enrol.open" : "service.add")],
    [["p"], t("keys.pause")], [["?"], t("keys.all")], [["Esc"], t("keys.close")],
  ];
  return h(Dialog, { title: t("keys.all") },
    h("dl", { class: "keys" }, rows.map(([keys, text]) => [
      h("dt", null, /** @type {string[]} */ (keys).map((key) => [h("kbd", null, key), " "])), h("dd", null, text)])));
}

/** The rest of the menu of a narrow screen. @param {{ s: import("../store.js").State }} props */
export const More = ({ s }) =>
  h(Dialog, { title: t("nav.more") },
    h("nav", { class: "sheet", "aria-label": t("nav.more") }, pages(s).map((page) =>
      h("a", { key: page, href: `#/${page}`, onClick: close }, h(Icon, { name: page }), t(`nav.${page}`)))));
