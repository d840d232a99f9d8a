// Actions: call the API, say what came of it, and offer the same as a command for a shell.

import { callWithStatus, SLOW, token } from "./api.js";
import { h, show } from "./dom.js";

/** A word of a shell's command that means exactly this text. */
export const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The call as a command for a shell. */
export function curl(method, path, body) {
  const url = new URL(path, document.baseURI);
  const parts = ["curl", "-X", method, quoted(url.href)];
  if (token()) parts.push("-H", '"Authorization: Bearer $DZFLOW_TOKEN"');
  if (body !== undefined) parts.push("-H", quoted("Content-Type: application/json"), "-d", quoted(JSON.stringify(body)));
  return parts.join(" ");
}

/** Buttons that copy the same action as `curl` and as `dzflow` command. */
export function copyable(method, path, body, command) {
  const copy = (name, text) => h("button", {
    type: "button", class: "quiet", title: text, "data-id": `copy ${name} ${method} ${path}`,
    onclick: async ({ target }) => {
      try {
        await navigator.clipboard.writeText(text);
        target.textContent = "copied";
      } catch {
        target.replaceWith(h("code", null, text)); // no clipboard without HTTPS: copy it by hand
      }
    },
  }, `copy ${name}`);
  return h("span", { class: "copy" }, copy("curl", curl(method, path, body)), command && copy("dzflow", command));
}

/** A place that says how an action went. */
export const outcome = () => h("p", { class: "outcome", role: "status" });

/** A random key; `randomUUID` would need HTTPS. */
const randomKey = () => [...crypto.getRandomValues(new Uint8Array(16))]
  .map((byte) => byte.toString(16).padStart(2, "0")).join("");

/**
 * Call the API and say how it went; returns the answer, or null if it failed. Each POST has an
 * idempotency key, so that a browser that sends it again does nothing twice.
 */
export async function act(where, doing, method, path, body) {
  show(where, `${doing}…`);
  where.className = "outcome";
  try {
    const key = method === "POST" ? randomKey() : undefined;
    const { status, answer } = await callWithStatus(method, path, body, { limit: SLOW, key });
    show(where, `${doing}: ${status === 202 ? "accepted, and in progress" : "done"}.`);
    return answer;
  } catch (error) {
    where.className = "outcome error";
    show(where, `${doing}: ${error.message}`);
    return null;
  }
}
