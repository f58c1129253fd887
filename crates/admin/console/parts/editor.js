// @ts-check
// A field for the whole text, with the numbers of its lines; lines with a problem are marked. Below it
// is what the key at the cursor means.

import { h } from "../vendor/preact.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { pathAt } from "./key-path.js";
import { Whole, keyAt } from "./meaning.js";
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

/** @param {{ value: string, onChange: (text: string) => void, wrong: number[], readonly: boolean, keys: import("./meaning.js").Key[] }} props */
export function Editor({ value, onChange, wrong, readonly, keys }) {
  const numbers = useRef(/** @type {HTMLElement|null} */ (null));
  const field = useRef(/** @type {HTMLTextAreaElement|null} */ (null));
  const [path, setPath] = useState(/** @type {string|null} */ (null));
  useEffect(() => {
    const look = () => {
      const at = field.current;
      if (at && document.activeElement === at) setPath(pathAt(at.value, at.selectionStart));
    };
    document.addEventListener("selectionchange", look);
    return () => document.removeEventListener("selectionchange", look);
  }, []);
  const count = value.split("\n").length;
  const key = keyAt(keys, path);
  return h("div", null,
    h("div", { class: "editor" },
      h("div", { class: "lines", ref: numbers, "aria-hidden": "true" },
        Array.from({ length: count }, (_, i) => h("span", { key: i, class: wrong.includes(i + 1) ? "wrong" : "" }, i + 1))),
      h("textarea", {
        id: "text", ref: field, value, readOnly: readonly, spellcheck: false, autocomplete: "off", autocapitalize: "off", wrap: "off", rows: Math.min(Math.max(count + 1, 12), 32),
        "aria-label": t("config.text"), "aria-describedby": "meaning", "aria-invalid": wrong.length > 0 ? "true" : undefined,
        onInput: (/** @type {any} */ event) => onChange(event.target.value),
        onScroll: (/** @type {any} */ event) => { if (numbers.current) numbers.current.scrollTop = event.target.scrollTop; },
      })),
    h("div", { id: "meaning", class: "meaning", role: "status", "aria-live": "polite", "aria-label": t("key.about") }, key && h(Whole, { of: key })));
}
