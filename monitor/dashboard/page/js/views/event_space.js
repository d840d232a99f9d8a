// Partitions as a map: sized by load, coloured by owner; pick one to move it; proposals beside it.

import { act, copyable, outcome, quoted } from "../actions.js";
import { get } from "../api.js";
import { lines } from "../charts.js";
import { card, h, pill, show, table } from "../dom.js";
import { ago, clock, number, percent } from "../format.js";
import { poll } from "../polling.js";
import { balancerProposal, bringBack, dismiss, dismissed, jobProposals } from "../proposals.js";
import { byOwner, colours, isHot, loads, owners, spaceMap } from "../space_map.js";
import { historyTable } from "../time_line.js";

const READ_EVERY = 1_000; // milliseconds
const ASK_EVERY = 5_000; // milliseconds between questions to the balancer, which looks at minutes of load
const LOOK_EVERY = 1_000; // milliseconds between two looks at a move
const MOST_LOOKS = 60;
const MOST_ROWS = 200;

export class EventSpace {
  constructor(live, picked) {
    this.live = live;
    this.picked = picked;
    this.partitions = null; // until they were read
    this.moves = [];
    this.maps = [];
    this.balancing = null;
    this.asked = -Infinity; // when the balancer was asked
    this.waiting = new Map(); // what a plan waits for, by its id
    this.cards = new Map(); // of proposals and plans, by identity: their buttons stay the same
    this.map = h("div", { class: "drawing" });
    this.legend = h("div");
    this.details = h("div");
    this.proposals = h("div", { class: "view" });
    this.offers = h("div");
    this.plans = h("div", { class: "view" });
    this.rows = h("div");
    this.problem = h("p", { class: "error", role: "status" });
    this.said = outcome();
    this.element = h("div", { class: "view" }, h("h1", null, "Event space"),
      h("p", { class: "note" }, "The area of a partition is its share of the load of the last 10 s, its colour the configurator that owns it. Hot spots, which have more than twice the mean load, are hatched and named."),
      this.problem, this.map, this.legend, this.details, this.said, this.proposals, this.offers, this.plans, this.rows);
    this.stop = poll(() => this.#read(), READ_EVERY);
  }

  close() {
    this.stop();
    this.closed = true;
  }

  update() {
    const load = loads(this.live.load);
    const colour = colours([...this.live.configurators.keys(), ...(this.partitions ?? []).map((one) => one.configurator)]);
    if (!this.partitions) {
      show(this.map, h("p", { class: "empty" }, "Loading…"));
      return;
    }
    const parts = this.partitions.map((one) => ({
      id: one.id, name: one.leaf, owner: one.configurator, load: load.get(one.id) ?? 0, words: one.words, space: one.space,
      note: one.words,
    }));
    const pick = (id) => { location.hash = `#/event-space/${encodeURIComponent(id)}`; };
    show(this.map, spaceMap(`${parts.length} partitions by load`, parts, colour, { picked: this.picked, pick, width: Math.max(300, widthIn(this.map, 1000)) }));
    show(this.legend, owners(colour, byOwner(parts)));
    this.#showDetails(load);
    this.#showProposals(parts, colour, this.#targets().map((one) => one.id));
    this.#showPlans();
    this.#showTable(load, colour);
    for (const [id, { element }] of this.cards) if (!element.isConnected) this.cards.delete(id);
  }

  /** The configurators that can be given partitions. */
  #targets() {
    return [...this.live.configurators.values()].filter((one) => one.state === "up" && !one.leaving);
  }

  // All partitions

