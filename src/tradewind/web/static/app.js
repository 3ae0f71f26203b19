// The live page: one event stream in, a list of panels out. A new room adds its panel to PANELS.

import { alarms } from "./alarms.js";
import { installTips, setData, setText } from "./dom.js";
import { flow } from "./flow_view.js";
import { flows } from "./flows.js";
import { clock, wholeSeconds } from "./format.js";
import { frame } from "./frame.js";
import { History } from "./history.js";
import { opened } from "./known.js";
import { health, queues, tasks, throughput, workers } from "./panels.js";
import { channels, commands, models, points } from "./points.js";
import { rules } from "./rules.js";
import { trend } from "./trend.js";
import { language, toggleLanguage, word } from "./words.js";

const PANELS = [health, alarms, throughput, flow, flows, points, trend, models, rules, channels, commands, queues, workers, tasks];

const EVENTS = "api/v1/events";
const STALE_AFTER = 5000;
const REOPEN_AFTER = 15000;

const $ = (id) => document.getElementById(id);
const history = new History();
let snapshot = null;
let heardAt = performance.now();

const frames = PANELS.map((panel) => frame(panel));
$("panels").append(...frames.map((each) => each.node));

function showStation() {
  const overall = snapshot.health?.status ?? "unknown";
  setText($("overall"), word(overall));
  setData($("overall"), "state", overall);
  setText($("updated"), word("updated", clock(Date.parse(snapshot.at))));
  if (snapshot.station) nameStation(snapshot.station.name, snapshot.station.version);
}

function nameStation(name, version) {
  if (name) setText($("station"), name);
  if (version) setText($("version"), `v${version}`);
  document.title = name || document.title;
}

function showBanner() {
  const silent = performance.now() - heardAt;
  const isStale = silent > STALE_AFTER;
  const banner = $("banner");
  const store = snapshot?.health?.parts?.store;
  const isEmptied = store?.status === "down"; // Redis has lost the data of the station
  banner.hidden = Boolean(snapshot) && !isStale && !isEmptied;
  setData(banner, "state", isStale || isEmptied ? "lost" : "connecting");
  setData(document.body, "stale", String(Boolean(snapshot) && isStale));
  if (isEmptied && !isStale) setText(banner, store.detail);
  else if (snapshot) setText(banner, word("stale", clock(Date.parse(snapshot.at)), wholeSeconds(silent)));
  else setText(banner, word(isStale ? "neverSeen" : "connecting"));
}

function refresh() {
  document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
  for (const node of document.querySelectorAll("[data-word]")) setText(node, word(node.dataset.word));
  setText($("language"), language() === "zh" ? "English" : "中文");
  showBanner();
  if (!snapshot) return;
  showStation();
  frames.forEach((each) => each.update(snapshot, history));
}

/** Keeps one stream open. The browser retries a broken one itself, but neither a refused nor a silent one. */
function listen() {
  let source = null;
  let openedAt = 0;
  const open = () => {
    source?.close();
    openedAt = performance.now();
    source = new EventSource(EVENTS);
    source.addEventListener("snapshot", (event) => {
      snapshot = opened(JSON.parse(event.data));
      heardAt = performance.now();
      history.add(snapshot);
      refresh();
    });
  };
  open();
  setInterval(() => {
    const waited = performance.now() - Math.max(openedAt, heardAt);
    const isRefused = source.readyState === EventSource.CLOSED && waited > 2000;
    if (isRefused || waited > REOPEN_AFTER) open();
    showBanner();
  }, 1000);
}

/** Name and version come from the API's own description until a snapshot carries them. */
async function describeStation() {
  try {
    const { info } = await (await fetch("openapi.json")).json();
    if (!snapshot?.station) nameStation(info.title, info.version);
  } catch { /* the banner already says that the station does not answer */ }
}

$("language").addEventListener("click", () => {
  toggleLanguage();
  refresh();
});
addEventListener("hashchange", refresh);
installTips($("tip"));
refresh();
listen();
describeStation();
