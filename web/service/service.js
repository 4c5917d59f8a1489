// The service as the page asks it: with the key of this session, and with its problems (RFC 9457) as errors.

const KEY = "shardplan-key";
/** The event that the service asks for a key: without keys it serves this machine and asks for none. */
export const KEY_NEEDED = "key-needed";

/** The API key; it is kept as long as this tab, and nowhere else. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

/** An answer that is an error. */
export class Refused extends Error {
  constructor(problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

/** The response to a request. Throws Refused.
 * @param {string} path
 * @param {{method?: string, headers?: Record<string, string>, body?: BodyInit, signal?: AbortSignal}} [options] */
export async function ask(path, { method = "GET", headers = {}, body, signal } = {}) {
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

/** The JSON of an answer. */
export const asked = async (path, options) => (await ask(path, options)).json();

/** Send a JSON value. */
export const sent = (path, value) =>
  asked(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });

/** A plan's events from the first, again from the last one seen where the stream breaks; ends with the plan. */
export async function* events(plan, signal) {
  let seen = null;
  for (;;) {
    /** @type {Record<string, string>} */
    const headers = { Accept: "text/event-stream" };
    if (seen !== null) headers["Last-Event-ID"] = seen;
    const answer = await ask(`/v1/plans/${plan}/events`, { signal, headers });
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
