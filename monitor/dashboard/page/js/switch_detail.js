// One switch: its state, how full it is, its tables in words, and whether it holds what it should.

import { copyable } from "./actions.js";
import { get, SLOW } from "./api.js";
import { meter } from "./charts.js";
import { card, h, pill, show, table } from "./dom.js";
import { ago, bytes, clock, number, percent, withUnit } from "./format.js";

const MOST_ROWS = 200;
const READ_AGAIN = [3_000, 6_000, 12_000]; // milliseconds before each further look while they differ
const LEVEL = { up: "good", down: "bad", unknown: "idle" };
const SORTS = {
  "table and priority": null,
  packets: (a, b) => (b.packets ?? 0) - (a.packets ?? 0),
  region: (a, b) => regionOf(a).localeCompare(regionOf(b)),
  partition: (a, b) => (a.partition ?? "").localeCompare(b.partition ?? ""),
};

/** How full a switch is; `share` is null if it does not tell what fits. */
export function useOf(one) {
  if (one?.entries === null || one?.entries === undefined) return null;
  const share = one.table_capacity ? one.fullest_table / one.table_capacity : null;
  const text = `${number(one.entries)} entries` + (share === null ? ""
    : `, ${number(one.fullest_table)} of ${number(one.table_capacity)} in the fullest table (${percent(share)})`);
  return { share, text };
}

export class SwitchDetail {
  /** `figures(id)` gives the newest {entries, …, rate} of a switch, if they are known. */
  constructor(live, id, figures) {
    this.live = live;
    this.id = id;
    this.figures = figures;
    this.state = h("p", { class: "tools" });
    this.body = h("div", null, h("p", { class: "empty" }, "Reading the tables…"));
    const path = `switches/${encodeURIComponent(id)}/flows?source=dp`;
    this.element = card(`Switch ${id}`, this.state,
      h("p", { class: "tools" },
        h("button", { type: "button", class: "quiet", onclick: () => this.#readAnew() }, "Read again"),
        copyable("GET", path, undefined, `dzflow flows ${id} --source dp`)),
      this.body);
    this.differences = new Set(); // of the last reading
    this.again = 0; // how often it was read again by itself
    this.wanted = "";
    this.sort = "table and priority";
  }

  update() {
    const one = this.live.switches.get(this.id) ?? this.live.topology?.switches.find((each) => each.id === this.id);
    if (!one) return show(this.body, h("p", { class: "empty" }, "The network has no switch or host of this name."));
    if (one.state !== this.known) {
      this.known = one.state;
      this.#readAnew();
    }
    const since = this.live.ready?.impaired?.find((each) => each.kind === "switch" && each.id === this.id)?.since;
    const figures = this.figures(this.id), use = useOf(figures);
    const key = JSON.stringify([one, figures, since && ago(since)]);
    if (key === this.shown) return;
    this.shown = key;
    show(this.state, one.label && h("strong", null, one.label), pill(LEVEL[one.state] ?? "idle", one.state),
      one.state !== "up" && h("span", null, one.reason ?? "No southbound process has reported it yet.",
        since && ` Since ${clock(since)}, ${ago(since)}.`),
      one.southbound && h("span", null, `Connected to ${one.southbound}`),
      use && (use.share === null ? h("span", null, use.text) : meter(use.share, use.text)),
      figures && h("span", null, withUnit(figures.rate ?? 0, "flow operations/s")));
  }

  close() {
    clearTimeout(this.timer);
    this.reading = null; // an answer that is on its way is not shown
  }

  #readAnew() {
    this.again = 0;
    this.#read();
  }

  async #read() {
    clearTimeout(this.timer);
    if (this.live.role !== "operator") {
      return show(this.body, h("p", { class: "note" }, "An operator's token shows its tables."));
    }
    const path = `switches/${encodeURIComponent(this.id)}/flows?source=`;
    const reading = this.reading = Promise.allSettled(["cp", "dp"].map((source) => get(`${path}${source}`, { limit: SLOW })));
    const [should, has] = await reading;
    if (reading !== this.reading) return; // it was read again meanwhile
    if (should.status === "rejected") return show(this.body, h("p", { class: "error" }, should.reason.message));
    this.#show(should.value.items, has.status === "fulfilled" ? has.value.items : null, has.reason?.message);
  }

