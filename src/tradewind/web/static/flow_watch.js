// The one flow that is looked at: which one stands in the address (`#flow=id&cycle=3&node=x`), what is known of it comes
// by REST, and its live feed says when to ask again. Nothing is asked while the page is hidden.

import { cyclePath, get, liveUrl, nodePath } from "./calls.js";

export const MOST_LOGS = 100;
const CYCLES = 20;
const SIGNALS = 100;
const SOON_MS = 250;
/** A big flow is asked for less often: the pause is so many times as long as the answer took. */
const PAUSE_FACTOR = 5;
/** Logs and signals are on record a moment after they were written: so long after a change they are asked for again. */
const SETTLED_MS = 4000;

export function chosenInAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const cycle = given.get("cycle");
  const names = ["flow", "node", "source", "target"];
  return { ...Object.fromEntries(names.map((name) => [name, given.get(name) ?? ""])), cycle: cycle === null ? null : Number(cycle) };
}

/** The address of a choice; a part that is null or empty is left out. */
export function addressOf(chosen) {
  const given = Object.entries(chosen).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#${new URLSearchParams(given)}`;
}

export const choose = (chosen) => { location.hash = addressOf(chosen); };

export const logKey = (line) => [line.created_at, line.cycle, line.node_id, line.log_level, line.message].join("|");

export class FlowWatch {
  chosen = { flow: "", cycle: null, node: "", source: "", target: "" };
  data = {};
  #changed;
  #wanted = new Set();
  #isBusy = false;
  #notBefore = 0;
  #timer = 0;
  #live = null;
  #seen = "";
  #settled = 0;
  #settledLogs = 0;
  #followed = "";

  constructor(changed) {
    this.#changed = changed;
    addEventListener("hashchange", () => this.look());
    document.addEventListener("visibilitychange", () => this.#listen());
  }

  /** The cycle that is shown: the chosen one, else the newest. */
  get number() {
    return this.chosen.cycle ?? this.data.cycles?.[0]?.cycle ?? null;
  }

  look() {
    if (location.hash && !location.hash.includes("=")) return; // an anchor of the page
    const before = this.chosen;
    this.chosen = chosenInAddress();
    const isOther = before.flow !== this.chosen.flow;
    if (isOther) {
      this.data = { logs: [] };
      this.#seen = "";
      this.#listen();
    }
    if (isOther || before.cycle !== this.chosen.cycle) {
      this.data = { ...this.data, cycle: null, logs: [] };
      this.#settledLogs = performance.now() + SETTLED_MS;
      this.want("flow", "cycles", "logs");
    }
    this.data = { ...this.data, why: null, signals: null };
    this.#settled = performance.now() + SETTLED_MS;
    this.want("cycle");
    this.#changed();
  }

  /** Once a second: ask again when the snapshot shows a change, or while the shown cycle runs. */
  tick(snapshot) {
    if (!this.chosen.flow || document.hidden) return;
    const row = (snapshot.flows ?? []).find((flow) => flow.id === this.chosen.flow);
    const seen = row ? [row.status, row.last_cycle, row.cycle_status, row.running_cycles].join() : snapshot.at;
    const now = performance.now();
    if (seen !== this.#seen) {
      this.#seen = seen;
      this.#settled = now + SETTLED_MS;
      this.want("cycles", "cycle");
      if (row?.status !== this.data.flow?.status) this.want("flow");
    }
    if (this.data.cycle?.status === "running" || now < this.#settled) this.want("cycle");
    if (now < this.#settledLogs) this.want("logs");
  }

  want(...parts) {
    if (!this.chosen.flow) return;
    parts.forEach((part) => this.#wanted.add(part));
    if (this.#isBusy || this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#ask();
    }, Math.max(0, this.#notBefore - performance.now()));
  }

  async #ask() {
    const began = performance.now();
    const { chosen } = this;
    const wanted = this.#wanted;
    this.#wanted = new Set();
    this.#isBusy = true;
    const found = {};
    try {
      const path = `flows/${chosen.flow}`;
      if (wanted.has("flow")) found.flow = await get(path);
      if (wanted.has("cycles")) found.cycles = (await get(`${path}/cycles`, { limit: CYCLES })).items;
      const number = chosen.cycle ?? (found.cycles ?? this.data.cycles)?.[0]?.cycle ?? null;
      if (wanted.has("cycle") || found.cycles) Object.assign(found, await this.#askCycle(chosen, number));
      if (wanted.has("logs")) found.logs = await askLogs(chosen);
      found.problem = "";
    } catch (error) {
      found.problem = error.message;
      if (error.status === 404) found.flow = null;
    }
    this.#isBusy = false;
    this.#notBefore = performance.now() + Math.max(SOON_MS, PAUSE_FACTOR * (performance.now() - began));
    if (chosen === this.chosen) {
      if (found.logs) found.logs = merged(found.logs, this.data.logs);
      this.data = { ...this.data, ...found };
      this.#followDefinition();
      this.#changed();
    }
    if (this.#wanted.size) this.want();
  }

  /** The definition may be long: it is read again only when the newest cycle runs another version of it. */
  #followDefinition() {
    const version = this.data.cycle?.version;
    if (this.chosen.cycle !== null || !version || !this.data.flow || version === this.data.flow.version) return;
    if (version !== this.#followed) this.want("flow");
    this.#followed = version;
  }

  async #askCycle(chosen, number) {
    if (number === null) return { cycle: null };
    const found = { cycle: await get(cyclePath(chosen.flow, number)) };
    const isOfNode = chosen.node && chosen.node in found.cycle.nodes;
    if (isOfNode) found.why = await get(`${nodePath(chosen.flow, number, chosen.node)}/why`);
    if (isOfNode || chosen.source) {
      const query = { node: chosen.node || chosen.source, limit: SIGNALS };
      const { items } = await get(`${cyclePath(chosen.flow, number)}/signals`, query);
      found.signals = chosen.source ? items.filter((signal) => signal.target_node === chosen.target) : items;
    }
    return found;
  }

  #listen() {
    this.#live?.close();
    this.#live = null;
    if (!this.chosen.flow || document.hidden) return;
    const { flow } = this.chosen;
    const live = new EventSource(liveUrl(flow));
    this.#live = live;
    live.addEventListener("log", (event) => {
      const line = JSON.parse(event.data);
      if (this.chosen.cycle !== null && this.chosen.cycle !== line.cycle) return;
      this.data = { ...this.data, logs: merged([line], this.data.logs) };
      this.#changed();
    });
    for (const name of ["node", "cycle", "signal"]) {
      live.addEventListener(name, (event) => {
        const news = JSON.parse(event.data);
        if (name === "cycle") this.want("cycles", "cycle");
        else if (news.cycle === this.number) this.want("cycle");
      });
    }
    live.addEventListener("lost", () => {
      this.#settledLogs = performance.now() + SETTLED_MS;
      this.want("logs", "cycle");
    });
    live.addEventListener("gone", () => {
      live.close();
      this.want("flow");
    });
  }
}

async function askLogs(chosen) {
  const query = { order: "newest", limit: MOST_LOGS, cycle: chosen.cycle };
  return (await get(`flows/${chosen.flow}/logs`, query)).items;
}

/** Newest first. A line that came live and is now on record, too, stays one. */
function merged(first, second = []) {
  const lines = new Map();
  for (const line of [...first, ...second]) if (!lines.has(logKey(line))) lines.set(logKey(line), line);
  return [...lines.values()].sort((a, b) => b.created_at.localeCompare(a.created_at)).slice(0, MOST_LOGS);
}
