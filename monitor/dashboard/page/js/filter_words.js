// What can follow in a filter that is being typed: attributes, operators, values, and words between
// conditions. Pure; the service alone decides whether a filter is valid.

import { number } from "./format.js";

const MOST = 50; // offers at a time: an enum may have thousands of values
const TOKEN = /("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(["'].*$)|([A-Za-z_]\w*)|([-+]?[\d.][\w.+-]*)|(>=|<=|==|!=|[<>=])|([()[\],])/g;
const KINDS = ["text", "open", "name", "number", "compare", "mark"];
const ORDER = { ">=": "at least", "<=": "at most", ">": "more than", "<": "less than" };
const EQUAL = { "==": "equal to", "!=": "not equal to" };
const RANGE = { between: "low and high", in: "one of a list" };
const NUMERIC = { ...ORDER, ...EQUAL, ...RANGE };
const OPERATORS = {
  int: NUMERIC, float: NUMERIC, time: NUMERIC, enum: { ...EQUAL, in: RANGE.in, ...ORDER },
  string: { ...EQUAL, prefix: "begins with", in: RANGE.in }, bool: EQUAL,
};

/** The values that an attribute can have, in words. */
export function rangeText({ type, min, max, values }) {
  if (type === "bool") return "true or false";
  if (type === "string") return "a text";
  if (type === "enum") return values.length > 6 ? `${number(values.length)} values` : values.join(", ");
  const shown = type === "time" ? (time) => time.replace("T00:00:00Z", "") : number;
  return `${shown(min)} to ${shown(max)}`;
}

/**
 * What can stand at the end of `text`, given the attributes of a space: {from, words}. The words
 * replace the text from place `from` on; each is {text, hint}.
 */
export function completions(text, attributes) {
  const tokens = [...text.matchAll(TOKEN)].map((found) => {
    const place = found.slice(1).findIndex((part) => part !== undefined);
    return { kind: KINDS[place], text: found[0], from: found.index };
  });
  const last = tokens.at(-1);
  const typing = last && (last.kind === "open" || (last.kind !== "mark" && last.kind !== "compare" && !/\s$/.test(text)));
  const begun = typing ? tokens.pop() : { text: "", from: text.length };
  const state = after(tokens, attributes);
  const typed = begun.text.replace(/^["']/, "").toLowerCase();
  const words = offers(state, attributes)
    .filter((word) => word.text.replace(/^"/, "").toLowerCase().startsWith(typed) && word.text !== begun.text);
  return { from: begun.from, words: words.slice(0, MOST) };
}

/** What is wanted after some tokens. */
function after(tokens, attributes) {
  const state = { want: "attribute", attribute: null, list: false, between: false };
  for (const { kind, text } of tokens) {
    const word = kind === "name" ? text.toLowerCase() : text;
    const value = kind === "text" || kind === "number" || word === "true" || word === "false";
    state.want = next(state, kind, word, text, value, attributes);
  }
  return state;
}

function next(state, kind, word, text, value, attributes) {
  switch (state.want) {
    case "attribute":
      if (word === "not" || word === "(") return "attribute";
      state.attribute = attributes.find((one) => one.name === text) ?? null;
      return kind === "name" && state.attribute ? "operator" : "unknown";
    case "operator":
      state.list = word === "in";
      state.between = word === "between";
      if (word === "not") return "operator";
      if (word === "in") return "list";
      return kind === "compare" || word === "between" || word === "prefix" ? "value" : "unknown";
    case "list":
      return word === "[" || word === "(" ? "value" : "unknown";
    case "value":
      if (!value) return "unknown";
      return state.list ? "comma" : state.between ? "second" : "joint";
    case "comma":
      return word === "," ? "value" : word === "]" || word === ")" ? "joint" : "unknown";
    case "second":
      state.between = false;
      return word === "and" ? "value" : "unknown";
    default: // a condition is complete, or is one that is not understood here
      if (word === "and" || word === "or") return "attribute";
      return kind === "compare" && state.want === "joint" ? "value" : word === ")" ? "joint" : state.want;
  }
}

function offers({ want, attribute }, attributes) {
  const list = (words) => Object.entries(words).map(([text, hint]) => ({ text, hint }));
  switch (want) {
    case "attribute":
      return [...attributes.map((one) => ({ text: one.name, hint: `${one.type}: ${rangeText(one)}` })),
        { text: "not", hint: "the opposite" }];
    case "operator":
      return list(OPERATORS[attribute.type] ?? EQUAL);
    case "list":
      return list({ "[": "values between commas" });
    case "value":
      if (attribute.type === "bool") return list({ true: "", false: "" });
      return (attribute.values ?? []).map((value) => ({ text: JSON.stringify(value), hint: "" }));
    case "comma":
      return list({ ",": "another value", "]": "end of the list" });
    case "second":
      return list({ and: "the highest value" });
    case "joint":
      return list({ and: "both conditions", or: "any of the conditions" });
    default:
      return [];
  }
}
