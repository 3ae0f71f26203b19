// Tables as panels, and the columns that several of them share.

import { element, part, reconcile, setData, setText, setTip } from "./dom.js";
import { number } from "./format.js";
import { stateWord, word } from "./words.js";

const MOST_ROWS = 100;

/** A panel of one table. A column is {word, cell(td, row, now), class?}; `wide` columns leave first on narrow screens.
 * `most` rows are shown; `total(snapshot)` says how many there are where the snapshot holds fewer. */
export function table({ id, columns, rows, keyOf = (row) => row.id, emptyWord, most = MOST_ROWS, total }) {
  return {
    id,
    make() {
      const heads = columns.map((column) => element("th", { scope: "col", class: column.class ?? "" }));
      return element("div", { class: "scroll", tabindex: "0", role: "region" },
        element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody")));
    },
    update(body, snapshot) {
      const all = rows(snapshot) ?? [];
      const shown = all.slice(0, most);
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
      const count = Math.min(rows(snapshot)?.length ?? 0, most);
      const all = total?.(snapshot) ?? count;
      if (!count) return "";
      return all > count ? word("rowsOf", number(count), number(all)) : word("rows", number(count));
    },
  };
}

export const text = (heading, value, name = "") => ({
  word: heading, class: name, cell: (td, row, now) => setText(td, value(row, now)),
});

export const clipped = (heading, value, name = "") => ({
  word: heading,
  class: `clip ${name}`,
  cell(td, row) {
    const content = value(row) ?? "";
    setText(td, content);
    setTip(td, content.length > 18 ? content : "");
  },
});

export const statusColumn = {
  word: "status",
  cell(td, row) {
    if (!td.firstChild) td.append(part("status"));
    setText(td.firstChild, stateWord(row.status));
    setData(td.firstChild, "state", row.status);
  },
};