  #showTable(load, colour) {
    const newest = new Map((this.live.newest?.partitions ?? []).map((one) => [one.id, one]));
    const all = [...load.values()];
    const columns = [
      { title: "Partition", value: (row) => h("a", { class: "nowrap", href: `#/event-space/${encodeURIComponent(row.id)}` }, row.id) },
      { title: "Space", value: (row) => row.space },
      { title: "Holds", value: (row) => h("span", { class: "words" }, row.words) },
      { title: "Owner", value: (row) => h("span", { class: "nowrap" }, h("i", { class: `key ${colour.get(row.configurator) ?? ""}` }), row.configurator || "nobody") },
      { title: "State", value: (row) => pill(row.state === "ready" ? "good" : "warn", row.reason ?? row.state) },
      { title: "Load", number: true, value: (row) => [isHot(load.get(row.id) ?? 0, all) && pill("warn", "hot spot"), " ", percent(load.get(row.id) ?? 0)] },
      { title: "Queue", number: true, value: (row) => number(row.queued) },
      { title: "Tasks/s", number: true, value: (row) => number(newest.get(row.id)?.done_per_s) },
      { title: "Active", number: true, value: (row) => number(row.active) },
      { title: "Entries", number: true, value: (row) => number(row.entries) },
    ];
    const rows = busiest(this.partitions, load, MOST_ROWS), rest = this.partitions.length - rows.length;
    show(this.rows, card("Partitions", rest > 0 && h("p", { class: "note" },
      `These are the ${MOST_ROWS} busiest of ${number(this.partitions.length)} partitions; dzflow partitions lists all.`),
    table(rest > 0 ? "The busiest partitions" : "All partitions", columns, rows,
      "There are no partitions yet: make a space with PUT /spaces/{name}, or dzflow space put.", "partitions")));
  }

  // One partition

  #showDetails(load) {
    const one = this.partitions.find((each) => each.id === this.picked);
    if (!one) return show(this.details, this.picked && h("p", { class: "note" }, `There is no partition ${this.picked} any more.`));
    const targets = this.#targets().filter((each) => each.id !== one.configurator);
    const offered = [one.id, one.configurator, ...targets.map((each) => each.id)].join(" ");
    if (this.offered !== offered) {
      this.offered = offered;
      this.facts = h("div");
      this.past = h("div");
      show(this.details, card(`Partition ${one.id}`, this.facts, this.#moveForm(one, targets), this.past));
    }
    const move = this.moves.find((each) => each.partition === one.id);
    const samples = this.live.load.map((each) => each.partitions.find((part) => part.id === one.id));
    const times = this.live.load.map((each) => each.at);
    const of = (field, scale = 1) => samples.map((each) => (each ? each[field] * scale : null));
    show(this.facts,
      h("p", null, h("strong", null, one.words || "everything"), ` in space ${one.space}`),
      h("p", { class: "note" }, `Owned by ${one.configurator || "nobody"} (epoch ${one.epoch}), load ${percent(load.get(one.id) ?? 0)}, `,
        `${number(one.active)} active records, ${number(one.entries)} flow entries, ${number(one.queued)} tasks in the queue.`),
      move && h("p", null, pill("warn", "moving"), ` to ${move.target}: ${move.phase}, since ${clock(move.began)}; ${move.reason}`),
      h("div", { class: "grid two" },
        lines("Load: share of time in which it was worked on", "%", times, [{ name: "load", values: of("utilisation", 100) }]),
        lines("Tasks", "/s", times, [{ name: "in", values: of("arrivals_per_s") }, { name: "done", values: of("done_per_s") }])));
    show(this.past, historyTable(`History of ${one.id}, last hour`, this.live.history.filter((each) => each.partition === one.id),
      "Nothing has happened to it in the last hour."));
  }

  #moveForm(one, targets) {
    if (!targets.length) return h("p", { class: "note" }, "There is no other configurator to move it to.");
    const choice = h("select", null, targets.map((each) => h("option", { value: each.id }, each.id)));
    const path = `partitions/${encodeURIComponent(one.id)}/migrate`;
    const copies = h("span");
    const offer = () => show(copies, copyable("POST", path, { to: choice.value }, `dzflow partitions migrate ${quoted(one.id)} --to ${choice.value}`));
    choice.addEventListener("change", offer);
    offer();
    const move = async () => {
      if (await act(this.said, `Move ${one.id} to ${choice.value}`, "POST", path, { to: choice.value })) this.#read();
    };
    return h("p", { class: "tools" }, h("label", null, "Move to ", choice), h("button", { type: "button", onclick: move }, "Move"), copies);
  }

  // Proposals

  #showProposals(parts, colour, names) {
    const hidden = dismissed();
    const found = [balancerProposal(this.balancing?.dry_run, parts, names), ...jobProposals(this.live.job, this.maps, parts, names)].filter(Boolean);
    const shown = found.filter((one) => !hidden.has(one.id));
    const elements = shown.map((one) => {
      const known = this.#card(`proposal ${one.id} ${one.stale}`, () => this.#proposalCard(one));
      const width = Math.max(260, known.maps.clientWidth > 900 ? (known.maps.clientWidth - 64) / 2 : widthIn(known.maps, 500));
      show(known.maps,
        h("div", null, h("h3", null, "Present"), spaceMap(`Present map, ${one.id}`, one.present.map((each) => ({ ...each, note: "" })), colour, { width })),
        h("div", null, h("h3", null, "Proposed"), spaceMap(`Proposed map, ${one.id}`, one.proposed, colour, { width })));
      show(known.figures, figuresOf(one));
      known.apply.disabled = Boolean(this.applying || one.stale);
      return known.element;
    });
    const note = this.balancing?.dry_run.resting ? `The balancer rests: ${this.balancing.dry_run.resting}.`
      : !found.length && "Nothing is proposed now: the balancer finds the load balanced well enough, and the Spark job has no plan.";
    arrange(this.proposals, elements);
    show(this.offers, card("Proposals", h("p", { class: "note" }, note || `${found.length} proposed, ${found.length - shown.length} of them dismissed in this tab. A dismissed proposal stays hidden until the tab is closed, or something else is proposed.`),
      found.length > shown.length && h("button", { type: "button", class: "quiet", onclick: () => { bringBack(); this.update(); } }, "Show dismissed proposals")));
  }

  #proposalCard(one) {
    const maps = h("div", { class: "side-by-side" }), figures = h("div");
    const apply = h("button", { type: "button", onclick: () => this.#apply(one) }, one.by === "job" ? "Apply plan" : "Apply moves");
    const turnDown = h("button", { type: "button", class: "quiet", onclick: () => { dismiss(one.id); this.update(); } }, "Dismiss");
    const copies = one.by === "job" && copyable("POST", "partitions/plan", one.plan, `printf %s ${quoted(JSON.stringify(one.plan))} | dzflow partitions plan /dev/stdin`);
    const copyMove = ({ partition, target }) => copyable("POST", `partitions/${encodeURIComponent(partition)}/migrate`, { to: target },
      `dzflow partitions migrate ${quoted(partition)} --to ${target}`);
    const element = card(one.title,
      one.at && h("p", { class: "note" }, `From the run that ended ${ago(one.at)}.`),
      one.stale && h("p", null, pill("warn", "out of date"), " The map was changed since: this plan can no longer be applied."),
      one.refused && h("p", { class: "error" }, `The service has refused it: ${one.refused}`),
      h("h3", null, "Why"), h("ul", { class: "reasons" }, one.reasons.map((reason, place) => h("li", null, reason, " ", one.moves && copyMove(one.moves[place])))),
      figures, maps, h("p", { class: "tools" }, apply, turnDown, copies));
    element.classList.add("proposal");
    return { element, maps, figures, apply };
  }

  async #apply(one) {
    this.applying = one.id;
    this.update();
    if (one.by === "job") {
      await act(this.said, `Apply the plan for ${one.space}`, "POST", "partitions/plan", one.plan);
    } else {
      for (const [place, move] of one.moves.entries()) {
        const doing = `Move ${place + 1} of ${one.moves.length}: ${move.partition} to ${move.target}`;
        const begun = await act(this.said, doing, "POST", `partitions/${encodeURIComponent(move.partition)}/migrate`, { to: move.target });
        if (!begun || (begun.phase !== "moved" && !await this.#hasMoved(doing, move))) break;
        if (this.closed) break; // nobody would see what happens
      }
    }
    this.applying = null;
    this.asked = -Infinity;
    this.#read();
  }

  /** Whether a move that goes on has ended well; says so if it has not, or not in a minute. */
  async #hasMoved(doing, { partition, target }) {
    const stop = (why) => {
      this.said.className = "outcome error";
      show(this.said, `${doing}: ${why} No further move is begun.`);
      return false;
    };
    show(this.said, `${doing}: in progress. The next move waits until this one has ended…`);
    for (let look = 0; look < MOST_LOOKS; look++) {
      try {
        const found = await get("partitions");
        if (!found.moves.some((one) => one.partition === partition)) {
          const owner = found.items.find((one) => one.id === partition)?.configurator;
          if (owner !== target) return stop(`it has failed; ${owner ? `${owner} owns the partition` : "nobody owns the partition"}.`);
          show(this.said, `${doing}: done.`);
          return true;
        }
      } catch (error) {
        return stop(`it is not known whether it has ended: ${error.message}.`);
      }
      await new Promise((wake) => setTimeout(wake, LOOK_EVERY));
    }
    return stop("it has not ended after a minute.");
  }

  // Plans that are carried out

  #showPlans() {
    arrange(this.plans, [...this.live.plans.values()].map((plan) => {
      const known = this.#card(`plan ${plan.id} ${plan.running}`, () => {
        const progress = h("div");
        const path = `partitions/plan?space=${encodeURIComponent(plan.space)}`;
        const abort = () => act(this.said, `Abort the plan for ${plan.space}`, "DELETE", path);
        const element = card(`Plan for space ${plan.space}`, progress,
          plan.running && h("p", { class: "tools" }, h("button", { type: "button", class: "danger", onclick: abort }, "Abort"),
            copyable("DELETE", path, undefined, `dzflow partitions plan --abort --space ${quoted(plan.space)}`)));
        element.classList.add("plan");
        return { element, progress };
      });
      const steps = plan.steps, done = steps.filter((step) => step.state === "done").length;
      const level = { done: "good", aborted: "bad" }[plan.phase] ?? "warn";
      show(known.progress,
        h("p", null, pill(level, plan.aborting && plan.running ? "aborting" : plan.phase), ` ${done} of ${steps.length} steps, begun at ${clock(plan.began)}. ${plan.text} ${this.waiting.get(plan.id) ?? ""}`),
        h("progress", { max: String(Math.max(1, steps.length)), value: String(steps.length ? done : plan.running ? 0 : 1), "aria-label": `Steps done of the plan for ${plan.space}` }),
        h("ol", { class: "steps" }, steps.slice(0, 50).map((step) => h("li", null,
          pill({ done: "good", settling: "warn", open: "idle" }[step.state], step.state), " ", h("code", null, step.removed.join(", ")), " → ", h("code", null, step.added.join(", "))))),
        steps.length > 50 && h("p", { class: "note" }, `${steps.length - 50} more steps; dzflow partitions plan --show lists all.`),
        plan.reasons.length > 0 && h("ul", { class: "reasons" }, plan.reasons.map((reason) => h("li", null, reason))));
      return known.element;
    }));
  }

  /** The card of something, made once: what has the focus in it keeps it. */
  #card(id, make) {
    if (!this.cards.has(id)) this.cards.set(id, make());
    return this.cards.get(id);
  }

  /** What the balancer proposes: asked now and then, because an answer costs the service some work. */
  async #ask() {
    if (performance.now() < this.asked + ASK_EVERY) return this.balancing;
    this.asked = performance.now();
    return get("balancing");
  }

  async #read() {
    try {
      const running = [...this.live.plans.values()].some((one) => one.running);
      const [partitions, balancing, plans] = await Promise.all([
        get("partitions"), this.#ask(), running ? get("partitions/plan") : { items: [] }]);
      this.partitions = partitions.items;
      this.moves = partitions.moves;
      this.maps = partitions.maps;
      this.balancing = balancing;
      this.waiting = new Map(plans.items.map((one) => [one.id, one.waiting]));
      show(this.problem);
      this.live.dispatchEvent(new Event("change"));
    } catch (error) {
      show(this.problem, `Partitions cannot be read: ${error.message}`);
    }
  }
}

