// Asking the station: JSON in, JSON out. What it refuses is an Error whose message says why and what to do.

const ROOT = "api/v1/";
const PATIENCE_MS = 15000;
const LONG_MS = 60000;

async function call(method, path, body, patience = PATIENCE_MS) {
  const options = { method, signal: AbortSignal.timeout(patience) };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json" };
  }
  const answer = await fetch(ROOT + path, options);
  const text = await answer.text();
  const value = text ? JSON.parse(text) : null;
  if (answer.ok) return value;
  const { code, message, hint } = value?.error ?? {};
  const refusal = new Error([message ?? `${answer.status} ${answer.statusText}`, hint].filter(Boolean).join(". "));
  refusal.status = answer.status;
  refusal.code = code;
  throw refusal;
}

export function get(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return call("GET", given.length ? `${path}?${new URLSearchParams(given)}` : path);
}

export const post = (path, body) => call("POST", path, body);

/** A delete waits for what runs to end. */
export const remove = (path) => call("DELETE", path, undefined, LONG_MS);

export const liveUrl = (flow) => `${ROOT}flows/${flow}/logs/live`;

export const pointsUrl = (query) => `${ROOT}points/live?${query}`;

export const cyclePath = (flow, cycle) => `flows/${flow}/cycles/${cycle}`;
export const nodePath = (flow, cycle, node) => `${cyclePath(flow, cycle)}/nodes/${node}`;
