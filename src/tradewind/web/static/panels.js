// What the page shows. A panel is {id, make(), update(body, snapshot, history)}: `make` gives the body once, `update`
// brings it up to date each second. A room that only needs a table calls `table` and adds the result in app.js. Here are
// the panels of the station and its tasks; flows and points have files of their own.

import { drawSparkline, element, part, reconcile, setData, setText, setTip, sparkline } from "./dom.js";
import { ago, duration, errorText, number, progress, rate } from "./format.js";
import { FINISHED, SPAN } from "./history.js";
import { clipped, statusColumn, table, text } from "./table.js";
import { word } from "./words.js";

const tile = (...parts) => element("div", { class: "tile" }, ...parts);

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
        setText(detail, report.hint ? `${report.detail} → ${report.hint}` : report.detail);
        setTip(detail, report.hint ? `${report.detail} → ${report.hint}` : report.detail);
      });
    return parts.length ? "" : word("noHealth");
  },
};

export const throughput = {
  id: "throughput",
  part: "counts",
  make: () => element("div", { class: "tiles" },
    tile(part("figure"), part("label"), sparkline(), part("quiet")), element("dl", { class: "counts" })),
  update(body, snapshot, history) {
    const [main, counts] = body.children;
    const [figure, label, spark, peak] = main.children;
    const rates = history.rates();
    setText(figure, snapshot.counts ? rate(history.currentRate()) : "–");
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
        setText(value, snapshot.counts ? number(known[name] ?? 0) : "–");
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
    text("duration", (row, now) => duration(row.started_at, row.finished_at, now), "number"),
    outcomeColumn,
  ],
});
