"""Requests and events all the time, from the hosts of a network namespace, until the input ends.

Each line of the input is a number; it waits for as many further requests, and answers.

The exit code is 0 only if each request was acknowledged, each subscription is active in the end,
and each event came exactly once. A request may take several attempts: the SDK repeats what was not
answered, as for every caller.
"""

import os
import sys
from contextlib import ExitStack

import msgspec

from dzflow.sdk.rest.rest import Rest
from tests.callers import EventFlow, RequestLoop


def main() -> None:
    """Run, and print in the end how many requests were done, and how long the slowest one took.

    The words are the address of the API and, for requests without events, `requests`; the variable
    DZFLOW_TOKEN is the caller's token.
    """
    url, *words = sys.argv[1:]
    token = os.environ["DZFLOW_TOKEN"]
    with ExitStack() as stack:
        if not words:
            stack.enter_context(EventFlow(url, token))
        requests = stack.enter_context(RequestLoop(url, token))
        requests.wait_for_more(1)
        print("flowing", flush=True)
        for line in sys.stdin:
            requests.wait_for_more(int(line))
            print(requests.done, flush=True)
    with Rest(url, token) as rest:
        states = {id: rest.get(f"/subscriptions/{id}")["state"] for id in requests.kept}
    lost = {id: state for id, state in states.items() if state != "active"}
    assert not lost, lost
    print(msgspec.json.encode({"done": requests.done, "slowest": requests.slowest}).decode())


if __name__ == "__main__":
    main()
