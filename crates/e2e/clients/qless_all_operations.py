"""Runs every operation of a qless client: qless_all_operations.py PORT LIBRARY PROTOCOL. Exits with 0 if all results are
right.

LIBRARY is qless or reqless, which have the same interface; PROTOCOL is 2 or 3."""

import importlib
import json
import sys
import time

port, name, protocol = int(sys.argv[1]), sys.argv[2], sys.argv[3]
library = importlib.import_module(name)
exceptions = importlib.import_module(name + ".exceptions")
Refused = getattr(exceptions, "QlessException", None) or getattr(exceptions, "ReqlessError")
has_throttles = name == "reqless"


def client(worker):
    # Each run uses its own database, so that several can share a server.
    database = 2 * int(protocol) + (8 if has_throttles else 0)
    url = f"redis://127.0.0.1:{port}/{database}?protocol={protocol}"
    return library.Client(url, hostname=worker)


def put(queue, jid, data=None, **options):
    # qless takes values, reqless JSON.
    data = {"jid": jid} if data is None else data
    return queue.put("Work", json.dumps(data) if has_throttles else data, jid=jid, **options)


def refused(what, message):
    try:
        what()
    except Refused as error:
        assert message in str(error), error
        return
    raise AssertionError("it was not refused: " + message)


def until(is_so):
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < 60, "timeout"
        time.sleep(0.01)


def ids(jobs):
    return [job.jid for job in jobs]


one, two = client("one"), client("two")
one.redis.flushdb()
queue = one.queues["mail"]

# Put, pop, complete. Data and tags are unchanged, including non-ASCII characters.
assert put(queue, "a", {"text": "a\u00f1b/\"c", "none": []}, tags=["x", "\u00fc"], retries=2) == "a"
assert len(queue) == 1 and queue.counts["waiting"] == 1
job = one.jobs["a"]
data = json.loads(job.data) if has_throttles else job.data
assert data == {"text": "a\u00f1b/\"c", "none": []}, data
assert job.state == "waiting" and list(job.tags) == ["x", "\u00fc"] and job.retries_left == 2
assert [entry["what"] for entry in job.history] == ["put"]
assert ids(queue.peek(0, 5) if has_throttles else queue.peek(5)) == ["a"]
popped = queue.pop()
assert popped.jid == "a" and popped.worker_name == "one" and 50 < popped.ttl <= 60
assert queue.pop() is None and queue.pop(5) == []
assert abs(popped.heartbeat() - time.time() - 60) < 30
assert popped.complete() == "complete" or one.jobs["a"].state == "complete"
assert one.jobs["a"].state == "complete" and one.jobs.complete() == ["a"]
refused(popped.complete, "not currently running")

# Priority goes before age, delay after all.
put(queue, "low")
put(queue, "high", priority=10)
put(queue, "later", delay=1000)
assert one.jobs["later"].state == "scheduled" and queue.jobs.scheduled() == ["later"]
jobs = queue.pop(10)
assert ids(jobs) == ["high", "low"] and queue.jobs.running() == ["high", "low"]

# Fail, and take back; retry until there are none left.
jobs[0].fail("group", "it broke")
assert one.jobs.failed() == {"group": 1} and ids(one.jobs.failed("group")["jobs"]) == ["high"]
assert one.jobs["high"].failure["message"] == "it broke"
assert one.unfail("group", "mail") == 1 and one.jobs["high"].state == "waiting"
jobs[1].retry()
assert one.jobs["low"].retries_left == 4
put(one.queues["once"], "once", retries=1)
one.queues["once"].pop().retry()
one.queues["once"].pop().retry()
assert one.jobs["once"].state == "failed" and "failed-retries-once" in one.jobs.failed()

# A lock that runs out at once: another worker gets the job, and the first has lost it.
one.config["grace-period"] = 0
lost = one.queues["lost"]
put(lost, "l")
lost.heartbeat = -10
assert lost.heartbeat == -10
first = lost.pop()
assert lost.jobs.stalled() == ["l"]
lost.heartbeat = 60
second = two.queues["lost"].pop()
assert second.jid == "l" and second.worker_name == "two" and second.retries_left == 4
refused(first.complete, "another worker")
# Here the libraries raise an error of their own, which names the job only.
refused(first.heartbeat, "l")
assert two.workers["two"]["jobs"] == ["l"]
assert {worker["name"] for worker in one.workers.counts} == {"one", "two"}
second.complete()
del one.config["grace-period"]

# Dependencies: they block jobs, forbid cancelling, can be removed, and are satisfied.
graph = one.queues["graph"]
put(graph, "first")
put(graph, "second", depends=["first"])
put(graph, "third", depends=["first"])
assert one.jobs["second"].state == "depends" and sorted(graph.jobs.depends()) == ["second", "third"]
assert sorted(one.jobs["first"].dependents) == ["second", "third"]
refused(one.jobs["first"].cancel, "is a dependency of")
assert one.jobs["third"].undepend("first") and one.jobs["third"].state == "waiting"
assert one.jobs["second"].depend("third")
assert ids(graph.pop(5)) == ["first", "third"]
one.jobs["first"].complete()
assert one.jobs["second"].state == "depends"
one.jobs["third"].complete()
assert one.jobs["second"].state == "waiting"
assert one.jobs["second"].cancel() == ["second"] and one.jobs["second"] is None

