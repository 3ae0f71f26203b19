// A flow as a drawing: columns by distance from the entry nodes, components one below another. The layout is pure.

import { drawn, setData, setText } from "./dom.js";
import { stateWord } from "./words.js";

export const MOST_NODES = 200;
const BOX = { width: 156, height: 40 };
const STEP = { x: BOX.width + 64, y: BOX.height + 18 };
const MARGIN = 12;
const SINGLES_IN_A_ROW = 5;
const SWEEPS = 4;

/** Edges as neighbours: several handles between two nodes are one line. */
export function pairsOf(edges) {
  const pairs = new Map();
  for (const edge of edges) {
    const key = `${edge.source}>${edge.target}`;
    const pair = pairs.get(key) ?? { key, source: edge.source, target: edge.target, handles: [] };
    pair.handles.push(`${edge.source_handle ?? edge.sourceHandle} → ${edge.target_handle ?? edge.targetHandle}`);
    pairs.set(key, pair);
  }
  return [...pairs.values()];
}

/** Where each node stands: `{places: Map id → {x, y}, width, height}`. What hangs on a loop or an unknown id stands first. */
export function layout(ids, pairs) {
  const known = new Set(ids);
  const after = new Map(ids.map((id) => [id, []]));
  const before = new Map(ids.map((id) => [id, []]));
  for (const { source, target } of pairs) {
    if (!known.has(source) || !known.has(target)) continue;
    after.get(source).push(target);
    before.get(target).push(source);
  }
  const layerOf = layers(ids, after, before);
  const places = new Map();
  let top = MARGIN;
  let width = 0;
  const groups = components(ids, after, before);
  const singles = groups.filter((group) => group.length === 1).flat();
  for (const group of groups.filter((each) => each.length > 1)) {
    const rows = ordered(group, layerOf, after, before);
    const most = Math.max(...rows.map((row) => row.length));
    rows.forEach((row, layer) => row.forEach((id, index) => places.set(id, {
      x: MARGIN + layer * STEP.x, y: top + ((most - row.length) / 2 + index) * STEP.y,
    })));
    top += most * STEP.y;
    width = Math.max(width, rows.length);
  }
  singles.forEach((id, index) => places.set(id, {
    x: MARGIN + (index % SINGLES_IN_A_ROW) * STEP.x, y: top + Math.floor(index / SINGLES_IN_A_ROW) * STEP.y,
  }));
  top += Math.ceil(singles.length / SINGLES_IN_A_ROW) * STEP.y;
  width = Math.max(width, Math.min(singles.length, SINGLES_IN_A_ROW));
  return { places, width: width * STEP.x - (STEP.x - BOX.width) + 2 * MARGIN, height: top - (STEP.y - BOX.height) + MARGIN };
}

function layers(ids, after, before) {
  const layerOf = new Map(ids.map((id) => [id, 0]));
  const open = new Map(ids.map((id) => [id, before.get(id).length]));
  const ready = ids.filter((id) => !open.get(id));
  for (let at = 0; at < ready.length; at += 1) {
    for (const next of after.get(ready[at])) {
      layerOf.set(next, Math.max(layerOf.get(next), layerOf.get(ready[at]) + 1));
      open.set(next, open.get(next) - 1);
      if (!open.get(next)) ready.push(next);
    }
  }
  return layerOf;
}

function components(ids, after, before) {
  const seen = new Set();
  const groups = [];
  for (const id of ids) {
    if (seen.has(id)) continue;
    seen.add(id);
    const group = [id];
    for (let at = 0; at < group.length; at += 1) {
      for (const next of [...after.get(group[at]), ...before.get(group[at])]) {
        if (!seen.has(next)) {
          seen.add(next);
          group.push(next);
        }
      }
    }
    const members = new Set(group);
    groups.push(ids.filter((each) => members.has(each)));
  }
  return groups;
}

