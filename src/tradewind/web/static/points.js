// The panels of points, channels and models, and how a reader sends a command.

import { post } from "./calls.js";
import { ask, attempt } from "./dialog.js";
import { button, element, part, reconcile, setData, setText, setTip } from "./dom.js";
import { ago, number, span, valueText } from "./format.js";
import { worse } from "./known.js";
import { MOST_POINTS, PointWatch } from "./point_watch.js";
import { storedName, storeName } from "./reader.js";
import { clipped, statusColumn, table, text } from "./table.js";
import { showTrend } from "./trend.js";
import { stateWord, word } from "./words.js";

const watch = new PointWatch();

/** Sends a value to a device after the reader has said yes to exactly that. `target` as in the API, `name` for people. */
async function command(target, name, unit = "") {
  const fields = [
    { name: "value", word: "value" }, { name: "reason", word: "reason" }, { name: "who", word: "yourName", value: storedName() },
  ];
  const given = await ask(word("askValue", name), { yes: "goOn", fields });
  if (!given) return;
  storeName(given.who);
  const value = given.value === "" ? NaN : Number(given.value.replace(",", "."));
  if (!Number.isFinite(value)) {
    await attempt(() => { throw new Error(word("notANumber")); });
    return;
  }
  const shown = `${value} ${unit}`.trim();
  if (!(await ask(word("askSend", shown, name), { yes: "send", isDangerous: true }))) return;
  const wish = { ...target, value, who: given.who, reason: given.reason, source: "page" };
  await attempt(() => send(wish), (answer) => word("commandSent", name, shown, stateWord(answer.status)));
}

/** A point that must be selected before it is operated: the reader has just said twice what is to happen. */
async function send(wish) {
  try {
    return await post("commands", wish);
  } catch (error) {
    if (error.code !== "not_selected") throw error;
    await post("commands/select", wish);
    return post("commands", wish);
  }
}

const isWritable = (address) => /^comsrv:\d+:[ca]:/.test(address);

const commandColumn = {
  word: "actions",
  class: "actions",
  cell(td, row) {
    if (!td.firstChild) {
      td.append(element("div", { class: "buttons" }, button("", () => command({ address: td.row.address }, nameOf(td.row), td.row.unit))));
    }
    td.row = row;
    const [made] = td.firstChild.children;
    made.hidden = !isWritable(row.address);
    setText(made, word("set"));
    made.setAttribute("aria-label", `${word("set")} ${nameOf(row)}`);
  },
};

const nameOf = (row) => (row.name ? `${row.name} (${row.address})` : row.address);

/** How many substituted points are named. */
const NAMED = 3;

const qualityColumn = {
  word: "quality",
  cell(td, row) {
    if (!td.firstChild) td.append(part("status"));
    const state = row.value === null ? "none" : row.quality; // nothing is wrong with what nobody has set yet
    setText(td.firstChild, stateWord(state));
    setData(td.firstChild, "state", state);
    const { id, status, result, message } = row.command ?? {}; // how its last command ended
    const { substitution: said } = row; // who says so instead of the device, and why
    const about = said ? [`${said.who || said.source}: ${said.reason}`, word("deviceSays", valueText(said.device.value))] : [];
    td.firstChild.title = [...about, ...(id ? [`${id}: ${status} ${result}`, message] : [])].filter(Boolean).join("\n");
  },
};

/** The address, which shows what was recorded of the point when it is pressed. */
const trendColumn = {
  word: "address",
  class: "mono",
  cell(td, row) {
    if (!td.firstChild) td.append(button("link", () => showTrend(td.dataset.address)));
    setData(td, "address", row.address);
    setText(td.firstChild, row.address);
    td.firstChild.setAttribute("aria-label", `${word("trend")} ${row.address}`);
  },
};

const pointTable = table({
  id: "points",
  rows: () => watch.rows(),
  total: () => watch.total(),
  keyOf: (row) => row.address,
  most: MOST_POINTS,
  emptyWord: "noPoints",
  columns: [
    trendColumn,
    clipped("name", (row) => row.name ?? "", "wide"),
    text("value", (row) => valueText(row.value), "number live"),
    text("unit", (row) => row.unit ?? ""),
    qualityColumn,
    text("age", (row, now) => (row.ts ? span(now - row.ts) : ""), "number"),
    commandColumn,
  ],
});

export const points = {
  ...pointTable,
  knowledge: (snapshot) => worse(snapshot.knowledge.channels, watch.knowledge),
  make() {
    const box = element("input", { id: "point-search", type: "search", autocomplete: "off", maxlength: "200" });
    box.addEventListener("input", () => watch.search(box.value.trim()));
    return element("div", {}, box, pointTable.make());
  },
  update(body, snapshot) {
    const [box, rows] = body.children;
    box.placeholder = word("searchPoints");
    box.setAttribute("aria-label", word("searchPoints"));
    if (document.activeElement !== box && box.value.trim() !== watch.text) box.value = watch.text;
    watch.tick(snapshot);
    watch.onChange(() => pointTable.update(rows, snapshot));
    const reason = pointTable.update(rows, snapshot);
    return reason && watch.text ? word("nothingFound") : reason;
  },
  note(snapshot) {
    const shown = watch.text ? "" : watch.chosen.channel || watch.chosen.model;
    const { substitutions: some } = snapshot;
    const named = (some ?? []).slice(0, NAMED).map((item) => item.address).join(", ");
    const told = some?.length ? word("substituted", snapshot.totals.substitutions, named) : "";
    return [shown, pointTable.note(snapshot), told].filter(Boolean).join(" · ");
  },
};

