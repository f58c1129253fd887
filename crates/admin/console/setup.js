// @ts-check
// Starts the set-up page, to which a start without parameters prints a link.

import { h, render } from "./vendor/preact.js";
import { useEffect } from "./vendor/hooks.js";
import { call, get, session, whenSessionEnds } from "./api.js";
import { set, toast, useStore } from "./store.js";
import { said } from "./parts/bits.js";
import { recall } from "./parts/preferences.js";
import { t } from "./parts/text.js";
import { Toasts } from "./parts/toast.js";
import { SetUp } from "./pages/set-up.js";

/** What the page begins with. @type {import("./api-types.js").SetUpFacts|null} */
let facts = null;

function App() {
  const s = useStore();
  useEffect(() => { document.title = `${t("setup.title")} · tunnel`; }, [s.lang]);
  return [h(SetUp, { s, facts }), h(Toasts, { list: s.toasts })];
}

/** The key in the address is good once: it leaves the address before anything else happens. */
async function enter() {
  const key = /^#k=([\w-]+)$/.exec(location.hash)?.[1];
  if (key) history.replaceState(null, "", location.pathname);
  try {
    if (key) {
      session.drop();
      session.set((await call("POST", "/api/v1/sessions", { token: key })).token);
    }
    if (!session.get()) return set({ why: "setup.link" });
    facts = await get("/api/v1/setup");
    set({ in: true, why: null });
  } catch (error) {
    set({ why: "setup.used" });
    if (!(error instanceof Object && "status" in error && error.status === 401)) toast(said(error), true);
  }
}

whenSessionEnds(() => {
  session.drop();
  set({ in: false, why: "setup.used" });
});

addEventListener("hashchange", () => void enter());
recall();
render(h(App, null), /** @type {HTMLElement} */ (document.getElementById("app")));
void enter();