/** Nodes by layer, each layer sorted by the mean place of its neighbours: few crossings, the same at every visit. */
function ordered(group, layerOf, after, before) {
  const rows = [];
  for (const id of group) (rows[layerOf.get(id)] ??= []).push(id);
  const filled = rows.filter(Boolean);
  const rank = new Map();
  const note = (row) => row.forEach((id, index) => rank.set(id, index / row.length));
  filled.forEach(note);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    for (const row of isForward ? filled : [...filled].reverse()) {
      const mean = new Map(row.map((id) => {
        const near = (isForward ? before : after).get(id);
        return [id, near.length ? near.reduce((sum, each) => sum + rank.get(each), 0) / near.length : rank.get(id)];
      }));
      row.sort((a, b) => mean.get(a) - mean.get(b));
      note(row);
    }
  }
  return filled;
}

const short = (text) => (text.length > 19 ? `${text.slice(0, 18)}…` : text);

/** Draws into `svg`; `choose({node})` or `choose({source, target})` is called when something is chosen. */
export function drawGraph(svg, nodes, edges, choose) {
  const pairs = pairsOf(edges);
  const { places, width, height } = layout(nodes.map((node) => node.id), pairs);
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, width, height })) svg.setAttribute(name, value);
  const lines = pairs.filter((pair) => places.has(pair.source) && places.has(pair.target))
    .map((pair) => edgeShape(pair, places, choose));
  svg.replaceChildren(...lines, ...nodes.map((node) => nodeShape(node, places.get(node.id), choose)));
  svg.onkeydown = (event) => walk(svg, places, event);
}

function edgeShape(pair, places, choose) {
  const from = places.get(pair.source);
  const to = places.get(pair.target);
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = Math.max(30, (x2 - x1) / 2);
  const d = `M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`;
  const title = drawn("title");
  setText(title, `${pair.source} → ${pair.target}\n${pair.handles.join("\n")}`);
  const shape = drawn("g", { class: "edge" }, title, drawn("path", { class: "hit", d }), drawn("path", { class: "line", d }));
  shape.dataset.source = pair.source;
  shape.dataset.target = pair.target;
  shape.addEventListener("click", () => choose({ source: pair.source, target: pair.target }));
  return shape;
}

function nodeShape(node, place, choose) {
  const title = drawn("title");
  setText(title, `${node.id} (${node.type ?? ""})`);
  const name = drawn("text", { x: 10, y: 17, class: "name" });
  setText(name, short(node.id));
  const shape = drawn("g", { class: "node", transform: `translate(${place.x},${place.y})`, role: "button", tabindex: "-1" },
    title, drawn("rect", { ...BOX, rx: 6 }), name, drawn("text", { x: 10, y: 32, class: "state" }));
  shape.dataset.node = node.id;
  shape.addEventListener("click", () => choose({ node: node.id }));
  shape.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose({ node: node.id });
  });
  return shape;
}

/** States by node id. One node can be reached with Tab, the others from there with the arrow keys. */
export function showStates(svg, states, chosen) {
  let first = null;
  for (const shape of svg.querySelectorAll(".node")) {
    const { node } = shape.dataset;
    const state = states[node]?.status ?? "none";
    setData(shape, "state", state);
    setData(shape, "chosen", String(chosen?.node === node));
    setText(shape.lastChild, stateWord(states[node] ? state : ""));
    shape.setAttribute("aria-label", `${node}: ${stateWord(state)}`);
    if (!first || chosen?.node === node) first = shape;
  }
  if (first && !svg.querySelector(".node:focus")) {
    for (const shape of svg.querySelectorAll(".node")) shape.setAttribute("tabindex", shape === first ? "0" : "-1");
  }
  for (const shape of svg.querySelectorAll(".edge")) {
    const { source, target } = shape.dataset;
    setData(shape, "state", states[source]?.status ?? "none");
    setData(shape, "chosen", String(chosen?.source === source && chosen?.target === target));
  }
}

const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function walk(svg, places, event) {
  const way = WAYS[event.key];
  const here = places.get(event.target.dataset?.node);
  if (!way || !here) return;
  event.preventDefault();
  let best = null;
  let least = Infinity;
  for (const [id, place] of places) {
    const [dx, dy] = [place.x - here.x, place.y - here.y];
    const ahead = dx * way[0] + dy * way[1];
    const aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
    if (ahead > 0 && ahead + 3 * aside < least) [best, least] = [id, ahead + 3 * aside];
  }
  const next = best && [...svg.querySelectorAll(".node")].find((shape) => shape.dataset.node === best);
  if (!next) return;
  event.target.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}
