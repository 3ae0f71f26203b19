// Numbers and times as people read them. Pure functions.

import { language, word } from "./words.js";

export const number = (value) =>
  Number.isFinite(value) ? value.toLocaleString(language() === "zh" ? "zh-CN" : "en-US") : "–";

export const rate = (value) => (value >= 100 ? number(Math.round(value)) : number(Math.round(value * 10) / 10));

export function span(ms) {
  if (!Number.isFinite(ms)) return "";
  const passed = Math.max(0, ms);
  if (passed < 1000) return `${Math.round(passed)} ms`;
  const seconds = passed / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} m` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export const wholeSeconds = (ms) => (ms < 60000 ? `${Math.floor(Math.max(0, ms) / 1000)} s` : span(ms));

/** The value of a point: as many digits as it has, at most six after the point. */
export function valueText(value) {
  if (!Number.isFinite(value)) return "–";
  return value.toLocaleString(language() === "zh" ? "zh-CN" : "en-US", { maximumFractionDigits: 6 });
}

/** Age seen from the station's own clock: the browser's may be wrong. */
export function ago(iso, now) {
  return iso ? word("ago", wholeSeconds(now - Date.parse(iso))) : "";
}

/** How long until that moment (seconds since the epoch, 0: none). */
export function until(seconds, now) {
  if (!seconds) return "";
  const left = seconds * 1000 - now;
  return left > 0 ? word("inTime", wholeSeconds(left + 999)) : word("now");
}

/** From one ISO time to another, or to now while it lasts. */
export const duration = (from, to, now) => (from ? span((to ? Date.parse(to) : now) - Date.parse(from)) : "");

export const clock = (ms) => new Date(ms).toLocaleTimeString(language() === "zh" ? "zh-CN" : "en-GB");

/** A fraction as percent, anything else as it is. */
export function progress(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return value >= 0 && value <= 1 ? `${Math.round(value * 100)} %` : String(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** First line for the cell and the whole story for its tooltip, of an error that is text or `{type, message, traceback}`. */
export function errorText(error) {
  if (!error) return { short: "", long: "" };
  if (typeof error === "string") return { short: error.split("\n")[0], long: error };
  const short = [error.type, error.message].filter(Boolean).join(": ");
  return { short: short.split("\n")[0], long: error.traceback ? `${short}\n\n${error.traceback}` : short };
}
