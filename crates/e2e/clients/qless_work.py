"""Jobs of qless, and a worker that survives restarts of the server: qless_work.py PORT LIBRARY COMMAND [COUNT].

put COUNT puts COUNT jobs. work completes jobs until there are none. check COUNT exits with 0 if each job was completed
exactly once."""

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
    # The lock of a job whose worker lost the reply expires soon, so that another worker gets the job.
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
            # The lost reply reported success, or the lock has expired.
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
