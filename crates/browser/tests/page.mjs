// The page of a visit with stand-ins for the document, the storage and the link. Each case opens an
// address with a code while a visit is kept, and tells what is kept afterwards.
//
//   node page.mjs      the last line is `held`, or the exit code is 1

import { readFileSync } from "node:fs";
import assert from "node:assert";

const source = readFileSync(new URL("../page/app.js", import.meta.url), "utf8");
const body = source.replace(/^import .*$/gm, "");
const coded = (text) => Buffer.from(text).toString("base64url");

const ann = { service: "home/wiki", token: "token of ann", name: "ann", secret: "log-in of ann" };
const mail = { service: "home/mail", token: "t", name: "ann", secret: "another log-in of ann" };

function code(service, name) {
  const enrolment = `enroll1.${coded(`${name}\nonce\n`)}`;
  return `visit1.${coded(`${service}\nsome-token\n${name}\n${enrolment}\n`)}`;
}

/** Opens the page. `answer`: that of the user; `told`: what the link says after the log-in. */
async function open(kept, hash, answer, told) {
  const store = new Map([["visits", JSON.stringify(kept)]]);
  const [asked, started] = [[], []];
  const element = () => ({
    hidden: false,
    textContent: "",
    value: "",
    append() {},
    replaceChildren() {},
    setAttribute() {},
    contentWindow: { postMessage() {} },
  });
  const elements = {};
  const world = {
    document: { getElementById: (id) => (elements[id] ??= element()), createElement: element },
    localStorage: { getItem: (key) => store.get(key), setItem: (key, to) => store.set(key, to) },
    location: { hash: `#${hash}`, host: "visit.example.com", protocol: "https:", pathname: "/" },
    history: { replaceState() {} },
    navigator: { serviceWorker: {}, locks: { request: (name, options, then) => then({}) } },
    isSecureContext: true,
    addEventListener() {},
    removeEventListener() {},
    confirm: (text) => (asked.push(text), answer),
    Visit: {
      async start(as, tell) {
        started.push(as);
        setTimeout(() => (as.isCode ? tell("enrolled", "a new log-in") : tell(...told)));
        return { close() {}, serve: () => () => {} };
      },
    },
    failureSentence: () => "",
    stateSentence: (word) => word,
  };
  const run = new Function(...Object.keys(world), `return (async () => {${body}})()`);
  await run(...Object.values(world));
  // The hash of the name of the service takes a turn of a thread.
  for (let turn = 0; turn < 20; turn += 1) await new Promise((done) => setTimeout(done, 1));
  return { kept: JSON.parse(store.get("visits")), asked, started, trouble: elements.trouble };
}

const live = ["live", "direct"];
const unknown = ["over", "unknown"];
const names = ({ kept }) => kept.map(({ service, name, secret }) => [service, name, secret].join());
const [ofAnn, ofMail] = names({ kept: [ann, mail] });

// No question is needed where nothing is kept of the service.
let page = await open([mail], code("home/wiki", "ann"), false, live);
assert.deepEqual(names(page), [ofMail, "home/wiki,ann,a new log-in"]);
assert.equal(page.asked.length, 0);

// A refusal uses no code and changes nothing.
page = await open([ann, mail], code("home/wiki", "mallory"), false, live);
assert.deepEqual(names(page), [ofAnn, ofMail]);
assert.equal(page.started.length, 0);
assert.match(page.asked[0], /home\/wiki as ann.*as mallory/);
assert.match(page.trouble.textContent, /Nothing was changed/);

// A log-in that reaches nothing takes nobody's place, whatever its name is.
for (const name of ["mallory", "ann"]) {
  page = await open([ann, mail], code("home/wiki", name), true, unknown);
  assert.deepEqual(names(page), [ofAnn, ofMail, `home/wiki,${name},a new log-in`]);
}

// A log-in that has reached the service takes the place of the former.
for (const name of ["bob", "ann"]) {
  page = await open([ann, mail], code("home/wiki", name), true, live);
  assert.deepEqual(names(page), [ofMail, `home/wiki,${name},a new log-in`]);
  assert.equal(page.asked.length, 1);
}
console.log("held");
