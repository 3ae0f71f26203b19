// What every panel has around its body: a heading, a note beside it, and a line for when there is nothing to show or nothing
// is known.

import { element, setData, setText } from "./dom.js";
import { wholeSeconds } from "./format.js";
import { CURRENT } from "./known.js";
import { word } from "./words.js";

/** `{node, update(data, …)}` of a panel; `panel.isHidden(data)` takes all of it off the page. How well its data is known
 * says `panel.knowledge(data)`, or else the part of the snapshot `panel.part`, or that with the name of the panel. */
export function frame(panel, tag = "section", heading = "h2") {
  const title = element(heading, { id: `${panel.id}-title` });
  const note = element("span", { class: "quiet" });
  const empty = element("p", { class: "empty" });
  const body = panel.make();
  const node = element(tag, { "aria-labelledby": title.id, id: panel.id },
    element("div", { class: "head" }, title, note), body, empty);
  const update = (data, ...more) => {
    node.hidden = panel.isHidden?.(data) ?? false;
    if (node.hidden) return;
    setText(title, word(panel.id));
    const reason = panel.update(body, data, ...more) ?? "";
    const { state, age } = (panel.knowledge ? panel.knowledge(data) : data.knowledge?.[panel.part ?? panel.id]) ?? CURRENT;
    const shown = panel.note?.(data) ?? "";
    const told = { current: reason, stale: reason && word("notKnownSince", wholeSeconds(age)), unknown: word("notKnown") }[state];
    setData(node, "known", state);
    setText(note, state === "stale" ? [word("asOf", wholeSeconds(age)), shown].filter(Boolean).join(" · ") : shown);
    setText(empty, told);
    empty.hidden = !told;
  };
  return { node, update };
}
