// @ts-check
// What waits for a person: found in the figures, the gravest first.

import { older } from "../store.js";
import { ago, number, span } from "./format.js";
import { t } from "./text.js";

/** A certificate that ends sooner is shown. */
const DAYS = 14 * 86_400;
/** A refused log-in that is older is history. */
const RECENT = 3600;
/** What the daemon asks the kernel for is 4 MiB; below this, bursts are lost. */
const BUFFER = 1 << 20;

/** @typedef {{ key: string, tone: "bad"|"warn", of: string, text: string, href?: string }} Need */

/** @param {import("../store.js").State} s @returns {Need[]} */
export function needs(s) {
  /** @type {Need[]} */
  const list = [];
  const add = (/** @type {Need["tone"]} */ tone, /** @type {string} */ of, /** @type {string} */ text, /** @type {string} */ href) =>
    void list.push({ key: `${of} ${text}`, tone, of, text, href });
  const { totals, slow } = s;
  if (totals?.reload_error) add("bad", t("nav.config"), totals.reload_error, "#/config");
  if (totals?.drain_seconds != null) add("warn", t("state.draining"), t("needs.draining", { span: span(totals.drain_seconds) }), "#/streams");
  for (const one of s.needs?.services ?? []) {
    if (one.state === "refused" || one.state === "denied") add("bad", one.name, one.state_text, "#/services");
    else if (one.state === "target_down") add("bad", one.name, t("needs.target", { text: one.state_text.replaceAll(" ", "_") === one.state ? "" : one.state_text }), "#/services");
  }
  for (const one of s.needs?.clients ?? []) {
    const href = `#/clients/${encodeURIComponent(one.name)}`;
    const since = older(one);
    if (one.refused && one.refused.seconds_ago + since < RECENT) add("bad", one.name, t("needs.refused", { reason: one.refused.reason, address: one.refused.address, ago: ago(one.refused.seconds_ago + since) }), href);
    if (one.state === "stalled") add("warn", one.name, t("needs.stalled", { span: span((one.stalled_seconds ?? 0) + since) }), href);
    if (one.state === "unreachable" || one.state === "refused") add("bad", one.name, one.state_text, href);
    if (one.hold) add("warn", one.name, t("needs.hold"), href);
  }
  for (const one of slow?.certificates ?? []) {
    if (one.error) add("bad", one.host, one.error, "#/certificates");
    else if (one.expires_seconds != null && one.expires_seconds < 0) add("bad", one.host, t("needs.expired"), "#/certificates");
    else if (one.expires_seconds != null && one.expires_seconds < DAYS) add("warn", one.host, t("needs.expires", { span: span(one.expires_seconds) }), "#/certificates");
  }
  if (totals?.udp && totals.udp.receive_buffer_bytes < BUFFER) add("warn", "UDP", t("needs.buffer", { size: number(totals.udp.receive_buffer_bytes / 1024) }), "#/tools");
  if (totals?.descriptors_limit && totals.descriptors_open > totals.descriptors_limit * 0.8) add("warn", t("descriptors"), t("needs.descriptors"), "#/streams");
  if (totals && totals.memory_used_bytes > totals.memory_budget_bytes * 0.9) add("warn", t("memory"), t("needs.memory"), "#/streams");
  return list.sort((a, b) => (a.tone === b.tone ? 0 : a.tone === "bad" ? -1 : 1));
}
