// Which alarms are looked at. All open ones come with the snapshot; a choice of the reader is asked for, and so is whether
// there is a flood. Nothing is asked while the page is hidden, or of a station whose snapshots have no alarms.

import { get } from "./calls.js";
import { Answers, worse } from "./known.js";

export const MOST_ALARMS = 100;
const REREAD_MS = 2000;
const OLD_MS = 8000;

export class AlarmWatch {
  chosen = { level: "", status: "" };
  /** {is_flood, flood_since_ms, recent, …} of the station, null until it has said so. */
  figures = null;
  #found = [];
  #answers = new Answers(OLD_MS);
  #readAt = -Infinity;
  #isReading = false;
  #changed = () => {};

  onChange(changed) {
    this.#changed = changed;
  }

  get isChosen() {
    return Boolean(this.chosen.level || this.chosen.status);
  }

  choose(chosen) {
    this.chosen = { ...this.chosen, ...chosen };
    this.#found = [];
    this.#answers.forget();
    this.again();
  }

  rows(snapshot) {
    return this.isChosen ? this.#found : snapshot.alarms ?? [];
  }

  total(snapshot) {
    return this.isChosen ? this.#found.length : snapshot.totals.alarms;
  }

  knowledge(snapshot) {
    const ofAll = snapshot.knowledge.alarms;
    return this.isChosen ? worse(this.#answers.knowledge, { ...ofAll, age: 0 }) : ofAll;
  }

  tick(snapshot) {
    if (document.hidden || !snapshot.knowledge.alarms || performance.now() - this.#readAt < REREAD_MS) return;
    this.#read();
  }

  /** Asks now, since something was changed. */
  again() {
    this.#readAt = -Infinity;
    this.#read();
  }

  async #read() {
    if (this.#isReading) return;
    this.#isReading = true;
    this.#readAt = performance.now();
    const { chosen } = this;
    try {
      const [page, figures] = await Promise.all([
        this.isChosen ? get("alarms", { ...chosen, status: chosen.status || "open", limit: MOST_ALARMS }) : { items: [] },
        get("alarms/statistics", { talkers: 1 }),
      ]);
      this.figures = figures;
      if (chosen === this.chosen) {
        this.#found = page.items;
        this.#answers.came();
      }
      this.#changed();
    } catch { /* `knowledge` says that there was no answer; asked again later */ }
    this.#isReading = false;
    if (chosen !== this.chosen) this.#read();
  }
}
