// The web console in a real browser: `main.mjs TUNNEL CHROMIUM TOOLS TARGET ROOT [NAME…]`. TOOLS is a
// folder of packages of npm, TARGET the build folder, ROOT the checkout. Screenshots are in
// TARGET/console.
//
// Each exported function of the files proves what its name says. Those of `files.mjs` need no
// browser; the others share a server, a client and a browser, and run in their order. With
// `CONSOLE_TIMED=1` only the tests run that measure time, with `CONSOLE_LOOKS=all` each page in each
// of the eight looks.

import fs from "node:fs";
import path from "node:path";
import * as attacks from "./attacks.mjs";
import * as files from "./files.mjs";
import * as flows from "./flows.mjs";
import * as looks from "./looks.mjs";
import { Rig } from "./rig.mjs";
import * as setup from "./setup.mjs";
import * as size from "./size.mjs";

const [tunnel, chromium, tools, target, root, ...names] = process.argv.slice(2);
const isTimed = process.env.CONSOLE_TIMED === "1";
const wanted = isTimed && names.length === 0 ? ["the_death_of_a_daemon_is_said_and_its_return_is_seen", ...of(size, "size.mjs").map(([name]) => name)] : names;
const openapi = JSON.parse(fs.readFileSync(path.join(root, "crates/admin/src/openapi.json"), "utf8"));
const setupApi = JSON.parse(fs.readFileSync(path.join(root, "crates/admin/src/setup.json"), "utf8"));
const site = { tunnel, chromium, tools, target, folder: path.join(root, "crates/admin/console"), openapi, setup: setupApi };

/** The tests of a module, in the order of its text. */
function of(module, file) {
  const text = fs.readFileSync(new URL(file, import.meta.url), "utf8");
  return [...text.matchAll(/^export (?:async )?function (\w+)/gm)].map(([, name]) => [name, module[name]]);
}

/** The tests of a module that were asked for. */
const asked = (module, file) => of(module, file).filter(([name]) => wanted.length === 0 || wanted.includes(name));

let passed = 0;

async function each(tests, site) {
  for (const [name, test] of tests) {
    const began = performance.now();
    try {
      await test(site);
    } catch (error) {
      console.log(`FAIL ${name}`);
      throw error;
    }
    passed += 1;
    console.log(`ok   ${name} (${((performance.now() - began) / 1000).toFixed(1)} s)`);
  }
}

const rig = new Rig({ ...site, shots: path.join(target, "console") });
rig.openapi = openapi;
rig.setup = setupApi;
rig.isTimed = isTimed;
try {
  await each(asked(files, "files.mjs"), site);
  const browser = [...asked(flows, "flows.mjs"), ...asked(attacks, "attacks.mjs"), ...asked(setup, "setup.mjs"), ...asked(looks, "looks.mjs"), ...(isTimed ? asked(size, "size.mjs") : [])];
  if (browser.length > 0) {
    await rig.begin();
    await each(browser, rig);
  }
  console.log(`\ntest result: ok. ${passed} passed; 0 failed; 0 ignored`);
} catch (error) {
  console.log(error.stack ?? error);
  rig.logs();
  process.exitCode = 1;
} finally {
  await rig.close();
}
