// @ts-check
// What a key of the configuration means, in the words of the daemon.

import { h } from "../vendor/preact.js";
import { t } from "./text.js";

/** @typedef {import("../api-types.js").ConfigKey} Key */

/** The key of a path without marks for lists: `clients.limits.streams`. @param {Key[]} keys @param {string|null} path */
export const keyAt = (keys, path) => keys.find((one) => one.path.replaceAll("[]", "") === path);

/** Text with backticks around words of the file. @param {string} text */
const ticked = (text) => text.split("`").map((part, index) => (index % 2 === 1 ? h("code", null, part) : part));

/** @param {Key} key */
export const plainDefault = (key) => key.default.replaceAll("`", "");

/** The sentence, and when a change takes effect. @param {{ of: Key }} props */
export const Meaning = ({ of }) => [h("span", { lang: "en" }, ticked(of.meaning)), " ", t(`key.${of.change}`)];

/** All of a key. @param {{ of: Key }} props */
export const Whole = ({ of }) => [
  h("p", null, h("code", null, of.path), " ", h(Meaning, { of })),
  h("p", { class: "soft" },
    t("key.type"), " ", h("span", { lang: "en" }, ticked(of.type)), " · ",
    t("key.default"), " ", h("span", { lang: "en" }, of.default_is_value ? h("code", null, of.default) : ticked(of.default), of.note && [" (", ticked(of.note), ")"])),
];
