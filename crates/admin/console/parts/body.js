// @ts-check
// The body of a message as text: laid out, as it came, or as bytes. Nothing of it is ever rendered.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { Choice } from "./bits.js";
import { bytes, number } from "./format.js";
import { t } from "./text.js";

/** @typedef {import("../api-types.js").HttpMessage} Message */

/** What a coding may unfold to, in bytes: a small body may be a large one. */
const UNFOLDED = 1 << 20;

/** Bytes that are shown as numbers. */
const DUMPED = 1024;

/** Codings that the browser takes off. @type {Record<string, CompressionFormat>} */
const CODINGS = { gzip: "gzip", "x-gzip": "gzip", deflate: "deflate" };

/** @param {Message} message @param {string} name */
const field = (message, name) => message.fields.find((one) => one.name.toLowerCase() === name)?.value.toLowerCase() ?? "";

/** @param {string} base64 */
const raw = (base64) => Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));

/** Takes a content coding off, as far as the kept bytes go. @param {Uint8Array<ArrayBuffer>} data @param {CompressionFormat} format */
export async function unfold(data, format) {
  const reader = new Blob([data]).stream().pipeThrough(new DecompressionStream(format)).getReader();
  /** @type {Uint8Array[]} */
  const parts = [];
  let size = 0;
  try {
    while (size < UNFOLDED) {
      const { done, value } = await reader.read();
      if (done) break;
      parts.push(value);
      size += value.length;
    }
    await reader.cancel();
  } catch {
    // The end is missing, or the coding is another one: what has come is shown.
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Text, if the bytes are one; the last character may be cut. @param {Uint8Array} data */
function asText(data) {
  for (let cut = 0; cut < 4; cut += 1) {
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(data.subarray(0, data.length - cut));
      // eslint-disable-next-line no-control-regex
      return /[\u0000-\u0008\u000b\u000c\u000e-\u001f]/.test(text) ? null : text;
    } catch {
      // Less of it may be text.
    }
  }
  return null;
}

/** Lines of sixteen bytes: place, numbers, letters. @param {Uint8Array} data */
function dump(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, DUMPED); at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const hex = row.map((one) => one.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    lines.push(`${at.toString(16).padStart(4, "0")}  ${hex}  ${row.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : ".")).join("")}`);
  }
  return lines.join("\n");
}

/** JSON with a line for each value. @param {string} text */
function laidOut(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/** @param {{ message: Message, label: string }} props */
export function Body({ message, label }) {
  const { body } = message;
  const [form, setForm] = useState("pretty");
  const [data, setData] = useState(/** @type {Uint8Array|null} */ (null));
  const coding = field(message, "content-encoding");
  const format = CODINGS[coding];
  useEffect(() => {
    setData(null);
    if (!body.base64) return;
    let gone = false;
    const kept = raw(body.base64);
    if (format) unfold(kept, format).then((all) => { if (!gone) setData(all.length > 0 ? all : kept); }, () => {});
    else setData(kept);
    return () => { gone = true; };
  }, [body.base64, format]);
  if (body.bytes === 0) return h("p", { class: "soft" }, t("body.none"));
  const text = body.text ?? (data && asText(data));
  const isJson = field(message, "content-type").includes("json") || /^\s*[[{]/.test(text ?? "");
  const pretty = isJson && text != null ? laidOut(text) : null;
  const note = body.left_out ? t("body.left") : body.cut ? t("body.cut", { bytes: bytes(body.bytes) }) : format && body.base64 ? t("body.coded", { coding }) : null;
  const shown = text != null ? (pretty !== null && form === "pretty" ? pretty : text) : data ? dump(data) : "";
  return h("div", { class: "stack tight" },
    h("div", { class: "row" },
      h("span", { class: "soft small" }, bytes(body.bytes), text == null && data && ` · ${t("body.binary", { count: number(Math.min(data.length, DUMPED)) })}`),
      pretty !== null && h(Choice, { label: t("body.form"), value: form, onChange: setForm, options: [["pretty", t("body.pretty")], ["raw", t("body.raw")]] })),
    note && h("p", { class: "soft small" }, note),
    !body.left_out && h("pre", { class: "payload", tabindex: 0, role: "region", "aria-label": label }, shown));
}
