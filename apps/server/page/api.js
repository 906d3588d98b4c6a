// The server's interface. Every call carries the key, when there is one.
import { recall, remember } from "./dom.js";

// The server answered, and refused.
export class Refused extends Error {
  constructor(status, { message, param, code } = {}, retryAfter = 0) {
    super(message || `The server answered with the code ${status}.`);
    this.status = status;
    this.param = param;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

// The server did not answer.
export class Gone extends Error {}

let key = recall("key");
let pictures = new Map();  // address → promise of an object URL; used with a key only

export const hasKey = () => key !== undefined;

export function setKey(value) {
  key = value;
  remember("key", value);
  pictures = new Map();
}

// Seeds have up to 64 bits, more than a JavaScript number holds: large ones stay text.
function parse(text) {
  return JSON.parse(text, (name, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)
      ? context?.source ?? value : value);
}

export function stringify(request) {
  const { seed, ...rest } = request;
  const text = JSON.stringify(rest);
  return seed === undefined ? text : `${text.slice(0, -1)},"seed":${BigInt(seed)}}`;
}

async function send(method, path, { body, signal, keepalive } = {}) {
  const headers = {};
  if (key !== undefined) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body, signal, keepalive, cache: "no-cache" });
  } catch (error) {
    if (signal?.aborted && signal.reason?.name !== "TimeoutError") throw error;
    throw new Gone("The server does not answer.");
  }
  if (response.ok) return response;
  let details;
  try {
    details = (await response.json()).error;
  } catch { /* something in between answered */ }
  throw new Refused(response.status, details, Number(response.headers.get("Retry-After")) || 0);
}

export async function call(method, path, { request, keepalive } = {}) {
  // A body of pictures may take long to send; an answer to a question may not.
  const options = request === undefined ? { signal: AbortSignal.timeout(20000), keepalive } : { body: stringify(request) };
  const response = await send(method, path, options);
  try {
    const text = await response.text();
    return text === "" ? null : parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) throw new Refused(response.status, { message: "The server’s answer cannot be read." });
    throw new Gone("The server does not answer.");
  }
}

// Follows a job's events until it has ended (returns true) or the connection is lost (false).
// `on` has a function for each kind of event.
export async function follow(id, on, signal) {
  const response = await send("GET", `/jobs/${encodeURIComponent(id)}/events`, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return false;
      const events = (pending + value).split(/\r?\n\r?\n/);
      pending = events.pop();
      for (const event of events) {
        const lines = event.split(/\r?\n/);
        const kind = lines.find((line) => line.startsWith("event:"))?.slice(6).trim();
        const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
        if (kind && data && on[kind]) on[kind](parse(data));
        if (kind === "end") return true;
      }
    }
  } catch (error) {
    if (signal.aborted) throw error;
    return false;
  } finally {
    reader.cancel().catch(() => {});
  }
}

export async function fetchBlob(url) {
  try {
    return await (await send("GET", url)).blob();
  } catch (error) {
    if (error instanceof Refused || error instanceof Gone) throw error;
    throw new Gone("The server does not answer.");
  }
}

// What to put into an image's src: with a key, pictures have to be fetched, since <img> sends none.
export function source(url) {
  if (key === undefined || !url.startsWith("/")) return Promise.resolve(url);
  if (!pictures.has(url)) {
    const made = fetchBlob(url).then((blob) => URL.createObjectURL(blob));
    made.catch(() => pictures.delete(url));
    pictures.set(url, made);
  }
  return pictures.get(url);
}

// Shows a picture when it can be shown at once; what was there stays until then.
export async function show(image, url) {
  if (image.dataset.url === url) return;
  image.dataset.url = url;
  try {
    const address = await source(url);
    const loader = new Image();
    loader.src = address;
    await loader.decode();
    if (image.dataset.url !== url) return;
    image.src = address;
    image.dataset.shown = "";
  } catch {
    if (image.dataset.url === url) delete image.dataset.url;  // tried again with the next news
  }
}

export function forget(job) {
  for (const { url } of job.images ?? []) {
    pictures.get(url)?.then(URL.revokeObjectURL, () => {});
    pictures.delete(url);
  }
}