  #show(should, has, problem) {
    const found = compare(should, has ?? should, this.differences);
    this.differences = found.all;
    const { missing, extra } = found;
    const counts = `${number(missing.length)} missing, ${number(extra.length)} too many`;
    const verdict = !has ? pill("warn", "The switch cannot be read; this is what it should hold")
      : found.lasting ? pill("bad", `They differ: ${counts}`)
        : found.all.size ? pill("warn", `Changing: ${counts}`) : pill("good", "control plane and switch agree");
    const pause = found.all.size ? READ_AGAIN[this.again] : undefined;
    const next = pause ? ` It is read again in ${pause / 1000} s.` : " Read it again to see whether this lasts.";
    if (pause) this.#readLater(pause);
    const rows = has ?? should;
    const legs = legCounts(rows);
    const list = h("div");
    const refill = () => this.#list(list, rows);
    const search = h("input", { type: "search", size: "24", placeholder: "price, h2, tree 0", value: this.wanted,
      oninput: () => { this.wanted = search.value; refill(); } });
    const sort = h("select", { onchange: () => { this.sort = sort.value; refill(); } },
      Object.keys(SORTS).map((name) => h("option", { value: name, selected: name === this.sort }, name)));
    refill();
    show(this.body,
      h("p", null, verdict, found.all.size > 0 && h("span", { class: "note" }, next), problem && h("span", { class: "note" }, ` ${problem}`)),
      missing.length > 0 && table("Missing: the switch should hold these, and does not", COLUMNS, missing.slice(0, MOST_ROWS), ""),
      extra.length > 0 && table("Too many: the switch holds these, and should not", COLUMNS, extra.slice(0, MOST_ROWS), ""),
      legs.length > 0 && h("p", null, "Leads to ", legs.map(([name, count], place) => [place > 0 && ", ",
        h("a", { href: `#/network/${encodeURIComponent(name)}` }, name), ` (${number(count)})`]), " by so many entries."),
      h("p", { class: "tools" }, h("label", null, "Find ", search), h("label", null, "Sort by ", sort)),
      list);
  }

  /** Read again in a while; wait on while somebody types in the tables, or nobody sees them. */
  #readLater(pause) {
    this.timer = setTimeout(() => {
      if (document.hidden || this.body.contains(document.activeElement)) return this.#readLater(pause);
      this.again++;
      this.#read();
    }, pause);
  }

  #list(where, rows) {
    const words = this.wanted.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? rows.filter((row) => words.every((word) => textOf(row).includes(word))) : [...rows];
    if (SORTS[this.sort]) found.sort(SORTS[this.sort]);
    const more = found.length > MOST_ROWS;
    show(where,
      table(`Entries of ${this.id}: ${number(found.length)} of ${number(rows.length)}`, COLUMNS, found.slice(0, MOST_ROWS), "No entry matches.", "entries"),
      more && h("p", { class: "note" }, `The first ${MOST_ROWS} are shown; find fewer, or use dzflow flows ${this.id}.`));
  }
}

/** The events that an entry is for, in words. */
export function regionOf(row) {
  if (row.words && row.words !== "true") return row.words;
  if (row.words) return `all events of ${row.space}`;
  return row.region ?? (row.match ? "all events" : "everything else");
}

/** Where an entry sends packets, in words. */
export function waysOf(row) {
  const ways = row.actions.map((action, place) => row.legs[place] ?? action);
  const next = row.goto === null ? "" : `table ${row.goto}`;
  return [ways.join(", "), next].filter(Boolean).join(", then ") || "drop";
}

const COLUMNS = [
  { title: "Table", number: true, value: (row) => row.table },
  { title: "Priority", number: true, value: (row) => row.priority },
  { title: "Space", value: (row) => row.space ?? "" },
  { title: "Events", value: (row) => h("code", { title: row.match ?? "no match: all packets" }, regionOf(row)) },
  { title: "From port", number: true, value: (row) => row.in_port ?? "any" },
  { title: "Tree", number: true, value: (row) => row.tree ?? "any" },
  { title: "Leads to", value: (row) => h("span", { title: row.actions.join(", ") }, waysOf(row)) },
  { title: "Packets", number: true, value: (row) => number(row.packets) },
  { title: "Bytes", number: true, value: (row) => bytes(row.bytes) },
  { title: "Partition", value: (row) => row.partition ?? "" },
];

const textOf = (row) =>
  `${regionOf(row)} ${row.space ?? ""} ${row.partition ?? ""} ${waysOf(row)} tree ${row.tree ?? "any"} ${row.actions.join(" ")}`.toLowerCase();

const keyOf = (flow) => JSON.stringify([flow.table, flow.priority, flow.match, flow.in_port, flow.actions, flow.goto]);

/**
 * How a switch differs from what it should hold. The two are read at different moments, so only a
 * difference that was in the last reading, too, is `lasting`; if there is one, only such are given.
 */
function compare(should, has, before) {
  const wanted = new Set(should.map(keyOf)), held = new Set(has.map(keyOf));
  const missing = should.filter((flow) => !held.has(keyOf(flow)));
  const extra = has.filter((flow) => !wanted.has(keyOf(flow)));
  const names = (flows, kind) => flows.map((flow) => `${kind} ${keyOf(flow)}`);
  const all = new Set([...names(missing, "missing"), ...names(extra, "extra")]);
  const lasting = [...all].some((name) => before.has(name));
  const shown = (flows, kind) => flows.filter((flow) => !lasting || before.has(`${kind} ${keyOf(flow)}`));
  return { all, lasting, missing: shown(missing, "missing"), extra: shown(extra, "extra") };
}

function legCounts(rows) {
  const counts = new Map();
  for (const row of rows) for (const leg of row.legs) if (leg) counts.set(leg, (counts.get(leg) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}
