// @ts-check
// Small pieces that every page uses: states, empty lists, lines to copy, messages of a failure.

import { h } from "../vendor/preact.js";
import { useState } from "../vendor/hooks.js";
import { Refusal } from "../api.js";
import { toast } from "../store.js";
import { Icon } from "./icon.js";
import { t } from "./text.js";

/** How good each word of a state is. @type {Record<string, string>} */
const TONES = {
  running: "good", up: "good", in_charge: "good", standby: "good", connected: "good", published: "good", direct: "good", valid: "good",
  draining: "warn", connecting: "warn", stalled: "warn", going_away: "warn", waiting: "warn", returning: "warn",
  superseded: "warn", held: "warn", relayed: "good", away: "warn",
  unreachable: "bad", refused: "bad", denied: "bad", target_down: "bad", down: "bad", expired: "bad", failed: "bad",
};

/** A state in colour and in words. @param {{ word: string, text?: string }} props */
export const State = ({ word, text }) =>
  h("span", { class: `state ${TONES[word] ?? ""}`, title: text && text !== word ? text : undefined }, t(`state.${word}`));

/** The state of a client or server: what it is for, where it is there. @param {any} row */
export const standing = (row) => tone(row.state) === "good" && (row.charge || row.standby && "standby") || row.state;

/** @param {string} word */
export const tone = (word) => TONES[word] ?? "";

/** What stands where a list is empty: what it would show, and what to do. @param {any} props */
export const Empty = ({ icon, title, children }) =>
  h("div", { class: "empty" }, h(Icon, { name: icon }), h("b", null, title), children);

/** Without a body of its own it says that nothing has come yet. @param {any} props */
export const Card = ({ title, end, children, body = true, level = "h2", class: more = "" }) =>
  h("section", { class: `card ${more}` },
    title && h("header", null, h(level, null, title), end && h("div", { class: "end" }, end)),
    body ? h("div", { class: "body" }, children) : children || h("p", { class: "loading" }, t("loading")));

/** @param {any} props */
export const Head = ({ title, end, children }) =>
  h("div", { class: "head" }, h("h1", { tabindex: -1, id: "title" }, title), end && h("div", { class: "end" }, end), children);

/** @param {{ rows: ([string, any]|null|false|undefined)[] }} props */
export const Facts = ({ rows }) =>
  h("dl", { class: "facts" }, rows.map((row) => row && [h("dt", null, row[0]), h("dd", null, row[1])]));

/** A line that is meant for another place. @param {{ text: string, label: string }} props */
export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      setTimeout(() => setDone(false), 2000);
    } catch {
      toast(t("copy.failed"), true);
    }
  };
  return h("div", { class: "copy" },
    h("code", { tabindex: 0, "aria-label": label }, text),
    h("button", { type: "button", onClick: copy }, h(Icon, { name: done ? "good" : "copy" }), t(done ? "copy.done" : "copy.do")));
}

/** One of a few. @param {{ label: string, value: any, options: [any, string][], onChange: (value: any) => void }} props */
export const Choice = ({ label, value, options, onChange }) =>
  h("div", { class: "choice", role: "group", "aria-label": label },
    options.map(([one, text]) =>
      h("button", { type: "button", key: one, "aria-pressed": String(one === value), onClick: () => onChange(one) }, text)));

/** What a failure says to a person. @param {unknown} error */
export function said(error) {
  if (!(error instanceof Refusal)) return String(error instanceof Error ? error.message : error);
  if (error.status === 0) return t("lost.order");
  return [error.message, ...error.problems.filter((one) => !error.message.includes(one))].join("\n");
}

/** @param {{ error: unknown }} props */
export const Problem = ({ error }) => error ? h("p", { class: "problem", role: "alert" }, said(error)) : null;

/**
 * An order to the daemon from a button: busy while it is under way, and a failure is said.
 *
 * @returns {[boolean, (work: () => Promise<void>) => Promise<void>]}
 */
export function useOrder() {
  const [busy, setBusy] = useState(false);
  return [busy, async (work) => {
    setBusy(true);
    try {
      await work();
    } catch (error) {
      toast(said(error), true);
    } finally {
      setBusy(false);
    }
  }];
}
