// The page: it logs in with the code of a visit, keeps the visit, and shows the service in a frame
// of another origin, so that the pages of a service never see what belongs to this page.

import { failureSentence, stateSentence } from "/sentences.js";
import { Visit } from "/visit.js";

const at = (id) => document.getElementById(id);
const STORE = "visits";
const LABEL = 20;

/** The visits that this browser keeps. */
const kept = () => {
  try {
    const all = JSON.parse(localStorage.getItem(STORE) ?? "[]");
    return Array.isArray(all) ? all : [];
  } catch {
    return [];
  }
};
/** A browser that keeps nothing has the visit until the page is left. */
const keep = (all) => {
  try {
    localStorage.setItem(STORE, JSON.stringify(all));
  } catch {
    // It may have no storage for this page, or no room.
  }
};
/** A service may be kept with several log-ins. */
const same = (a, b) => a.service === b.service && a.name === b.name && a.secret === b.secret;

/** The lines of a code with this prefix. */
function lines(code, prefix) {
  if (!code.startsWith(prefix)) return null;
  try {
    const coded = code.slice(prefix.length).replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(coded), (c) => c.charCodeAt(0));
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.endsWith("\n") ? text.slice(0, -1).split("\n") : null;
  } catch {
    return null;
  }
}

/** Reads the code of a visit. */
function read(code) {
  if (code.startsWith("enroll1.")) {
    throw new Error("This is a code for the program tunnel (tunnel client --enroll), and no visit.");
  }
  if (!code.startsWith("visit1.")) {
    throw new Error("This is no code of a visit: such a code begins with visit1.");
  }
  const damaged = new Error("The code is damaged: copy the whole of it.");
  const all = lines(code, "visit1.");
  if (all?.length !== 4) throw damaged;
  const [service, token, visitor, enrolment] = all;
  if (!enrolment) {
    throw new Error(
      `The code is for the program tunnel of the client ${visitor}, which is there already. For a ` +
        `browser the owner makes a code by tunnel visit --new, without --for.`,
    );
  }
  const [name, secret] = lines(enrolment, "enroll1.") ?? [];
  if (!secret || !service.includes("/")) throw damaged;
  return { service, token, name, secret };
}

/** The origin of a service: a name of its own below the domain of this page. */
async function origin(service) {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(service));
  const alphabet = "abcdefghijklmnopqrstuvwxyz234567";
  const bytes = new Uint8Array(hash).slice(0, LABEL);
  const label = Array.from(bytes, (byte) => alphabet[byte & 31]).join("");
  const domain = location.host.slice(location.host.indexOf(".") + 1);
  return `${location.protocol}//visit-${label}.${domain}`;
}

let open;

function trouble(sentence) {
  at("trouble").textContent = sentence;
  at("trouble").hidden = !sentence;
}

function notice(sentence, again) {
  at("sentence").textContent = sentence;
  at("notice").hidden = !sentence;
  at("again").hidden = !again;
}

function state(kind, short, long = "") {
  const place = at("state");
  place.className = kind;
  place.replaceChildren(short);
  if (long) {
    const rest = document.createElement("span");
    rest.className = "long";
    rest.textContent = ` ${long}`;
    place.append(rest);
  }
}

/** Shows the list of services. */
function list() {
  const all = kept();
  at("known").hidden = all.length === 0;
  at("list").replaceChildren(
    ...all.map((visit) => {
      const [client, service] = visit.service.split("/");
      const item = document.createElement("li");
      const what = document.createElement("span");
      const of = document.createElement("small");
      what.textContent = service;
      of.textContent = `of ${client}, as ${visit.name}`;
      what.append(of);
      const enter = document.createElement("button");
      enter.textContent = "Open";
      enter.onclick = () => begin({ ...visit, isCode: false });
      const forget = document.createElement("button");
      forget.textContent = "Forget";
      forget.onclick = () => {
        keep(kept().filter((other) => !same(other, visit)));
        list();
      };
      item.append(what, enter, forget);
      return item;
    }),
  );
}

/** Leaves the service. */
function leave() {
  open?.end();
  open = undefined;
  at("place").replaceChildren();
  at("bar").hidden = true;
  at("start").hidden = false;
  notice("");
  document.title = "Visit a private service";
  list();
}

function show(who) {
  const [client, service] = who.service.split("/");
  at("what").textContent = service;
  at("what").title = `${service} of ${client}`;
  document.title = `${service} · ${client}`;
  at("start").hidden = true;
  at("bar").hidden = false;
  at("tab").hidden = true;
  notice("");
  state("", "Connecting");
}

