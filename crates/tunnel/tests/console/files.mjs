// What the files of the console promise, without a browser: sizes, hashes, texts, types, requests.

import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { declarations } from "./types.mjs";

/** All files that the daemon embeds. */
function served(folder) {
  const all = fs.readdirSync(folder, { recursive: true, withFileTypes: true }).filter((one) => one.isFile());
  return all.map((one) => path.relative(folder, path.join(one.parentPath, one.name)))
    .filter((one) => !/README|LICENSE/.test(one)).sort();
}

const ours = (folder) => served(folder).filter((one) => one.endsWith(".js") && !one.startsWith("vendor"));
const read = (...parts) => fs.readFileSync(path.join(...parts), "utf8");

export function files_are_small({ folder }) {
  const size = served(folder).reduce((sum, one) => sum + fs.statSync(path.join(folder, one)).size, 0);
  console.log(`     ${size} bytes in ${served(folder).length} files`);
  assert(size <= 310_000, `${size} bytes`);
  for (const one of ours(folder).filter((one) => !one.startsWith("text"))) {
    const lines = read(folder, one).split("\n").length - 1;
    assert(lines < 200, `${one} has ${lines} lines`);
  }
}

/** Each vendored file is the file of the release, with the edit that the README names. */
export function vendored_files_are_those_of_the_releases({ folder, tools }) {
  const module = (file) => read(tools, file).replace(/^\/\/# sourceMappingURL=.*\n?/m, "");
  const wanted = {
    "preact.js": module("preact/dist/preact.mjs"),
    "hooks.js": module("preact/hooks/dist/hooks.mjs").replace('from"preact"', 'from"./preact.js"'),
    "uplot.js": `${read(tools, "uplot/dist/uPlot.iife.min.js")}\nexport default uPlot;\n`,
    "uplot.css": read(tools, "uplot/dist/uPlot.min.css"),
  };
  const readme = read(folder, "vendor/README.md");
  const found = served(folder).filter((one) => one.startsWith("vendor/")).map((one) => one.slice(7));
  assert.deepEqual(found.sort(), Object.keys(wanted).sort());
  for (const [name, text] of Object.entries(wanted)) {
    const file = read(folder, "vendor", name);
    assert.equal(file, text, `${name} is another file than that of the release`);
    assert(readme.includes(`${createHash("sha256").update(file).digest("hex")}  ${name}`), `hash of ${name}`);
    const release = JSON.parse(read(tools, name.startsWith("uplot") ? "uplot/package.json" : "preact/package.json"));
    assert(readme.includes(`${release.name} ${release.version}`) && release.license === "MIT", `release of ${name}`);
  }
}

export async function both_languages_have_the_same_texts_and_each_text_is_used({ folder }) {
  const of = async (name) => (await import(pathToFileURL(path.join(folder, "text", name)).href)).default;
  const [en, zh] = [await of("en.js"), await of("zh.js")];
  assert.deepEqual(Object.keys(zh), Object.keys(en));
  const holes = (text) => (text.match(/\{\w+\}/g) ?? []).sort();
  for (const key of Object.keys(en)) assert.deepEqual(holes(zh[key]), holes(en[key]), key);
  const code = ours(folder).filter((one) => !one.startsWith("text")).map((one) => read(folder, one)).join("\n");
  // Keys that are put together, such as `state.${word}`, are used by their first part.
  const parts = [...code.matchAll(/t\(`([\w.]+)\$\{/g)].map((one) => one[1]);
  for (const key of Object.keys(en)) {
    assert(code.includes(`"${key}"`) || parts.some((one) => key.startsWith(one)), `nobody says ${key}`);
  }
  for (const [, key] of code.matchAll(/[^\w.]t\("([\w.]+)"/g)) assert(key in en, `no text for ${key}`);
}

/** A list after each line is what a whole list would be, and a missing line is noticed. */
export async function changes_make_the_list_that_a_whole_line_has({ folder }) {
  const { listed } = await import(pathToFileURL(path.join(folder, "rows.js")).href);
  const row = (id, streams) => ({ id, streams });
  const line = (more) => ({ unix_millis: 5000, total: 2, list: [], ...more });
  const seen = (rows) => rows.list.map((one) => `${one.id}=${one.streams}`);
  // A daemon without changes, and the first line with them.
  assert.deepEqual(seen(listed(null, line({ list: [row("1.0", 1)] }))), ["1.0=1"]);
  let rows = listed(null, line({ whole: true, revision: 7, list: [row("1.0", 1), row("2.0", 1)] }));
  const was = rows;
  rows = listed(rows, line({ whole: false, after: 7, revision: 8, unix_millis: 6000 }));
  assert(rows.list === was.list && rows.revision === 8 && rows.unix_millis === 6000, "nothing has changed");
  // A row has changed, one has gone, one has come, and one has gone and come again.
  rows = listed(rows, line({ whole: false, after: 8, revision: 9, unix_millis: 7000, gone: ["2.0"], list: [row("1.0", 4), row("3.0", 2)] }));
  assert.deepEqual(seen(rows), ["1.0=4", "3.0=2"]);
  assert.deepEqual([rows.list[0].told, was.list[1].told], [7000, 5000]);
  rows = listed(rows, line({ whole: false, after: 9, revision: 10, gone: ["3.0"], list: [row("3.0", 3)] }));
  assert.deepEqual(seen(rows), ["1.0=4", "3.0=3"]);
  assert.equal(listed(rows, line({ whole: false, after: 11, revision: 12 })), null, "a line is missing");
  assert.equal(listed(null, line({ whole: false, after: 10, revision: 11 })), null, "the first line is missing");
  assert.deepEqual(seen(listed(rows, line({ whole: true, revision: 13, list: [row("9.0", 1)] }))), ["9.0=1"]);
  // A client has a name in the place of a number.
  rows = listed(null, line({ whole: true, revision: 1, list: [{ name: "a" }, { name: "b" }] }));
  assert.deepEqual(listed(rows, line({ whole: false, after: 1, revision: 2, gone: ["a"] })).list.map((one) => one.name), ["b"]);
}

/** The key at the cursor, which is `|` in each text. */
export async function the_key_at_the_cursor_has_its_path_or_none({ folder }) {
  const { pathAt } = await import(pathToFileURL(path.join(folder, "parts/key-path.js")).href);
  for (const [text, expected] of [
    ["memory_budget: 1|GiB", "memory_budget"],
    ["log:\n  level: info\n  # none\n\n  |format: text\n", "log.format"],
    ["log:\n  level: info\n|memory_budget: 1GiB", "memory_budget"],
    ["clients:\n  - name: a\n    allow:\n      tcp: [1]\n  - name: b\n    limits: # ours\n      streams|: 5", "clients.limits.streams"],
    ["clients:\n- name: a\n  token: b\n- name: c\n  token|: d", "clients.token"],
    ["clients:\n- name: a\nlisten: |x", "listen"],
    ["clients:\n  -\n    name: |b", "clients.name"],
    ["clients:\n  - &one\n    |name: b", "clients.name"],
    ["listen:\n  - tls://[::]:7000|", "listen"],
    ["admin: { listen: \"[::1]:7070\", token|_file: a }", "admin.token_file"],
    ["admin: { listen: |\"[::1]:7070, x: 1\", token_file: a }", "admin.listen"],
    ["ad|min: { listen: a }", "admin"],
    ["admin: { listen: a } # b: |c", "admin"],
    ["clients:\n  - { name: a, limits: { rate: 1, |streams: 5 }, token: b }", "clients.limits.streams"],
    ["clients:\n  - { name: a, limits: { rate: 1 }, to|ken: b }", "clients.token"],
    ["clients: [{ name: a, 'token': 'it''s: |b' }]", "clients.token"],
    ["\"log\":\r\n  \"level\": |info\r\n", "log.level"],
    // Of these nothing is said.
    ["# memory_budget: |1GiB", null],
    ["log:\n|\n  level: info", null],
    ["log:\n\tlevel|: info", null],
    ["limits: { rate: 1,\n  streams: |5 }", null],
    ["name: >\n  a text\n  streams: |5", null],
    ["|---", null],
  ]) {
    assert.equal(pathAt(text.replace("|", ""), text.indexOf("|")), expected, text);
  }
}

export function texts_are_never_html_and_colours_have_one_file({ folder }) {
  for (const one of ours(folder)) {
    const code = read(folder, one);
    const found = code.match(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|\beval\b|new Function|\bstyle:/);
    assert(!found, `${one}: ${found}`);
    if (!one.startsWith("text")) assert(!/#[0-9a-f]{3,8}\b(?!\/)|rgba?\(|hsla?\(/i.test(code.replaceAll(/`[^`]*#\/[^`]*`|"#\/[^"]*"/g, "")), `${one} has a colour`);
    assert(!/https?:\/\/(?!127\.0\.0\.1:3000|app\.example\.com)\w/.test(code), `${one} has an address`);
  }
}

/** Two shells run the line of each hostile request; the origin gets what the visitor has sent, and nothing else happens. */
export async function a_request_as_a_line_does_in_a_shell_what_the_visitor_asked_and_nothing_else({ folder }) {
  const { curl } = await import(pathToFileURL(path.join(folder, "parts/curl.js")).href);
  const place = fs.mkdtempSync(path.join(os.tmpdir(), "tunnel-curl-"));
  /** @type {any} */
  let heard = null;
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    heard = { method: request.method, url: request.url, fields: request.rawHeaders, body: Buffer.concat(parts) };
    response.end("ok");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const host = `127.0.0.1:${server.address().port}`;
  fs.writeFileSync(path.join(place, "secret"), "of this machine");
  const evil = "'; touch pwned; '$(touch pwned)`touch pwned`\"\\\\ $HOME !! \\n";
  const message = (line, fields, body) => {
    const data = Buffer.from(body ?? "");
    const isText = !/[\x00-\x08\x0b-\x1f]/.test(data.toString()) && Buffer.from(data.toString()).equals(data);
    return { line, fields: Object.entries({ Host: host, ...fields }).map(([name, value]) => ({ name, value })), body: { bytes: data.length, ...(isText ? { text: data.toString() } : { base64: data.toString("base64") }) } };
  };
  const cases = [
    ["GET /plain HTTP/1.1", {}, ""],
    ["GET /$(touch%20pwned)?x=[1-3]{a,b}&y='\" HTTP/1.1", { "X-Evil": evil.trim() }, ""],
    ["GET /../../up/./x HTTP/1.1", { Accept: "text/html", "User-Agent": evil.trim() }, ""],
    ["HEAD /head HTTP/1.1", { "X-Empty": "" }, ""],
    ["OPTIONS * HTTP/1.1", {}, ""],
    ["DELETE /d#fragment HTTP/1.1", { Authorization: "Basic YTpi" }, ""],
    ["POST /file HTTP/1.1", { "Content-Type": "text/plain" }, "@secret"],
    ["POST /evil HTTP/1.1", {}, evil],
    ["PUT /lines HTTP/1.1", { "Content-Type": "application/json" }, '{\n  "a": "\u00e4\u4e16"\n}\n'],
    ["PATCH /tabs HTTP/1.1", {}, "a\tb\r\nc"],
    ["POST /bytes HTTP/1.1", { "Content-Type": "image/png" }, Buffer.from([0, 255, 10, 13, 39, 27])],
    ["PROPFIND /option HTTP/1.1", { "X-At": "@secret" }, "-d @secret"],
  ];
  try {
    for (const shell of ["sh", "bash"]) {
      for (const [line, fields, body] of cases) {
        heard = null;
        const text = curl(message(line, fields, body), []);
        const [code, said] = await new Promise((done) => {
          execFile(shell, ["-c", text.replace("curl ", "curl --silent --show-error --max-time 20 ")], { cwd: place }, (error, _, stderr) => done([error, stderr]));
        });
        assert(!code && heard, `${shell}: ${text}\n${said}`);
        const [method, target] = line.split(" ");
        assert.equal(heard.method, method, text);
        assert.equal(heard.url, target, text);
        assert.deepEqual(heard.body, Buffer.from(body ?? ""), text);
        const got = (name) => heard.fields[heard.fields.findIndex((one, n) => n % 2 === 0 && one.toLowerCase() === name.toLowerCase()) + 1];
        for (const [name, value] of Object.entries(fields)) assert.equal(got(name), value, text);
        for (const name of ["Accept", "User-Agent", "Content-Type"]) {
          if (!(name in fields)) assert(!heard.fields.includes(name), `${name} of curl's own: ${text}`);
        }
        assert.deepEqual(fs.readdirSync(place), ["secret"], text);
      }
    }
    // A visitor cannot choose the host of the line.
    const of = (line, host, addresses) => curl({ ...message(line, {}, ""), fields: [{ name: "Host", value: host }] }, addresses);
    assert.match(of("GET / HTTP/1.1", "evil.example", ["http://app.example.com"]), /--url http:\/\/app\.example\.com\/ /);
    assert.match(of("GET http://evil.example/x HTTP/1.1", "app.example.com:80", ["https://app.example.com"]), /--url https:\/\/app\.example\.com\/x /);
    assert.match(of("GET /x HTTP/1.1", "a.example;id", ["https://*.example"]), /--url https:\/\/localhost\/x /);
    assert.match(of("GET /x HTTP/1.1", "b.example", ["http://a.example", "https://b.example"]), /--url https:\/\/b\.example\/x /);
    const cut = curl({ ...message("POST / HTTP/1.1", {}, ""), body: { bytes: 99, text: "only a part", cut: true } }, []);
    assert(!cut.includes("only"), cut);
  } finally {
    server.closeAllConnections();
    server.close();
    fs.rmSync(place, { recursive: true, force: true });
  }
}

