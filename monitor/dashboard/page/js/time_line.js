// The history as a time line: a lane for each worker, and the same as a table.

import { h, s, table } from "./dom.js";
import { clock, number } from "./format.js";

const LANE = 34, TOP = 10, BOTTOM = 22, RIGHT = 14, CONTROL = "control plane";
const MOST_MARKS = 300, MOST_ROWS = 200;
const ENDED = new Set(["done", "failed"]);
const CAUSE = { operator: "by hand", balancer: "balancer", draining: "draining", filling: "new configurator", plan: "plan" };

/** What happened, in words. */
export const wording = (event) => `${event.text}${event.seconds === null ? "" : ` (${number(event.seconds)} s)`}` +
  `${event.cause ? `; ${CAUSE[event.cause] ?? event.cause}` : ""}`;

/** A lane for each worker that is known or has events, in the order of their names. */
function lanesOf(events, known) {
  const names = new Set([...known, ...events.flatMap((one) => one.workers)]);
  return [...[...names].sort(), ...(events.some((one) => !one.workers.length) ? [CONTROL] : [])];
}

/** Moves whose end is known are drawn once, at their end. */
function drawn(events) {
  const ends = new Map();
  for (const one of events) if (one.kind === "move" && ENDED.has(one.action)) ends.set(one.partition, one.at);
  return events.filter((one) => !(one.kind === "move" && one.action === "began" && (ends.get(one.partition) ?? 0) > one.at));
}

/** Shapes tell kinds apart, and colours how it went. */
function shape(event, x, y) {
  const level = ["failed", "died", "lost", "aborted"].includes(event.action) ? "bad"
    : event.kind === "take-over" || event.action === "restarted" ? "warn" : "good";
  const at = { class: `mark ${level}` };
  if (event.action === "died" || event.action === "lost") {
    return s("path", { ...at, d: `M${x - 6} ${y - 6}L${x + 6} ${y + 6}M${x + 6} ${y - 6}L${x - 6} ${y + 6}` });
  }
  switch (event.kind) {
    case "move": return s("circle", { ...at, cx: x, cy: y, r: 6 });
    case "take-over": return s("path", { ...at, d: `M${x} ${y - 7}L${x + 7} ${y + 6}L${x - 7} ${y + 6}Z` });
    case "plan": case "job": return s("path", { ...at, d: `M${x} ${y - 7}L${x + 7} ${y}L${x} ${y + 7}L${x - 7} ${y}Z` });
    default: return s("rect", { ...at, x: x - 5, y: y - 5, width: 10, height: 10 });
  }
}

/** The time line of the last `span` seconds, with a note if it does not show all events. */
export function timeLine(events, known, span, width, now = Date.now() / 1000) {
  const all = drawn(events.filter((one) => one.at > now - span)), shown = all.slice(-MOST_MARKS);
  const lanes = lanesOf(shown, known);
  const left = Math.min(150, width * 0.3), height = TOP + LANE * lanes.length + BOTTOM;
  const x = (time) => left + Math.max(0, (time - now + span) / span) * (width - left - RIGHT);
  const y = (name) => TOP + LANE * (lanes.indexOf(name) + 0.5);
  const rows = lanes.map((name) => [
    s("line", { class: "lane", x1: left, x2: width - RIGHT, y1: y(name), y2: y(name) }),
    s("text", { class: "tick", x: left - 10, y: y(name) + 4, "text-anchor": "end" }, name)]);
  const ends = [0, 0.5, 1].map((share) => s("text", {
    class: "tick", x: x(now - span * (1 - share)), y: height - 5, "text-anchor": ["start", "middle", "end"][2 * share],
  }, clock(now - span * (1 - share))));
  const marks = shown.map((one) => {
    const at = one.target && one.workers.includes(one.target) ? one.target : one.workers[0] ?? CONTROL;
    const text = `${clock(one.at)}: ${wording(one)}`;
    const between = one.workers.length > 1 && s("line", { class: `between ${one.kind === "take-over" ? "dashed" : ""}`, x1: x(one.at), x2: x(one.at), y1: y(one.source), y2: y(at) });
    const took = one.seconds !== null && one.action !== "began" && s("line", { class: "took", x1: x(one.at - one.seconds), x2: x(one.at), y1: y(at), y2: y(at) });
    return s("g", { role: "img", "aria-label": text, class: `happened ${one.kind}` }, s("title", null, text), between, took, shape(one, x(one.at), y(at)));
  });
  return [
    s("svg", { viewBox: `0 0 ${width} ${height}`, class: "time-line", role: "group", "aria-label": `Time line of ${shown.length} events on ${lanes.length} lanes` }, rows, ends, marks),
    all.length > shown.length && h("p", { class: "note" }, `The newest ${number(shown.length)} of ${number(all.length)} events are drawn.`),
  ];
}

/** What the marks mean. */
export const marksLegend = () => h("ul", { class: "legend" }, [
  [{ kind: "move", action: "done" }, "move"], [{ kind: "take-over", action: "done" }, "take-over"],
  [{ kind: "configurator", action: "started" }, "started, left, scaled, leads"], [{ kind: "configurator", action: "died" }, "died, lost"],
  [{ kind: "plan", action: "done" }, "plan or job"],
].map(([event, text]) => h("li", null, s("svg", { class: "sample", viewBox: "0 0 16 16", "aria-hidden": "true" }, shape(event, 8, 8)), text)));

/** The newest of them as a table, the newest first; `title` says what they are. */
export function historyTable(title, events, empty) {
  const columns = [
    { title: "Time", value: (row) => h("span", { class: "nowrap" }, clock(row.at)) },
    { title: "What", value: (row) => h("span", { class: "nowrap" }, `${row.kind} ${row.action}`) },
    { title: "Text", value: (row) => h("span", { class: "words" }, row.text) },
    { title: "Seconds", number: true, value: (row) => (row.seconds === null ? "" : `${number(row.seconds)} s`) },
    { title: "Wanted by", value: (row) => CAUSE[row.cause] ?? row.cause },
    { title: "Why", value: (row) => row.reason },
  ];
  const order = events.length > MOST_ROWS
    ? `the newest ${number(MOST_ROWS)} of ${number(events.length)}` : "the newest first";
  return table(`${title}, ${order}`, columns, events.slice(-MOST_ROWS).reverse(), empty, title);
}
