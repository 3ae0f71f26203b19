// Asking the reader: a question with some fields; something to read; a line that says how a call went.

import { button, element, setData, setText } from "./dom.js";
import { word } from "./words.js";

const SHOWN_MS = 8000;

/** The values of the fields by name after a yes, else null. A field is {name, word, value, isLong?}. */
export function ask(question, { yes = "yes", fields = [], isDangerous = false } = {}) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => {
      const input = element(field.isLong ? "textarea" : "input", { id: `ask-${field.name}`, autocomplete: "off" });
      input.value = field.value ?? "";
      return input;
    });
    const lines = fields.map((field, index) => {
      const label = element("label", { for: inputs[index].id });
      setText(label, word(field.word));
      return element("div", { class: "field" }, label, inputs[index]);
    });
    const text = element("p");
    setText(text, question);
    let answer = null;
    const accept = () => {
      answer = Object.fromEntries(fields.map((field, index) => [field.name, inputs[index].value.trim()]));
      dialog.close();
    };
    const confirm = button(isDangerous ? "danger" : "main", accept);
    const cancel = button("", () => dialog.close());
    setText(confirm, word(yes));
    setText(cancel, word("no"));
    const dialog = element("dialog", {}, text, ...lines, element("div", { class: "buttons" }, confirm, cancel));
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target.tagName === "INPUT") accept();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
    (inputs[0] ?? (isDangerous ? cancel : confirm)).focus();
  });
}

/** Lines to read, until the reader closes them. */
export function show(title, lines) {
  const heading = element("p", { class: "title" });
  const text = element("pre");
  setText(heading, title);
  setText(text, lines.join("\n"));
  const close = button("main", () => dialog.close());
  setText(close, word("close"));
  const dialog = element("dialog", { class: "report" }, heading, text, element("div", { class: "buttons" }, close));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
}

let timer = 0;

/** A line at the foot of the page, read out by screen readers; it leaves by itself. */
export function tell(text, isBad = false) {
  const notice = document.getElementById("notice");
  setText(notice, text);
  setData(notice, "state", isBad ? "bad" : "good");
  notice.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => { notice.hidden = true; }, SHOWN_MS);
}

/** Does it and says how it went; false when it was refused. */
export async function attempt(act, done) {
  try {
    const answer = await act();
    if (done) tell(done(answer));
    return true;
  } catch (error) {
    tell(error.message, true);
    return false;
  }
}
