// What the page knows of the service: first read, then kept up to date by the stream.

import { changes, get, Problem, readiness, token } from "./api.js";
import { poll } from "./polling.js";

const HISTORY = 300; // seconds of load
const EVENTS = 3600; // seconds of what happened to workers and partitions
const MOST_EVENTS = 1_000; // that are kept
const READY_EVERY = 1_000; // milliseconds between two looks at /readyz
const RETRY = [500, 1_000, 2_000, 5_000]; // milliseconds before the next try
const ALL = ["space", "network", "proposals", "switch", "configurator", "plan", "job", "history", "load"];
const FOR_HOSTS = ["space", "network"];

export class Live extends EventTarget {
  /** `role` is "operator" or "host" once the service has answered; "none": it asks for a token. */
  role = "";
  host = ""; // the one that the viewer's token is for; "": all
  connected = false;
  problem = "";
  ready = null;
  topology = null;
  spaces = new Map();
  switches = new Map();
  configurators = new Map();
  plans = new Map();
  load = []; // intervals of one second, the oldest first
  proposals = null; // how many hosts were heard that are not in the network, and a version
  job = null; // the scheduled job, if it has ever run
  history = []; // the newest events of the last hour, the oldest first, as one API process tells them

  #stop = new AbortController();
  #due = false;
  #arrived = []; // events that are not in `history` yet

  /** Tell listeners that something has changed, at most once per frame. */
  #changed() {
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      this.#mergeEvents();
      this.dispatchEvent(new Event("change"));
    });
  }

  /** Keep everything up to date until `stop` is called. */
  async run() {
    this.#stop.signal.addEventListener("abort", poll(() => this.#readReadiness(), READY_EVERY));
    for (let failures = 0; !this.#stop.signal.aborted; failures++) {
      try {
        await this.#follow(() => { failures = 0; });
        this.problem = "the stream has ended";
      } catch (error) {
        if (this.#stop.signal.aborted) return;
        if (error instanceof Problem && error.status === 401) {
          this.role = "none";
          this.connected = false;
          this.problem = token() ? error.message : "";
          this.#changed();
          return;
        }
        this.problem = error.message;
      }
      this.connected = false;
      this.#changed();
      await new Promise((wake) => setTimeout(wake, RETRY[Math.min(failures, RETRY.length - 1)]));
    }
  }

  stop() {
    this.#stop.abort();
  }

  /** The owner's load of the newest second, if it is known. */
  get newest() {
    return this.load.at(-1) ?? null;
  }

  async #follow(began) {
    await this.#findRole();
    const operator = this.role === "operator";
    this.topology = await get("topology");
    if (operator) this.load = (await get(`load?since=-${HISTORY}`)).items;
    this.switches.clear();
    this.configurators.clear();
    this.spaces.clear();
    let first = true;
    for await (const change of changes(operator ? ALL : FOR_HOSTS, this.#stop.signal)) {
      this.connected = true;
      this.problem = "";
      began();
      this.#apply(change);
      if (first && operator) this.#readHistory(); // later events come by the stream
      first = false;
      this.#changed();
    }
  }

  async #findRole() {
    const { role, host, lab } = await get("about");
    this.lab = lab;
    this.host = host ?? "";
    this.role = role;
  }

  #apply({ type, data }) {
    switch (type) {
      case "load":
        this.load.push(data);
        while (this.load.length && this.load[0].at < data.at - HISTORY) this.load.shift();
        break;
      case "space":
        if (data.deleted) {
          this.spaces.delete(data.name);
          this.plans.delete(data.name);
        } else {
          this.spaces.set(data.name, data);
        }
        break;
      case "switch":
        this.switches.set(data.id, data);
        break;
      case "configurator":
        this.configurators.set(data.id, data);
        break;
      case "plan":
        this.plans.set(data.space, data);
        break;
      case "proposals":
        this.proposals = data;
        break;
      case "job":
        this.job = data;
        break;
      case "history":
        this.#addEvents([data]);
        break;
      case "network":
        this.trees = data.trees;
        this.#readTopology();
        break;
      case "lagged":
        throw new Problem(0, "the page was too slow for the stream");
    }
  }

  async #readHistory() {
    try {
      for (let since = -EVENTS; since !== null;) {
        const page = await get(`history?since=${since}`);
        this.#addEvents(page.items);
        since = page.next;
      }
    } catch (error) {
      this.problem = error.message;
    }
    this.#changed();
  }

  /** Events are merged once per frame; a hidden page has no frames, so many of them are at once. */
  #addEvents(events) {
    this.#arrived.push(...events);
    if (this.#arrived.length >= MOST_EVENTS) this.#mergeEvents();
  }

  #mergeEvents() {
    if (!this.#arrived.length) return;
    this.history = merged(this.history, this.#arrived, Date.now() / 1000 - EVENTS);
    this.#arrived = [];
  }

  async #readTopology() {
    try {
      this.topology = await get("topology");
      this.#changed();
    } catch (error) {
      this.problem = error.message;
    }
  }

  async #readReadiness() {
    try {
      this.ready = await readiness();
    } catch (error) {
      this.ready = null;
      this.problem = error.message;
    }
    this.#changed();
  }
}

/**
 * The newest events after `oldest`, in their order. Each API process tells of the same things at
 * times of its own, so only those of the process that was heard last are kept. Within a process,
 * each event has a time of its own, so one that comes twice counts once.
 */
export function merged(kept, arrived, oldest) {
  const { process } = arrived.at(-1);
  const fitting = [...kept, ...arrived].filter((one) => one.process === process && one.at > oldest);
  const known = new Map(fitting.map((one) => [one.at, one]));
  return [...known.values()].sort((a, b) => a.at - b.at).slice(-MOST_EVENTS);
}
