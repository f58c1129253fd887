// What has gone wrong in other consoles: each row is tried here.

import assert from "node:assert/strict";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import { fake } from "./fake.mjs";
import { pause, visit } from "./rig.mjs";

/** Every route of the API with values in its path. */
function routes(openapi) {
  return Object.entries(openapi.paths).flatMap(([route, methods]) =>
    Object.keys(methods).map((method) => [method.toUpperCase(), route.replaceAll(/\{\w+\}/g, "1"), methods[method]]));
}

/** A request that `fetch` would not send. */
function raw(port, method, target, headers) {
  return new Promise((done, failed) => {
    const request = http.request({ host: "127.0.0.1", port, method, path: target, headers }, (response) => {
      response.resume();
      response.on("end", () => done(response.statusCode));
    });
    request.on("error", failed);
    request.end();
  });
}

export async function no_route_answers_without_a_token_or_to_another_name(rig) {
  let count = 0;
  for (const role of ["server", "client"]) {
    for (const [method, target, { security }] of routes(rig.openapi)) {
      const port = rig.ports[role];
      const token = { Authorization: `Bearer ${rig.secrets[0]}` };
      const free = Array.isArray(security) && security.length === 0;
      if (!free) {
        const bare = await raw(port, method, target, { Host: `127.0.0.1:${port}` });
        assert.equal(bare, 401, `${method} ${target} without a token`);
      }
      // A name that leads to this machine; a page of another site; one that a browser marks so.
      for (const headers of [
        { Host: "evil.example" }, { Host: `evil.example:${port}` },
        { Host: `127.0.0.1:${port}`, Origin: "http://evil.example" },
        { Host: `127.0.0.1:${port}`, Origin: `http://127.0.0.1:${port + 1}` },
        { Host: `127.0.0.1:${port}`, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors" },
      ]) {
        const status = await raw(port, method, target, { ...token, ...headers });
        assert(status === 403 || status === 400, `${method} ${target} ${JSON.stringify(headers)}: ${status}`);
        count += 1;
      }
    }
  }
  console.log(`     ${count} requests`);
}

export async function a_page_of_another_port_reaches_nothing(rig) {
  const evil = http.createServer((request, response) => {
    response.setHeader("Content-Type", "text/html");
    response.end("<!doctype html><title>Evil</title>");
  }).listen(0, "127.0.0.1");
  await once(evil, "listening");
  const page = await rig.page();
  await page.goto(`http://127.0.0.1:${evil.address().port}/`);
  const before = fs.readFileSync(rig.path("server.yaml"), "utf8");
  const link = rig.link("server");
  const tried = await page.evaluate(async ({ base, all, token }) => {
    const answers = [];
    for (const [method, target] of all) {
      for (const more of [{}, { mode: "no-cors" }, { headers: { Authorization: `Bearer ${token}` } }]) {
        if (more.mode && !["GET", "POST"].includes(method)) continue;
        const answer = await fetch(base + target, { method, ...more }).then((one) => (one.type === "opaque" ? "opaque" : one.status), () => "failed");
        answers.push(`${method} ${target} ${answer}`);
      }
    }
    // A frame and a form.
    const frame = document.createElement("iframe");
    frame.src = base;
    document.body.append(frame);
    await new Promise((done) => setTimeout(done, 500));
    let inside = "closed";
    try {
      inside = frame.contentDocument?.body?.textContent ?? "closed";
    } catch {
      inside = "closed";
    }
    return { answers, inside };
  }, { base: rig.url("server"), all: routes(rig.openapi).map(([method, target]) => [method, target]), token: rig.secrets[0] });
  assert.deepEqual(tried.answers.filter((one) => !/(failed|opaque)$/.test(one)), []);
  assert(!tried.inside.includes("tunnel"), tried.inside);
  assert.equal(fs.readFileSync(rig.path("server.yaml"), "utf8"), before);
  assert.equal(rig.run("status", "server").status, 0, "the daemon goes on");
  // Nobody has used the link that was open meanwhile.
  await page.goto(link);
  await page.waitForSelector(".figures");
  await page.context().close();
  evil.close();
}

/** A cookie would belong to all ports of this host. */
export async function two_daemons_of_one_host_share_no_session(rig) {
  const first = await rig.console("server");
  const context = first.context();
  const second = await context.newPage();
  await second.goto(rig.link("client"));
  await second.waitForSelector(".figures");
  assert.deepEqual(await context.cookies(), []);
  const token = (page) => page.evaluate(() => sessionStorage.getItem("tunnel.session"));
  const tokens = [await token(first), await token(second)];
  assert(tokens.every((one) => one?.length > 30) && tokens[0] !== tokens[1], "each has its own");
  const status = (role, secret) => raw(rig.ports[role], "GET", "/api/v1/status", { Host: `127.0.0.1:${rig.ports[role]}`, Authorization: `Bearer ${secret}` });
  assert.deepEqual([await status("server", tokens[0]), await status("client", tokens[1])], [200, 200]);
  assert.deepEqual([await status("client", tokens[0]), await status("server", tokens[1])], [401, 401]);
  // Who signs out here is still signed in there.
  await visit(second, "settings");
  await second.getByRole("button", { name: "Sign out" }).click();
  await second.waitForSelector(".gate");
  await first.reload();
  await first.locator(".bar .state", { hasText: "running" }).waitFor();
  assert.equal(await token(second), null);
  await context.close();
}

export async function no_answer_has_a_secret(rig) {
  for (const role of ["server", "client"]) {
    for (const [method, target] of routes(rig.openapi)) {
      if (method !== "GET" || target.includes("/events") || target === "/api/v1/nat") continue;
      const said = await (await rig.api(role, "GET", target)).text();
      for (const secret of rig.secrets) assert(!said.includes(secret), `${target} of the ${role}`);
    }
    const config = await (await rig.api(role, "GET", "/api/v1/config")).json();
    const change = config.text.replace("(secret)", "another-token-that-is-long-enough-to-be-one");
    for (const body of [{ text: `${config.text}\n# more\n` }, { text: change }, { text: `${config.text}wrong: key\n` }]) {
      const said = await (await rig.api(role, "POST", "/api/v1/config/check", body)).text();
      for (const secret of rig.secrets) assert(!said.includes(secret), `the difference on the ${role}: ${said}`);
    }
  }
}

const HOSTILE = `<img src=x onerror="window.hurt=1"><script>window.hurt=2</script>"'&lt;`;

/** What a daemon says whose every text is hostile. */
function hostile() {
  const bad = HOSTILE;
  const service = { kind: "service", name: bad, address: bad, target: bad, peer: bad, state: bad, state_text: bad, streams: 1, streams_total: 1, bytes_in: 1, bytes_out: 1, in_bytes_per_second: 1, out_bytes_per_second: 5, refused: { [bad]: 2 }, targets: [{ target: bad, weight: 1, state: bad, state_text: bad, visitors: 1, visitors_total: 1, down: { reason: bad, denied: false, seconds: 1 } }] };
  const client = { name: bad, state: "stalled", state_text: bad, from: "file", links: 1, stalled_seconds: 5, address: bad, refused: { seconds_ago: 3, address: bad, reason: bad }, rights: { tcp: [bad], udp: [], http: [bad], tls: [], forward: [], visit: [] }, streams: 1, services: 1, bytes_in: 1, bytes_out: 1, in_bytes_per_second: 1, out_bytes_per_second: 2, carriers: [{ number: 1, transport: bad, peer: bad, rtt_micros: 5, cipher: bad }] };
  const totals = { role: "server", name: bad, version: bad, state: bad, state_text: bad, uptime_seconds: 5, in_bytes_per_second: 1, out_bytes_per_second: 1, bytes_in: 1, bytes_out: 1, streams: 1, flows: 1, peers_up: 1, peers: 1, services: 1, services_up: 1, refused: 1, memory_used_bytes: 1, memory_budget_bytes: 2, descriptors_open: 1, descriptors_limit: 2, reload_error: bad };
  const lists = {
    totals, services: { total: 1, list: [service] }, clients: { total: 1, list: [client] },
    needs: { troubled_services: [service], troubled_services_total: 1, troubled_clients: [client], troubled_clients_total: 1 }, busiest: { total: 1, list: [service] },
    streams: { total: 1, list: [{ id: "1/2", kind: "stream", peer: bad, service: bad, socket: bad, bytes_in: 1, bytes_out: 1, in_bytes_per_second: 1, out_bytes_per_second: 1 }] },
    log: { lines: [{ seq: 1, unix_millis: 1, level: "WARN", target: "audit", text: bad }] },
  };
  const answers = {
    "/api/v1/certificates": { certificates: [{ host: bad, source: "acme", error: bad }], pins: [bad] },
    "/api/v1/config": { path: bad, writable: false, why_not: bad, config: {}, text: bad, etag: '"1"' },
    "/api/v1/sessions": { sessions: [{ id: bad, by: bad, from: bad, age_seconds: 1, idle_seconds: 1, expires_seconds: 1 }] },
    "/api/v1/history": { of: "total", unix_millis: 1, series: [{ step_seconds: 1, in: [1], out: [1] }] },
    "/status": { ok: false, omitted: 0, links: [{ link: 1, peer: bad, transport: bad, address: bad, micros: null, error: bad }] },
  };
  return { lists: () => lists, answers, error: { error: bad, problems: [bad] } };
}

export async function hostile_names_and_lines_are_text(rig) {
  const { page, end } = await fake(rig, hostile());
  const places = ["overview", "clients", `clients/${encodeURIComponent(HOSTILE)}`, "services", "streams", "log", "config", "tools", "certificates", "settings"];
  for (const place of places) {
    await visit(page, place);
    await pause(200);
    if (place === "tools") await page.getByRole("button", { name: "Check" }).click();
    await page.getByText("onerror").first().waitFor({ state: "attached" }).catch(async () => {
      if (place === "config") return;
      throw new Error(`${place} does not show the text`);
    });
    const hurt = await page.evaluate(() => window.hurt ?? (document.querySelector("img, main script") ? "an element" : null));
    assert.equal(hurt, null, place);
  }
  assert.deepEqual(page.faults.filter((fault) => !fault.includes("409")), []);
  await end();
}

export { raw, routes };
