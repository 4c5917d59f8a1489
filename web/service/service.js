// Requests to the service: with the API key of this session, and with its problems (RFC 9457) as errors.

const KEY = "shardplan-key";
/** The event of a response that requires a key. A service without keys serves its own machine and requires none. */
export const KEY_NEEDED = "key-needed";

/** The API key; it is stored only in this tab's session. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

/** An error response of the service. */
export class Refused extends Error {
  constructor(problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

/** Sends a request and returns the response. Throws Refused.
 * @param {string} path
 * @param {{method?: string, headers?: Record<string, string>, body?: BodyInit, signal?: AbortSignal}} [options] */
export async function send(path, { method = "GET", headers = {}, body, signal } = {}) {
  /** @type {Record<string, string>} */
  const given = key.get() ? { Authorization: `Bearer ${key.get()}` } : {};
  const answer = await fetch(path, {
    method,
    headers: { Accept: "application/json", ...given, ...headers },
    body,
    signal,
  }).catch((error) => {
    throw error.name === "AbortError"
      ? error
      : new Refused({ title: "No response", detail: "the service does not respond", status: 0 });
  });
  if (answer.ok) return answer;
  if (answer.status === 401) dispatchEvent(new Event(KEY_NEEDED));
  const plain = { title: answer.statusText, detail: `${method} ${path}: ${answer.status}`, status: answer.status };
  throw new Refused(await answer.json().catch(() => plain));
}

/** Sends a request and returns the JSON of the response. Throws Refused. */
export const fetchJson = async (path, options) => (await send(path, options)).json();

/** Yields the events of a path from the first to `done`. Where a stream breaks, it is opened again after the last event. */
export async function* events(path, signal) {
  let seen = null;
  for (;;) {
    /** @type {Record<string, string>} */
    const headers = { Accept: "text/event-stream" };
    if (seen !== null) headers["Last-Event-ID"] = seen;
    const answer = await send(path, { signal, headers });
    if (answer.status === 204) return;
    let text = "";
    for await (const piece of pieces(answer.body)) {
      const blocks = (text + piece).split("\n\n");
      text = blocks.pop() ?? "";
      for (const block of blocks) {
        const fields = Object.fromEntries(block.split("\n").map((each) => each.split(/: (.*)/s).slice(0, 2)));
        if (!fields.data) continue;
        seen = fields.id;
        yield { kind: fields.event, ...JSON.parse(fields.data) };
        if (fields.event === "done") return;
      }
    }
    await new Promise((go) => {
      setTimeout(go, 1000);
    });
  }
}

async function* pieces(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let got = await reader.read(); !got.done; got = await reader.read()) yield got.value;
  } catch (error) {
    if (error.name === "AbortError") throw error;
  } finally {
    reader.cancel().catch(() => {});
  }
}
