// A text field for filters: a combobox that offers what can follow, and shows errors at their place.

import { h, show } from "./dom.js";
import { completions } from "./filter_words.js";

export class FilterInput {
  #attributes = () => [];
  #changed;
  #offer = { from: 0, words: [] };
  #active = -1;

  /** `attributes()` are those of the space; `changed()` is called after each change of the text. */
  constructor(attributes, changed) {
    this.#attributes = attributes;
    this.#changed = changed;
    this.list = h("ul", { id: "completions", class: "completions", role: "listbox", "aria-label": "Completions", hidden: true });
    this.input = h("input", {
      name: "filter", size: "50", autocomplete: "off", spellcheck: "false", autocapitalize: "off",
      placeholder: "everything; type to see attributes", role: "combobox", "aria-autocomplete": "list",
      "aria-expanded": "false", "aria-controls": "completions", "aria-describedby": "filter-error",
      oninput: () => { this.#open(); this.#changed(); }, onkeydown: (event) => this.#key(event),
      onclick: () => this.#open(), onblur: () => this.#close(),
    });
    this.error = h("div", { id: "filter-error", class: "filter-error", role: "status" });
    this.element = h("div", { class: "filter-input" },
      h("label", null, "Filter ", this.input), this.list);
  }

  get value() {
    return this.input.value.trim();
  }

  /** Empty the field. */
  clear() {
    this.input.value = "";
    this.#close();
    this.showProblem(null);
  }

  /** Show that the text is fine (null), or what is wrong with it and where. */
  showProblem(problem) {
    this.input.setAttribute("aria-invalid", String(problem !== null));
    if (problem === null) return show(this.error);
    const [message] = problem.message.split("\n");
    const position = problem.body?.position;
    const text = this.input.value, lead = text.length - text.trimStart().length;
    show(this.error, h("p", { class: "error" }, message));
    this.error.classList.toggle("unfinished", position >= [...text.trim()].length);
    if (position === undefined) return;
    // The service counts characters, JavaScript counts units of UTF-16.
    const from = lead + [...text.trimStart()].slice(0, position).join("").length;
    const word = /^(?:\w+|\s*\S)?/.exec(text.slice(from))[0];
    this.error.append(h("p", { class: "place" },
      h("code", null, text.slice(0, from), h("mark", null, word || "…"), text.slice(from + word.length)),
      h("button", { type: "button", class: "quiet", onclick: () => this.#goTo(from, from + word.length) }, "Go to the place")));
  }

  #goTo(from, to) {
    this.input.focus();
    this.input.setSelectionRange(from, to);
  }

  #open() {
    const before = this.input.value.slice(0, this.input.selectionStart);
    this.#offer = completions(before, this.#attributes());
    this.#active = -1;
    if (!this.#offer.words.length) return this.#close();
    show(this.list, this.#offer.words.map((word, place) => h("li", {
      id: `completion-${place}`, role: "option", "aria-selected": "false",
      // Before the field loses the focus, which would close the list.
      onpointerdown: (event) => { event.preventDefault(); this.#take(place); },
    }, h("code", null, word.text), word.hint && h("small", null, word.hint))));
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.input.removeAttribute("aria-activedescendant");
  }

  #close() {
    this.list.hidden = true;
    this.#active = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  #key(event) {
    const count = this.#offer.words.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (this.list.hidden) this.#open();
      if (this.list.hidden) return;
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.#select(this.#active < 0 && step < 0 ? count - 1 : (this.#active + step + count) % count);
    } else if (event.key === "Escape" && !this.list.hidden) {
      event.preventDefault();
      this.#close();
    } else if (event.key === "Enter" && this.#active >= 0) {
      event.preventDefault();
      this.#take(this.#active);
    }
  }

  #select(place) {
    this.#active = place;
    [...this.list.children].forEach((one, at) => one.setAttribute("aria-selected", String(at === place)));
    this.list.children[place].scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", `completion-${place}`);
  }

  #take(place) {
    const cursor = this.input.selectionStart;
    this.input.setRangeText(`${this.#offer.words[place].text} `, this.#offer.from, cursor, "end");
    this.#open();
    this.#changed();
  }
}
