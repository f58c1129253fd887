// @ts-check
// Rates over time: 5 minutes that go on live, an hour, a day. The same stands as a table below.

import { h } from "../vendor/preact.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import uPlot from "../vendor/uplot.js";
import { get } from "../api.js";
import { state } from "../store.js";
import { Choice } from "./bits.js";
import { clock, rate, tick } from "./format.js";
import { t } from "./text.js";

/** Seconds between values, and the number of values. @type {Record<string, [number, number]>} */
const PERIODS = { "5m": [1, 300], "1h": [10, 360], "24h": [60, 1440] };
const HEIGHT = 190;

/** @param {string} name */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** `light-dark()` as the canvas understands it. @param {HTMLElement} at @param {string} name */
function resolved(at, name) {
  at.style.color = `var(${name})`;
  const value = getComputedStyle(at).color;
  at.style.color = "";
  return value || colour(name);
}

/** Bits per second, so that the axis has round steps of what it shows. @param {any} data */
const bits = ([times, ...rates]) => [times, ...rates.map((/** @type {any[]} */ all) => all.map((one) => (one == null ? null : one * 8)))];

/** @param {HTMLElement} at @param {number} width @param {boolean} seconds */
function options(at, width, seconds) {
  const of = (/** @type {string} */ name) => resolved(at, name);
  const axis = { stroke: of("--soft"), grid: { stroke: of("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const line = (/** @type {string} */ name) => ({ stroke: of(`--${name}`), fill: of(`--${name}-fill`), width: 1.6, points: { show: false } });
  return {
    width, height: HEIGHT, padding: [10, 8, 0, 0], legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range: (/** @type {any} */ _, /** @type {any} */ __, /** @type {number} */ max) => [0, Math.max(max * 1.12 || 0, 10_000)] } },
    axes: [
      { ...axis, space: 70, size: 26, values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map((x) => tick(x, seconds && width > 500)) },
      { ...axis, size: 76, values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map((y) => rate(y / 8)) },
    ],
    series: [{}, line("in"), line("out")],
  };
}

/**
 * @param {object} props
 * @param {string} props.of a series of `/api/v1/history`
 * @param {{ unix_millis: number, in: number, out: number }|null} props.now the newest value
 * @param {number} props.epoch of the connection
 */
export function Plot({ of, now, epoch }) {
  const [period, setPeriod] = useState("5m");
  const [data, setData] = useState(/** @type {any} */ ([[], [], []]));
  const [at, setAt] = useState(/** @type {number|null} */ (null));
  const place = useRef(/** @type {HTMLElement|null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const [step, count] = PERIODS[period];

  useEffect(() => {
    const one = new AbortController();
    const load = async () => {
      try {
        const answer = await get(`/api/v1/history?of=${encodeURIComponent(of)}&step=${step}`, one.signal);
        const found = answer.series.find((/** @type {any} */ s) => s.step_seconds === step);
        const end = answer.unix_millis / 1000;
        const times = found.in.map((/** @type {any} */ _, /** @type {number} */ i) => end - (found.in.length - 1 - i) * step);
        setData([times, found.in, found.out]);
      } catch {
        // A series begins with the first sample, and the page says when the daemon is gone.
      }
    };
    setData([[], [], []]);
    void load();
    const timer = step === 1 ? 0 : setInterval(load, step * 1000);
    return () => { one.abort(); clearInterval(timer); };
  }, [of, step, epoch]);

  useEffect(() => {
    if (!now || step !== 1) return;
    setData((/** @type {any} */ [x, a, b]) => {
      const time = now.unix_millis / 1000;
      if (x.length > 0 && time - x.at(-1) < 0.5) return [x, a, b];
      return [[...x, time].slice(-count), [...a, now.in].slice(-count), [...b, now.out].slice(-count)];
    });
  }, [now?.unix_millis, step]);

  useEffect(() => {
    const box = place.current;
    if (!box) return;
    const make = () => {
      plot.current?.destroy();
      const drawn = options(box, box.clientWidth, step === 1);
      plot.current = new uPlot({ ...drawn, hooks: { setCursor: [(/** @type {any} */ u) => setAt(u.cursor.idx ?? null)] } }, bits(data), box);
    };
    make();
    const size = new ResizeObserver(() => plot.current?.setSize({ width: box.clientWidth, height: HEIGHT }));
    size.observe(box);
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", make);
    return () => { size.disconnect(); media.removeEventListener("change", make); plot.current?.destroy(); plot.current = null; };
  }, [period, state.theme, state.lang]);

  useEffect(() => {
    const end = data[0].at(-1) ?? Date.now() / 1000;
    plot.current?.setData(bits(data), false);
    plot.current?.setScale("x", { min: end - step * (count - 1), max: end });
  }, [data, period, state.theme, state.lang]);

  const index = at !== null && at < data[0].length ? at : data[0].length - 1;
  const [times, ins, outs] = data;
  const peak = (/** @type {number[]} */ all) => rate(all.reduce((a, b) => Math.max(a, b ?? 0), 0));
  const every = Math.max(1, Math.ceil(times.length / 12));
  const rows = times.map((/** @type {number} */ _, /** @type {number} */ i) => times.length - 1 - i).filter((/** @type {number} */ i) => (times.length - 1 - i) % every === 0);
  return h("section", { class: "card" },
    h("header", null, h("h2", null, t("plot.title")),
      h("div", { class: "legend" },
        h("span", null, h("i", { class: "key in" }), " ", t("rate.in"), " ", h("b", null, rate(ins[index]))),
        h("span", null, h("i", { class: "key out" }), " ", t("rate.out"), " ", h("b", null, rate(outs[index]))),
        h("span", { class: "soft" }, at !== null && times[index] ? clock(times[index] * 1000) : "")),
      h("div", { class: "end" }, h(Choice, { label: t("plot.period"), value: period, onChange: setPeriod, options: Object.keys(PERIODS).map((one) => [one, t(`plot.${one}`)]) }))),
    h("div", { class: "body" },
      h("div", { class: "plot", ref: place, role: "img", "aria-label": t("plot.label", { in: peak(ins), out: peak(outs) }) }),
      h("details", null, h("summary", null, t("plot.table")),
        h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, t("plot.time")), h("th", { scope: "col", class: "num" }, t("rate.in")), h("th", { scope: "col", class: "num" }, t("rate.out")))),
          h("tbody", null, rows.map((/** @type {number} */ i) => h("tr", { key: times[i] },
            h("td", null, clock(times[i] * 1000)), h("td", { class: "num" }, rate(ins[i])), h("td", { class: "num" }, rate(outs[i]))))))))); 
}
