// @ts-check
// A new daemon: role, a few fields, the file as it would be, and its start.

import { h } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { call } from "../api.js";
import { Choice, Copy, Problem } from "../parts/bits.js";
import { Judgement } from "../parts/change.js";
import { span } from "../parts/format.js";
import { Mark } from "../parts/icon.js";
import { show } from "../parts/preferences.js";
import { t } from "../parts/text.js";

/** @typedef {import("../api-types.js").SetUpFacts} Facts */
/** @typedef {import("../api-types.js").SetUpDraft} Draft */
/** @typedef {import("../api-types.js").SetUpWritten} Written */
/** @typedef {"listen"|"client"|"ports"|"code"|"target"|"public"|"console"} Name */

/** The fields of each role. @type {Record<"server"|"client", Name[]>} */
const FIELDS = { server: ["listen", "client", "ports", "console"], client: ["code", "target", "public", "console"] };
/** @type {Record<string, any>} */
const MORE = {
  listen: { required: true }, code: { required: true, placeholder: "enroll1.…" }, target: { placeholder: "3000" },
  public: { placeholder: "10080" }, client: { pattern: "[A-Za-z0-9._\\-]{0,64}" },
};

/** @param {{ s: import("../store.js").State, facts: Facts|null }} props */
export function SetUp({ s, facts }) {
  return h("main", { class: "gate broad" },
    h("div", { class: "card" },
      h("div", { class: "brand" }, h(Mark, null), h("span", null, "tunnel"),
        h("button", { type: "button", class: "plain soft", lang: s.lang === "en" ? "zh" : "en", onClick: () => show(s.lang === "en" ? "zh" : "en", s.theme) }, s.lang === "en" ? "中文" : "English")),
      s.in && facts ? h(Form, { facts })
        : h("div", { class: "body form" }, h("h1", null, t("setup.title")), s.why && h("p", { class: "note-line warn", role: "status" }, t(s.why)))));
}

/** Until when the page can be used. @param {{ facts: Facts }} props */
function Left({ facts }) {
  const [end] = useState(() => performance.now() + facts.ends_seconds * 1000);
  const [, draw] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => draw((/** @type {number} */ n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return h("p", { class: "hint" }, t("setup.left", { folder: facts.folder, span: span(Math.max(0, (end - performance.now()) / 1000)) }));
}

/** @param {{ facts: Facts }} props */
function Form({ facts }) {
  const [role, setRole] = useState(/** @type {"server"|"client"} */ (facts.role));
  const [values, setValues] = useState(/** @type {Record<string, string>} */ ({ listen: facts.listen, client: facts.client, ports: facts.ports, console: facts.console }));
  const [draft, setDraft] = useState(/** @type {Draft|null} */ (null));
  const [written, setWritten] = useState(/** @type {Written|null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [busy, setBusy] = useState(false);
  const plan = () => ({ role, ...Object.fromEntries(FIELDS[role].map((name) => [name, (values[name] ?? "").trim()])) });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      if (draft?.ok) setWritten(await call("POST", "/api/v1/setup", { body: plan() }));
      else setDraft(await call("POST", "/api/v1/setup/check", { body: plan() }));
    } catch (wrong) {
      setError(wrong);
    }
    setBusy(false);
  };
  if (written) return h(Done, { written });
  const choose = (/** @type {"server"|"client"} */ one) => { setRole(one); setDraft(null); setError(null); };
  const taken = facts.taken.includes(`${role}.yaml`);
  return h("form", { class: "body form", onSubmit: submit },
    h("h1", null, t("setup.title")),
    h("p", null, t("setup.text")),
    h(Choice, { label: t("setup.role"), value: role, options: [["server", t("setup.role.server")], ["client", t("setup.role.client")]], onChange: choose }),
    h("p", { class: "hint" }, t(`setup.role.${role}.text`)),
    taken && h("p", { class: "note-line warn", role: "status" }, t("setup.taken", { file: `${role}.yaml` })),
    FIELDS[role].map((name, index) => h("label", { class: "field", key: name }, t(`setup.field.${name}`),
      h("input", { value: values[name] ?? "", autofocus: index === 0, autocomplete: "off", spellcheck: false, ...MORE[name], onInput: (/** @type {any} */ e) => { setValues({ ...values, [name]: e.target.value }); setDraft(null); } }),
      h("small", null, t(`setup.field.${name}.hint`)))),
    draft && h(Shown, { draft }),
    h(Problem, { error }),
    h(Left, { facts }),
    h("div", { class: "row last" },
      h("button", { type: "submit", class: "first", disabled: busy || taken }, t(busy ? "setup.busy" : draft?.ok ? "setup.write" : "config.check"))));
}

/** The file as it would be written, and what is wrong with it. @param {{ draft: Draft }} props */
const Shown = ({ draft }) => h("section", { class: "form", "aria-label": draft.path },
  draft.text !== "" && h("div", { class: "diff", role: "region", tabindex: 0, "aria-label": draft.path },
    h("div", { class: "folded" }, draft.path),
    draft.text.trimEnd().split("\n").map((line, index) => h("div", { key: index }, h("span", { class: "at" }, index + 1), h("span", null), h("span", null, line)))),
  h(Judgement, { judged: { ...draft, etag: "", diff: [], live: [], restart: [] }, bare: true }),
  draft.ok && h("p", { class: "note-line good", role: "status" }, t("setup.good", { path: draft.path })));

/** @param {{ written: Written }} props */
const Done = ({ written }) => h("div", { class: "body form" },
  h("h1", { tabindex: -1 }, t("setup.done")),
  h("p", { class: "note-line good", role: "status" }, t("setup.starts", { path: written.path })),
  written.elsewhere && h("section", { class: "form", "aria-label": t("setup.elsewhere") }, h("h2", null, t("setup.elsewhere")), h("pre", { class: "note-line", tabindex: 0 }, written.elsewhere.trimEnd())),
  written.console && h("p", null, t("setup.console.next")),
  written.console && h(Copy, { text: "tunnel console", label: t("setup.console.next") }),
  h("p", { class: "hint" }, t("setup.close")));
