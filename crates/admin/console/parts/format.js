// @ts-check
// Numbers, units and dates in the language of the page.

import { state } from "../store.js";
import { t } from "./text.js";

/** @type {Map<string, Intl.NumberFormat>} */
const formats = new Map();

/** @param {number} value @param {number} [digits] after the point, at most */
export function number(value, digits = 0) {
  const key = `${state.lang} ${digits}`;
  let format = formats.get(key);
  if (!format) formats.set(key, (format = new Intl.NumberFormat(state.lang, { maximumFractionDigits: digits })));
  return format.format(value);
}

/** Value and unit; three digits or so. @param {number} value @param {number} step @param {string[]} units */
function scaled(value, step, units) {
  let unit = 0;
  while (Math.abs(value) >= step * 0.9995 && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  return [number(value, unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2), units[unit]];
}

const BITS = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
const BYTES = ["B", "kB", "MB", "GB", "TB", "PB"];
const MEMORY = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Number and unit apart. @param {number} bytesPerSecond */
export const rateParts = (bytesPerSecond) => scaled(bytesPerSecond * 8, 1000, BITS);
/** @param {number|null|undefined} bytesPerSecond */
export const rate = (bytesPerSecond) => (bytesPerSecond == null ? "–" : rateParts(bytesPerSecond).join(" "));
/** @param {number} value */
export const bytes = (value) => scaled(value, 1000, BYTES).join(" ");
/** @param {number} value */
export const memory = (value) => scaled(value, 1024, MEMORY).join(" ");

/** @param {number|null|undefined} micros */
export function millis(micros) {
  if (micros == null) return "–";
  return `${number(micros / 1000, micros < 10_000 ? 2 : micros < 100_000 ? 1 : 0)} ms`;
}

const SPANS = /** @type {const} */ ([["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]]);

/** Two units at most: 3 d 4 h. @param {number} seconds */
export function span(seconds) {
  let left = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [unit, size] of SPANS) {
    const count = Math.floor(left / size);
    if (count > 0 || (unit === "s" && parts.length === 0)) parts.push(`${number(count)} ${t(`unit.${unit}`)}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
    left -= count * size;
  }
  return parts.join(" ");
}

/** @param {number} seconds */
export const ago = (seconds) => (seconds < 2 ? t("time.now") : t("time.ago", { span: span(seconds) }));

/** @param {number} unixMillis */
export const clock = (unixMillis) =>
  new Intl.DateTimeFormat(state.lang, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }).format(unixMillis);

/** @param {number} unixSeconds */
export const day = (unixSeconds) =>
  new Intl.DateTimeFormat(state.lang, { dateStyle: "medium" }).format(unixSeconds * 1000);

/** Time at the axis of a plot. @param {number} unixSeconds @param {boolean} seconds */
export const tick = (unixSeconds, seconds) =>
  new Intl.DateTimeFormat(state.lang, { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(seconds ? { second: "2-digit" } : {}) })
    .format(unixSeconds * 1000);

/** @param {Record<string, number>|undefined} map */
export const sum = (map) => Object.values(map ?? {}).reduce((all, one) => all + one, 0);
