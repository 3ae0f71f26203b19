// The last two minutes, kept in the browser: queue lengths and how many tasks had finished.

export const SPAN = 120000;
const SMOOTHING = 3000;
export const FINISHED = ["SUCCESS", "FAILED", "CANCELLED", "TIMEOUT", "DEAD"];

export class History {
  #samples = [];

  add(snapshot) {
    const time = Date.parse(snapshot.at);
    if (!Number.isFinite(time)) return;
    const last = this.#samples[this.#samples.length - 1];
    if (last && time < last.time) this.#samples = []; // the station's clock was set back: old times mean nothing now
    if (last && time === last.time) return;
    if (!["queues", "counts"].every((part) => snapshot.knowledge[part]?.state === "current")) return; // not known is not zero
    this.#samples.push({
      time,
      lengths: Object.fromEntries((snapshot.queues ?? []).map((queue) => [queue.name, queue.length])),
      finished: FINISHED.reduce((sum, name) => sum + (snapshot.counts?.[name] ?? 0), 0),
    });
    while (this.#samples[0].time < time - SPAN) this.#samples.shift();
  }

  queue(name) {
    return this.#samples.filter((sample) => name in sample.lengths).map((sample) => [sample.time, sample.lengths[name]]);
  }

  /** Finished tasks per second between neighbouring samples; a counter that went back counts as a fresh start. */
  rates() {
    return this.#samples.slice(1).map((sample, index) => [sample.time, perSecond(this.#samples[index], sample)]);
  }

  currentRate() {
    const last = this.#samples[this.#samples.length - 1];
    const from = this.#samples.find((sample) => sample.time >= last.time - SMOOTHING);
    return from && from !== last ? perSecond(from, last) : 0;
  }
}

const perSecond = (from, to) => Math.max(0, (to.finished - from.finished) / ((to.time - from.time) / 1000));
