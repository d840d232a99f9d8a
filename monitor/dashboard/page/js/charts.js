// Charts as SVG: no library is needed for lines, and the page stays small.

import { h, s } from "./dom.js";
import { clock, number } from "./format.js";

const WIDTH = 480, HEIGHT = 150, LEFT = 44, BOTTOM = 20, TOP = 8, RIGHT = 8;

/** A round number that is not below the largest value. */
export function niceTop(largest) {
  if (!(largest > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(largest));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= largest);
}

/**
 * Lines over time. `series` are {name, values} with one value per element of `times` (seconds since
 * 1970); null values leave a gap. The last values stand in the legend, with their unit.
 */
export function lines(title, unit, times, series) {
  const legend = h("ul", { class: "legend" }, series.map((one, place) =>
    h("li", null, h("i", { class: `key c${place}` }), `${one.name} `,
      h("b", null, lastOf(one.values)), ` ${unit}`)));
  if (times.length < 2) {
    return h("figure", { class: "chart" }, h("figcaption", null, title),
      h("p", { class: "empty" }, "No measurements yet."));
  }
  const top = niceTop(Math.max(0, ...series.flatMap((one) => one.values.filter(Number.isFinite))));
  const from = times[0], span = times.at(-1) - from || 1;
  const x = (time) => LEFT + ((time - from) / span) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const grid = [0, 0.5, 1].map((share) => [
    s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(share * top), y2: y(share * top) }),
    s("text", { class: "tick", x: LEFT - 6, y: y(share * top) + 4, "text-anchor": "end" },
      number(share * top)),
  ]);
  const ends = [[times[0], "start"], [times.at(-1), "end"]].map(([time, anchor]) =>
    s("text", { class: "tick", x: x(time), y: HEIGHT - 4, "text-anchor": anchor }, clock(time)));
  const paths = series.map((one, place) =>
    s("path", { class: `line s${place}`, d: path(times, one.values, x, y) }));
  const described = series.map((one) => `${one.name} ${lastOf(one.values)} ${unit}`).join(", ");
  return h("figure", { class: "chart" }, h("figcaption", null, title),
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${described}` },
      grid, ends, paths),
    legend);
}

function path(times, values, x, y) {
  let drawing = false, found = "";
  times.forEach((time, place) => {
    const value = values[place];
    if (!Number.isFinite(value)) {
      drawing = false;
      return;
    }
    found += `${drawing ? "L" : "M"}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
    drawing = true;
  });
  return found;
}

const lastOf = (values) => number(values.findLast(Number.isFinite) ?? null);

/** A bar that shows a share of one. */
export function meter(share, text) {
  const bar = h("i", { class: `fill ${share > 0.9 ? "bad" : share > 0.7 ? "warn" : ""}` });
  bar.style.width = `${100 * Math.min(1, Math.max(0, share || 0))}%`;
  return h("span", { class: "meter" }, h("span", { class: "track" }, bar), text);
}

/**
 * A treemap: areas in proportion to `size`. Gives [{item, x, y, width, height}] within a rectangle,
 * by cutting the ordered items into two halves of about the same size again and again.
 */
export function treemap(items, size, x, y, width, height) {
  if (!items.length) return [];
  if (items.length === 1) return [{ item: items[0], x, y, width, height }];
  const total = items.reduce((sum, item) => sum + size(item), 0);
  let cut = 0, first = 0;
  do first += size(items[cut++]); while (cut < items.length - 1 && first + size(items[cut]) / 2 < total / 2);
  const share = first / total;
  const [one, other] = [items.slice(0, cut), items.slice(cut)];
  return width >= height
    ? [...treemap(one, size, x, y, width * share, height),
       ...treemap(other, size, x + width * share, y, width * (1 - share), height)]
    : [...treemap(one, size, x, y, width, height * share),
       ...treemap(other, size, x, y + height * share, width, height * (1 - share))];
}
