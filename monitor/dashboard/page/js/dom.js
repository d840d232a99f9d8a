// Elements without markup: strings always become text, so nothing that a user has written can run.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** An HTML element: `h("p", {class: "note"}, "text", another)`. */
export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const s = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/** Replace all that an element holds. */
export function show(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

/**
 * A table; `columns` are {title, value, number?, unit?}, where `value` makes a cell of a row. By its
 * `id`, it keeps its place and the focus when it is drawn again: give one if the caption changes.
 */
export function table(caption, columns, rows, empty, id = caption) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = columns.map((column) =>
    h("th", { scope: "col", class: column.number && "number" }, column.title));
  const body = rows.map((row) =>
    h("tr", null, columns.map((column) =>
      h("td", { class: column.number && "number" }, column.value(row)))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption, "data-id": id },
    h("table", null, h("caption", null, caption),
      h("thead", null, h("tr", null, head)), h("tbody", null, body)));
}

/** A card with a heading. */
export const card = (title, ...children) =>
  h("section", { class: "card" }, h("h2", null, title), children);

/** A state in words and colour: `good`, `warn`, `bad` or `idle`. */
export const pill = (level, text) => h("span", { class: `pill ${level}` }, text);
