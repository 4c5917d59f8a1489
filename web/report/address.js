// The state of a view in the address: what stands after "?" in the fragment, so that a link or a reload shows the same.

/** The fragment's path ("/plans/…" on the service, nothing in a file), and the state of what is shown there. */
export function readAddress() {
  const [path, state = ""] = location.hash.slice(1).split("?");
  return { path, state: new URLSearchParams(state) };
}

/** Writes the values of one key of the state, no values to remove it. Adds nothing to the browser's history.
 * @param {string} key
 * @param {string[]} values */
export function keepInAddress(key, values) {
  const { path, state } = readAddress();
  state.delete(key);
  for (const value of values) state.append(key, value);
  const text = String(state).replaceAll("%2F", "/").replaceAll("%3A", ":");
  history.replaceState(null, "", `#${path}${text ? `?${text}` : ""}`);
}
