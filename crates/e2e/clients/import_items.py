"""Items of redis-work-queue for an import: import_items.py PORT COMMAND [COUNT].

fill COUNT adds items to a Redis: one is completed, two are leased, one has an expired lease, one is in no list, and COUNT
wait. finish COUNT completes the leased items in ganger and works through all others."""

import sys
import time

import redis
from redis_work_queue import Item, KeyPrefix, WorkQueue

port, what = int(sys.argv[1]), sys.argv[2]
db = redis.Redis(host="127.0.0.1", port=port)
queue = WorkQueue(KeyPrefix("jobs:item:x"))
data = b"\x00\r\n\xff"


def fill(count):
    for name in ("done", "held-1", "held-2", "lost"):
        queue.add_item(db, Item(name.encode() + data, name))
    assert queue.complete(db, queue.lease(db, 30, block=False))
    assert queue.lease(db, 3_600, block=False).id() == "held-1"
    assert queue.lease(db, 7_200, block=False).id() == "held-2"
    assert queue.lease(db, 3_600, block=False).id() == "lost"
    db.delete("jobs:item:x:leased_by_session:lost")
    for number in range(count):
        queue.add_item(db, Item(str(number).encode() + data, str(number)))
    db.set("jobs:item:x:item:orphan", b"orphan" + data)
    db.lpush("jobs:item:x:queue", "ghost")
    db.set("something else", 1)
    db.zadd("a set", {"x": 1})


def finish(count):
    left = db.ttl("jobs:item:x:leased_by_session:held-1"), db.ttl("jobs:item:x:leased_by_session:held-2")
    assert 3_000 < left[0] <= 3_600 and 6_600 < left[1] <= 7_200, left
    assert queue.queue_len(db) >= count, queue.queue_len(db)
    for name in ("held-1", "held-2"):
        assert queue.complete(db, Item(b"", name)) is True
    order, others = [], set()
    end = time.monotonic() + 150
    # The item with the expired lease goes back after 10 seconds.
    while len(order) < count or len(others) < 2:
        assert time.monotonic() < end, (len(order), others)
        item = queue.lease(db, 30, timeout=1)
        if item is None:
            continue
        assert item.data() == item.id().encode() + data, item.id()
        assert queue.complete(db, item) is True
        order.append(item.id()) if item.id().isdigit() else others.add(item.id())
    assert order == [str(number) for number in range(count)], order[:20]
    assert others == {"lost", "orphan"}
    assert queue.queue_len(db) == 0 and queue.processing(db) == 0
    assert db.keys("jobs:item:x*") == []


{"fill": fill, "finish": finish}[what](int(sys.argv[3]))
