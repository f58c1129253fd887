// Every page at both widths, in both themes and both languages: no complaint of the browser, nothing
// beyond the edge of the screen, nothing that a screen reader cannot use.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { pause, visit } from "./rig.mjs";

const PLACES = {
  server: ["overview", "clients", "clients/home", "services", "streams", "log", "config", "tools", "certificates", "settings"],
  client: ["overview", "clients", "services", "streams", "requests", "requests/1", "log", "config", "tools", "certificates", "settings"],
};
const EACH = [[1280, 800], [360, 740]].flatMap(([width, height]) => [false, true].flatMap((dark) => ["en-GB", "zh-CN"].map((locale) => ({ width, height, dark, locale }))));
/** Whether every look is judged, and each page is shown down to its end: for eyes, and too long for each change. */
const isWhole = process.env.CONSOLE_LOOKS === "all";
/** Each pair of width, theme and language stands in one of these. */
const LOOKS = isWhole ? EACH : [EACH[0], EACH[3], EACH[5], EACH[6]];
/** What of axe-core's findings counts. */
const GRAVE = ["serious", "critical"];

async function judge(rig, page, name) {
  await page.evaluate(rig.axe);
  const result = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  assert(result.passes.length > 5, `${name}: axe-core looked at nothing`);
  const found = result.violations.filter((one) => GRAVE.includes(one.impact));
  assert.deepEqual(found.map((one) => `${one.id}: ${one.nodes.map((node) => node.target).join(", ")}`), [], name);
  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert(over <= 0, `${name}: ${over} pixels beyond the edge`);
  assert.deepEqual(page.faults, [], name);
}

const load = (rig) => { rig.axe ??= fs.readFileSync(path.join(rig.tools, "axe-core/axe.min.js"), "utf8"); };

async function look(rig, role, options) {
  load(rig);
  const name = `${role}-${options.width}-${options.dark ? "dark" : "light"}-${options.locale.slice(0, 2)}`;
  const page = await rig.page(options);
  await page.goto(rig.url(role));
  await page.waitForSelector(".gate");
  await judge(rig, page, `${name}-sign-in`);
  await page.goto(rig.link(role));
  await page.waitForSelector(".figures");
  for (const place of PLACES[role]) {
    await visit(page, place);
    await page.waitForFunction(() => !document.querySelector(".loading"));
    await pause(300);
    await judge(rig, page, `${name}-${place}`);
    // What a page is as tall as: the bar at its bottom is not in the middle of the picture.
    if (isWhole) await page.setViewportSize({ width: options.width, height: await page.evaluate(() => document.documentElement.scrollHeight) });
    await page.screenshot({ path: path.join(rig.shots, `${name}-${place.replace("/", "-")}.png`) });
    if (isWhole) await page.setViewportSize(options);
  }
  // The dialogs.
  await visit(page, "overview");
  for (const key of ["?", "n"]) {
    await page.keyboard.press(key);
    await page.waitForSelector("dialog[open]");
    await judge(rig, page, `${name}-${key}`);
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog[open]", { state: "detached" });
  }
  await page.context().close();
}

export async function the_pages_of_a_server_are_sound_in_each_look(rig) {
  for (const options of LOOKS) await look(rig, "server", options);
}

/** The pages are those of a server, with other buttons: two of the looks are enough. */
export async function the_pages_of_a_client_are_sound_in_two_looks(rig) {
  for (const options of isWhole ? LOOKS : [LOOKS[1], LOOKS[3]]) await look(rig, "client", options);
}

export { LOOKS, judge, load };
