// What a filter would do, for the views that ask: the question, marks for the map, and the switches
// that would change.

import { call } from "./api.js";
import { h, show, table } from "./dom.js";
import { number } from "./format.js";
import { linkName } from "./topology_map.js";

const WAIT = 300; // milliseconds without a change before the filter is explained

/** Has a filter explained a while after its last change; answers to older questions are dropped. */
export class Explainer {
  #asked = 0;
  #timer;
  #question;
  #answered;

  /**
   * `question()` gives the body of the call, or null if there is nothing to ask. `answered` is called
   * with the body and the answer, or with the body, null and the problem.
   */
  constructor(question, answered) {
    this.#question = question;
    this.#answered = answered;
  }

  later() {
    this.stop();
    this.#timer = setTimeout(() => this.#ask(), WAIT);
  }

  /** Ask no more; an answer that is on its way is dropped. */
  stop() {
    this.#asked++;
    clearTimeout(this.#timer);
  }

  async #ask() {
    const body = this.#question(), asked = this.#asked;
    if (!body) return;
    let found = null, problem = null;
    try {
      found = await call("POST", "explain", body);
    } catch (error) {
      problem = error;
    }
    if (asked === this.#asked) this.#answered(body, found, problem);
  }
}

/** Whether the service refuses because the viewer's token is of another host. */
export const isForeign = (problem) => problem.status === 403 && problem.body?.field === "host";

/** What is wrong, in words. */
export const problemText = (problem) =>
  (isForeign(problem) ? `Your token is of another host: ${problem.message}.` : problem.message);

/** Hosts to choose from: all, or the one that the viewer's token is for. */
export const hostChoices = ({ topology, host }) =>
  (topology?.hosts ?? []).filter(({ id }) => !host || id === host).map(({ id }) => [id, id]);

/** Give a list these choices, [value, text] each; whether another one is chosen now. */
export function offer(select, choices) {
  const key = JSON.stringify(choices);
  if (select.dataset.offered === key) return false;
  select.dataset.offered = key;
  const before = select.value;
  show(select, choices.map(([value, text]) => h("option", { value }, text)));
  if (choices.some(([value]) => value === before)) select.value = before;
  return select.value !== before;
}

/** The link at each end, by the switch and the port: `linkAt(links)("s1", 2)` is a name, if there is one. */
export function linkAt(links) {
  const names = new Map(links.flatMap((link) =>
    [[`${link.a} ${link.a_port}`, linkName(link)], [`${link.b} ${link.b_port}`, linkName(link)]]));
  return (id, port) => names.get(`${id} ${port}`);
}

/** Marks for the map: the switches that would change, and the links and hosts that they lead to. */
export function touched(flows, topology) {
  const at = linkAt(topology.links), isHost = new Set(topology.hosts.map((one) => one.id));
  const switches = new Map(), links = new Set(), hosts = new Map();
  for (const { switch: id, flow } of flows) {
    switches.set(id, "changes");
    flow.actions.forEach((action, place) => {
      const link = at(id, action.replace("output:", ""));
      if (link) links.add(link);
      if (isHost.has(flow.legs[place])) hosts.set(flow.legs[place], "used");
    });
  }
  return { switches, links, hosts };
}

/** A table of the switches that flow operations would change. */
export function changesTable(flows) {
  const count = (change) => ([, all]) => number(all.filter((one) => one.change === change).length);
  const columns = [
    { title: "Switch", value: ([id]) => h("a", { href: `#/network/${encodeURIComponent(id)}` }, id) },
    { title: "Adds", number: true, value: count("add") },
    { title: "Changes", number: true, value: count("modify") },
    { title: "Deletes", number: true, value: count("delete") },
    { title: "Leads to", value: ([, all]) => [...new Set(all.flatMap((one) => one.flow.legs.filter(Boolean)))].join(", ") },
  ];
  return table("Switches that would change", columns, [...Map.groupBy(flows, (one) => one.switch)],
    "No switch would change: nobody advertises such events yet, or the entries are there already.");
}
