// @ts-check
// A field for the whole text, with the numbers of its lines; lines with a problem are marked.

import { h } from "../vendor/preact.js";
import { useRef } from "../vendor/hooks.js";
import { t } from "./text.js";

const LINE = 20;

/** Puts the cursor into a line. @param {number} line from 1 */
export function focusLine(line) {
  const field = document.getElementById("text");
  if (!(field instanceof HTMLTextAreaElement)) return;
  const lines = field.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  field.focus();
  field.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
  field.scrollTop = Math.max(0, (line - 4) * LINE);
}

/** @param {{ value: string, onChange: (text: string) => void, wrong: number[], readonly: boolean }} props */
export function Editor({ value, onChange, wrong, readonly }) {
  const numbers = useRef(/** @type {HTMLElement|null} */ (null));
  const count = value.split("\n").length;
  return h("div", { class: "editor" },
    h("div", { class: "lines", ref: numbers, "aria-hidden": "true" },
      Array.from({ length: count }, (_, i) => h("span", { key: i, class: wrong.includes(i + 1) ? "wrong" : "" }, i + 1))),
    h("textarea", {
      id: "text", value, readOnly: readonly, spellcheck: false, autocomplete: "off", autocapitalize: "off", wrap: "off", rows: Math.min(Math.max(count + 1, 12), 32),
      "aria-label": t("config.text"), "aria-invalid": wrong.length > 0 ? "true" : undefined,
      onInput: (/** @type {any} */ event) => onChange(event.target.value),
      onScroll: (/** @type {any} */ event) => { if (numbers.current) numbers.current.scrollTop = event.target.scrollTop; },
    }));
}
