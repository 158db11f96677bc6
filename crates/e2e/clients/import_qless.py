"""Jobs of qless for an import: import_qless.py PORT DATABASE COMMAND [COUNT].

fill COUNT puts COUNT jobs with falling priorities, further jobs that are running, failed or completed, and two that wait for
others. order prints the next jobs. finish COUNT completes the running jobs and works through all others."""

import json
import sys

port, database, what = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if len(sys.argv) > 5:
    import on_redis  # noqa: F401
import reqless  # noqa: E402

client = reqless.Client(f"redis://127.0.0.1:{port}/{database}", hostname="the-worker")
queue = client.queues["work"]


def fill(count):
    client.config["heartbeat"] = 3_600
    for number in range(4):
        queue.put("Work", "{}", jid=f"begun-{number}", priority=1_000)
    begun = {job.jid: job for job in queue.pop(4)}
    begun["begun-0"].complete()
    begun["begun-1"].fail("group", "message")
    for number in range(count):
        queue.put("Work", json.dumps({"number": number}), jid=str(number), priority=count - number, tags=["many"])
    queue.put("Work", "{}", jid="child", depends=["begun-2", str(count - 1)])
    queue.put("Work", "{}", jid="grandchild", depends=["child"])
    queue.put("Work", "{}", jid="later", delay=100_000)


def order():
    print(" ".join(job.jid for job in queue.peek(0, 20)))


def finish(count):
    done = []
    for jid in ("begun-2", "begun-3"):
        job = client.jobs[jid]
        assert job.worker_name == "the-worker" and job.state == "running", (jid, job.state)
        assert job.heartbeat() > 0
        assert job.complete() == "complete"
    assert client.jobs["child"].state == "depends"
    while jobs := queue.pop(50):
        for job in jobs:
            assert job.complete() == "complete"
            done.append(job.jid)
    assert sorted(done) == sorted([str(number) for number in range(count)] + ["child", "grandchild"]), done
    assert done[:count] == [str(number) for number in range(count)], "the order of their priorities"
    assert done[count:] == ["child", "grandchild"]
    assert client.jobs["later"].state == "scheduled"
    assert client.jobs.failed() == {"group": 1}
    for number in range(count):
        job = client.jobs[str(number)]
        assert job.state == "complete" and json.loads(job.data) == {"number": number}
        assert [entry["what"] for entry in job.history] == ["put", "popped", "done"]


if what == "order":
    order()
else:
    {"fill": fill, "finish": finish}[what](int(sys.argv[4]))
