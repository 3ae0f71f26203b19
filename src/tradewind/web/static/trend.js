// The trend of a point: what was recorded of it, as a line (mean) in a band (least to greatest), drawn by ourselves.

import { get } from "./calls.js";
import { drawn, element, part, setText } from "./dom.js";
import { clock, valueText } from "./format.js";
import { language, word } from "./words.js";

const WIDTH = 800;
const HEIGHT = 220;
const LEFT = 64;
const BOTTOM = 22;
const TOP = 8;
const POINTS = 600;
const MINUTE = 60000;
const DAY = 1440 * MINUTE;
const RANGES = [["15m", "15 min", 15 * MINUTE], ["1h", "1 h", 60 * MINUTE], ["6h", "6 h", 360 * MINUTE],
  ["1d", "24 h", DAY], ["7d", "7 d", 7 * DAY], ["30d", "30 d", 30 * DAY]];
const SOON_MS = 3000;
const LATER_MS = 30000;

const chosen = { address: "", range: "1h" };
let answer = null;
let failure = "";
let askedAt = -Infinity;
let turn = 0;
let redraw = () => {};

/** Shows the trend of a point, and brings the reader there. */
export function showTrend(address) {
  choose({ address });
  document.getElementById("trend")?.scrollIntoView({ block: "nearest" });
}

function choose(change) {
  Object.assign(chosen, change);
  answer = null;
  failure = "";
  askedAt = -Infinity;
  redraw();
  refresh();
}

const lengthOf = (range) => RANGES.find(([name]) => name === range)[2];

/** Asks again when the picture is old; an answer to an older question is not shown. */
async function refresh() {
  const patience = lengthOf(chosen.range) > 60 * MINUTE ? LATER_MS : SOON_MS;
  if (!chosen.address || document.hidden || performance.now() - askedAt < patience) return;
  askedAt = performance.now();
  turn += 1;
  const mine = turn;
  const query = { series: chosen.address, from: `-${chosen.range}`, agg: "mean,min,max", limit: POINTS };
  try {
    const found = await get("history", query);
    if (mine !== turn) return;
    const [series] = found.series;
    const samples = series.samples.filter((row) => row[1] !== null); // a mean may be too large for a number
    answer = { ...series, samples, from: found.from, to: found.to };
    failure = "";
  } catch (error) {
    if (mine !== turn) return;
    failure = error.message;
  }
  redraw();
}

/** Neighbouring buckets; a gap that the station tells of ends where the next run begins. */
function runs(samples, gaps) {
  const begins = new Set(gaps.map((gap) => gap[1]));
  const found = [];
  for (const row of samples) {
    if (!found.length || begins.has(row[0])) found.push([]);
    found[found.length - 1].push(row);
  }
  return found;
}

/** `{low, high}` of the picture: a little more than the values need. */
function bounds(samples) {
  const low = Math.min(...samples.map((row) => row[2]));
  const high = Math.max(...samples.map((row) => row[3]));
  const room = high > low ? (high - low) * 0.05 : Math.abs(high) * 0.05 || 1;
  return { low: low - room, high: high + room };
}

function timeText(ms) {
  if (lengthOf(chosen.range) <= DAY) return clock(ms).slice(0, 5);
  return new Date(ms).toLocaleDateString(language() === "zh" ? "zh-CN" : "en-GB", { month: "2-digit", day: "2-digit" });
}

function draw(svg) {
  svg.replaceChildren();
  svg.scale = null;
  if (!answer?.samples.length) return;
  const { from, to, samples, gaps, unit } = answer;
  const { low, high } = bounds(samples);
  const x = (ts) => LEFT + ((ts - from) / (to - from)) * (WIDTH - LEFT - 4);
  const y = (value) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const spot = (ts, value) => `${x(ts).toFixed(1)},${y(value).toFixed(1)}`;
  const middle = (row) => Math.min(row[0] + answer.bucket_ms / 2, to);
  for (const share of [0, 0.5, 1]) {
    const value = low + (high - low) * share;
    svg.append(drawn("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value) }));
    const label = drawn("text", { class: "axis", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" });
    label.textContent = Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 6, useGrouping: false });
    svg.append(label);
  }
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    const label = drawn("text", { class: "axis", x: x(from + (to - from) * share), y: HEIGHT - 6, "text-anchor": anchor });
    label.textContent = timeText(from + (to - from) * share);
    svg.append(label);
  }
  const parts = runs(samples, gaps);
  const band = parts.map((run) => `M${run.map((row) => spot(middle(row), row[3])).join("L")}`
    + `L${[...run].reverse().map((row) => spot(middle(row), row[2])).join("L")}Z`).join("");
  const line = parts.filter((run) => run.length > 1).map((run) => `M${run.map((row) => spot(middle(row), row[1])).join("L")}`).join("");
  svg.append(drawn("path", { class: "area", d: band }), drawn("path", { class: "line", d: line }));
  for (const [row] of parts.filter((run) => run.length === 1)) {
    svg.append(drawn("circle", { class: "dot", cx: x(middle(row)), cy: y(row[1]), r: 2.5 }));
  }
  svg.scale = { from, to };
  const last = samples[samples.length - 1];
  svg.setAttribute("aria-label", word("trendOf", chosen.address, valueText(low), valueText(high), valueText(last[1]), unit));
}

/** The bucket under the pointer, in words. */
function point(svg, event, told) {
  if (!svg.scale || !answer) return;
  const box = svg.getBoundingClientRect();
  const share = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - 4);
  const ts = svg.scale.from + share * (svg.scale.to - svg.scale.from);
  const near = answer.samples.reduce((best, row) => (Math.abs(row[0] - ts) < Math.abs(best[0] - ts) ? row : best));
  setText(told, `${new Date(near[0]).toLocaleString()} · ${valueText(near[1])} ${answer.unit} (${valueText(near[2])} … ${valueText(near[3])})`);
}

export const trend = {
  id: "trend",
  make() {
    const box = element("input", { id: "trend-address", type: "search", autocomplete: "off", maxlength: "200", class: "mono" });
    box.addEventListener("change", () => choose({ address: box.value.trim() }));
    const range = element("select", { id: "trend-range" }, ...RANGES.map(([value, name]) => {
      const option = element("option", { value });
      option.textContent = name;
      return option;
    }));
    range.value = chosen.range;
    range.addEventListener("change", () => choose({ range: range.value }));
    const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "trend", role: "img" });
    const told = part("quiet trend-told");
    svg.addEventListener("pointermove", (event) => point(svg, event, told));
    svg.addEventListener("pointerleave", () => setText(told, ""));
    const body = element("div", {}, element("div", { class: "trend-choice" }, box, range), svg, told);
    redraw = () => {
      draw(svg);
      svg.toggleAttribute("hidden", !svg.scale);
      if (document.activeElement !== box && box.value.trim() !== chosen.address) box.value = chosen.address;
      const reason = body.parentNode?.querySelector(".empty");
      if (reason) {
        setText(reason, trendReason());
        reason.hidden = !trendReason();
      }
    };
    return body;
  },
  update(body) {
    const [box, range] = body.firstChild.children;
    box.placeholder = word("trendAddress");
    box.setAttribute("aria-label", word("trendAddress"));
    range.setAttribute("aria-label", word("trendRange"));
    refresh();
    redraw();
    return trendReason();
  },
  note() {
    if (!answer || answer.complete) return answer?.unit ?? "";
    return word("trendKept", new Date(answer.available_from).toLocaleString());
  },
};

function trendReason() {
  if (!chosen.address) return word("noTrend");
  if (failure) return failure;
  return answer && !answer.samples.length ? word("noSamples") : "";
}
