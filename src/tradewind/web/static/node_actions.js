// What a reader may do with a node of a running cycle: decide, give it the signal that it waits for, terminate it.

import { get, nodePath, post } from "./calls.js";
import { ask, attempt, tell } from "./dialog.js";
import { button, reconcile, setText } from "./dom.js";
import { storedName, storeName } from "./reader.js";
import { word } from "./words.js";

async function decide(path, node, approved) {
  const fields = [{ name: "by", word: "yourName", value: storedName() }, { name: "note", word: "decisionNote" }];
  const name = approved ? "approve" : "reject";
  const given = await ask(word(approved ? "askApprove" : "askReject", node), { yes: name, fields, isDangerous: !approved });
  if (!given) return false;
  storeName(given.by);
  return attempt(() => post(`${path}/input`, { handle: "decision", value: { approved, ...given } }), () => `${node}: ${word("given")}`);
}

async function give(path, node) {
  const { missing } = await get(`${path}/why`);
  const handle = missing.find((item) => item.from === null)?.input ?? "";
  const fields = [{ name: "handle", word: "handle", value: handle }, { name: "value", word: "jsonValue", isLong: true }];
  const given = await ask(word("askInput", node), { yes: "give", fields });
  if (!given) return false;
  let value;
  try {
    value = JSON.parse(given.value);
  } catch {
    tell(word("badJson"), true);
    return false;
  }
  return attempt(() => post(`${path}/input`, { handle: given.handle, value }), () => `${node}: ${word("given")}`);
}

async function terminate(path, node) {
  if (!(await ask(word("askTerminate", node), { yes: "terminate", isDangerous: true }))) return false;
  return attempt(() => post(`${path}/terminate`, {}), () => `${node}: ${word("askedToStop")}`);
}

const ACTIONS = {
  approve: { fits: (node) => node.status === "awaiting_input" && node.type === "approval", act: (path, id) => decide(path, id, true) },
  reject: { fits: (node) => node.status === "awaiting_input" && node.type === "approval", act: (path, id) => decide(path, id, false) },
  give: { fits: (node) => node.status === "awaiting_input" && node.type !== "approval", act: give },
  terminate: { fits: (node) => ["pending", "running", "awaiting_input"].includes(node.status), act: terminate },
};

/** The buttons of a node of the cycle that `watch` shows; `done()` is called after a change. */
export function nodeButtons(parent, node, watch, done) {
  const fitting = Object.keys(ACTIONS).filter((name) => ACTIONS[name].fits(node));
  reconcile(parent, fitting, (name) => name,
    (name) => button(name === "terminate" ? "danger" : "", async () => {
      const path = nodePath(watch.chosen.flow, watch.number, node.id);
      if (await ACTIONS[name].act(path, node.id)) done();
    }),
    (made, name) => {
      setText(made, word(name));
      made.setAttribute("aria-label", `${word(name)} ${node.id}`);
    });
}
