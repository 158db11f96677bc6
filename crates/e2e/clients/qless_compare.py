"""Sends random calls of the qless script to ganger and to a Redis that runs the script, and compares all answers and
published messages: `qless_compare.py PORT REDIS_PORT SEED CALLS`.

The script is that of reqless 0.13.3. A line in front of it lets a current Redis accept it, because the script extends a Lua
library that Redis now protects. Intended differences of ganger are not called, or are allowed below with a comment.
"""

import importlib.util
import json
import pathlib
import random
import sys

import redis

FIRST_LINE = "local table = setmetatable({}, {__index = table})\n"
JIDS = ["a", "b", "c", "d", "e"]
QUEUES = ["q", "p"]
WORKERS = ["w1", "w2"]
TAGS = ["t1", "t2", "t3"]
GROUPS = ["g1", "g2", "failed-retries-q", "failed-retries-p"]
DATA = ["{}", '{"a":1}', "[1,2]", '"x"']


class Server:
    """One of the two servers."""

    def __init__(self, port, text):
        self.db = redis.Redis(port=port)
        self.db.flushall()
        self.digest = self.db.script_load(text)
        self.messages = self.db.pubsub()
        self.messages.psubscribe("*")
        assert self.messages.get_message(timeout=30)["type"] == "psubscribe"

    def call(self, words):
        """Returns the answer of a call, and the messages published until then."""
        try:
            answer = shape(self.db.execute_command("EVALSHA", self.digest, 0, *words))
        except redis.ResponseError:
            # Some texts of refusals differ, because ganger adds a missing space or name.
            answer = "refused"
        self.db.publish("end", "")
        published = []
        while True:
            message = self.messages.get_message(timeout=30)
            assert message is not None, "a message is missing"
            if message["channel"] == b"end":
                return answer, published
            published.append((message["channel"], message["data"]))


def shape(answer):
    """Returns an answer for comparison: JSON is parsed, since objects have no order."""
    if isinstance(answer, bytes):
        try:
            return unordered(json.loads(answer.decode("latin1")))
        except json.JSONDecodeError:
            return answer
    return answer


