// @ts-check
// Texts in the language of the page, from one file per language.

import en from "../text/en.js";
import zh from "../text/zh.js";
import { state } from "../store.js";

/** @type {Record<string, Record<string, string>>} */
const ALL = { en, zh };

/**
 * The text of `key`, with `{name}` replaced. A key that is missing is shown itself: words of a newer
 * daemon, such as a state, are readable so.
 *
 * @param {string} key
 * @param {Record<string, string|number>} [values]
 */
export function t(key, values = {}) {
  const text = ALL[state.lang][key] ?? en[/** @type {keyof typeof en} */ (key)] ?? key.slice(key.indexOf(".") + 1).replaceAll("_", " ");
  return text.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
}
