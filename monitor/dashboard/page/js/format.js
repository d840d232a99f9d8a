// Numbers and times as people read them.

const COUNT = new Intl.NumberFormat("en");
const SMALL = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** A number; a dash if nothing was measured. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return Math.abs(value) < 100 ? SMALL.format(value) : COUNT.format(Math.round(value));
}

/** A number with its unit. */
export const withUnit = (value, unit) => (number(value) === "–" ? "–" : `${number(value)} ${unit}`);

/** So many of something: "1 hop", "3 hops". */
export const count = (many, word) => `${number(many)} ${word}${many === 1 ? "" : "s"}`;

/** Bytes in binary units. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  let place = 0;
  for (; value >= 1024 && place < units.length - 1; place++) value /= 1024;
  return `${number(value)} ${units[place]}`;
}

/** A share as percent. */
export const percent = (share) =>
  share === null || share === undefined ? "–" : `${number(Math.round(1000 * share) / 10)} %`;

/** A time of day in the viewer's zone; `seconds` since 1970. */
export const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString();

/** A date and time in the viewer's zone; `seconds` since 1970. */
export const moment = (seconds) => new Date(1000 * seconds).toLocaleString();

/** How long ago something was. */
export function ago(seconds, now = Date.now() / 1000) {
  const past = Math.max(0, now - seconds);
  if (past < 90) return `${Math.round(past)} s ago`;
  if (past < 5400) return `${Math.round(past / 60)} min ago`;
  return past < 172800 ? `${Math.round(past / 3600)} h ago` : `${Math.round(past / 86400)} days ago`;
}

/** A filter as text, in any of its three forms. */
export function filterText(filter) {
  if (typeof filter === "string") return filter || "everything";
  const text = JSON.stringify(filter);
  return text === "{}" || text === "[{}]" ? "everything" : text;
}
