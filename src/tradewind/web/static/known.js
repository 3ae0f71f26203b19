// What is known, and since when. A part of the page that nobody answers for is shown as unknown with its age, never as empty.
// Knowledge is {state: "current" | "stale" | "unknown", age: ms}.

export const CURRENT = { state: "current", age: 0 };

/** A snapshot as panels read it: rows under the name of their part, `totals` beside them, `knowledge` of each part. */
export function opened(message) {
  const snapshot = { ...message, totals: {}, knowledge: {} };
  const now = Date.parse(message.at);
  for (const [name, part] of Object.entries(message)) {
    if (!part || typeof part !== "object" || !("state" in part) || !("data" in part)) continue;
    snapshot[name] = part.data;
    snapshot.totals[name] = part.total;
    snapshot.knowledge[name] = { state: part.state, age: part.at ? now - Date.parse(part.at) : 0 };
  }
  return snapshot;
}

/** Of answers that a panel asks for by itself: they are old after `limitMs` without another. */
export class Answers {
  #limitMs;
  #at = null;

  constructor(limitMs) {
    this.#limitMs = limitMs;
  }

  came() {
    this.#at = performance.now();
  }

  forget() {
    this.#at = null;
  }

  get knowledge() {
    if (this.#at === null) return { state: "unknown", age: 0 };
    const age = performance.now() - this.#at;
    return age > this.#limitMs ? { state: "stale", age } : CURRENT;
  }
}

/** The less certain of both. */
export function worse(first, second) {
  const rank = { current: 0, stale: 1, unknown: 2 };
  const [a, b] = [first ?? CURRENT, second ?? CURRENT];
  return rank[b.state] > rank[a.state] || (a.state === b.state && b.age > a.age) ? b : a;
}