# A job goes to another queue, by completing and by moving, and loses its worker by a timeout.
put(graph, "moved")
graph.pop().complete("next")
assert one.jobs["moved"].queue_name == "next" and one.jobs["moved"].state == "waiting"
one.jobs["moved"].move("after")
assert one.queues["after"].pop().jid == "moved"
one.jobs["moved"].timeout()
assert one.jobs["moved"].state == "stalled" and one.queues["after"].pop().jid == "moved"

# Recurring jobs. The client reads the next run directly from the sorted set.
tick = one.queues["tick"]
body = json.dumps({"n": 1}) if has_throttles else {"n": 1}
assert tick.recur("Work", body, interval=600, jid="r", tags=["t"], retries=3) == "r"
recurring = one.jobs["r"]
assert abs(recurring.next - time.time()) < 30 and recurring.interval == 600 and recurring.count == 0
child = tick.pop()
assert child.jid == "r-1" and list(child.tags) == ["t"] and child.retries_left == 3
assert one.jobs["r"].count == 1 and 500 < one.jobs["r"].next - time.time() <= 600
recurring.interval = 60
recurring.priority = 5
recurring.tag("u")
recurring.untag("t")
recurring.move("tock")
recurring = one.jobs["r"]
assert recurring.priority == 5 and list(recurring.tags) == ["u"] and recurring.queue_name == "tock"
assert one.queues["tock"].jobs.recurring() == ["r"]
recurring.cancel()
assert one.jobs["r"] is None

# Tags.
tagged = one.queues["tagged"]
for jid in ("t1", "t2"):
    put(tagged, jid, tags=["blue"])
one.jobs["t1"].tag("green")
one.jobs["t2"].untag("blue")
one.jobs["t2"].tag("green", "blue")
assert one.jobs.tagged("green")["total"] == 2 and sorted(one.tags()) == ["blue", "green"]

# Tracked jobs and their events.
heard = []
events = one.events
for kind in ("track", "popped", "failed", "put", "completed", "canceled", "stalled", "untrack"):
    events.on(kind, lambda jid, kind=kind: heard.append((kind, jid)))
with events.thread():
    until(lambda: two.redis.pubsub_numsub("ql:popped")[0][1] == 1)
    seen = two.queues["seen"]
    put(seen, "e")
    assert two.track("e") and ids(two.jobs.tracked()["jobs"]) == ["e"]
    seen.pop().fail("g", "m")
    put(seen, "e")
    seen.pop().complete()
    two.untrack("e")
    put(seen, "f")
    two.jobs["f"].track()
    two.jobs["f"].cancel()
    until(lambda: len(heard) >= 9)
assert heard == [
    ("track", "e"),
    ("popped", "e"),
    ("failed", "e"),
    ("put", "e"),
    ("popped", "e"),
    ("completed", "e"),
    ("untrack", "e"),
    ("track", "f"),
    ("canceled", "f"),
], heard

# Options.
assert one.config["heartbeat"] == 60 and one.config.all["application"] == "qless"
one.config["heartbeat"] = 20
assert int(two.config["heartbeat"]) == 20 and "heartbeat" in one.config.keys()
del one.config["heartbeat"]
assert two.config["heartbeat"] == 60
one.config.update({"some": 7})
assert int(one.config.pop("some")) == 7 and one.config.get("some") is None

# Numbers.
stats = queue.stats()
assert stats["wait"]["count"] == 3 and stats["run"]["count"] == 1, stats
assert len(stats["wait"]["histogram"]) == 148 and stats["failures"] == 1
names = {counts["name"] for counts in one.queues.counts}
assert {"mail", "lost", "graph", "next", "tagged", "seen"} <= names, names

# A paused queue returns no jobs.
queue.pause()
assert queue.pop() is None and queue.counts["paused"]
queue.unpause()
assert queue.pop().jid == "high"

# Throttles.
if has_throttles:
    slow = one.queues["slow"]
    one.throttles["gate"].set_maximum(1)
    assert one.throttles["gate"].maximum() == 1
    for jid in ("s1", "s2"):
        put(slow, jid, throttles=["gate"])
    assert ids(slow.pop(2)) == ["s1"] and one.jobs["s2"].state == "throttled"
    assert one.throttles["gate"].locks() == ["s1"] and one.throttles["gate"].pending() == ["s2"]
    assert list(one.jobs["s2"].throttles) == ["gate", "ql:q:slow"]
    one.jobs["s1"].complete()
    assert ids(slow.pop(2)) == ["s2"] and one.throttles["gate"].locks() == ["s2"]

# The client loads the script again after a flush.
one.redis.script_flush()
assert one.jobs["t1"].jid == "t1"
one.redis.flushdb()
assert one.jobs["t1"] is None and one.queues.counts in ([], {})
print("ok")
