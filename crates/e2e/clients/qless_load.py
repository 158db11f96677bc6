"""A load of qless-py: `qless_load.py PORT JOBS` puts, pops and completes jobs, and prints the time in seconds."""

import sys
import time

import qless

port, jobs = int(sys.argv[1]), int(sys.argv[2])
client = qless.Client(f"redis://127.0.0.1:{port}/1")
client.config["heartbeat"] = 600
queue = client.queues["load"]

begun = time.perf_counter()
for number in range(jobs):
    queue.put("load.Job", {"number": number})
done = 0
while done < jobs:
    job = queue.pop()
    job.complete()
    done += 1
print(time.perf_counter() - begun)
