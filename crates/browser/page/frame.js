// The hidden frame of a service: it starts the service worker of this origin, and hands it ports to
// the page around.

const home = `${location.protocol}//visit.${location.host.slice(location.host.indexOf(".") + 1)}`;
const say = (what) => parent.postMessage(what, home);

try {
  const options = { scope: "/", updateViaCache: "none" };
  await navigator.serviceWorker.register("/.tunnel/worker.js", options);
  const { active } = await navigator.serviceWorker.ready;
  addEventListener("message", ({ origin, source, data, ports }) => {
    if (origin !== home || source !== parent || data !== "port" || !ports[0]) return;
    const worker = navigator.serviceWorker.controller ?? active;
    worker.postMessage("port", [ports[0]]);
  });
  navigator.serviceWorker.onmessage = ({ data }) => {
    if (data === "need" || data === "set") say(data);
  };
  say("ready");
} catch (error) {
  say(`failed ${error.message}`);
}
