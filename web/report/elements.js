// Builders of elements. Every string becomes a text node, so that no text of a plan is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Returns text with its control and direction marks spelled out, so that no name can imitate another. */
export function plain(text) {
  return String(text).replace(
    UNSEEN,
    (mark) => `‹U+${Number(mark.codePointAt(0)).toString(16).toUpperCase().padStart(4, "0")}›`,
  );
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, rule] of Object.entries(value)) element.style.setProperty(key, rule);
    else if (name === "value") element.value = value;
    else
      element.setAttribute(
        name,
        value === true ? "" : name.startsWith("aria-") || name === "title" ? plain(value) : value,
      );
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : plain(child));
  }
  return element;
}

/** Creates an HTML element: h("p", {class: "note", onclick: act}, "text", other). */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Creates an SVG element. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Creates a table. Columns are [title], or [title, "number"] to align right; cells are strings or elements. */
export function table(caption, columns, rows, attributes = {}) {
  const kind = columns.map(([, how]) => how ?? null);
  const scrolls = h(
    "div",
    { class: "scrolls", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      { "aria-label": caption, ...attributes },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map(([title], k) => h("th", { scope: "col", class: kind[k] }, title)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            row.map((cell, k) => h(k ? "td" : "th", { class: kind[k], scope: k ? null : "row" }, cell)),
          ),
        ),
      ),
    ),
  );
  return h("div", {}, h("p", { class: "caption" }, caption), scrolls);
}

/** Creates a button that looks like a link and calls `act`. */
export function link(text, act) {
  return h("button", { type: "button", class: "link", onclick: act }, h("bdi", {}, text));
}

/** Creates a bar whose length is a share of the longest bar, with a figure after it. */
export function bar(share, figure, kind = "") {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return [
    h("span", { class: `bar ${kind}`, "aria-hidden": "true" }, h("span", { style: { width } })),
    h("span", { class: "figure" }, figure),
  ];
}

/** Creates a list of name and value pairs; pairs without a value are left out. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** Creates a figure that is drawn again whenever its width changes. */
export function resized(draw) {
  const figure = h("figure", {});
  new ResizeObserver(() => figure.clientWidth && figure.replaceChildren(...draw(figure.clientWidth))).observe(figure);
  return figure;
}

/** Returns the class of colour k, one of eight that people with colour blindness can tell apart. */
export const tint = (k) => `tint${k % 8}`;