def unordered(value, key=None):
    """Sorts links between jobs, which have no order."""
    if isinstance(value, dict):
        return {key: unordered(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        inner = [unordered(inner) for inner in value]
        return sorted(inner) if key in ("dependents", "dependencies") else inner
    return value


class Calls:
    """Draws calls with few names, so that they interact, at times that go forward and sometimes back."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.now = 1000.0
        self.planned = []
        self.kinds = [
            name.removeprefix("call_")
            for name in dir(self)
            if name.startswith("call_")
            for _ in range(6 if name[5:] in ("put", "pop", "complete") else 1)
        ]

    def one_of(self, *choices):
        return self.random.choice(choices)

    def may(self, chance):
        return self.random.random() < chance

    def next(self, holder):
        """Returns the next call. `holder` returns a job's worker and queue, so that most reports come from its holder."""
        steps = [0, 0, 0.25, 1, 1.5, 10, 30, 61, -5.5]
        self.now += self.random.choice(steps if self.may(0.9) else [400, 4000, 90000])
        self.jid, self.queue = self.random.choice(JIDS), self.random.choice(QUEUES)
        self.worker = self.random.choice(WORKERS)
        worker, queue = holder(self.jid)
        self.owner = worker if worker and self.may(0.8) else self.worker
        self.home = queue or self.queue
        if not self.planned and self.may(0.02):
            self.planned = self.taken_away()
        if self.planned:
            return [str(word) for word in self.planned.pop(0)(repr(self.now))]
        kind = self.random.choice(self.kinds)
        name, *rest = getattr(self, f"call_{kind}")()
        return [str(word) for word in [name, repr(self.now), *rest]]

    def taken_away(self):
        """Returns calls that take a job from its worker with `timeout` and then remove it, with queries of that worker."""
        jid, queue, worker = "f", self.queue, self.worker
        other = next(name for name in WORKERS if name != worker)
        calls = [
            lambda now: ["put", now, worker, queue, jid, "k", "{}", 0, "priority", 100],
            lambda now: ["pop", now, queue, worker, 1],
            lambda now: ["timeout", now, jid],
            lambda now: ["workers", now, worker],
        ]
        if self.may(0.5):
            calls.append(lambda now: ["pop", now, queue, other, 1])
        calls.append(lambda now: ["cancel", now, jid])
        return [*calls, lambda now: ["workers", now, worker], lambda now: ["workers", now]]

    def tags(self, most):
        return json.dumps([self.random.choice(TAGS) for _ in range(self.random.randint(0, most))])

    def options(self):
        words = []
        if self.may(0.3):
            words += ["priority", self.one_of(0, 1, 2.5, -1)]
        if self.may(0.3):
            words += ["tags", self.tags(3)]
        if self.may(0.3):
            words += ["retries", self.one_of(0, 1, 2)]
        return words

    def put(self, name):
        words = [name, self.worker, self.queue, self.jid, "k", self.random.choice(DATA)]
        words += [self.one_of(0, 0, 0, 5, 30), *self.options()]
        if self.may(0.2):
            words += ["depends", json.dumps(self.random.sample(JIDS, self.random.randint(1, 2)))]
        return words

    def call_put(self):
        return self.put("put")

    def call_put_again(self):
        return self.put("requeue")

    def call_pop(self):
        return ["pop", self.queue, self.worker, self.one_of(1, 2, 5)]

    def call_peek(self):
        return ["peek", self.queue, 0, self.one_of(1, 3, 10)]

    def call_complete(self):
        words = ["complete", self.jid, self.owner, self.home, self.random.choice(DATA)]
        if self.may(0.4):
            words += ["next", self.random.choice(QUEUES)]
            words += self.one_of([], ["delay", 7], ["depends", json.dumps([self.random.choice(JIDS)])])
        return words

    def call_fail(self):
        # Only one key, because the script writes the data again in its own order.
        data = [self.one_of('{"a":1}', '{"b":"x"}')] if self.may(0.4) else []
        return ["fail", self.jid, self.owner, self.one_of("g1", "g2"), "message", *data]

    def call_retry(self):
        # In the job's own queue: with another one the script leaves the job in both.
        reason = ["g1", "message"] if self.may(0.4) else []
        return ["retry", self.jid, self.home, self.owner, self.one_of(0, 0, 8), *reason]

    def call_unfail(self):
        return ["unfail", self.queue, self.random.choice(GROUPS), self.one_of(1, 5)]

    def call_failed(self):
        return ["failed"] if self.may(0.5) else ["failed", self.random.choice(GROUPS), 0, 10]

    def call_cancel(self):
        return ["cancel", *self.random.sample(JIDS, self.random.randint(1, 2))]

    def call_heartbeat(self):
        return ["heartbeat", self.jid, self.owner]

    def call_depends(self):
        other = self.random.choice(JIDS)
        return ["depends", self.jid, *self.one_of(["on", other], ["off", other], ["off", "all"])]

    def call_timeout(self):
        return ["timeout", self.jid]

    def call_priority(self):
        return ["priority", self.jid, self.one_of(3, -2, 0.5)]

    def call_get(self):
        return ["get", self.jid]

    def call_multiget(self):
        return ["multiget", *JIDS]

    def call_tag(self):
        tag = self.random.choice(TAGS)
        return ["tag", *self.one_of(["add", self.jid, tag], ["remove", self.jid, tag], ["get", tag, 0, 10], ["top", 0, 10])]

    def call_track(self):
        return ["track", *self.one_of([], ["track", self.jid], ["untrack", self.jid])]

    def call_jobs(self):
        state = self.one_of("complete", "running", "stalled", "scheduled", "depends", "recurring")
        return ["jobs", state, *([] if state == "complete" else [self.queue]), 0, 10]

    def call_log(self):
        return ["log", self.jid, "hello", *(['{"x":1}'] if self.may(0.5) else [])]

    def call_recur(self):
        words = ["recur", self.queue, self.one_of("r", "s"), "k", self.random.choice(DATA)]
        words += ["interval", self.one_of(60, 10.5, 1), self.one_of(0, 3, -5), *self.options()]
        return words + (["backlog", self.one_of(0, 1, 3)] if self.may(0.4) else [])

    def call_recur_get(self):
        return ["recur.get", self.one_of("r", "s")]

    def call_recur_update(self):
        pair = self.one_of(
            ["priority", 2], ["interval", 20], ["retries", 3], ["data", '{"z":1}'], ["klass", "kk"],
            ["queue", self.queue], ["backlog", 2],
        )
        return ["recur.update", self.one_of("r", "s"), *pair]

    def call_recur_tag(self):
        return [self.one_of("recur.tag", "recur.untag"), self.one_of("r", "s"), self.random.choice(TAGS)]

    def call_length(self):
        return ["length", self.queue]

    def call_queues(self):
        return ["queues", *([self.queue] if self.may(0.5) else [])]

    def call_pause(self):
        return [self.one_of("pause", "unpause", "unpause"), self.queue]

    def call_forget(self):
        return ["queue.forget", self.queue]

    def call_stats(self):
        return ["stats", self.queue, repr(self.now)]

    def call_workers(self):
        return ["workers", *([self.worker] if self.may(0.5) else [])]

    def call_deregister(self):
        return ["worker.deregister", self.worker]

    def call_config(self):
        own = f"{self.queue}-heartbeat"
        return self.one_of(
            ["config.get"], ["config.get", "heartbeat"], ["config.get", "nothing"],
            ["config.set", "grace-period", self.one_of(0, 10)], ["config.set", own, self.one_of(5, -10, 60)],
            ["config.unset", own], ["config.unset", "grace-period"],
            ["config.set", "jobs-history-count", self.one_of(0, 2, 100)],
            ["config.set", "max-job-history", self.one_of(5, 100)],
        )


def comparable(words, messages):
    """Returns messages for comparison. For a retry that exhausts the retries of a tracked job this script publishes nothing,
    unlike newer ones and ganger."""
    return [message for message in messages if words[0] != "retry" or message[0] != b"ql:failed"]


def remove_orphans(db):
    """Removes jids of missing jobs from the script's lists of workers, and returns their number. The script leaves a job that
    lost its lock by `timeout` in its worker's list when it is removed; docs/qless.md explains why ganger does not."""
    count = 0
    for worker in WORKERS:
        key = f"ql:w:{worker}:jobs"
        for jid in db.zrange(key, 0, -1):
            if not db.exists(b"ql:j:" + jid):
                count += db.zrem(key, jid)
    return count


def main():
    port, redis_port, seed, calls = (int(word) for word in sys.argv[1:5])
    directory = pathlib.Path(importlib.util.find_spec("reqless").origin).parent
    text = FIRST_LINE + (directory / "lua" / "qless.lua").read_text()
    ours, theirs = Server(port, text), Server(redis_port, text)
    # In this script a heartbeat does not register a worker, so workers must not expire.
    for server in (ours, theirs):
        server.call(["config.set", "0", "max-worker-age", "1000000000"])
    drawn = Calls(seed)

    def holder(jid):
        record = theirs.db.hmget(f"ql:j:{jid}", "worker", "queue")
        return [value.decode() if value else None for value in record]

    history, orphans = [], 0
    for number in range(calls):
        words = drawn.next(holder)
        history.append(" ".join(words))
        (answer, published), (expected, expected_messages) = ours.call(words), theirs.call(words)
        if answer != expected or comparable(words, published) != comparable(words, expected_messages):
            print(f"call {number} of seed {seed} differs, after\n  " + "\n  ".join(history[-40:]))
            print(f"ganger: {answer} {published}\nRedis:  {expected} {expected_messages}")
            sys.exit(1)
        orphans += remove_orphans(theirs.db)
    assert orphans > 0 or calls < 1000, "no removed job was left in its worker's list"
    print(f"{calls} calls of seed {seed} are alike")


main()
