// A daemon that says what a test wants. The files of the console and the fields of their answers, the
// policy among them, are those of the real one.

import { once } from "node:events";
import http from "node:http";

/**
 * A page at such a daemon: `lists` gives the lines of each topic by the number of lines before, `answers` the answers by path,
 * `error` everything else.
 */
export async function fake(rig, { lists, answers, error }) {
  const server = http.createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://x");
    if (!pathname.startsWith("/api") && pathname !== "/status") {
      const real = await fetch(rig.url("server") + pathname);
      for (const [name, value] of real.headers) if (/^content-(type|security-policy)$/.test(name)) response.setHeader(name, value);
      return void response.writeHead(real.status).end(Buffer.from(await real.arrayBuffer()));
    }
    response.setHeader("Content-Type", "application/json");
    if (pathname === "/api/v1/events") {
      const topics = searchParams.get("topics").split(",").map((one) => one.split(":")[0]);
      let before = 0;
      const say = () => {
        const all = lists(before);
        before += 1;
        for (const topic of topics) response.write(`${JSON.stringify({ topic, unix_millis: Date.now(), ...all[topic] })}\n`);
      };
      say();
      const timer = setInterval(say, 1000);
      return void response.on("close", () => clearInterval(timer));
    }
    const found = answers[pathname];
    response.writeHead(found ? 200 : 409).end(JSON.stringify(found ?? error));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const page = await rig.page();
  const base = `http://127.0.0.1:${server.address().port}/`;
  await page.goto(base);
  await page.evaluate(() => sessionStorage.setItem("tunnel.session", "any"));
  await page.goto(`${base}#/overview`);
  await page.reload();
  await page.waitForSelector(".figures");
  const end = async () => {
    await page.context().close();
    server.closeAllConnections();
    server.close();
  };
  return { page, end };
}
