// @ts-check
import { h } from "../vendor/preact.js";
import { useState } from "../vendor/hooks.js";
import { call, session } from "../api.js";
import { begin } from "../feed.js";
import { Problem } from "../parts/bits.js";
import { Mark } from "../parts/icon.js";
import { show } from "../parts/preferences.js";
import { t } from "../parts/text.js";

/** No password exists: a link of the terminal, or the token of the file. @param {{ s: import("../store.js").State }} props */
export function SignIn({ s }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [busy, setBusy] = useState(false);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const answer = await call("POST", "/api/v1/sessions", { token: token.trim() });
      session.set(answer.token);
      begin();
    } catch (wrong) {
      setError(wrong);
    }
    setBusy(false);
  };
  return h("main", { class: "gate" },
    h("div", { class: "card" },
      h("div", { class: "brand" }, h(Mark, null), h("span", null, "tunnel"),
        h("button", { type: "button", class: "plain soft", lang: s.lang === "en" ? "zh" : "en", onClick: () => show(s.lang === "en" ? "zh" : "en", s.theme) }, s.lang === "en" ? "中文" : "English")),
      h("form", { class: "body form", onSubmit: submit },
        h("h1", null, t("sign.title")),
        s.why && h("p", { class: "note-line warn", role: "status" }, t(s.why)),
        h("p", null, t("sign.link")),
        h("pre", { class: "note-line" }, "tunnel console"),
        h("label", { class: "field" }, t("sign.token"),
          h("input", { type: "password", value: token, autocomplete: "off", spellcheck: false, onInput: (/** @type {any} */ e) => setToken(e.target.value) }),
          h("small", null, t("sign.hint"))),
        h(Problem, { error }),
        h("button", { type: "submit", class: "first", disabled: busy || token.trim() === "" }, t("sign.do")))));
}
