// A server, a client, an origin, and a browser that looks at the consoles of both.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";

/** Milliseconds within which a machine under load does whatever it is asked. */
export const LONG = 30_000;

export const pause = (millis) => new Promise((done) => setTimeout(done, millis));

/** Asks again until the answer is true, which it returns. */
export async function until(what, condition, millis = LONG) {
  const end = Date.now() + millis;
  for (;;) {
    const found = await condition();
    if (found) return found;
    assert(Date.now() < end, `never: ${what}`);
    await pause(50);
  }
}

/** So many ports that nobody uses now. */
async function freePorts(count) {
  const servers = await Promise.all(Array.from({ length: count }, async () => {
    const server = net.createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    return server;
  }));
  const ports = servers.map((one) => one.address().port);
  await Promise.all(servers.map((one) => new Promise((done) => one.close(done))));
  return ports;
}

const MEGABYTE = Buffer.alloc(1 << 20, 65);

/** `/slow` sends without an end, 200 kB a second; `/bytes/N` sends N MB. */
function origin() {
  const server = http.createServer((request, response) => {
    const [, name, count] = request.url.split("/");
    if (name === "slow") {
      const timer = setInterval(() => response.write(MEGABYTE.subarray(0, 20_000)), 100);
      response.on("close", () => clearInterval(timer));
    } else if (name === "bytes") {
      let left = Number(count);
      const send = () => {
        while (left > 0) {
          left -= 1;
          if (!response.write(MEGABYTE)) return void response.once("drain", send);
        }
        response.end();
      };
      send();
    } else {
      // A stream that is kept open for a second request would stand in the list of streams.
      response.setHeader("Connection", "close");
      response.end("hello");
    }
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(server)));
}

export class Rig {
  constructor({ tunnel, chromium, tools, shots }) {
    Object.assign(this, { tunnel, chromium, tools, shots });
    this.folder = fs.mkdtempSync(path.join(os.tmpdir(), "tunnel-console-"));
    this.processes = new Map();
    this.secrets = ["admin", "home", "office"].map(() => randomBytes(32).toString("base64url"));
  }

  path(...parts) {
    return path.join(this.folder, ...parts);
  }

  write(name, text) {
    fs.writeFileSync(this.path(name), text, { mode: 0o600 });
  }

  async begin() {
    fs.mkdirSync(this.shots, { recursive: true });
    this.origin = await origin();
    const [links, server, client, door, first, second, third] = await freePorts(7);
    this.ports = { links, server, client, door, public: [first, second, third], origin: this.origin.address().port };
    const [admin, home, office] = this.secrets;
    this.write("admin.token", admin);
    this.write("server.yaml", `# The comment of the file.
listen: tls://127.0.0.1:${links}
state_dir: ${this.path("server")}
control: ${this.path("server.sock")}
admin: { listen: 127.0.0.1:${server}, token_file: admin.token }
http: { listen: "127.0.0.1:${door}" }
clients:
  # The machine at home.
  - name: home
    token: "${home}"
    allow: { tcp: ["${first}", "${second}"], http: ["app.example.com"], forward: ["127.0.0.1:*"], speedtest: true }
  - name: office   # in the office
    token: "${office}"
    allow: { tcp: ["${third}"] }
    limits: { streams: 1000 }
`);
    await this.start("server");
    const pin = JSON.parse(this.run("status", "--json", "server").stdout).pins[0];
    this.write("client.yaml", `# The client's file.
servers: tls://127.0.0.1:${links}
name: home
token: "${home}"
tls: { pin: "${pin}" }
state_dir: ${this.path("client")}
control: ${this.path("client.sock")}
retry: { min: 100ms, max: 500ms }
admin: { listen: 127.0.0.1:${client}, token_file: admin.token }
services:
  # A site.
  - { name: web, target: "tcp://127.0.0.1:${this.ports.origin}", public: "tcp://127.0.0.1:${first}" }
`.replace(`tcp://127.0.0.1:${first}`, `tcp://:${first}`));
    await this.start("client");
    const { chromium } = await import(pathToFileURL(path.join(this.tools, "playwright-core/index.mjs")).href);
    this.browser = await chromium.launch({ executablePath: this.chromium, args: ["--no-sandbox"] });
  }

  /** Runs a command beside the daemon of this role. */
  run(...words) {
    const role = words.pop();
    return spawnSync(this.tunnel, [...words, "--config", this.path(`${role}.yaml`)], { encoding: "utf8", timeout: LONG });
  }

  async start(role) {
    const log = fs.openSync(this.path(`${role}.log`), "a");
    const child = spawn(this.tunnel, [role, "--config", this.path(`${role}.yaml`)], { stdio: ["ignore", log, log] });
    fs.closeSync(log);
    this.processes.set(role, child);
    await until(`${role} runs`, () => this.run("status", role).status === 0);
  }

  async kill(role) {
    const child = this.processes.get(role);
    this.processes.delete(role);
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  }

  url(role) {
    return `http://127.0.0.1:${this.ports[role]}`;
  }

  /** A link of `tunnel console`. */
  link(role) {
    const told = this.run("console", "--json", role);
    assert.equal(told.status, 0, told.stderr);
    return JSON.parse(told.stdout).url;
  }

  /** A page with its own browser profile; `faults` gets whatever a browser complains about. */
  async page({ width = 1280, height = 800, dark = false, locale = "en-GB" } = {}) {
    const context = await this.browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", locale });
    context.setDefaultTimeout(LONG);
    const page = await context.newPage();
    page.faults = [];
    page.on("pageerror", (error) => page.faults.push(`${error.stack ?? error}`));
    page.on("console", (message) => message.type() === "error" && page.faults.push(message.text()));
    await page.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    });
    return page;
  }

  /** A page at the console of this role, signed in by a link. */
  async console(role, options) {
    const page = await this.page(options);
    await page.goto(this.link(role));
    await page.waitForSelector(".figures");
    return page;
  }

  /** A request with the token of the file, by hand. */
  async api(role, method, target, body) {
    const headers = { Authorization: `Bearer ${this.secrets[0]}`, ...(body ? { "Content-Type": "application/json" } : {}) };
    return fetch(this.url(role) + target, { method, headers, body: body && JSON.stringify(body) });
  }

  async close() {
    await this.browser?.close();
    for (const role of [...this.processes.keys()]) await this.kill(role);
    this.origin?.closeAllConnections();
    this.origin?.close();
    fs.rmSync(this.folder, { recursive: true, force: true });
  }

  logs() {
    for (const file of fs.readdirSync(this.folder).filter((one) => one.endsWith(".log"))) {
      console.log(`--- ${file}\n${fs.readFileSync(this.path(file), "utf8").slice(-3000)}`);
    }
  }
}

/** Goes to a page of the console. */
export async function visit(page, place) {
  await page.evaluate((to) => { location.hash = `#/${to}`; }, place);
  await page.waitForFunction((name) => document.querySelector(".menu a[aria-current]")?.getAttribute("href") === `#/${name}`, place.split("/")[0]);
  await page.waitForSelector("h1");
}
