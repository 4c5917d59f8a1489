// The state of a view, kept in the address after "?" of the fragment, so that a link or a reload shows the same view.

/** Returns the fragment's path ("/plans/…" on the service, "" in a file) and the state of the view. */
export function readAddress() {
  const [path, state = ""] = location.hash.slice(1).split("?");
  return { path, state: new URLSearchParams(state) };
}

/** Sets the values of one key of the state; no values remove the key. The browser's history gets no entry.
 * @param {string} key
 * @param {string[]} values */
export function keepInAddress(key, values) {
  const { path, state } = readAddress();
  state.delete(key);
  for (const value of values) state.append(key, value);
  const text = String(state).replaceAll("%2F", "/").replaceAll("%3A", ":");
  history.replaceState(null, "", `#${path}${text ? `?${text}` : ""}`);
}
