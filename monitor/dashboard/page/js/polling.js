// Reads something again and again, one read at a time.

/**
 * Await `read()`, wait `every` milliseconds, and begin again; reads nothing while the page is hidden.
 * `read` handles its own errors. Returns a function that stops it.
 */
export function poll(read, every) {
  let stopped = false, timer = 0;
  const turn = async () => {
    try {
      if (!document.hidden) await read();
    } finally {
      if (!stopped) timer = setTimeout(turn, every);
    }
  };
  turn();
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}
