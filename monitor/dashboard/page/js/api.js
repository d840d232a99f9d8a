// Calls to the REST API with the viewer's token, and the live stream, read by fetch: an EventSource
// could not send a token.

const KEY = "dzflow-token";
const TIMEOUT = 15_000; // milliseconds for a call
export const SLOW = 60_000; // the same, for calls that wait for all switches or read many records
const SILENCE = 45_000; // milliseconds; the service sends keep-alives every 15 s on its streams

/** An answer that is not the one hoped for; `status` 0: the service cannot be reached. */
export class Problem extends Error {
  constructor(status, detail, body) {
    super(detail);
    this.status = status;
    this.body = body;
  }
}

export const token = () => sessionStorage.getItem(KEY) ?? "";

export function setToken(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

const headers = () => (token() ? { Authorization: `Bearer ${token()}` } : {});

async function problemOf(response) {
  const body = await response.json().catch(() => null);
  return new Problem(response.status, body?.detail ?? `the service answered ${response.status}`, body);
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Problem) throw error;
    throw new Problem(0, "the service does not answer");
  }
}

/**
 * Call the API; returns {status, answer} with the decoded answer. `limit` is in milliseconds; `key`
 * is an idempotency key, which makes a POST safe to repeat.
 */
export async function callWithStatus(method, path, body, { limit = TIMEOUT, key } = {}) {
  const response = await send(path, {
    method,
    headers: {
      ...headers(),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...(key ? { "Idempotency-Key": key } : {}),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(limit),
  });
  if (!response.ok) throw await problemOf(response);
  return { status: response.status, answer: await response.json() };
}

/** Call the API; returns the decoded answer. */
export const call = async (method, path, body, options) =>
  (await callWithStatus(method, path, body, options)).answer;

export const get = (path, options) => call("GET", path, undefined, options);

/** Whether the service is ready, and what is impaired: 503 is an answer, too. */
export async function readiness() {
  try {
    return await get("readyz");
  } catch (error) {
    if (error.status === 503 && error.body?.status) return error.body;
    throw error;
  }
}

/** Records, page by page, up to a number. */
export async function records(path, most = 1000) {
  const items = [];
  let after = "";
  while (items.length < most) {
    const joined = path.includes("?") ? "&" : "?";
    const page = await get(`${path}${joined}limit=1000${after && `&after=${encodeURIComponent(after)}`}`);
    items.push(...page.items);
    if (!page.next) break;
    after = page.next;
  }
  return items;
}

/**
 * The changes that the service tells, until `signal` ends them or the stream breaks; a stream on which
 * not even keep-alives come is broken. With `most`, at most so many changes of records come per second,
 * and `skipped` says how many did not.
 */
export async function* changes(types, signal, most) {
  const path = `stream?types=${types.join(",")}${most ? `&most=${most}` : ""}`;
  const end = new AbortController();
  const heard = async (coming) => {
    const timer = setTimeout(() => end.abort(new Problem(0, "the stream is silent")), SILENCE);
    return coming.finally(() => clearTimeout(timer));
  };
  try {
    const asked = send(path, { headers: headers(), signal: AbortSignal.any([signal, end.signal]) });
    const response = await heard(asked);
    if (!response.ok) throw await problemOf(response);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await heard(reader.read());
      if (done) return;
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const change = parse(block);
        if (change) yield change;
      }
    }
  } finally {
    end.abort(); // also when the caller stops listening: the service may have the connection back
  }
}

function parse(block) {
  let type = "", data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) type = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return type ? { type, data: JSON.parse(data) } : null;
}
