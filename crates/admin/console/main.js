// @ts-check
// Starts the console: who is signed in, which page is shown, what the keys do.

import { h, render } from "./vendor/preact.js";
import { useEffect } from "./vendor/hooks.js";
import { call, session, whenSessionEnds } from "./api.js";
import { begin, look, stop } from "./feed.js";
import { forget, set, state, toast, useStore } from "./store.js";
import { said } from "./parts/bits.js";
import { listen } from "./parts/keys.js";
import { Shell } from "./parts/shell.js";
import { recall } from "./parts/preferences.js";
import { t } from "./parts/text.js";
import { Toasts } from "./parts/toast.js";
import { Keys, More } from "./parts/help.js";
import { Confirm } from "./parts/dialog.js";
import { TestedDialog } from "./parts/tested.js";
import { Certificates } from "./pages/certificates.js";
import { ClientPage } from "./pages/client.js";
import { Clients } from "./pages/clients.js";
import { Cluster } from "./pages/cluster.js";
import { Config } from "./pages/config.js";
import { Enrol } from "./pages/enrol.js";
import { Log } from "./pages/log.js";
import { Overview } from "./pages/overview.js";
import { ServiceForm } from "./pages/service-form.js";
import { RequestPage } from "./pages/request.js";
import { Requests } from "./pages/requests.js";
import { Services } from "./pages/services.js";
import { Settings } from "./pages/settings.js";
import { SignIn } from "./pages/sign-in.js";
import { Streams } from "./pages/streams.js";
import { Tools } from "./pages/tools.js";

/** @type {Record<string, any>} */
const PAGES = {
  overview: Overview, clients: Clients, cluster: Cluster, services: Services, streams: Streams, requests: Requests, log: Log,
  config: Config, tools: Tools, certificates: Certificates, settings: Settings,
};
/** Pages of one thing. @type {Record<string, any>} */
const DETAILS = { clients: ClientPage, requests: RequestPage };
/** @type {Record<string, any>} */
const DIALOGS = { enrol: Enrol, keys: Keys, more: More, confirm: Confirm, service: ServiceForm, tested: TestedDialog };

function App() {
  const s = useStore();
  const [name = "overview", of] = s.route;
  const page = PAGES[name] ? name : "overview";
  useEffect(() => {
    if (s.in) look(page, s.dialog?.name);
  }, [s.in, page, s.dialog?.name]);
  useEffect(() => { document.title = `${s.in ? t(`nav.${page}`) : t("sign.title")} · tunnel`; }, [s.lang, s.in, page]);
  if (!s.in) return h(SignIn, { s });
  const Page = (of && DETAILS[page]) || PAGES[page];
  const Open = s.dialog && DIALOGS[s.dialog.name];
  return h(Shell, { s, page },
    h(Page, { s, of, key: `${page}/${of ?? ""}` }),
    Open && h(Open, { s, ...s.dialog?.props }),
    h(Toasts, { list: s.toasts }));
}

/** Shows the page of the address. */
function route() {
  const path = location.hash.startsWith("#/") ? location.hash.slice(2) : "";
  // A dialog belongs to its page. It ends here and not after the next drawing: a key that is pressed
  // at once may open another.
  set({ route: path.split("/").filter(Boolean).map(decodeURIComponent), dialog: null });
  scrollTo(0, 0);
}

/** A key in the address is good once: it leaves the address before anything else happens. */
async function enter() {
  const key = /^#k=([\w-]+)$/.exec(location.hash)?.[1];
  if (key) {
    history.replaceState(null, "", location.pathname);
    session.drop();
    try {
      const answer = await call("POST", "/api/v1/sessions", { token: key });
      session.set(answer.token);
    } catch (error) {
      set({ why: "sign.key" });
      if (!(error instanceof Object && "status" in error && error.status === 401)) toast(said(error), true);
    }
  }
  route();
  if (session.get()) begin();
}

whenSessionEnds(() => {
  if (!state.in) return;
  stop();
  session.drop();
  forget();
  set({ in: false, dialog: null, why: "sign.ended" });
});

addEventListener("hashchange", () => (location.hash.startsWith("#k=") ? void enter() : route()));
recall();
listen();
render(h(App, null), /** @type {HTMLElement} */ (document.getElementById("app")));
void enter();
