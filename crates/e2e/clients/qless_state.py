"""The state of qless on a server, for comparisons: qless_state.py PORT LIBRARY COMMAND [redis].

fill creates objects of each kind; print prints the answers of all queries as JSON."""

import importlib
import json
import sys

port, name, what = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if len(sys.argv) > 4:
    import on_redis  # noqa: F401
client = importlib.import_module(name).Client(f"redis://127.0.0.1:{port}/4", hostname="me")
queue = client.queues["q"]


def fill():
    data = "{\"a\": [1, {}]}"
    options = {"tags": ["x", "y"], "priority": 2.5, "retries": 3}
    for jid in ("waiting", "running", "complete", "failed", "retried"):
        queue.put("Work", data, jid=jid, **options)
    queue.put("Work", data, jid="scheduled", delay=100_000)
    queue.put("Work", data, jid="depends", depends=["waiting"])
    queue.recur("Work", data, interval=3_600.5, offset=7_200, jid="recurring", tags=["z"])
    client.config["heartbeat"] = 100_000
    client.config["option"] = "value"
    jobs = {job.jid: job for job in queue.pop(5)}
    jobs["complete"].complete()
    jobs["failed"].fail("group", "message")
    jobs["retried"].retry(delay=100_000)
    jobs["waiting"].retry()
    client.track("running")
    client.jobs["running"].tag("more")
    client.queues["paused"].put("Work", data, jid="elsewhere")
    client.queues["paused"].pause()
    if name == "reqless":
        client.throttles["gate"].set_maximum(1)
        gated = client.queues["gated"]
        for jid in ("inside", "outside"):
            gated.put("Work", data, jid=jid, throttles=["gate"])
        gated.pop(2)


def print_state():
    jids = "waiting running complete failed retried scheduled depends elsewhere inside outside".split()
    calls = [["multiget", *jids], ["recur.get", "recurring"], ["queues"], ["workers"], ["workers", "me"], ["failed"]]
    calls += [["failed", "group"], ["tag", "top"], ["tag", "get", "x"], ["track"], ["config.get"]]
    calls += [["jobs", "complete"], ["length", "q"]]
    for state in ("running", "stalled", "scheduled", "depends", "recurring"):
        calls.append(["jobs", state, "q"])
    if name == "reqless":
        calls += [["throttle.get", "gate"], ["throttle.locks", "gate"], ["throttle.pending", "gate"]]
    state = {" ".join(call): client(*call) for call in calls}
    state["stats"] = queue.stats()
    state["next"] = client.jobs["recurring"].next
    state["sets"] = [
        client.redis.zcard(f"ql:q:q-{kind}") for kind in ("locks", "work", "scheduled", "depends", "recur")
    ]
    for key, value in state.items():
        if isinstance(value, str):
            try:
                state[key] = json.loads(value)
            except ValueError:
                pass
    print(json.dumps(state, sort_keys=True))


{"fill": fill, "print": print_state}[what]()
