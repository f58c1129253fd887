// @ts-check
// Native dialogs: the browser keeps the focus in them, and Escape closes them.

import { h } from "../vendor/preact.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { close } from "../store.js";
import { Problem } from "./bits.js";
import { Icon } from "./icon.js";
import { t } from "./text.js";

/** @param {any} props */
export function Dialog({ title, broad, children, onClose = close }) {
  const at = useRef(/** @type {HTMLDialogElement|null} */ (null));
  useEffect(() => {
    const before = document.activeElement;
    at.current?.showModal();
    return () => { if (before instanceof HTMLElement && before.isConnected) before.focus(); };
  }, []);
  return h("dialog", {
    ref: at, class: broad ? "broad" : "", "aria-labelledby": "dialog-title", onClose,
    onCancel: (/** @type {Event} */ event) => { event.preventDefault(); onClose(); },
  },
    h("header", null, h("h2", { id: "dialog-title" }, title),
      h("button", { type: "button", class: "plain", "aria-label": t("dialog.close"), onClick: onClose }, h(Icon, { name: "close" }))),
    h("div", { class: "body" }, children));
}

/**
 * Asks before something that cannot be taken back; `word` has to be typed where it is given.
 *
 * @param {{ title: string, text: string, verb: string, word?: string, then: () => Promise<void> }} props
 */
export function Confirm({ title, text, verb, word, then }) {
  const [typed, setTyped] = useState("");
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await then();
      close();
    } catch (wrong) {
      setError(wrong);
    }
  };
  return h(Dialog, { title },
    h("form", { class: "form", onSubmit: submit },
      h("p", null, text),
      word && h("label", { class: "field" }, t("confirm.type", { word }),
        h("input", { value: typed, autocomplete: "off", spellcheck: false, onInput: (/** @type {any} */ e) => setTyped(e.target.value) })),
      h(Problem, { error }),
      h("div", { class: "row last" },
        h("button", { type: "button", onClick: close }, t("dialog.cancel")),
        h("button", { type: "submit", class: "danger", disabled: word !== undefined && typed !== word }, verb))));
}
