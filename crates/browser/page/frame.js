// The hidden frame of a service: it starts the service worker of this origin, and hands it ports to
// the page around.

const home = `${location.protocol}//visit.${location.host.slice(location.host.indexOf(".") + 1)}`;

/** The time between two events of the service worker, in milliseconds. */
const ALIVE = 10000;

const say = (what) => parent.postMessage(what, home);

try {
  const options = { scope: "/", updateViaCache: "none" };
  await navigator.serviceWorker.register("/.tunnel/worker.js", options);
  const { active } = await navigator.serviceWorker.ready;
  const worker = () => navigator.serviceWorker.controller ?? active;
  addEventListener("message", ({ origin, source, data, ports }) => {
    if (origin !== home || source !== parent) return;
    if (data === "port" && ports[0]) worker().postMessage("port", [ports[0]]);
    if (data === "alive") worker().postMessage("alive");
  });
  // A browser ends a service worker that has no event for 30 s, with the responses that it sends.
  setInterval(() => worker().postMessage("alive"), ALIVE);
  navigator.serviceWorker.onmessage = ({ data }) => {
    if (data === "need" || data === "set") say(data);
  };
  say("ready");
} catch (error) {
  say(`failed ${error.message}`);
}
