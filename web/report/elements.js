// Elements made of values. Every string becomes a text node, so nothing that a plan says is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Text with its control and direction marks spelled out, so that a name cannot pretend to be another. */
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

/** An HTML element: h("p", {class: "note", onclick: act}, "text", other). */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** A table: columns are [title, "number" for those aligned to the right]; cells are strings or elements. */
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

/** A word that leads somewhere within the page. */
export function link(text, act) {
  return h("button", { type: "button", class: "link", onclick: act }, h("bdi", {}, text));
}

/** A figure behind a bar as long as its share of the longest one. */
export function bar(share, figure, kind = "") {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return [
    h("span", { class: `bar ${kind}`, "aria-hidden": "true" }, h("span", { style: { width } })),
    h("span", { class: "figure" }, figure),
  ];
}

/** Name and value pairs. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** A figure drawn anew for every width it is given. */
export function resized(draw) {
  const figure = h("figure", {});
  new ResizeObserver(() => figure.clientWidth && figure.replaceChildren(...draw(figure.clientWidth))).observe(figure);
  return figure;
}

/** Colour number k of eight that most eyes tell apart. */
export const tint = (k) => `tint${k % 8}`;
