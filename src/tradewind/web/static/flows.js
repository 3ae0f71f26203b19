// The panel of all flows, and what can be done with one.

import { get, post, remove } from "./calls.js";
import { ask, attempt } from "./dialog.js";
import { button, element, part, reconcile, setData, setText } from "./dom.js";
import { ago, number, until } from "./format.js";
import { addressOf } from "./flow_watch.js";
import { statusColumn, table, text } from "./table.js";
import { stateWord, word } from "./words.js";

const MOST_FLOWS = 200;
const REREAD_MS = 60000;

const isAnyBut = (...states) => (status) => !states.includes(status);
const isOneOf = (...states) => (status) => states.includes(status);

/** What the buttons do; `fits(status)` says when they are there. */
const ACTIONS = {
  start: { fits: isOneOf("registered", "stopped", "completed", "failed"), act: (id) => post(`flows/${id}/start`) },
  pause: { fits: isOneOf("running"), act: (id) => post(`flows/${id}/pause`) },
  resume: { fits: isOneOf("paused"), act: (id) => post(`flows/${id}/resume`) },
  drain: { fits: isOneOf("running", "paused"), act: (id) => post(`flows/${id}/drain`) },
  stop: { fits: isOneOf("running", "paused", "draining"), act: (id) => post(`flows/${id}/stop`), question: "askStop" },
  run: { fits: isAnyBut("deleting"), act: (id) => post(`flows/${id}/cycles`, {}) },
  delete: { fits: () => true, act: (id) => remove(`flows/${id}`), question: "askDelete" },
};

const outcome = (name, id) => (answer) => {
  if (name === "run") return word("cycleStarted", id, answer.cycle);
  return `${id}: ${stateWord(name === "delete" ? "deleted" : answer.status)}`;
};

async function perform(name, id, done) {
  const { act, question } = ACTIONS[name];
  if (question && !(await ask(word(question, id), { yes: name, isDangerous: true }))) return;
  if (await attempt(() => act(id), outcome(name, id))) done?.(name);
}

/** The buttons of a flow; one that has the focus keeps it while the state allows it. */
export function flowButtons(parent, names, flow, done) {
  const fitting = names.filter((name) => ACTIONS[name].fits(flow.status));
  reconcile(parent, fitting, (name) => name,
    (name) => button(ACTIONS[name].question ? "danger" : "", () => perform(name, parent.dataset.flow, done)),
    (node, name) => {
      setText(node, word(name));
      node.setAttribute("aria-label", `${word(name)} ${flow.id}`);
    });
  setData(parent, "flow", flow.id);
}

export const countsText = (counts = {}) => ["completed", "failed", "skipped", "terminated", "open"]
  .filter((name) => counts[name]).map((name) => `${number(counts[name])} ${stateWord(name)}`).join(", ");

/** When flows run stands in their definitions, which the snapshot leaves out. */
class Schedules {
  #known = new Map();
  #readAt = -Infinity;

  of(flow) {
    const isNew = !this.#known.has(flow.id);
    const age = performance.now() - this.#readAt;
    if (age > REREAD_MS || (isNew && age > 1000)) this.#read();
    return this.#known.has(flow.id) ? whenText(this.#known.get(flow.id)) : "";
  }

  async #read() {
    this.#readAt = performance.now();
    try {
      const { items } = await get("flows", { limit: MOST_FLOWS });
      this.#known = new Map(items.map((item) => [item.id, item]));
    } catch { /* the banner says that the station does not answer; asked again later */ }
  }
}

/** `interval` and `schedule` of a definition, as people read them. */
export function whenText({ interval, schedule }) {
  const rest = schedule ?? {};
  const given = rest.cron ?? rest.interval ?? interval;
  if (rest.manual) return word("manual");
  if (rest.once || given === 0 || given === "0" || given === "once") return word("once");
  if (given === null || given === undefined) return "";
  if (typeof given === "number") return word("every", `${given} s`);
  return given.trim().includes(" ") ? `cron ${given}` : word("every", given);
}

const schedules = new Schedules();

const nameColumn = {
  word: "id",
  class: "clip id mono",
  cell(td, row) {
    if (!td.firstChild) td.append(element("a"));
    setText(td.firstChild, row.id);
    td.firstChild.href = addressOf({ flow: row.id });
  },
};

const lastColumn = {
  word: "lastCycle",
  cell(td, row) {
    if (!td.firstChild) td.append(part("number"), " ", part("status"), " ", part("quiet"));
    const [name, status, counts] = td.children;
    setText(name, row.last_cycle >= 0 ? row.last_cycle : "");
    setText(status, row.cycle_status ? stateWord(row.cycle_status) : "");
    setData(status, "state", row.cycle_status ?? "");
    status.hidden = !row.cycle_status;
    setText(counts, row.last_cycle >= 0 ? countsText(row.counts) : "");
  },
};

const actionsColumn = {
  word: "actions",
  class: "actions",
  cell(td, row) {
    if (!td.firstChild) td.append(element("div", { class: "buttons" }));
    flowButtons(td.firstChild, ["start", "pause", "resume", "stop", "run"], row);
  },
};


export const flows = table({
  id: "flows",
  rows: (snapshot) => snapshot.flows,
  total: (snapshot) => snapshot.totals.flows,
  most: MOST_FLOWS,
  emptyWord: "noFlows",
  columns: [
    nameColumn,
    statusColumn,
    text("when", (row) => schedules.of(row), "wide"),
    lastColumn,
    text("started", (row, now) => ago(row.start_time, now), "wide number"),
    text("running", (row) => number(row.running_cycles ?? 0), "number"),
    text("next", (row, now) => until(row.next_execution, now), "number"),
    actionsColumn,
  ],
});
