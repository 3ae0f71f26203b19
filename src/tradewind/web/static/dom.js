// Small building stones of the page: elements, tooltips, tables that keep their rows, sparklines.
// Text reaches the page through textContent only, so nothing from the station is ever read as HTML.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const part = (name, tag = "span") => element(tag, { class: name });

export function button(name, act) {
  const made = element("button", { type: "button", class: name });
  made.addEventListener("click", act);
  return made;
}

export function setText(node, text) {
  const wanted = String(text ?? "");
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function setData(node, name, value) {
  if (node.dataset[name] !== value) node.dataset[name] = value;
}

/** Keyed children: makes, updates, orders and removes so that focus and selection survive each refresh. */
export function reconcile(parent, items, keyOf, make, update) {
  const kept = (parent.kept ??= new Map());
  const seen = new Set();
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    if (seen.has(key)) continue;
    seen.add(key);
    let node = kept.get(key);
    if (!node) kept.set(key, (node = make(item)));
    update(node, item);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  for (const [key, node] of kept) {
    if (!seen.has(key)) {
      node.remove();
      kept.delete(key);
    }
  }
}

/** Gives `node` a tooltip that mouse and keyboard reach; empty text takes it away. */
export function setTip(node, text) {
  if ((node.dataset.tip ?? "") === (text ?? "")) return;
  if (text) {
    node.dataset.tip = text;
    node.tabIndex = 0;
  } else {
    delete node.dataset.tip;
    node.removeAttribute("tabindex");
  }
}

export function installTips(tip) {
  let shownFor = null;
  const hide = () => {
    shownFor?.removeAttribute("aria-describedby");
    shownFor = null;
    tip.hidden = true;
  };
  const show = (event) => {
    const target = event.target.closest?.("[data-tip]");
    if (target === shownFor) return;
    hide();
    if (!target) return;
    shownFor = target;
    tip.textContent = target.dataset.tip;
    target.setAttribute("aria-describedby", tip.id);
    tip.hidden = false;
    const box = target.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
    const below = box.bottom + 6;
    const top = below + tip.offsetHeight > innerHeight ? Math.max(8, box.top - tip.offsetHeight - 6) : below;
    tip.style.left = `${left}px`;
    tip.style.top = `${top}px`;
  };
  document.addEventListener("mouseover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
}

const SVG = "http://www.w3.org/2000/svg";

export function drawn(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const WIDTH = 120;
const HEIGHT = 30;

export function sparkline() {
  const frame = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" };
  return drawn("svg", frame, drawn("path", { class: "area" }), drawn("path", { class: "line" }));
}

/** Draws `[time, value]` points over the last `span` ms; a hole of more than `gap` ms stays a hole. */
export function drawSparkline(svg, points, span, gap = 5000) {
  const end = points.length ? points[points.length - 1][0] : 0;
  const top = Math.max(1, ...points.map((point) => point[1]));
  const runs = [];
  let before = -Infinity;
  for (const [time, value] of points) {
    if (time - before > gap) runs.push([]);
    before = time;
    const x = WIDTH - ((end - time) / span) * WIDTH;
    runs[runs.length - 1].push([x.toFixed(1), (HEIGHT - 2 - (value / top) * (HEIGHT - 4)).toFixed(1)]);
  }
  const line = (run) => `M${run.map((point) => point.join(",")).join("L")}`;
  const [area, stroke] = svg.children;
  stroke.setAttribute("d", runs.map((run) => (run.length > 1 ? line(run) : "")).join(""));
  area.setAttribute("d", runs.map((run) =>
    run.length > 1 ? `${line(run)}L${run[run.length - 1][0]},${HEIGHT}L${run[0][0]},${HEIGHT}Z` : "").join(""));
}