/** A name that shows its points when it is pressed. */
const chooser = (heading, nameIn, chosenOf) => ({
  word: heading,
  class: "clip id mono",
  cell(td, row) {
    if (!td.firstChild) td.append(button("link", () => watch.choose(chosenOf(td.dataset.name))));
    setData(td, "name", nameIn(row));
    setText(td.firstChild, nameIn(row));
    const { channel, model } = chosenOf(nameIn(row));
    const isChosen = channel ? watch.chosen.channel === channel : watch.chosen.model === model;
    td.firstChild.setAttribute("aria-pressed", String(isChosen));
    td.firstChild.setAttribute("aria-label", `${word("points")} ${nameIn(row)}`);
  },
});

const reloadColumn = {
  word: "actions",
  class: "actions",
  cell(td, row) {
    if (!td.firstChild) {
      const reload = () => attempt(() => post(`channels/${td.dataset.id}/reload`), (answer) => `${answer.id}: ${stateWord(answer.status)}`);
      td.append(element("div", { class: "buttons" }, button("", reload)));
    }
    setData(td, "id", row.id);
    const [made] = td.firstChild.children;
    made.hidden = !["online", "offline"].includes(row.state);
    setText(made, word("reload"));
    made.setAttribute("aria-label", `${word("reload")} ${row.id}`);
  },
};

const stateColumn = { ...statusColumn, cell: (td, row, now) => statusColumn.cell(td, { status: row.state }, now) };
const pointCount = (row) => Object.values(row.counts ?? {}).reduce((sum, count) => sum + count, 0);
const heardMs = (row) => row.status.last_ms ?? row.status.heard_ms;

export const channels = table({
  id: "channels",
  rows: (snapshot) => snapshot.channels,
  total: (snapshot) => snapshot.totals.channels,
  emptyWord: "noChannels",
  columns: [
    chooser("id", (row) => row.id, (id) => ({ channel: id })),
    clipped("name", (row) => row.name),
    text("protocol", (row) => row.protocol, "wide"),
    stateColumn,
    text("pointCount", (row) => (row.counts ? number(pointCount(row)) : ""), "wide number"),
    text("lastPoll", (row, now) => (heardMs(row) ? word("ago", span(now - heardMs(row))) : ""), "number"),
    text("pollTime", (row) => (row.status.polls ? span(row.status.poll_ms) : ""), "wide number"),
    text("failures", (row) => number(row.status.failures), "wide number"),
    text("missed", (row) => number(row.status.missed), "wide number"),
    clipped("error", (row) => row.status.error, "outcome"),
    reloadColumn,
  ],
});

const modelState = (row) => (row.problems.length ? "faulty" : row.enabled ? "active" : "off");

const valuesColumn = {
  word: "values",
  class: "clip outcome",
  cell(td, row) {
    const shown = watch.of(row.name).map((point) => {
      const doubt = point.quality === "good" ? "" : ` (${stateWord(point.quality)})`;
      return `${point.address.split(":")[3]} ${valueText(point.value)} ${point.unit}`.trim() + doubt;
    });
    const told = row.problems.length ? row.problems.map((problem) => `${problem.path}: ${problem.hint}`) : shown;
    setText(td, told.join(" · "));
    setTip(td, told.join("\n"));
    setData(td, "state", row.problems.length ? "error" : "");
  },
};

const controlsColumn = {
  word: "actions",
  class: "actions",
  cell(td, row) {
    if (!td.firstChild) td.append(element("div", { class: "buttons" }));
    reconcile(td.firstChild, row.controls, (field) => field,
      (field) => button("", () => command({ model: row.name, field }, `${row.name}.${field}`)),
      (made, field) => {
        setText(made, `${word("set")} ${field}`);
        made.setAttribute("aria-label", `${word("set")} ${row.name} ${field}`);
      });
  },
};

export const models = table({
  id: "models",
  rows: (snapshot) => snapshot.models,
  total: (snapshot) => snapshot.totals.models,
  keyOf: (row) => row.name,
  emptyWord: "noModels",
  columns: [
    chooser("name", (row) => row.name, (name) => ({ model: name })),
    clipped("title", (row) => row.title, "wide"),
    { ...stateColumn, cell: (td, row, now) => statusColumn.cell(td, { status: modelState(row) }, now) },
    valuesColumn,
    clipped("template", (row) => row.template ?? "", "wide"),
    controlsColumn,
  ],
});

const cancelColumn = {
  word: "actions",
  class: "actions",
  cell(td, row) {
    if (!td.firstChild) {
      const cancel = async () => {
        if (!(await ask(word("askCancel", td.row.address), { yes: "cancelCommand", isDangerous: true }))) return;
        const path = `commands/${td.row.id}/cancel`;
        await attempt(() => post(path, { who: storedName() }), (answer) => `${answer.address}: ${stateWord(answer.status)}`);
      };
      td.append(element("div", { class: "buttons" }, button("danger", cancel)));
    }
    td.row = row;
    const [made] = td.firstChild.children;
    made.hidden = row.status !== "pending";
    setText(made, word("cancelCommand"));
  },
};

export const commands = table({
  id: "commands",
  rows: (snapshot) => snapshot.commands,
  emptyWord: "noCommands",
  columns: [
    text("created", (row, now) => ago(row.created_at, now), "number"),
    text("address", (row) => row.address, "mono"),
    clipped("control", (row) => (row.model_name.startsWith("channel_") ? "" : `${row.model_name}.${row.field_name}`), "wide"),
    text("value", (row) => valueText(row.value), "number"),
    statusColumn,
    clipped("who", (row) => row.who || row.source),
    clipped("reason", (row) => row.reason, "wide"),
    clipped("message", (row) => row.message, "outcome"),
    cancelColumn,
  ],
});
