// What a person does: signs in, enrols, publishes, changes, and looks on while a daemon dies.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import { LONG, pause, until, visit } from "./rig.mjs";

const text = (page, selector) => page.locator(selector).first().innerText();

/** Until a text is shown. */
const sees = (page, words, millis = LONG) => page.getByText(words).first().waitFor({ timeout: millis });

export async function a_link_opens_the_console_once_and_leaves_the_address(rig) {
  const link = rig.link("server");
  const page = await rig.page();
  await page.goto(link);
  await page.waitForSelector(".figures");
  assert.equal(page.url(), `${rig.url("server")}/`);
  const kept = await page.evaluate(() => ({ session: { ...sessionStorage }, local: { ...localStorage }, cookie: document.cookie }));
  assert.deepEqual(Object.keys(kept.session), ["tunnel.session"]);
  assert(!link.includes(kept.session["tunnel.session"]), "the session has a token of its own");
  assert.equal(kept.cookie, "");
  assert(!JSON.stringify(kept.local).includes(kept.session["tunnel.session"]));
  // A reload keeps the session; the link is used up.
  await page.reload();
  await page.waitForSelector(".figures");
  const other = await rig.page();
  await other.goto(link);
  await sees(other, "The link was used or is older than a minute.");
  assert.equal(other.url(), `${rig.url("server")}/`);
  // Signed out, the session is worthless.
  await visit(page, "settings");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForSelector(".gate");
  const answer = await fetch(`${rig.url("server")}/api/v1/status`, { headers: { Authorization: `Bearer ${kept.session["tunnel.session"]}` } });
  assert.equal(answer.status, 401);
  // The token of the file is exchanged, and stays nowhere.
  await page.getByLabel("Or paste a token").fill(rig.secrets[0]);
  await page.keyboard.press("Enter");
  await page.locator(".bar .state", { hasText: "running" }).waitFor();
  const all = await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }]));
  assert(!all.includes(rig.secrets[0]));
  await page.context().close();
  await other.context().close();
}

/** Bits per second of a text such as `1.2 Mbit/s`. */
function bits(shown) {
  const [, number, unit] = /([\d.,]+)\s*([kMG]?)bit\/s/.exec(shown) ?? [];
  return Number(number?.replace(",", "")) * { "": 1, k: 1e3, M: 1e6, G: 1e9 }[unit ?? ""];
}

export async function a_client_that_is_enrolled_in_the_page_arrives_and_the_plot_rises(rig) {
  const page = await rig.console("server");
  const [, , port] = rig.ports.public;
  await page.getByRole("button", { name: "Enrol client" }).click();
  await page.getByRole("textbox", { name: /^Name/ }).fill("nas");
  await page.getByLabel("Ports that it may publish").fill(String(port));
  await page.getByLabel("May share its addresses").check();
  await page.getByRole("button", { name: "Make code" }).click();
  const line = await text(page, "dialog .copy code");
  await sees(page, /The code ends in/);
  assert(await page.locator("dialog .qr path").count() === 1, "a code to scan");
  // The line, as a person runs it in a terminal, with a service.
  const [program, ...words] = line.trim().split(/\s+/);
  assert.equal(program, "tunnel");
  fs.mkdirSync(rig.path("nas"), { recursive: true });
  const log = fs.openSync(rig.path("nas.log"), "a");
  const child = spawn(rig.tunnel, [...words, "--publish", `${port}=${rig.ports.origin}`], {
    cwd: rig.path("nas"), stdio: ["ignore", log, log], env: { ...process.env, HOME: rig.path("nas"), XDG_RUNTIME_DIR: rig.path("nas"), XDG_STATE_HOME: rig.path("nas") },
  });
  rig.processes.set("nas", child);
  await sees(page, "nas is enrolled");
  await page.getByRole("button", { name: "Show client" }).click();
  await page.locator(".content .state", { hasText: "connected" }).first().waitFor();
  await sees(page, /Shared addresses\s*allowed/);
  // Bytes for two seconds and more; the rate and the plot show them.
  const before = bits(await text(page, ".legend span:nth-child(2) b"));
  assert(!(before > 1e6), `${before} bit/s before anything was fetched`);
  const stop = new AbortController();
  const fetching = (async () => {
    while (!stop.signal.aborted) {
      const answer = await fetch(`http://127.0.0.1:${port}/bytes/4`, { signal: stop.signal });
      assert.equal((await answer.arrayBuffer()).byteLength, 4 << 20);
      await pause(100);
    }
  })().catch((error) => { if (!stop.signal.aborted) throw error; });
  await until("the rate rises", async () => bits(await text(page, ".legend span:nth-child(2) b")) > 1e6);
  const peak = await page.locator(".plot").getAttribute("aria-label");
  assert(/peak out .*[MG]bit\/s/.test(peak), peak);
  stop.abort();
  await fetching;
  await page.getByText("As a table").click();
  await until("the table has the same values", async () => (await page.locator("details table tbody tr", { hasText: /[MG]bit/ }).count()) > 0);
  // It is put out again.
  await page.getByRole("button", { name: "Revoke" }).click();
  const verb = page.locator("dialog button.danger");
  assert(await verb.isDisabled(), "the name has to be typed");
  await page.getByLabel("Type nas to go on").fill("nas");
  await verb.click();
  await sees(page, "nas was revoked.");
  assert.deepEqual(page.faults.filter((one) => !one.includes("404")), []);
  await page.context().close();
  await rig.kill("nas");
}

