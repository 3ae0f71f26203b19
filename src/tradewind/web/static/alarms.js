// The panel of alarms: those that are open, or those that the reader chose, and what an operator does with them.

import { AlarmWatch, MOST_ALARMS } from "./alarm_watch.js";
import { post } from "./calls.js";
import { ask, attempt } from "./dialog.js";
import { button, element, part, setData, setText, setTip } from "./dom.js";
import { clock, number, wholeSeconds } from "./format.js";
import { storedName, storeName } from "./reader.js";
import { clipped, statusColumn, table, text } from "./table.js";
import { stateWord, word } from "./words.js";

const LEVELS = ["Critical", "High", "Medium", "Low", "Info"];
const STATUSES = ["New", "Acknowledged", "Escalated", "Suppressed", "Resolved", "Closed"];
const SHELVE_MINUTES = 60;
const watch = new AlarmWatch();

const isOpen = (row) => !["Resolved", "Closed"].includes(row.status);
const isUnseen = (row) => ["New", "Escalated"].includes(row.status) || (row.status === "Resolved" && !row.acknowledged_at);

/** What can be done, and for which alarms a button is shown; the station has the last word. */
const ACTIONS = [
  { name: "acknowledge", fits: isUnseen },
  { name: "shelve", fits: (row) => isOpen(row) && row.status !== "Suppressed" },
  { name: "unshelve", fits: (row) => row.status === "Suppressed" },
  { name: "resolve", fits: isOpen },
];

/** Note and name of the operator; null when they thought better of it, or gave minutes that are none. */
async function asked(question, action) {
  const fields = [{ name: "note", word: "decisionNote" }, { name: "who", word: "yourName", value: storedName() }];
  if (action === "shelve") fields.unshift({ name: "minutes", word: "minutes", value: String(SHELVE_MINUTES) });
  const given = await ask(question, { yes: action, fields });
  if (!given) return null;
  storeName(given.who);
  const { minutes, ...wish } = given;
  if (action !== "shelve") return wish;
  const seconds = Number(minutes.replace(",", ".")) * 60;
  if (seconds > 0 && Number.isFinite(seconds)) return { ...wish, duration_s: seconds };
  await attempt(() => { throw new Error(word("notANumber")); });
  return null;
}

async function act(action, row) {
  const wish = await asked(word(`ask:${action}`, row.title), action);
  if (!wish) return;
  await attempt(() => post(`alarms/${row.id}/${action}`, wish), (alarm) => `${alarm.title}: ${stateWord(alarm.status)}`);
  watch.again();
}

async function acknowledgeAll(rows) {
  const ids = rows.filter(isUnseen).map((row) => row.id);
  const wish = ids.length ? await asked(word("askAckAll", number(ids.length)), "acknowledge") : null;
  if (!wish) return;
  await attempt(() => post("alarms/acknowledge", { ...wish, ids }), ({ items, errors }) =>
    [word("ackedAll", number(items.length)), ...errors.slice(0, 3).map(({ error }) => error.message)].join(" "));
  watch.again();
}

const levelColumn = {
  word: "level",
  cell(td, row) {
    if (!td.firstChild) td.append(part("level"));
    setText(td.firstChild, stateWord(row.level));
    setData(td.firstChild, "level", row.level);
  },
};

const titleColumn = {
  word: "alarm",
  class: "clip outcome",
  cell(td, row) {
    setText(td, row.title);
    const by = row.acknowledged_by ? word("ackedBy", row.acknowledged_by) : "";
    setTip(td, [row.title, row.description, by, row.note, row.id].filter(Boolean).join("\n"));
  },
};

const shelvedColumn = {
  ...statusColumn,
  cell(td, row, now) {
    statusColumn.cell(td, row, now);
    setTip(td, row.shelved_until ? word("shelvedUntil", clock(row.shelved_until)) : row.cause ? word("causedBy", row.cause) : "");
  },
};

const actionColumn = {
  word: "actions",
  class: "actions",
  cell(td, row) {
    if (!td.firstChild) {
      td.append(element("div", { class: "buttons" }, ...ACTIONS.map(({ name }) => button("", () => act(name, td.row)))));
    }
    td.row = row;
    ACTIONS.forEach(({ name, fits }, at) => {
      const made = td.firstChild.children[at];
      made.hidden = !fits(row);
      setText(made, word(name));
      made.setAttribute("aria-label", `${word(name)}: ${row.title}`);
    });
  },
};

const valueOf = (row) => (row.threshold_value ? `${row.actual_value || "–"} (${row.threshold_value})` : row.actual_value);

const alarmTable = table({
  id: "alarms",
  rows: (snapshot) => watch.rows(snapshot),
  total: (snapshot) => watch.total(snapshot),
  most: MOST_ALARMS,
  emptyWord: "noAlarms",
  columns: [
    levelColumn,
    titleColumn,
    shelvedColumn,
    clipped("source", (row) => row.source_point, "mono source"),
    clipped("valueLimit", valueOf, "number"),
    text("count", (row) => number(row.count), "wide number"),
    text("since", (row, now) => wholeSeconds(now - row.first_seen), "number"),
    clipped("rule", (row) => row.rule_id, "wide mono"),
    actionColumn,
  ],
});

function chooser(name, words) {
  const made = element("select", { id: `alarm-${name}` }, ...["", ...words].map((value) => element("option", { value })));
  made.addEventListener("change", () => watch.choose({ [name]: made.value }));
  return made;
}

function nameChoices(select, label, first) {
  select.setAttribute("aria-label", word(label));
  for (const option of select.options) setText(option, option.value ? stateWord(option.value) : word(first));
}

/** Above all panels: who is flooded with alarms sees it wherever the page is. */
function showFlood(figures) {
  const banner = document.getElementById("flood");
  banner.hidden = !figures?.is_flood;
  if (!banner.hidden) setText(banner, word("flood", clock(figures.flood_since_ms), number(figures.recent)));
}

export const alarms = {
  ...alarmTable,
  knowledge: (snapshot) => watch.knowledge(snapshot),
  make() {
    let shown = null;
    const all = button("", () => acknowledgeAll(watch.rows(shown)));
    const tools = element("div", { class: "tools" }, chooser("level", LEVELS), chooser("status", STATUSES), all);
    const body = element("div", {}, tools, alarmTable.make());
    body.remember = (snapshot) => { shown = snapshot; };
    return body;
  },
  update(body, snapshot) {
    const [{ children: [level, status, all] }, rows] = body.children;
    body.remember(snapshot);
    nameChoices(level, "level", "allLevels");
    nameChoices(status, "status", "allOpen");
    setText(all, word("ackAll"));
    const show = () => {
      all.hidden = !watch.rows(snapshot).some(isUnseen);
      showFlood(watch.figures);
      return alarmTable.update(rows, snapshot);
    };
    watch.tick(snapshot);
    watch.onChange(show);
    const reason = show();
    return reason && watch.isChosen ? word("nothingFound") : reason;
  },
};
