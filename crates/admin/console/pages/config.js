// @ts-check
// The configuration: a form for the usual, the text for everything. Check, diff, apply, undo.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { call, get } from "../api.js";
import { toast } from "../store.js";
import { Card, Choice, Empty, Head, Problem, said, useOrder } from "../parts/bits.js";
import { Judgement, apply, check, outcome, stale } from "../parts/change.js";
import { Editor, focusLine } from "../parts/editor.js";
import { Usual } from "../parts/usual.js";
import { t } from "../parts/text.js";

/** @param {{ s: import("../store.js").State }} props */
export function Config({ s }) {
  const [file, setFile] = useState(/** @type {any} */ (null));
  const [keys, setKeys] = useState(/** @type {import("../parts/meaning.js").Key[]} */ ([]));
  const [form, setForm] = useState("text");
  const [text, setText] = useState("");
  const [patch, setPatch] = useState(/** @type {any[]} */ ([]));
  const [judged, setJudged] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [busy, setBusy] = useState(false);
  const [undoing, order] = useOrder();

  const load = async () => {
    try {
      const found = await get("/api/v1/config");
      setFile(found);
      setText(found.text ?? "");
      setForm((was) => (found.text === undefined ? "form" : was));
      setPatch([]);
      setJudged(null);
      setError(null);
    } catch (wrong) {
      setError(wrong);
    }
  };
  useEffect(() => {
    load();
    // Without the keys, the page has no explanations, and all else works.
    get("/api/v1/config/keys").then(setKeys, () => {});
  }, [s.epoch > 0]);

  const changed = form === "text" ? file && text !== file.text : patch.length > 0;
  const body = () => (form === "text" ? { text } : patch);
  const guarded = (/** @type {() => Promise<void>} */ work) => async () => {
    setBusy(true);
    setError(null);
    try {
      await work();
    } catch (wrong) {
      setError(wrong);
    }
    setBusy(false);
  };
  const look = guarded(async () => setJudged(await check(body())));
  const put = guarded(async () => {
    // The file on the disk when this page read it, or that of the last diff that was looked at.
    const answer = await apply(body(), judged.etag);
    toast(outcome(answer), answer.failed?.length > 0);
    await load();
  });
  const undo = () => order(async () => {
    toast(outcome(await call("POST", "/api/v1/config/undo")));
    await load();
  });
  if (!file) return h("div", null, h(Head, { title: t("nav.config") }), error !== null && h(Card, { body: false }, h(Empty, { icon: "config", title: t("config.none") }, h("p", null, said(error)))));
  const other = judged && file.etag && judged.etag !== file.etag;
  const edit = (/** @type {any} */ put) => (/** @type {any} */ value) => { put(value); setJudged(null); setError(null); };
  return h("div", { class: "stack" },
    h(Head, {
      title: t("nav.config"),
      end: [
        file.text !== undefined && h(Choice, { key: "form", label: t("config.view"), value: form, onChange: edit(setForm), options: [["form", t("config.form")], ["text", t("config.text")]] }),
        file.undo && h("button", { key: "undo", type: "button", disabled: undoing, onClick: undo }, t("config.undo")),
        h("button", { key: "again", type: "button", onClick: load }, t("config.again")),
      ],
    }, h("p", null, h("code", null, file.path))),
    !file.writable && h("p", { class: "note-line warn", role: "status" }, t("config.readonly"), " ", file.why_not),
    s.totals?.reload_error && h("p", { class: "problem" }, s.totals.reload_error),
    form === "text"
      ? h(Editor, { value: text, onChange: edit(setText), wrong: (judged?.problems ?? []).map((/** @type {any} */ one) => one.line), readonly: !file.writable, keys })
      : h(Usual, { config: file.config, role: s.totals?.role, keys, onChange: edit(setPatch), key: file.etag }),
    other && h("p", { class: "note-line warn", role: "status" }, t("config.moved")),
    stale(error) ? h("p", { class: "problem", role: "alert" }, t("config.stale")) : h(Problem, { error }),
    judged && h(Card, { title: t(judged.ok ? "config.diff" : "config.wrong") }, h(Judgement, { judged, onLine: focusLine })),
    h("div", { class: "row" },
      h("button", { type: "button", disabled: busy || !changed, class: judged?.ok ? "" : "first", onClick: look }, t("config.check")),
      judged?.ok && h("button", { type: "button", class: "first", disabled: busy || !changed || !file.writable, onClick: put }, t("config.apply")),
      changed && h("button", { type: "button", onClick: load }, t("config.drop")),
      h("span", { class: "soft small" }, t("config.secret"))));
}