/** The width of what an element holds, within its padding; before it is laid out, the usual one. */
const widthIn = (element, usual) => (element.clientWidth ? element.clientWidth - 18 : usual);

/** The partitions with the most load, in their usual order. */
function busiest(partitions, load, most) {
  if (partitions.length <= most) return partitions;
  const of = (one) => load.get(one.id) ?? 0;
  const kept = new Set([...partitions].sort((a, b) => of(b) - of(a) || b.queued - a.queued).slice(0, most));
  return partitions.filter((one) => kept.has(one));
}

/** Show elements; if they are there already, nothing is touched, so that the focus stays. */
function arrange(where, elements) {
  const same = elements.length === where.children.length && elements.every((one, place) => where.children[place] === one);
  if (!same) where.replaceChildren(...elements);
}

function figuresOf(one) {
  const [before, after] = one.figures.imbalance;
  const names = [...new Set([...one.figures.before.keys(), ...one.figures.after.keys()])].sort();
  const columns = [
    { title: "Configurator", value: (name) => name },
    { title: one.by === "job" ? "Share of work" : "Load now", number: true, value: (name) => percent(one.figures.before.get(name) ?? 0) },
    { title: "Predicted", number: true, value: (name) => percent(one.figures.after.get(name) ?? 0) },
  ];
  return [h("p", null, "The busiest configurator has ", h("strong", null, before === null ? "no load" : `${number(before)} times the mean`),
    " now, and would have ", h("strong", null, after === null ? "no load" : `${number(after)} times the mean`), "."),
  table(`Predicted by the ${one.by === "job" ? "Spark job" : "balancer's moves"}`, columns, names, "There is no configurator.")];
}
