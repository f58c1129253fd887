// @ts-check
// Language and theme: kept in the browser, and taken from it where nobody has chosen.

import { set } from "../store.js";

/** @param {"en"|"zh"} lang @param {"auto"|"light"|"dark"} theme */
export function show(lang, theme) {
  localStorage.setItem("tunnel.lang", lang);
  localStorage.setItem("tunnel.theme", theme);
  put(lang, theme);
}

/** What was chosen last time. */
export function recall() {
  const lang = localStorage.getItem("tunnel.lang") ?? navigator.language;
  const theme = localStorage.getItem("tunnel.theme");
  put(lang.startsWith("zh") ? "zh" : "en", theme === "light" || theme === "dark" ? theme : "auto");
}

/** @param {"en"|"zh"} lang @param {"auto"|"light"|"dark"} theme */
function put(lang, theme) {
  const root = document.documentElement;
  root.lang = lang;
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  set({ lang, theme });
}
