// The panel of one flow: its cycles, the nodes of one cycle as a graph and as a table, its signals and its logs.

import { cyclePath, post } from "./calls.js";
import { ask, attempt } from "./dialog.js";
import { button, drawn, element, part, reconcile, setData, setText, setTip } from "./dom.js";
import { flowButtons, countsText, whenText } from "./flows.js";
import { choose, FlowWatch, logKey } from "./flow_watch.js";
import { ago, clock, duration, number, progress } from "./format.js";
import { frame } from "./frame.js";
import { drawGraph, MOST_NODES, showStates } from "./graph.js";
import { nodeButtons } from "./node_actions.js";
import { clipped, statusColumn, table, text } from "./table.js";
import { stateWord, word } from "./words.js";

const MOST_ROWS = 1000;
let redraw = () => {};
const watch = new FlowWatch(() => redraw());

const here = (more) => choose({ flow: watch.chosen.flow, cycle: watch.chosen.cycle, ...more });

/** A cell whose button chooses the row. */
const chooser = (heading, label, pick, isChosen) => ({
  word: heading,
  class: "mono",
  cell(td, row) {
    if (!td.firstChild) td.append(button("link", () => pick(td.row)));
    td.row = row;
    setText(td.firstChild, label(row));
    td.firstChild.setAttribute("aria-pressed", String(isChosen(row)));
    setData(td.parentNode, "chosen", String(isChosen(row)));
  },
});

async function stopCycle(row) {
  if (!(await ask(word("askStopCycle", row.cycle), { yes: "stop", isDangerous: true }))) return;
  await attempt(() => post(`${cyclePath(row.flow_id, row.cycle)}/stop`, {}));
}

const runAgain = (row) =>
  attempt(() => post(`flows/${row.flow_id}/cycles`, { again: row.cycle }), (made) => word("cycleStarted", row.flow_id, made.cycle));

const cycleActions = {
  word: "actions",
  class: "actions",
  cell(td, row) {
    td.row = row;
    if (!td.firstChild) {
      td.append(element("div", { class: "buttons" }, button("danger", () => stopCycle(td.row)), button("", () => runAgain(td.row))));
    }
    const [stop, again] = td.firstChild.children;
    setText(stop, word("stop"));
    setText(again, word("again"));
    stop.hidden = row.status !== "running";
    again.hidden = row.status === "running";
  },
};

const cycles = table({
  id: "cycles",
  rows: (view) => view.cycles,
  keyOf: (row) => row.cycle,
  emptyWord: "noCycles",
  columns: [
    chooser("cycle", (row) => row.cycle, (row) => here({ cycle: row.cycle }), (row) => row.cycle === watch.number),
    statusColumn,
    text("trigger", (row) => row.trigger, "wide"),
    text("started", (row, now) => ago(row.start_time, now), "number"),
    text("duration", (row, now) => duration(row.start_time, row.end_time, now), "number"),
    text("nodes", (row) => countsText(row.counts)),
    clipped("outcome", (row) => row.error || (row.stopped_by ? word("stoppedBy", row.stopped_by) : row.reason), "outcome"),
    cycleActions,
  ],
});

const graph = {
  id: "graph",
  isHidden: (view) => !view.nodes.length,
  make: () => element("div", { class: "scroll drawing" }, drawn("svg", { class: "graph", role: "group" })),
  update(body, view) {
    const isTooBig = view.nodes.length > MOST_NODES;
    body.hidden = isTooBig;
    if (isTooBig) return word("tooBig", number(MOST_NODES));
    const svg = body.firstChild;
    svg.setAttribute("aria-label", word("graph"));
    if (body.drawnAs !== view.shape) {
      body.drawnAs = view.shape;
      drawGraph(svg, view.nodes, view.edges, (chosen) => here(chosen));
    }
    showStates(svg, view.states, watch.chosen);
  },
  note: (view) => (view.cycle ? `${word("cycle")} ${view.cycle.cycle} · ${stateWord(view.cycle.status)} · ${countsText(view.cycle.counts)}` : ""),
};

const nodes = table({
  id: "nodes",
  rows: (view) => view.nodes,
  most: MOST_ROWS,
  emptyWord: "noCycles",
  columns: [
    chooser("id", (row) => row.id, (row) => here({ node: row.id }), (row) => row.id === watch.chosen.node),
    clipped("type", (row) => row.type, "wide"),
    statusColumn,
    text("started", (row) => (row.started_at ? clock(Date.parse(row.started_at)) : ""), "wide number"),
    text("duration", (row, now) => duration(row.started_at, row.finished_at, now), "number"),
    text("attempt", (row) => row.attempt || "", "wide number"),
    clipped("workerId", (row) => row.worker_id, "wide mono"),
    {
      word: "outcome",
      class: "clip outcome",
      cell(td, row) {
        const said = row.error_message || progress(row.progress) || row.message || "";
        setText(td, said);
        setTip(td, said.length > 18 ? said : "");
        setData(td, "state", row.status === "failed" ? "error" : "");
      },
    },
    {
      word: "actions",
      class: "actions",
      cell(td, row) {
        if (!td.firstChild) td.append(element("div", { class: "buttons" }));
        nodeButtons(td.firstChild, row, watch, () => watch.want("cycle"));
      },
    },
  ],
});