/** Whatever a page asks stands in the description of the API. */
export function every_request_is_one_of_the_api({ folder, openapi, setup }) {
  const known = new Set();
  for (const [route, methods] of Object.entries({ ...setup.paths, ...openapi.paths })) {
    for (const method of Object.keys(methods)) known.add(`${method.toUpperCase()} ${route.replaceAll(/\{\w+\}/g, "{}")}`);
  }
  let count = 0;
  for (const one of ours(folder)) {
    const code = read(folder, one);
    const asked = [
      ...[...code.matchAll(/\bcall\("(\w+)", [`"]([^`"]+)[`"]/g)].map((m) => [m[1], m[2]]),
      ...[...code.matchAll(/\b(?:get|save|lines)\([`"](\/[^`"]+)[`"]/g)].map((m) => ["GET", m[1]]),
    ];
    for (const [method, target] of asked) {
      const route = target.replace(/\?.*$/, "").replaceAll(/\$\{[^}]+\}/g, "{}");
      const fits = [...known].some((one) => {
        const [verb, pattern] = one.split(" ");
        // A stream is named LINK/STREAM: one part of the page's text, two of the route.
        return verb === method && (pattern === route || pattern === `${route}/{}`);
      });
      assert(fits, `${one}: ${method} ${target}`);
      count += 1;
    }
  }
  console.log(`     ${count} requests`);
  assert(count > 25, `${count} requests were found`);
}

/** `tsc` accepts the pages with the types of the API and of the vendored code. */
export function types_fit({ folder, tools, openapi, setup, target }) {
  const place = path.join(target, "console-types");
  fs.rmSync(place, { recursive: true, force: true });
  fs.cpSync(folder, path.join(place, "console"), { recursive: true });
  const put = (file, text) => fs.writeFileSync(path.join(place, "console", file), text);
  put("api-types.d.ts", declarations(openapi) + declarations(setup));
  for (const one of ["preact", "hooks", "uplot"]) fs.rmSync(path.join(place, "console/vendor", `${one}.js`));
  put("vendor/preact.d.ts", 'export * from "preact";\n');
  put("vendor/hooks.d.ts", 'export * from "preact/hooks";\n');
  put("vendor/uplot.d.ts", 'import uPlot from "uplot";\nexport default uPlot;\n');
  fs.symlinkSync(tools, path.join(place, "node_modules"));
  fs.writeFileSync(path.join(place, "tsconfig.json"), JSON.stringify({
    compilerOptions: {
      strict: true, noEmit: true, allowJs: true, checkJs: true, target: "es2023", module: "esnext",
      moduleResolution: "bundler", lib: ["es2023", "dom", "dom.iterable"], skipLibCheck: true, types: [],
    },
    include: ["console"],
  }));
  const run = spawnSync(process.execPath, [path.join(tools, "typescript/bin/tsc"), "-p", place], { encoding: "utf8" });
  assert.equal(run.status, 0, run.stdout + run.stderr);
}
