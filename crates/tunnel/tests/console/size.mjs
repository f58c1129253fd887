// Many clients and streams: the page stays usable.

import assert from "node:assert/strict";
import { fake } from "./fake.mjs";
import { visit } from "./rig.mjs";

/** The longest list that a daemon sends. */
const ROWS = 1000;
/** Frames are to take less than 50 ms; a busy machine gets five times that. */
const FRAME = 250;

function many() {
  let second = 0;
  const spread = (index) => ((index * 7919 + second * 104_729) % 100_000) * 10;
  const row = (index) => ({ in_bytes_per_second: spread(index), out_bytes_per_second: spread(index + 1), bytes_in: second * 1e6, bytes_out: second * 1e7 });
  const list = (make) => Array.from({ length: ROWS }, (_, index) => ({ ...make(index), ...row(index) }));
  // Each row changes each second.
  const lists = (before) => {
    second += 1;
    const changes = { whole: before === 0, after: before === 0 ? undefined : before, revision: before + 1 };
    const service = (index) => ({ id: `${index}.0`, kind: "service", name: `s${index}`, peer: `client-${index}`, address: `tcp://:${index}`, target: "", state: "up", state_text: "up", streams: 20, streams_total: second * 20 });
    return {
      totals: { role: "server", name: "big", version: "0", state: "running", state_text: "running", uptime_seconds: second, ...row(1), streams: 100_000, flows: 0, peers_up: 5000, peers: 5000, services: 5000, services_up: 5000, refused: second, memory_used_bytes: 1e9, memory_budget_bytes: 4e9, descriptors_open: 5, descriptors_limit: 1e6 },
      services: { ...changes, total: 5000, list: list(service) },
      busiest: { total: 5000, list: list(service).slice(0, 6) },
      needs: { troubled_services: [], troubled_services_total: 0, troubled_clients: [], troubled_clients_total: 0 },
      clients: { ...changes, total: 5000, list: list((index) => ({ name: `client-${index}`, state: "connected", state_text: "connected", from: "file", links: 2, streams: 20, services: 1, carriers: [{ number: 1, transport: "quic", peer: "192.0.2.1:5", rtt_micros: 9000 + index, quic: { sent_packets: 1e6, lost_packets: index } }] })) },
      streams: { ...changes, total: 100_000, list: list((index) => ({ id: `1/${index}`, kind: "stream", peer: `client-${index}`, service: `s${index}`, socket: `192.0.2.7:${index}` })) },
      log: { lines: Array.from({ length: 100 }, (_, index) => ({ seq: second * 100 + index, unix_millis: Date.now(), level: "INFO", target: "tunnel", text: `line ${second * 100 + index}` })) },
    };
  };
  return { lists, answers: { "/api/v1/certificates": { certificates: [], pins: [] }, "/api/v1/history": { of: "total", unix_millis: Date.now(), series: [{ step_seconds: 1, in: [1], out: [1] }] } }, error: { error: "no" } };
}

/** Milliseconds between frames for three seconds: the median, and the longest but two of a hundred. */
const frames = (page) => page.evaluate(() => new Promise((done) => {
  const times = [];
  let before = performance.now();
  const end = before + 3000;
  const frame = (now) => {
    times.push(now - before);
    before = now;
    if (now < end) return void requestAnimationFrame(frame);
    times.sort((a, b) => a - b);
    done({ median: times[times.length >> 1], late: times[Math.floor(times.length * 0.98)] });
  };
  requestAnimationFrame(frame);
}));

export async function five_thousand_clients_and_100_000_streams_leave_the_page_usable(rig) {
  const { page, end } = await fake(rig, many());
  for (const place of ["overview", "clients", "services", "streams", "log"]) {
    await visit(page, place);
    await page.waitForSelector(place === "overview" ? ".bars li" : place === "log" ? ".log li" : "tbody tr");
    const { median, late } = await frames(page);
    console.log(`     ${place}: frames of ${median.toFixed(0)} ms, 2 % above ${late.toFixed(0)} ms`);
    assert(late < FRAME, `${place}: ${late} ms`);
  }
  // The filter finds one of the rows that have come.
  await visit(page, "clients");
  await page.keyboard.press("/");
  await page.keyboard.type("client-777");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await end();
}