const press = async (page, ...keys) => { for (const key of keys) await page.keyboard.press(key); };

/** The focus, moved by Tab alone, until it is on a button with this text. */
async function tabTo(page, words) {
  for (let count = 0; count < 80; count += 1) {
    const at = await page.evaluate(() => document.activeElement?.textContent?.trim());
    if (at === words) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab does not lead to ${words}`);
}

export async function everything_is_done_by_keys_alone(rig) {
  const server = await rig.console("server");
  await press(server, "n");
  await server.waitForSelector("dialog[open]");
  await server.keyboard.type("keys");
  await press(server, "Enter");
  await server.waitForSelector("dialog .copy");
  await press(server, "Escape");
  await server.waitForSelector("dialog", { state: "detached" });
  await server.context().close();

  const page = await rig.console("client");
  const file = () => fs.readFileSync(rig.path("client.yaml"), "utf8");
  const before = file();
  // A service: three fields, the difference, applied.
  await press(page, "g", "s");
  // The page is there, and not only its address: a dialog ends with the page before.
  await page.waitForSelector('.menu a[aria-current][href="#/services"]');
  await press(page, "n");
  await page.waitForSelector("dialog[open]");
  await page.keyboard.type(`tcp://127.0.0.1:${rig.ports.origin}`);
  await press(page, "Tab");
  await page.keyboard.type(`tcp://:${rig.ports.public[1]}`);
  await press(page, "Tab");
  await page.keyboard.type("second");
  await press(page, "Enter");
  await page.waitForSelector("dialog .diff .added");
  await press(page, "Enter");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.locator("tr", { hasText: "second" }).locator(".state", { hasText: "up" }).waitFor();
  assert(file().includes("# A site.") && file().includes("second"), file());
  assert.equal(await (await fetch(`http://127.0.0.1:${rig.ports.public[1]}/`)).text(), "hello");
  // Its target is tested, by the client that dials it and by the server, which asks the client.
  await tabTo(page, "Test");
  await press(page, "Enter");
  await page.locator("dialog .facts", { hasText: "Connect" }).filter({ hasText: `127.0.0.1:${rig.ports.origin}` }).waitFor();
  await press(page, "Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  const watch = await rig.console("server");
  await visit(watch, "services");
  await watch.locator("tr", { hasText: "second" }).getByRole("button", { name: "Test" }).click();
  await sees(watch, /Round trip to client home: [\d.]+ ms/);
  await watch.locator("dialog .state", { hasText: "up" }).waitFor();
  await watch.context().close();
  // A stream is closed at both ends.
  const slow = fetch(`http://127.0.0.1:${rig.ports.public[1]}/slow/`).then(async (answer) => { for await (const part of answer.body) void part; }).then(() => "ended", () => "reset");
  await press(page, "g", "t");
  await page.locator("tr", { hasText: "second" }).waitFor();
  await press(page, "/");
  await page.keyboard.type("second");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await tabTo(page, "Close");
  await press(page, "Enter");
  assert.equal(await slow, "reset");
  // The last change is taken back, comments and all.
  await press(page, "Escape", "g", "f");
  await page.waitForSelector("#text");
  await tabTo(page, "Undo last change");
  await press(page, "Enter");
  await until("the file is as before", () => file() === before);
  await page.context().close();
}

export async function the_difference_is_what_lands_and_a_second_window_loses_nothing(rig) {
  const file = () => fs.readFileSync(rig.path("server.yaml"), "utf8");
  const [one, two] = [await rig.console("server"), await rig.console("server")];
  for (const page of [one, two]) {
    await visit(page, "config");
    await page.waitForSelector("#text");
  }
  const shown = await one.locator("#text").inputValue();
  for (const secret of rig.secrets) assert(!shown.includes(secret), "a secret is shown");
  const change = async (page, from, to) => {
    const was = await page.locator("#text").inputValue();
    assert(was.includes(from), was);
    await page.locator("#text").fill(was.replace(from, to));
    await page.getByRole("button", { name: "Check" }).click();
  };
  // A wrong key: the problem at its line, and no way to apply.
  await change(one, "limits: { streams: 1000 }", "limit: { streams: 1000 }");
  const line = shown.split("\n").findIndex((row) => row.includes("streams: 1000")) + 1;
  await one.locator(".problems", { hasText: `Line ${line}` }).waitFor();
  assert.equal(await text(one, ".lines .wrong"), String(line));
  assert.equal(await one.getByRole("button", { name: "Apply" }).count(), 0);
  // Both windows look at the same file; the first applies.
  await change(one, "limit: { streams: 1000 }", "limits: { streams: 900 }");
  await one.waitForSelector(".diff .added");
  await change(two, "streams: 1000", "streams: 800");
  await two.waitForSelector(".diff .added");
  const of = async (kind) => (await one.locator(`.diff .${kind} > span:last-child`).allInnerTexts()).map((row) => row.trim());
  assert.deepEqual(await of("removed"), ["limits: { streams: 1000 }"]);
  assert.deepEqual(await of("added"), ["limits: { streams: 900 }"]);
  const before = file();
  await one.getByRole("button", { name: "Apply" }).click();
  await until("the file has changed", () => file() !== before);
  assert.equal(file(), before.replace("streams: 1000", "streams: 900"), "nothing else has changed, comments included");
  const after = file();
  await two.getByRole("button", { name: "Apply" }).click();
  await sees(two, /Somebody else has changed the file/);
  assert.equal(file(), after, "the second window wrote nothing");
  assert((await two.locator("#text").inputValue()).includes("streams: 800"), "its text is still there");
  // A check against the file of now, and it may.
  await two.getByRole("button", { name: "Check" }).click();
  await two.locator(".diff .removed", { hasText: "900" }).waitFor();
  await two.getByRole("button", { name: "Apply" }).click();
  await until("the second change", () => file() === before.replace("streams: 1000", "streams: 800"));
  await two.getByRole("button", { name: "Undo last change" }).click();
  await until("the change is undone", () => file() === after);
  for (const page of [one, two]) {
    assert.deepEqual(page.faults.filter((fault) => !fault.includes("412")), []);
    await page.context().close();
  }
}

export async function the_key_at_the_cursor_is_explained_and_an_empty_field_shows_its_default(rig) {
  const page = await rig.console("server");
  const keys = await (await rig.api("server", "GET", "/api/v1/config/keys")).json();
  const meaning = (path) => keys.find((one) => one.path === path).meaning.replaceAll("`", "");
  await visit(page, "config");
  const field = page.locator("#text");
  const was = await field.inputValue();
  await field.fill(`${was}memory_budget: 64MiB\nunheard_of: 1\n`);
  const put = (words) => field.evaluate((area, words) => {
    area.focus();
    const at = area.value.indexOf(words);
    area.setSelectionRange(at, at);
  }, words);
  const said = page.locator("#meaning");
  for (const [words, path] of [["memory_budget", "memory_budget"], ["streams: ", "clients[].limits.streams"], ["token_file", "admin.token_file"]]) {
    await put(words);
    await said.getByText(path, { exact: true }).waitFor();
    assert((await said.innerText()).includes(meaning(path)), await said.innerText());
  }
  assert.equal(await field.getAttribute("aria-describedby"), await said.getAttribute("id"));
  for (const words of ["unheard_of", "# The comment"]) {
    await put(words);
    await until(`nothing of ${words}`, async () => (await said.innerText()).trim() === "");
  }
  await page.getByRole("button", { name: "Form" }).click();
  const keepalive = page.getByLabel("Interval of keepalives");
  assert.equal(await keepalive.getAttribute("placeholder"), keys.find((one) => one.path === "keepalive").default);
  await sees(page, meaning("keepalive"));
  assert.deepEqual(page.faults, []);
  await page.context().close();
}

export async function the_death_of_a_daemon_is_said_and_its_return_is_seen(rig) {
  const page = await rig.console("server");
  const began = Date.now();
  await rig.kill("server");
  await page.locator(".lost").waitFor();
  const took = Date.now() - began;
  console.log(`     said after ${took} ms`);
  // How soon depends on the machine.
  if (rig.isTimed) assert(took < 3000, `${took} ms`);
  assert(/figures of .* ago/.test(await text(page, ".lost")), "how old the figures are");
  // An order says that nothing was done.
  await page.getByRole("button", { name: "Enrol client" }).click();
  await page.getByRole("textbox", { name: /^Name/ }).fill("nobody");
  await page.getByRole("button", { name: "Make code" }).click();
  await sees(page, "nothing was done");
  await page.keyboard.press("Escape");
  // The session outlives the daemon: the page goes on by itself, where it was.
  await visit(page, "services");
  await rig.start("server");
  await page.locator(".lost").waitFor({ state: "detached" });
  await page.locator("tr", { hasText: "web" }).waitFor();
  assert.equal(await page.locator(".gate").count(), 0, "nobody signs in anew");
  assert(page.url().endsWith("#/services"), "the page is the same");
  // With another token of the API, sessions of before are worthless, and the page says so.
  await rig.kill("server");
  const token = fs.readFileSync(rig.path("admin.token"), "utf8");
  rig.write("admin.token", spawnSync(rig.tunnel, ["generate", "token"], { encoding: "utf8" }).stdout.trim());
  await rig.start("server");
  await sees(page, "The session has ended.");
  await rig.kill("server");
  rig.write("admin.token", token);
  await rig.start("server");
  await page.goto(rig.link("server"));
  await page.waitForSelector(".figures");
  await page.context().close();
}

export async function a_daemon_that_is_silent_is_lost_until_it_speaks_again(rig) {
  const page = await rig.console("client");
  const child = rig.processes.get("client");
  child.kill("SIGSTOP");
  try {
    await page.locator(".lost").waitFor();
  } finally {
    child.kill("SIGCONT");
  }
  await page.locator(".lost").waitFor({ state: "detached" });
  const age = async () => text(page, ".age:not(.bar > .age)");
  await until("the figures are new", async () => /figures of [01]/.test(await age()));
  assert.equal(await page.locator(".gate").count(), 0, "the session is the same");
  await page.context().close();
}

/** A request to the name of the service. */
function ask(rig, method, target, headers, body) {
  return new Promise((done, failed) => {
    const request = http.request({ host: "127.0.0.1", port: rig.ports.door, method, path: target, headers: { Host: "app.example.com", ...headers }, agent: false }, (response) => {
      response.resume();
      response.on("end", () => done(response.statusCode));
    });
    request.on("error", failed);
    request.end(body);
  });
}

/** The last of this file: what it has asked stays in the list, for the looks. */
export async function requests_are_seen_copied_and_sent_again_as_text_and_with_masked_secrets(rig) {
  const value = { name: "app", target: `tcp://127.0.0.1:${rig.ports.origin}`, public: "http://app.example.com", requests: true };
  const added = await rig.api("client", "PATCH", "/api/v1/config", [{ op: "add", path: "/services/-", value }]);
  assert.equal(added.status, 200, await added.text());
  /** @type {any[]} */
  const heard = [];
  rig.origin.on("request", async (request) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    heard.push({ method: request.method, url: request.url, headers: request.headers, body: Buffer.concat(parts).toString() });
  });
  await until("the name is served", async () => (await ask(rig, "GET", "/first", {})) === 200);
  const hostile = '<img src=x onerror="document.title=1">';
  const secret = "Basic bm90LWZvci1leWVz";
  const body = JSON.stringify({ text: hostile, list: [1, 2] });
  assert.equal(await ask(rig, "POST", "/notes?q='quoted'", { Authorization: secret, "Content-Type": "application/json", "X-Evil": hostile }, body), 200);
  assert.equal(await ask(rig, "GET", "/bytes/1", {}), 200);

  const page = await rig.console("client");
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await page.waitForSelector("h1");
  await sees(page, "/notes?q='quoted'");
  // The list follows.
  assert.equal(await ask(rig, "GET", "/while-it-is-open", {}), 200);
  await sees(page, "/while-it-is-open");
  await page.keyboard.press("/");
  await page.keyboard.type("notes");
  await page.getByText("/while-it-is-open").waitFor({ state: "detached" });
  await page.keyboard.press("Escape");
  await page.getByLabel("Method").selectOption("POST");
  await page.getByText("/while-it-is-open").waitFor({ state: "detached" });
  await page.getByRole("link", { name: /notes/ }).focus();
  await page.keyboard.press("Enter");
  // In full: laid out, as text, without the secret.
  await page.locator(".payload", { hasText: '"list": [' }).first().waitFor();
  const whole = () => page.locator("main").innerText();
  assert((await whole()).includes(hostile), "what is hostile is text");
  assert(!(await whole()).includes(secret));
  assert.equal(await page.locator("main img").count(), 0);
  await page.getByRole("button", { name: "Copy as curl" }).click();
  const line = () => text(page, "main .copy code");
  assert((await line()).includes("(secret)") && !(await line()).includes(secret));
  await page.getByRole("button", { name: "Show secrets" }).click();
  await until("the secret is shown", async () => (await line()).includes(secret));
  // The line does what the visitor did.
  fs.writeFileSync(rig.path(".curlrc"), `connect-to = "app.example.com::127.0.0.1:${rig.ports.door}"\nsilent\n`);
  heard.length = 0;
  const ran = spawn("sh", ["-c", await line()], { env: { ...process.env, CURL_HOME: rig.folder, HOME: rig.folder }, stdio: "ignore" });
  await until("the line ran", () => ran.exitCode !== null);
  const [got] = heard;
  assert.deepEqual([ran.exitCode, got?.method, got?.url, got?.body, got?.headers.authorization, got?.headers["x-evil"]], [0, "POST", "/notes?q='quoted'", body, secret, hostile]);
  // Sent again, with the secret, and its result beside the first.
  heard.length = 0;
  await page.getByRole("button", { name: "Replay" }).click();
  await sees(page, /Replay: request \d+/);
  assert.deepEqual([heard.length, heard[0].body, heard[0].headers.authorization], [1, body, secret]);
  assert.equal(await page.getByRole("region", { name: "The replay beside the first request" }).locator(".state", { hasText: "200" }).count(), 2);
  assert.deepEqual(page.faults, []);
  assert(asked.every((url) => url.startsWith(rig.url("client"))), `${asked}`);
  // The list marks it.
  await visit(page, "requests");
  await sees(page, /Replay of \d+/);
  await page.context().close();
}
