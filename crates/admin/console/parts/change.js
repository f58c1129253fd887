// @ts-check
// A change of the configuration: check, diff, apply. The daemon's parser judges, and its file keeps
// its comments.

import { h } from "../vendor/preact.js";
import { Refusal, call } from "../api.js";
import { Diff } from "./diff.js";
import { t } from "./text.js";

/** @typedef {{ ok: boolean, etag: string, problems: any[], warnings: string[], diff: any[], live: string[], restart: string[] }} Judged */

/** What the daemon thinks of a change. @param {unknown} body a JSON Patch, or `{ text }` @returns {Promise<Judged>} */
export const check = (body) => call("POST", "/api/v1/config/check", { body });

/** @param {unknown} body @param {string} match the file that the diff was made of */
export const apply = (body, match) => call("PATCH", "/api/v1/config", { body, match });

/** Whether the file is another one than the diff was made of. @param {unknown} error */
export const stale = (error) => error instanceof Refusal && error.status === 412;

/** What an applied change did, in one line. @param {any} answer */
export function outcome(answer) {
  const parts = [...(answer.applied ?? [])];
  if (answer.restart?.length) parts.push(t("config.restart", { keys: answer.restart.join(", ") }));
  if (answer.failed?.length) parts.push(answer.failed.join(", "));
  return parts.length > 0 ? parts.join(" · ") : t("config.same");
}

/** `bare`: there is no file yet, and so no difference. @param {{ judged: Judged, bare?: boolean, onLine?: (line: number) => void }} props */
export function Judgement({ judged, bare, onLine }) {
  const changes = judged.diff.some((one) => one.op === "add" || one.op === "remove");
  return h("div", { class: "form" },
    judged.problems.length > 0 && h("ul", { class: "problems", role: "alert" }, judged.problems.map((one, index) =>
      h("li", { key: index },
        one.line > 0 && onLine && h("button", { type: "button", class: "slim", onClick: () => onLine(one.line) }, t("config.line", { line: one.line })),
        h("span", null, one.key && h("code", null, one.key), one.key && ": ", one.text, one.hint && h("span", { class: "soft" }, ` (${one.hint})`))))),
    judged.warnings.length > 0 && h("ul", { class: "note-line warn" }, judged.warnings.map((one) => h("li", { key: one }, one))),
    judged.ok && !bare && (changes ? h(Diff, { lines: judged.diff }) : h("p", { class: "note-line" }, t("config.same"))),
    judged.ok && judged.live.length > 0 && h("p", { class: "small" }, t("config.live", { keys: judged.live.join(", ") })),
    judged.ok && judged.restart.length > 0 && h("p", { class: "note-line warn" }, t("config.restart", { keys: judged.restart.join(", ") })));
}
