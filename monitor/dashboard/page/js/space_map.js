// Partitions as areas: sized by load, coloured by owner, with hot spots hatched and named.

import { treemap } from "./charts.js";
import { h, s } from "./dom.js";
import { number, percent } from "./format.js";

const HEIGHT = 340;
const SMALLEST = 0.25; // of the mean load: an idle partition can be seen and picked, too
const AVERAGE = 10; // seconds over which the load is averaged, so that areas do not jump
const HOT = 2; // times the mean share
const MOST_CELLS = 512;
const BUSY = 0.05; // below this share of the time, nothing is hot

/** The share of time in which each partition was worked on, over the last seconds. */
export function loads(samples) {
  const recent = samples.slice(-AVERAGE), found = new Map();
  for (const sample of recent) {
    for (const one of sample.partitions) {
      found.set(one.id, (found.get(one.id) ?? 0) + one.utilisation / recent.length);
    }
  }
  return found;
}

/** The colour of each configurator, by its place among all: the same in every map. */
export function colours(names) {
  const sorted = [...new Set(names)].filter(Boolean).sort();
  return new Map(sorted.map((name, place) => [name, `c${place % 8}`]));
}

/** Whether a partition has far more than its share. */
export const isHot = (load, all) => {
  const total = all.reduce((sum, one) => sum + one, 0);
  return all.length > 1 && load > BUSY && load > (HOT * total) / all.length;
};

/** As many parts as can be drawn; those with the least load become one. */
function drawn(ordered) {
  if (ordered.length <= MOST_CELLS) return ordered;
  const rest = ordered.slice(MOST_CELLS - 1), text = `${number(rest.length)} others`;
  const load = rest.reduce((sum, one) => sum + one.load, 0);
  return [...ordered.slice(0, MOST_CELLS - 1), { id: text, name: text, load, note: "those with the least load", merged: true }];
}

/**
 * A map of `parts`: {id, name, owner, load, note, changed}. `pick` is called with the id of one that
 * is clicked; without it, the map is only looked at.
 */
export function spaceMap(label, parts, colour, { picked = "", pick = null, width = 1000 } = {}) {
  if (!parts.length) return h("p", { class: "empty" }, "There are no partitions yet.");
  const all = parts.map((one) => one.load), total = all.reduce((sum, one) => sum + one, 0);
  const floor = total > 0 ? (SMALLEST * total) / parts.length : 1;
  const size = (one) => floor + one.load;
  const ordered = [...parts].sort((a, b) => b.load - a.load || (a.id < b.id ? -1 : 1));
  const hatch = `hatch-${label.replaceAll(/\W+/g, "-")}`;
  const cells = treemap(drawn(ordered), size, 0, 0, width, HEIGHT).map(({ item, x, y, width: w, height: t }) => {
    const hot = !item.merged && isHot(item.load, all);
    const share = total > 0 ? percent(item.load / total) : "0 %";
    const title = `${item.id}${hot ? ", hot spot" : ""}: ${item.merged ? "" : `owner ${item.owner || "nobody"}, `}load ${percent(item.load)}, ` +
      `${share} of all load${item.note ? `, ${item.note}` : ""}`;
    const box = { x: x + 2, y: y + 2, width: Math.max(0, w - 4), height: Math.max(0, t - 4), rx: 5 };
    const fits = Math.floor((w - 20) / 7);
    const lines = [[item.name, "strong"], [`${share} of load`, ""], [hot ? "hot spot" : "", "strong"],
      [item.changed ? item.note : "", "strong"], [item.words ?? "", ""]].filter(([text]) => text);
    const texts = fits < 8 ? [] : lines.slice(0, Math.floor((t - 12) / 16)).map(([text, kind], place) =>
      s("text", { x: x + 11, y: y + 21 + 16 * place, class: kind || null }, text.length > fits ? `${text.slice(0, fits - 1)}…` : text));
    const acting = pick && !item.merged && {
      tabindex: "0", role: "button", "data-id": item.id, "aria-pressed": String(item.id === picked),
      onclick: () => pick(item.id),
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(item.id); } },
    };
    return s("g", {
      class: `cell ${item.id === picked ? "picked" : ""} ${hot ? "hot" : ""} ${item.changed ? "changed" : ""} ${acting ? "" : "still"}`,
      ...(acting || { role: "img" }), "aria-label": title,
    }, s("title", null, title), s("rect", { class: `owner ${colour.get(item.owner) ?? "none"}`, ...box }),
    hot && s("rect", { class: "hatched", fill: `url(#${hatch})`, ...box }), s("rect", { class: "edge", ...box }), texts);
  });
  return s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, class: "space", role: "group", "aria-label": label },
    s("defs", null, s("pattern", { id: hatch, width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("line", { class: "stripe", x1: 0, x2: 0, y1: 0, y2: 8 }))), cells);
}

/** What the colours of a map mean. */
export const owners = (colour, load) => h("ul", { class: "legend" }, [...colour].map(([name, key]) =>
  h("li", null, h("i", { class: `key ${key}` }), `${name} `, h("b", null, percent(load.get(name) ?? 0)))));

/** The load of each owner. */
export function byOwner(parts) {
  const found = new Map();
  for (const one of parts) if (one.owner) found.set(one.owner, (found.get(one.owner) ?? 0) + one.load);
  return found;
}
