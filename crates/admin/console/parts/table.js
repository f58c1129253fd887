// @ts-check
// A table that is sorted and filtered, whose rows are cards where it is narrow.

import { h } from "../vendor/preact.js";
import { useRef, useState } from "../vendor/hooks.js";
import { Icon } from "./icon.js";
import { number } from "./format.js";
import { t } from "./text.js";

const PAGE = 100;

/**
 * @typedef {object} Column
 * @property {string} key
 * @property {string} name heading
 * @property {(row: any) => any} show
 * @property {(row: any) => string|number|null|undefined} [by] what is sorted by; without it the column is not
 * @property {boolean} [num] a number: right, and the greatest first
 * @property {boolean} [all] the whole width of a card
 * @property {boolean} [bare] no heading in a card
 */

/**
 * @param {object} props
 * @param {string} props.label
 * @param {Column[]} props.columns
 * @param {any[]} props.rows
 * @param {(row: any) => string} props.id
 * @param {(row: any) => string} [props.text] what the filter looks at
 * @param {string} [props.filter]
 * @param {[string, number]} props.sort key and direction
 * @param {(row: any) => void} [props.onRow]
 * @param {number} [props.total] rows that there are, where not all have come
 * @param {any} [props.none] for a list without rows
 */
export function Table({ label, columns, rows, id, text, filter = "", sort, onRow, total, none }) {
  const [[key, direction], setSort] = useState(sort);
  const [limit, setLimit] = useState(PAGE);
  // Rows do not move under a pointer.
  const [held, setHeld] = useState(false);
  const order = useRef(/** @type {Map<string, number>} */ (new Map()));
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = !text || words.length === 0 ? rows : rows.filter((row) => {
    const all = text(row).toLowerCase();
    return words.every((word) => all.includes(word));
  });
  const by = columns.find((one) => one.key === key)?.by;
  const sorted = [...found];
  if (held) sorted.sort((a, b) => (order.current.get(id(a)) ?? 1e9) - (order.current.get(id(b)) ?? 1e9));
  else if (by) sorted.sort((a, b) => direction * compare(by(a), by(b)) || compare(id(a), id(b)));
  const shown = sorted.slice(0, limit);
  if (!held) order.current = new Map(shown.map((row, index) => [id(row), index]));
  if (rows.length === 0 && none) return none;
  const turn = (/** @type {Column} */ column) => () => {
    setHeld(false);
    setSort(key === column.key ? [key, -direction] : [column.key, column.num ? -1 : 1]);
  };
  const all = Math.max(total ?? 0, rows.length);
  return h("div", { class: "wide" },
    h("table", { class: "cards", "aria-label": label },
      h("thead", null, h("tr", null, columns.map((column) => {
        const sign = key === column.key ? (direction > 0 ? "↑" : "↓") : "";
        const aria = sign === "" ? undefined : direction > 0 ? "ascending" : "descending";
        return h("th", { key: column.key, scope: "col", class: column.num ? "num" : "", "aria-sort": aria },
          column.by ? h("button", { type: "button", onClick: turn(column) }, column.name, sign && h("span", { class: "dir", "aria-hidden": "true" }, sign))
            : column.name || h("span", { class: "hidden" }, t("table.actions")));
      }))),
      h("tbody", { onPointerEnter: () => setHeld(true), onPointerLeave: () => setHeld(false) },
        shown.map((row) => h("tr", { key: id(row), class: onRow ? "row-link" : "", onClick: onRow && pressed(() => onRow(row)) },
          columns.map((column) => h("td", {
            key: column.key, class: `${column.num ? "num" : ""} ${column.all ? "all" : ""}`,
            "data-name": column.bare ? undefined : column.name || undefined,
          }, column.show(row))))))),
    found.length === 0 && h("div", { class: "empty" }, h(Icon, { name: "search" }), h("b", null, t("table.none"))),
    (found.length > limit || found.length < all) && h("div", { class: "foot" },
      h("span", null, t("table.of", { shown: number(shown.length), all: number(all) })),
      found.length > limit && h("button", { type: "button", class: "slim", onClick: () => setLimit(limit + PAGE) }, t("table.more"))));
}

/** A press on a row, unless it was on a link or a button in it. @param {() => void} then */
const pressed = (then) => (/** @type {MouseEvent} */ event) => {
  if (event.target instanceof Element && !event.target.closest("a, button, summary, details") && !String(getSelection())) then();
};

/** @param {any} a @param {any} b */
function compare(a, b) {
  if (a == null || b == null) return a == null ? (b == null ? 0 : -1) : 1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
}

/** The field that `/` goes to. @param {{ value: string, onChange: (text: string) => void, label: string }} props */
export const Filter = ({ value, onChange, label }) =>
  h("span", { class: "filter" }, h(Icon, { name: "search" }),
    h("input", {
      type: "search", id: "filter", value, "aria-label": label, placeholder: label, autocomplete: "off", spellcheck: false,
      onInput: (/** @type {any} */ event) => onChange(event.target.value),
      onKeyDown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Escape") return;
        onChange("");
        /** @type {HTMLElement} */ (event.currentTarget).blur();
      },
    }));