const why = {
  id: "why",
  isHidden: () => !watch.chosen.node,
  make: () => element("div", { class: "tile" }, part("status"), " ", part("reason"), element("ul")),
  update(body, view) {
    const [status, reason, missing] = body.children;
    body.hidden = !view.why;
    if (!view.why) return word("noCycles");
    setText(status, stateWord(view.why.status));
    setData(status, "state", view.why.status);
    setText(reason, view.why.reason);
    reconcile(missing, view.why.missing, (item) => `${item.from}>${item.input}`, () => element("li"), (line, item) =>
      setText(line, `${item.input} ← ${item.from ?? word("outside")} (${stateWord(item.source_status)})`));
  },
  note: () => watch.chosen.node,
};

const signalsTable = table({
  id: "signals",
  rows: (view) => view.signals,
  keyOf: (row) => [row.id, row.target_node, row.target_handle].join("|"),
  emptyWord: "noSignals",
  columns: [
    text("from", (row) => `${row.source_node}.${row.source_handle}`, "mono"),
    text("to", (row) => (row.target_node ? `${row.target_node}.${row.target_handle}` : "–"), "mono"),
    text("type", (row) => row.type, "wide"),
    clipped("payload", (row) => JSON.stringify(row.payload), "outcome mono"),
    text("created", (row) => clock(Date.parse(row.created_at)), "number"),
  ],
});
const signals = {
  ...signalsTable,
  isHidden: (view) => !watch.chosen.node && !watch.chosen.source,
  note: () => (watch.chosen.source ? `${watch.chosen.source} → ${watch.chosen.target}` : watch.chosen.node),
};

const logs = table({
  id: "logs",
  rows: (view) => view.logs.filter((line) => !watch.chosen.node || line.node_id === watch.chosen.node),
  keyOf: logKey,
  emptyWord: "noLogs",
  columns: [
    text("time", (row) => clock(Date.parse(row.created_at)), "number"),
    {
      word: "level",
      cell(td, row) {
        if (!td.firstChild) td.append(part("status"));
        setText(td.firstChild, row.log_level);
        setData(td.firstChild, "state", row.log_level);
      },
    },
    text("cycle", (row) => row.cycle, "wide number"),
    text("node", (row) => row.node_id ?? row.log_source, "mono"),
    clipped("message", (row) => row.message, "outcome"),
  ],
});

/** What the parts draw: the definition's nodes with the states of the cycle, then nodes that only the cycle has. */
function viewOf(snapshot) {
  const { data } = watch;
  const config = data.flow?.config ?? { nodes: [], edges: [] };
  const states = data.cycle?.nodes ?? {};
  const known = new Set(config.nodes.map((node) => node.id));
  const others = Object.keys(states).filter((id) => !known.has(id)).map((id) => ({ id, type: states[id].type }));
  const all = [...config.nodes, ...others].map((node) => ({ status: "", ...states[node.id], id: node.id, type: node.type }));
  return {
    at: snapshot.at,
    ...data,
    states,
    nodes: all,
    edges: config.edges ?? [],
    shape: `${data.flow?.version} ${others.map((node) => node.id).join()}`,
    cycles: data.cycles ?? [],
    signals: data.signals ?? [],
    logs: data.logs ?? [],
  };
}

const PARTS = [cycles, graph, why, signals, nodes, logs];

export const flow = {
  id: "flow",
  isHidden: () => !watch.chosen.flow,
  make() {
    const bar = element("div", { class: "bar" }, part("mono name"), part("status"), part("quiet when"), part("quiet about"),
      element("div", { class: "buttons", id: "flow-buttons" }), button("", () => here({ cycle: null })), button("", () => choose({})));
    const frames = PARTS.map((each) => frame(each, "div", "h3"));
    const body = element("div", { class: "flow" }, bar, ...frames.map((each) => each.node));
    body.frames = frames;
    return body;
  },
  update(body, snapshot) {
    body.last = snapshot;
    redraw = () => this.show(body);
    watch.tick(snapshot);
    return this.show(body);
  },
  show(body) {
    const view = viewOf(body.last);
    if (body.shown !== watch.chosen.flow) {
      body.shown = watch.chosen.flow;
      body.scrollIntoView({ block: "nearest" });
    }
    const [bar, ...rest] = body.children;
    const [name, status, when, about, buttons, latest, close] = bar.children;
    setText(name, watch.chosen.flow);
    setText(close, word("close"));
    setText(latest, word("latest"));
    latest.hidden = watch.chosen.cycle === null;
    const found = view.flow ?? { status: "", config: {} };
    setText(status, stateWord(found.status));
    setData(status, "state", found.status);
    status.hidden = !view.flow;
    setText(when, whenText(found.config));
    setText(about, found.config.description);
    const names = view.flow ? ["start", "pause", "resume", "drain", "stop", "run", "delete"] : [];
    flowButtons(buttons, names, { id: watch.chosen.flow, status: found.status }, (done) => {
      if (done === "delete") choose({});
      else watch.want("flow", "cycles");
    });
    rest.forEach((node) => { node.hidden = !view.flow; });
    if (view.flow) body.frames.forEach((each) => each.update(view));
    return view.problem || "";
  },
};

watch.look();
