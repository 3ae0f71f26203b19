// What every panel has around its body: a heading, a note beside it, and a line for when there is nothing to show.

import { element, setText } from "./dom.js";
import { word } from "./words.js";

/** `{node, update(data, …)}` of a panel; `panel.isHidden(data)` takes all of it off the page. */
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
    setText(note, panel.note?.(data) ?? "");
    setText(empty, reason);
    empty.hidden = !reason;
  };
  return { node, update };
}