/** Opens a visit, by its code or by what this browser has kept of it. */
async function begin(who) {
  leave();
  trouble("");
  show(who);
  // A code becomes a log-in.
  let current = who;
  const [client, service] = who.service.split("/");
  const site = await origin(who.service);
  const mine = { end: () => {} };
  open = mine;
  const release = await hold(who, client, service);
  if (open !== mine) return release?.();
  if (!release) return;
  let frames;
  const told = async (word, rest) => {
    if (open !== mine) return;
    const sentence = stateSentence(word === "over" ? rest : word, client, service);
    switch (word) {
      case "enrolled": {
        mine.visit.close();
        const known = { service: who.service, token: who.token, name: who.name, secret: rest };
        // The former log-in stays until this one has reached the service.
        current = known;
        keep([...kept().filter((other) => !same(other, known)), known]);
        try {
          await start({ ...known, isCode: false });
        } catch (error) {
          notice(`The visit cannot go on: ${error.message}.`, true);
        }
        break;
      }
      case "visiting":
        state("", "Connecting");
        break;
      case "live":
        notice("");
        if (who.replaces) {
          const stays = (other) => other.service !== who.service || same(other, current);
          keep(kept().filter(stays));
        }
        if (rest === "direct") state("live", "Direct", `connection to ${client}`);
        else state("live", "Connected", "through the server");
        frames ??= framed(site, mine, (failure, now) =>
          now === "live" || failure === "cut" || failure === "refused"
            ? failureSentence(failure, client, service)
            : stateSentence(now, client, service) || failureSentence(failure, client, service),
        );
        break;
      case "over":
        state("over", "Ended");
        if (rest === "code" || rest === "login") {
          leave();
          return trouble(sentence);
        }
        notice(sentence, true);
        break;
      default:
        state("", "Interrupted");
        notice(`${sentence} This page tries again by itself.`);
    }
  };
  const start = async (as) => {
    const visit = await Visit.start(as, told);
    if (open !== mine) return visit.close();
    mine.visit = visit;
  };
  mine.end = () => {
    mine.visit?.close();
    release();
  };
  at("again").onclick = () => begin({ replaces: who.replaces, ...current });
  try {
    await start(who);
  } catch (error) {
    leave();
    trouble(`The visit cannot begin: ${error.message}.`);
  }
}

/** A visit is open in one tab at a time: the server takes one process of a name. */
async function hold(who, client, service) {
  let release;
  const until = new Promise((done) => (release = done));
  const options = { ifAvailable: true };
  const has = await new Promise((done) =>
    navigator.locks.request(`visit ${who.service}`, options, async (lock) => {
      done(Boolean(lock));
      if (lock) await until;
    }),
  );
  if (has) return release;
  state("over", "Elsewhere");
  notice(`${service} of ${client} is open in another tab of this browser.`, true);
  at("again").onclick = () => begin(who);
  return null;
}

/** The frames of a service: a hidden one that gives ports to the service worker, and the page. */
function framed(site, mine, words) {
  const keeper = document.createElement("iframe");
  keeper.className = "keeper";
  // The pages of the service reach into this frame, which has their origin: it may no more than they.
  keeper.setAttribute("sandbox", "allow-same-origin allow-scripts");
  keeper.src = `${site}/.tunnel/frame`;
  let page;
  let drop = () => {};
  const hear = ({ origin, source, data }) => {
    if (origin !== site || source !== keeper.contentWindow || open !== mine) return;
    if (data === "ready" || data === "need") {
      const { port1, port2 } = new MessageChannel();
      drop();
      const alive = () => keeper.contentWindow?.postMessage("alive", site);
      drop = mine.visit.serve(port1, new URL(site).host, words, alive);
      keeper.contentWindow.postMessage("port", site, [port2]);
    }
    if (data === "set" && !page) {
      page = document.createElement("iframe");
      page.title = "The service";
      page.src = `${site}/`;
      page.setAttribute(
        "sandbox",
        "allow-downloads allow-forms allow-modals allow-popups allow-popups-to-escape-sandbox " +
          "allow-same-origin allow-scripts",
      );
      at("place").append(page);
      at("tab").href = `${site}/`;
      at("tab").hidden = false;
    }
    // Once the service is shown, its pages could say this in a text of theirs.
    if (!page && typeof data === "string" && data.startsWith("failed")) {
      notice(`This browser cannot show the service: ${data.slice(7)}`, true);
    }
  };
  addEventListener("message", hear);
  const end = mine.end;
  mine.end = () => {
    removeEventListener("message", hear);
    drop();
    end();
  };
  at("place").append(keeper);
  return keeper;
}

at("leave").onclick = leave;
at("enter").onsubmit = (event) => {
  event.preventDefault();
  enter(at("code").value.trim());
};

function enter(code) {
  try {
    const who = read(code);
    at("code").value = "";
    const [former] = kept().filter((other) => other.service === who.service);
    // Whoever makes a code writes the name of the service, and anybody can make an address with a
    // code. So a log-in that is kept does not go without a question.
    if (former && !confirm(question(who, former))) {
      return trouble(`Nothing was changed: the code was not used, and ${former.name} is kept.`);
    }
    begin({ ...who, isCode: true, replaces: Boolean(former) });
  } catch (error) {
    trouble(error.message);
  }
}

/** Asks whether a new log-in may take the place of one that is kept. */
const question = (who, former) =>
  `This browser already visits ${who.service} as ${former.name}. The code is for a new log-in as ` +
  `${who.name}, which takes its place once it has reached the service. Go on only if the owner of ` +
  `the service sent you this code.`;

/** The code may be behind the address: this part of an address is not sent to the server. */
function ofAddress() {
  const code = location.hash.slice(1);
  if (!code) return;
  history.replaceState(null, "", location.pathname);
  enter(code);
}

list();
if (!isSecureContext || !navigator.serviceWorker) {
  trouble(
    "This page needs https:// (or an address of this computer itself), because the service is " +
      "shown by a service worker, which browsers permit there only.",
  );
  at("enter").hidden = true;
} else {
  addEventListener("hashchange", ofAddress);
  ofAddress();
}
