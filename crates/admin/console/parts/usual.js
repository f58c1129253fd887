// @ts-check
// The keys that are changed most, as fields. What changes is a JSON Patch of those keys alone.

import { h } from "../vendor/preact.js";
import { useState } from "../vendor/hooks.js";
import { Card } from "./bits.js";
import { Meaning, keyAt, plainDefault } from "./meaning.js";
import { t } from "./text.js";

/** `hint`: an example for a key without a default. @typedef {{ path: string, text: string, hint?: string, options?: string[], list?: boolean, number?: boolean }} Field */

/** @type {Record<string, Field[]>} */
const FIELDS = {
  both: [
    { path: "/log/level", text: "field.level", options: ["error", "warn", "info", "debug", "trace"] },
    { path: "/memory_budget", text: "field.memory" },
    { path: "/drain_timeout", text: "field.drain" },
    { path: "/keepalive", text: "field.keepalive" },
    { path: "/resume_timeout", text: "field.resume" },
  ],
  server: [{ path: "/listen", text: "field.listen", hint: "tls://[::]:7000", list: true }, { path: "/http/domain", text: "field.domain", hint: "example.com" }],
  client: [{ path: "/servers", text: "field.servers", hint: "tls://example.com:7000", list: true }, { path: "/connections", text: "field.connections" }],
};

/** @param {any} config @param {string} path */
const at = (config, path) => path.split("/").slice(1).reduce((value, key) => value?.[key], config);

/** @param {any} value */
const shown = (value) => (value === undefined || value === null ? "" : Array.isArray(value) ? value.join(", ") : String(value));

/** @param {any} config @param {Field[]} fields @param {Record<string, string>} values */
function patch(config, fields, values) {
  const order = [];
  const made = new Set();
  for (const field of fields) {
    const before = at(config, field.path);
    const text = (values[field.path] ?? shown(before)).trim();
    if (text === shown(before)) continue;
    if (text === "") {
      order.push({ op: "remove", path: field.path });
      continue;
    }
    const [, parent, key] = field.path.split("/");
    const items = text.split(/[\s,]+/).filter(Boolean);
    const value = field.list && (Array.isArray(before) || items.length > 1) ? items : text;
    if (key !== undefined && at(config, `/${parent}`) === undefined && !made.has(parent)) {
      made.add(parent);
      order.push({ op: "add", path: `/${parent}`, value: { [key]: value } });
    } else order.push({ op: before === undefined ? "add" : "replace", path: field.path, value });
  }
  return order;
}

/** @param {{ config: any, role: string|undefined, keys: import("./meaning.js").Key[], onChange: (patch: any[]) => void }} props */
export function Usual({ config, role, keys, onChange }) {
  const [values, setValues] = useState(/** @type {Record<string, string>} */ ({}));
  const fields = [...(FIELDS[role ?? ""] ?? []), ...(role === "proxy" ? FIELDS.both.slice(0, 1) : FIELDS.both)];
  const put = (/** @type {Field} */ field) => (/** @type {any} */ event) => {
    const next = { ...values, [field.path]: event.target.value };
    setValues(next);
    onChange(patch(config, fields, next));
  };
  return h(Card, null, h("div", { class: "form" }, h("div", { class: "two" }, fields.map((field) => {
    const value = values[field.path] ?? shown(at(config, field.path));
    const path = field.path.slice(1).replaceAll("/", ".");
    const key = keyAt(keys, path);
    const usual = key && plainDefault(key);
    return h("label", { class: "field", key: field.path }, t(field.text),
      field.options
        ? h("select", { value, onChange: put(field) }, h("option", { value: "" }, t("field.default"), usual && ` (${usual})`), field.options.map((one) => h("option", { key: one, value: one }, one)))
        : h("input", { value, placeholder: field.hint ?? usual, autocomplete: "off", spellcheck: false, onInput: put(field) }),
      h("small", null, h("code", null, path), key && [" ", h(Meaning, { of: key })]));
  })), h("p", { class: "hint" }, t("field.hint"))));
}
