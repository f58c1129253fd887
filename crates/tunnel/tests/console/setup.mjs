// A start without parameters: its link, the page behind it, the daemon that it starts, and what others
// try with it.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { raw, routes } from "./attacks.mjs";
import { LOOKS, judge, load } from "./looks.mjs";
import { LONG, freePorts, until } from "./rig.mjs";

/** `tunnel ROLE` in a terminal, in a folder of its own. */
class Start {
  constructor(rig, name, role) {
    Object.assign(this, { rig, name, folder: rig.path(name) });
    fs.mkdirSync(this.folder, { recursive: true });
    this.env = { ...process.env, HOME: this.folder, XDG_RUNTIME_DIR: this.folder, XDG_STATE_HOME: this.folder, NO_COLOR: "1" };
    const log = fs.openSync(rig.path(`${name}.log`), "a");
    const child = spawn("script", ["-qfec", `${rig.tunnel} ${role}`, "/dev/null"], { cwd: this.folder, env: this.env, stdio: ["ignore", log, log] });
    fs.closeSync(log);
    rig.processes.set(name, child);
  }

  log() {
    return fs.readFileSync(this.rig.path(`${this.name}.log`), "utf8");
  }

  /** The link that it prints. */
  async link() {
    return until(`the link of ${this.name}`, () => /http:\/\/127\.0\.0\.1:\d+\/#k=[\w-]+/.exec(this.log())?.[0]);
  }

  /** Ends the daemon of the file, and the terminal with it. */
  async end() {
    const file = path.join(this.folder, "client.yaml");
    if (fs.existsSync(file)) spawnSync(this.rig.tunnel, ["stop", "--now", "--config", file], { env: this.env, timeout: LONG });
    await this.rig.kill(this.name);
  }
}

const sees = (page, words) => page.getByText(words).first().waitFor();

export async function a_client_is_set_up_in_the_page_and_serves(rig) {
  const [port] = await freePorts(1);
  const start = new Start(rig, "fresh", "client");
  const link = await start.link();
  const told = rig.run("enroll", "fresh", "--allow-tcp", String(port), "server");
  const code = /enroll1\.[\w-]+/.exec(told.stdout)?.[0];
  assert(code, told.stderr);
  const page = await rig.page();
  await page.goto(link);
  await page.getByLabel("Code of the server").waitFor();
  assert(!page.url().includes("#"), "the key leaves the address");
  // The second one to open the link is too late.
  const other = await rig.page();
  await other.goto(link);
  await sees(other, "The link was used already");
  await other.context().close();
  // A wrong code is told, and nothing can be written.
  const field = (name) => page.getByLabel(name);
  await field("Code of the server").fill("enroll1.wrong");
  await page.keyboard.press("Enter");
  await page.locator(".problems", { hasText: "damaged" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Write and start" }).count(), 0);
  // By keyboard: the code, the target, the public port, the console.
  await field("Code of the server").fill("");
  await field("Code of the server").focus();
  for (const text of [code, String(rig.ports.origin), String(port)]) {
    await page.keyboard.type(text);
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Enter");
  await sees(page, "The parser of the daemon accepts this file.");
  const shown = await page.locator(".diff").innerText();
  assert(shown.includes("(secret)") && shown.includes(`tcp://localhost:${rig.ports.origin}`) && shown.includes("admin.token"), shown);
  assert(!fs.existsSync(path.join(start.folder, "client.yaml")), "a check writes nothing");
  await page.keyboard.press("Enter");
  await sees(page, "is written, and the daemon starts with it");
  await until("the service", async () => (await fetch(`http://127.0.0.1:${port}/`).then((answer) => answer.text(), () => "")) === "hello");
  assert.equal(fs.statSync(path.join(start.folder, "client.yaml")).mode & 0o777, 0o600);
  // Its console opens by a link of the terminal, and shows the service.
  const command = spawnSync(rig.tunnel, ["console", "--json", "--config", path.join(start.folder, "client.yaml")], { encoding: "utf8", env: start.env, timeout: LONG });
  await page.goto(JSON.parse(command.stdout).url);
  await page.locator(".figures").waitFor();
  assert.deepEqual(page.faults.filter((fault) => !fault.includes("401")), []);
  await page.context().close();
  await start.end();
}

export async function the_set_up_page_gives_others_nothing(rig) {
  const start = new Start(rig, "attacked", "client");
  const link = await start.link();
  const [, base, key] = /^(http:\/\/127\.0\.0\.1:\d+)\/#k=(.*)$/.exec(link);
  const port = Number(new URL(base).port);
  const token = { Authorization: `Bearer ${key}` };
  const own = `127.0.0.1:${port}`;
  for (const [method, target] of routes(rig.setup)) {
    assert.equal(await raw(port, method, target, { Host: own }), 401, `${method} ${target} without a token`);
    assert.equal(await raw(port, method, target, { Host: own, Authorization: "Bearer another-key-of-good-length-000000" }), 401);
    for (const headers of [
      { Host: "evil.example" }, { Host: `evil.example:${port}` }, { Host: own, Origin: "http://evil.example" },
      { Host: own, Origin: `http://127.0.0.1:${port + 1}` }, { Host: own, Origin: "null" },
      { Host: own, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors" }, { Host: own, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors" },
    ]) {
      const status = await raw(port, method, target, { ...token, ...headers });
      assert(status === 403 || status === 400, `${method} ${target} ${JSON.stringify(headers)}: ${status}`);
    }
  }
  // The API of a daemon is not here, and the port takes no address but loopback.
  for (const target of ["/api/v1/status", "/metrics", "/api/v1/config"]) assert.equal(await raw(port, "GET", target, { Host: own }), 401);
  // The page is that of the console: its policy, no frame, nothing from elsewhere.
  const [ours, console_] = [await fetch(base), await fetch(rig.url("server"))];
  for (const name of ["content-security-policy", "referrer-policy", "cross-origin-opener-policy", "cross-origin-resource-policy", "x-content-type-options"]) {
    assert.equal(ours.headers.get(name), console_.headers.get(name), name);
  }
  assert.match(ours.headers.get("content-security-policy"), /require-trusted-types-for 'script'; trusted-types 'none'/);
  const evil = http.createServer((request, response) => {
    response.setHeader("Content-Type", "text/html");
    response.end("<!doctype html><title>Evil</title>");
  }).listen(0, "127.0.0.1");
  await once(evil, "listening");
  const page = await rig.page();
  await page.goto(`http://127.0.0.1:${evil.address().port}/`);
  const tried = await page.evaluate(async ({ base, all, key }) => {
    const answers = [];
    for (const [method, target] of all) {
      for (const more of [{}, { mode: "no-cors" }, { headers: { Authorization: `Bearer ${key}` } }]) {
        if (more.mode && !["GET", "POST"].includes(method)) continue;
        answers.push(await fetch(base + target, { method, ...more }).then((one) => (one.type === "opaque" ? "opaque" : `${method} ${target} ${one.status}`), () => "failed"));
      }
    }
    const frame = document.createElement("iframe");
    frame.src = base;
    document.body.append(frame);
    await new Promise((done) => setTimeout(done, 300));
    let inside = "";
    try {
      inside = frame.contentDocument?.body?.textContent ?? "";
    } catch {
      inside = "";
    }
    return { answers, inside };
  }, { base, all: routes(rig.setup).map(([method, target]) => [method, target]), key });
  assert.deepEqual(tried.answers.filter((one) => !/^(failed|opaque)$/.test(one)), []);
  assert(!tried.inside.includes("tunnel"), tried.inside);
  assert.deepEqual(fs.readdirSync(start.folder).filter((one) => one.endsWith(".yaml") || one === "admin.token"), []);
  // Nobody has used the key.
  await page.goto(link);
  await page.getByLabel("Code of the server").waitFor();
  await page.context().close();
  evil.close();
  await start.end();
}

export async function the_set_up_page_is_sound_in_each_look(rig) {
  load(rig);
  const start = new Start(rig, "looked-at", "client");
  const link = await start.link();
  const [base, key] = link.split("/#k=");
  const { token } = await (await fetch(`${base}/api/v1/sessions`, { method: "POST", headers: { Authorization: `Bearer ${key}` } })).json();
  for (const options of LOOKS) {
    const name = `set-up-${options.width}-${options.dark ? "dark" : "light"}-${options.locale.slice(0, 2)}`;
    const page = await rig.page(options);
    await page.goto(base);
    await page.waitForSelector(".gate .note-line");
    await judge(rig, page, `${name}-closed`);
    await page.evaluate((text) => sessionStorage.setItem("tunnel.session", text), token);
    await page.reload();
    await page.waitForSelector(".choice");
    await judge(rig, page, `${name}-client`);
    await page.screenshot({ path: path.join(rig.shots, `${name}-client.png`), fullPage: true });
    await page.locator(".choice button").first().click();
    await page.locator("button.first").click();
    await page.waitForSelector(".diff");
    await judge(rig, page, `${name}-server`);
    await page.screenshot({ path: path.join(rig.shots, `${name}-server.png`), fullPage: true });
    await page.context().close();
  }
  await start.end();
}
