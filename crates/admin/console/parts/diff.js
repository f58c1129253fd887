// @ts-check
import { h } from "../vendor/preact.js";
import { number } from "./format.js";
import { t } from "./text.js";

/** What changes in a file, as the daemon says it. @param {{ lines: any[] }} props */
export function Diff({ lines }) {
  let at = 0;
  return h("div", { class: "diff", role: "region", tabindex: 0, "aria-label": t("diff.label") }, lines.map((line, index) => {
    if (line.op === "fold") {
      at += line.count;
      return h("div", { key: index, class: "folded" }, t("diff.fold", { count: number(line.count) }));
    }
    const [name, sign] = line.op === "add" ? ["added", "+"] : line.op === "remove" ? ["removed", "−"] : ["", ""];
    if (line.op !== "remove") at += 1;
    return h("div", { key: index, class: name },
      h("span", { class: "at" }, line.op === "remove" ? "" : at),
      h("span", { class: "sign" }, sign, sign && h("span", { class: "hidden" }, t(`diff.${name}`))),
      h("span", null, line.line));
  }));
}
