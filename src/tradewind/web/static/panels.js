// What the page shows. A panel is {id, make(), update(body, snapshot, history)}: `make` gives the body once, `update`
// brings it up to date each second. A room that only needs a table calls `table` and adds the result in app.js.

import { drawSparkline, element, reconcile, setData, setText, setTip, sparkline } from "./dom.js";
import { ago, errorText, number, progress, rate, span } from "./format.js";
import { FINISHED, SPAN } from "./history.js";
import { word } from "./words.js";

const MOST_ROWS = 100;

const tile = (...parts) => element("div", { class: "tile" }, ...parts);
const part = (name, tag = "span") => element(tag, { class: name });

export const health = {
  id: "health",
  make: () => element("div", { class: "tiles small" }),
  update(body, snapshot) {
    const parts = Object.entries(snapshot.health?.parts ?? {});
    reconcile(body, parts, ([name]) => name, () => tile(part("label"), part("badge"), part("quiet detail")),
      (node, [name, report]) => {
        const [label, badge, detail] = node.children;
        setText(label, word(name));
        setText(badge, word(report.status));
        setData(badge, "state", report.status);
        setText(detail, report.detail);
        setTip(detail, report.detail);
      });
    return parts.length ? "" : word("noHealth");
  },
};

export const throughput = {
  id: "throughput",
  make: () => element("div", { class: "tiles" },
    tile(part("figure"), part("label"), sparkline(), part("quiet")), element("dl", { class: "counts" })),
  update(body, snapshot, history) {
    const [main, counts] = body.children;
    const [figure, label, spark, peak] = main.children;
    const rates = history.rates();
    setText(figure, rate(history.currentRate()));
    setText(label, word("perSecond"));
    drawSparkline(spark, rates, SPAN);
    setText(peak, `${word("peak")} ${rate(Math.max(0, ...rates.map((point) => point[1])))} · ${word("lastMinutes")}`);
    const known = snapshot.counts ?? {};
    const names = [...FINISHED, ...Object.keys(known).filter((name) => !FINISHED.includes(name)).sort()];
    reconcile(counts, names, (name) => name, () => element("div", {}, part("status", "dt"), part("value", "dd")),
      (node, name) => {
        const [term, value] = node.children;
        setText(term, word(name));
        setData(term, "state", name);
        setText(value, number(known[name] ?? 0));
      });
  },
};

export const queues = {
  id: "queues",
  make: () => element("div", { class: "tiles" }),
  update(body, snapshot, history) {
    const list = snapshot.queues ?? [];
    reconcile(body, list, (queue) => queue.name,
      () => tile(part("figure"), part("label"), sparkline(), part("quiet"), part("badge")),
      (node, queue) => {
        const [figure, label, spark, peak, paused] = node.children;
        const points = history.queue(queue.name);
        setText(figure, number(queue.length));
        setText(label, word(queue.name));
        setText(paused, word("paused"));
        setData(paused, "state", "degraded");
        paused.hidden = !queue.paused;
        drawSparkline(spark, points, SPAN);
        setText(peak, `${word("peak")} ${number(Math.max(0, ...points.map((point) => point[1])))}`);
      });
    return list.length ? "" : word("noQueues");
  },
};

/** A panel of one table. A column is {word, cell(td, row, now), class?}; `wide` columns leave first on narrow screens. */
export function table({ id, columns, rows, keyOf = (row) => row.id, emptyWord }) {
  return {
    id,
    make() {
      const heads = columns.map((column) => element("th", { scope: "col", class: column.class ?? "" }));
      return element("div", { class: "scroll", tabindex: "0", role: "region" },
        element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody")));
    },
    update(body, snapshot) {
      const all = rows(snapshot) ?? [];
      const shown = all.slice(0, MOST_ROWS);
      const now = Date.parse(snapshot.at);
      body.setAttribute("aria-label", word(id));
      body.hidden = !all.length;
      const [head, lines] = body.firstChild.children;
      columns.forEach((column, index) => setText(head.firstChild.children[index], word(column.word)));
      reconcile(lines, shown, keyOf,
        () => element("tr", {}, ...columns.map((column) => element("td", { class: column.class ?? "" }))),
        (line, row) => columns.forEach((column, index) => column.cell(line.children[index], row, now)));
      return all.length ? "" : word(emptyWord);
    },
    note: (snapshot) => {
      const count = Math.min(rows(snapshot)?.length ?? 0, MOST_ROWS);
      return count ? word("rows", number(count)) : "";
    },
  };
}

const text = (heading, value, name = "") => ({
  word: heading, class: name, cell: (td, row, now) => setText(td, value(row, now)),
});

const clipped = (heading, value, name = "") => ({
  word: heading,
  class: `clip ${name}`,
  cell(td, row) {
    const content = value(row) ?? "";
    setText(td, content);
    setTip(td, content.length > 18 ? content : "");
  },
});

const statusColumn = {
  word: "status",
  cell(td, row) {
    if (!td.firstChild) td.append(part("status"));
    setText(td.firstChild, word(row.status));
    setData(td.firstChild, "state", row.status);
  },
};

const loadColumn = {
  word: "load",
  cell(td, row) {
    if (!td.firstChild) td.append(element("meter", { min: "0" }), " ", part("number"));
    const [meter, label] = td.children;
    const capacity = Math.max(1, row.capacity ?? 1);
    meter.max = capacity;
    meter.high = capacity * 0.9;
    meter.value = Math.min(row.load ?? 0, capacity);
    setText(label, `${number(row.load ?? 0)} / ${number(row.capacity)}`);
  },
};

const outcomeColumn = {
  word: "outcome",
  class: "clip outcome",
  cell(td, row) {
    const error = errorText(row.error);
    setText(td, error.short || progress(row.progress));
    setTip(td, error.long);
    setData(td, "state", error.short ? "error" : "");
  },
};

const duration = (row, now) =>
  row.started_at ? span((row.finished_at ? Date.parse(row.finished_at) : now) - Date.parse(row.started_at)) : "";

export const workers = table({
  id: "workers",
  rows: (snapshot) => snapshot.workers,
  emptyWord: "noWorkers",
  columns: [
    clipped("id", (row) => row.id, "mono"),
    clipped("name", (row) => row.name, "wide"),
    statusColumn,
    loadColumn,
    text("running", (row) => number(row.running ?? 0), "number"),
    text("queued", (row) => number(row.queued ?? 0), "number"),
    clipped("types", (row) => (row.types ?? []).join(", "), "wide"),
    clipped("labels", (row) => (row.labels ?? []).join(", "), "wide"),
    text("heartbeat", (row, now) => ago(row.last_heartbeat, now), "number"),
    clipped("address", (row) => row.address, "wide mono"),
  ],
});

export const tasks = table({
  id: "tasks",
  rows: (snapshot) => snapshot.tasks,
  emptyWord: "noTasks",
  columns: [
    clipped("id", (row) => row.id, "mono id"),
    clipped("type", (row) => row.type),
    statusColumn,
    text("priority", (row) => word(row.priority), "wide"),
    text("attempt", (row) => number(row.attempt), "wide number"),
    clipped("workerId", (row) => row.worker_id, "wide mono"),
    text("created", (row, now) => ago(row.created_at, now), "number"),
    text("duration", duration, "number"),
    outcomeColumn,
  ],
});
