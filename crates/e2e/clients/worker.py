"""Completes items until there are none for a while: worker.py PORT PREFIX [clean].

Prints a line `worked ID` for each completed item, and survives restarts of the server."""

import sys
import time

import redis
from redis_work_queue import KeyPrefix, WorkQueue

queue = WorkQueue(KeyPrefix(sys.argv[2]))
db = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))
quiet = 0
while quiet < 4:
    try:
        if "clean" in sys.argv:
            queue.light_clean(db)
        item = queue.lease(db, 2, timeout=1)
        if item is None:
            quiet += 1 if queue.processing(db) == 0 and queue.queue_len(db) == 0 else 0
            continue
        quiet = 0
        if item.data() and queue.complete(db, item):
            print("worked", item.id(), flush=True)
        elif not item.data():
            queue.complete(db, item)
    except redis.exceptions.RedisError:
        time.sleep(0.05)
