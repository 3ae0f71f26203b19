// The channel, model or search that is looked at and the first models: one stream of values for all of them, since a browser
// opens only a few connections to a station. Nothing is asked while the page is hidden.

import { get, pointsUrl } from "./calls.js";
import { CURRENT } from "./known.js";

export const MOST_POINTS = 200;
const MOST_MODELS = 20;
const REREAD_MS = 30000;
const REOPEN_MS = 3000;
const TYPING_MS = 250;

export class PointWatch {
  chosen = { channel: "", model: "" };
  /** What is searched for; then its points are shown instead of those of what is chosen. */
  text = "";
  #total = 0;
  #typing = 0;
  #values = new Map();
  #known = [];
  #readAt = -Infinity;
  #isReading = false;
  #live = null;
  #asked = "";
  #openedAt = -Infinity;
  #changed = () => {};
  #isChosen = false;
  /** Since when values are not known, null while they are. */
  #doubtedAt = null;

  constructor() {
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.#close(); });
  }

  onChange(changed) {
    this.#changed = changed;
  }

  choose(chosen) {
    this.#isChosen = true;
    this.text = "";
    this.#set({ channel: "", model: "", ...chosen });
  }

  /** Once the reader has stopped typing. */
  search(text) {
    this.text = text;
    clearTimeout(this.#typing);
    if (!text) {
      this.#set(this.chosen);
      return;
    }
    this.#typing = setTimeout(() => this.#read(), TYPING_MS);
  }

  /** How many points there are of what is shown. */
  total() {
    return this.text ? this.#total : this.rows().length;
  }

  /** Of the values: nobody can look at the board, or the stream is broken. */
  get knowledge() {
    if (this.#doubtedAt === null) return CURRENT;
    return { state: this.#values.size ? "stale" : "unknown", age: performance.now() - this.#doubtedAt };
  }

  /** Once a second. Without a choice of the reader the first declared channel is shown. */
  tick(snapshot) {
    if (document.hidden) return;
    const channels = (snapshot.channels ?? []).map((channel) => channel.id);
    const models = (snapshot.models ?? []).map((model) => model.name);
    const isGone = this.chosen.channel ? !channels.includes(this.chosen.channel) : !models.includes(this.chosen.model);
    if (isGone && (!this.#isChosen || snapshot.totals.channels <= channels.length)) {
      this.#isChosen = false;
      const first = (snapshot.channels ?? []).find((channel) => channel.state !== "pushed")?.id ?? channels[0];
      this.#set({ channel: first ?? "", model: first ? "" : models[0] ?? "" });
    }
    this.#listen(models.slice(0, MOST_MODELS));
    if ((this.text || this.chosen.channel) && performance.now() - this.#readAt > REREAD_MS) this.#read();
  }

  /** The points of what is chosen: {address, value, ts, quality, unit, name?}; declared ones also without a value. */
  rows() {
    const { channel, model } = this.chosen;
    if (model && !this.text) return this.of(model);
    const prefix = `comsrv:${channel}:`;
    const rows = this.#known.map((point) => {
      const value = this.#values.get(point.address);
      // A stream that began before the station had read a new definition knows no unit.
      return this.#shown({ ...point, ...value, name: point.name, unit: value?.unit || point.unit });
    });
    if (this.text) return rows;
    const listed = new Set(this.#known.map((point) => point.address));
    for (const [address, point] of this.#values) {
      if (channel && address.startsWith(prefix) && !listed.has(address)) rows.push(this.#shown(point));
    }
    return rows;
  }

  /** The measurements of a model. */
  of(model) {
    const prefix = `modsrv:${model}:measurement:`;
    return [...this.#values.values()].filter((point) => point.address.startsWith(prefix)).map((point) => this.#shown(point));
  }

  /** A value that nobody can look at any more is no good one. */
  #shown(point) {
    return this.#doubtedAt === null ? point : { ...point, quality: "unknown" };
  }

  #doubt() {
    this.#doubtedAt ??= performance.now();
    this.#changed();
  }

  #set(chosen) {
    this.chosen = chosen;
    this.#known = [];
    this.#readAt = -Infinity;
    this.#changed();
  }

  #listen(models) {
    const { channel, model } = this.chosen;
    const wanted = new URLSearchParams();
    if (this.text) this.#known.forEach((point) => wanted.append("address", point.address));
    else if (channel) wanted.append("channel", channel);
    for (const name of new Set([...(model ? [model] : []), ...models])) wanted.append("model", name);
    const asked = wanted.toString();
    const isRefused = this.#live?.readyState === EventSource.CLOSED && performance.now() - this.#openedAt > REOPEN_MS;
    if (asked === this.#asked && this.#live && !isRefused) return;
    this.#close();
    this.#asked = asked;
    this.#openedAt = performance.now();
    if (!asked) return;
    this.#live = new EventSource(pointsUrl(asked));
    let isFirst = true;
    this.#live.addEventListener("points", (event) => {
      if (isFirst) this.#values.clear(); // it tells everything anew
      isFirst = false;
      for (const point of JSON.parse(event.data).items) this.#values.set(point.address, point);
      this.#doubtedAt = null;
      this.#changed();
    });
    this.#live.addEventListener("unknown", () => this.#doubt());
    this.#live.addEventListener("error", () => this.#doubt());
    this.#live.addEventListener("open", () => { isFirst = true; });
  }

  #close() {
    this.#live?.close();
    this.#live = null;
  }

  /** What the points are called. */
  async #read() {
    if (this.#isReading) return;
    this.#isReading = true;
    this.#readAt = performance.now();
    const { text, chosen: { channel } } = this;
    const isMeant = () => text === this.text && channel === this.chosen.channel;
    try {
      const { items, total } = text ? await get("points", { search: text, limit: MOST_POINTS })
        : await get(`channels/${channel}/points`, { limit: MOST_POINTS * 5 });
      if (isMeant()) [this.#known, this.#total] = [items, total];
      this.#changed();
    } catch { /* the values say that they are not known; asked again later */ }
    this.#isReading = false;
    if (isMeant()) return;
    this.#readAt = -Infinity;
    if (this.text) this.#read();
  }
}
