// The panel of rules: how each stands, what it did, and what it says of the plant now.

import { get, post } from "./calls.js";
import { attempt, show } from "./dialog.js";
import { button, element, setData, setText, setTip } from "./dom.js";
import { ago, number, valueText } from "./format.js";
import { Answers } from "./known.js";
import { clipped, statusColumn, table, text } from "./table.js";
import { stateWord, word } from "./words.js";

const MOST_RULES = 100;
const REREAD_MS = 3000;
const answers = new Answers(10000);

let found = [];
let readAt = -Infinity;
let isReading = false;
let changed = () => {};

async function read() {
  if (isReading) return;
  isReading = true;
  readAt = performance.now();
  try {
    found = (await get("rules", { limit: MOST_RULES })).items;
    answers.came();
    changed();
  } catch { /* `knowledge` says that there was no answer; asked again later */ }
  isReading = false;
}

const answerWord = (is) => word(is === null ? "unknown" : is ? "isTrue" : "isFalse");
const shownValue = (value) => (typeof value === "number" ? valueText(value) : value ?? "–");

/** A dry run in lines: the level, each condition, each value read, each action that would follow. */
function told(run) {
  const of = (part) => Object.entries(run[part] ?? {});
  return [
    `${word("level")}: ${answerWord(run.level)}`,
    ...(run.error ? [`${word("error")}: ${run.error}`] : []),
    "", word("conditions"),
    ...of("conditions").map(([name, { matched, actual_value: value }]) => `  ${name}: ${answerWord(matched)} (${shownValue(value)})`),
    "", word("values"),
    ...of("sources").map(([address, { value, quality }]) => `  ${address}: ${shownValue(value)}, ${stateWord(quality)}`),
    "", word("wouldDo"),
    ...(run.actions.length ? run.actions : [{ type: word("nothing") }]).map(({ type, parameters, error }) =>
      `  ${[type, error || parameters?.title || parameters?.message || (parameters && JSON.stringify(parameters))].filter(Boolean).join(": ")}`),
  ];
}

async function test(id) {
  let run = null;
  if (await attempt(async () => { run = await post(`rules/${id}/test`); })) show(word("testOf", id), told(run));
}

async function turn(id, verb) {
  await attempt(() => post(`rules/${id}/${verb}`), (rule) => `${rule.id}: ${stateWord(stateOf(rule))}`);
  read();
}

const actionColumn = {
  word: "actions",
  class: "actions",
  cell(td, row) {
    const verb = row.state === "stopped" || !row.enabled ? "enable" : "disable";
    if (!td.firstChild) {
      td.append(element("div", { class: "buttons" },
        button("", () => test(td.dataset.id)), button("", () => turn(td.dataset.id, td.dataset.verb))));
    }
    setData(td, "id", row.id);
    setData(td, "verb", verb);
    [["test", row.state !== "faulty"], [verb, true]].forEach(([name, isShown], at) => {
      const made = td.firstChild.children[at];
      made.hidden = !isShown;
      setText(made, word(name));
      made.setAttribute("aria-label", `${word(name)} ${row.id}`);
    });
  },
};

const problemColumn = {
  word: "error",
  class: "clip outcome",
  cell(td, row) {
    const lines = row.problems.map((problem) => `${problem.path}: ${problem.hint}`);
    setText(td, lines.join(" · "));
    setTip(td, lines.join("\n"));
    setData(td, "state", lines.length ? "error" : "");
  },
};

/** An active rule is no good news, as an active model is. */
const stateOf = (row) => (row.state === "active" ? "triggered" : row.state);

const ruleTable = table({
  id: "rules",
  rows: () => found,
  most: MOST_RULES,
  emptyWord: "noRules",
  columns: [
    clipped("id", (row) => row.id, "mono id"),
    clipped("name", (row) => row.name, "wide"),
    { ...statusColumn, cell: (td, row, now) => statusColumn.cell(td, { status: stateOf(row) }, now) },
    text("enabled", (row) => word(row.enabled ? "isYes" : "isNo"), "wide"),
    text("priority", (row) => number(row.priority), "wide number"),
    text("fired", (row) => number(row.figures.triggered), "number"),
    text("lastFired", (row, now) => ago(row.figures.fired_at, now), "number"),
    text("failures", (row) => number(row.figures.failed), "wide number"),
    problemColumn,
    actionColumn,
  ],
});

export const rules = {
  ...ruleTable,
  knowledge: () => answers.knowledge,
  update(body, snapshot) {
    if (!document.hidden && snapshot.knowledge.alarms && performance.now() - readAt > REREAD_MS) read();
    changed = () => ruleTable.update(body, snapshot);
    return ruleTable.update(body, snapshot);
  },
};
