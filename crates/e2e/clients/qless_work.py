"""Jobs for workers, and a worker that goes on when the server goes away: qless_work.py PORT LIBRARY WHAT [COUNT].

put COUNT puts so many; work takes and completes them until there are none; check COUNT ends with 0 if each is complete
and was completed once."""

import importlib
import os
import sys
import time

import redis

port, name, what = int(sys.argv[1]), sys.argv[2], sys.argv[3]
library = importlib.import_module(name)
exceptions = importlib.import_module(name + ".exceptions")
Refused = getattr(exceptions, "QlessException", None) or getattr(exceptions, "ReqlessError")
client = library.Client(f"redis://127.0.0.1:{port}/1", hostname=f"worker-{os.getpid()}")
queue = client.queues["work"]


def put(count):
    # A lock that its worker lost with the server runs out soon, and then the next one gets the job.
    client.config["heartbeat"] = 3
    client.config["grace-period"] = 0
    for number in range(count):
        queue.put("qless_jobs.Work", "{}" if name == "reqless" else {}, jid=str(number))


def left():
    counts = queue.counts
    return counts["waiting"] + counts["running"] + counts["stalled"] + counts["scheduled"]


def work():
    quiet = 0
    while quiet < 3:
        try:
            jobs = queue.pop(2)
            for job in jobs:
                job.complete()
                print("worked", job.jid, flush=True)
            quiet = quiet + 1 if not jobs and left() == 0 else 0
        except Refused as refused:
            # The reply that was lost has told of success, or the lock has run out meanwhile.
            assert "not currently running" in str(refused) or "another worker" in str(refused), refused
        except redis.exceptions.RedisError:
            time.sleep(0.05)


def check(count):
    assert left() == 0 and client.jobs.failed() == {}, (queue.counts, client.jobs.failed())
    for number in range(count):
        job = client.jobs[str(number)]
        assert job.state == "complete", (number, job.state)
        done = [entry for entry in job.history if entry["what"] == "done"]
        assert len(done) == 1, (number, job.history)


{"put": lambda: put(int(sys.argv[4])), "work": work, "check": lambda: check(int(sys.argv[4]))}[what]()
