"""Runs every operation of redis-work-queue for Python: all_operations.py PORT. Exits with 0 if all results are right."""

import sys
import time

import redis
from redis_work_queue import Item, KeyPrefix, WorkQueue

port = int(sys.argv[1])
db = redis.Redis(host="127.0.0.1", port=port)
queue = WorkQueue(KeyPrefix("lives"))

# Add, lease and complete items in order, with unchanged data.
items = [Item(data) for data in (b"one", b"", b"\x00\r\n\xff")]
for item in items:
    queue.add_item(db, item)
assert queue.queue_len(db) == 3 and queue.processing(db) == 0
for item in items:
    leased = queue.lease(db, 30, block=False)
    assert leased.id() == item.id() and leased.data() == item.data(), leased.id()
    assert db.ttl("lives:leased_by_session:" + item.id()) in (29, 30)
    assert queue.complete(db, leased) is True
    assert queue.complete(db, leased) is False
assert queue.lease(db, 30, block=False) is None
assert queue.queue_len(db) == 0 and queue.processing(db) == 0
assert db.keys("lives*") == []

# Blocking with a timeout: the reply may be late but not early.
begun = time.monotonic()
assert queue.lease(db, 30, timeout=1) is None
assert time.monotonic() - begun >= 1

# The same id twice: two entries for one item; the second lease has empty data, as on Redis.
queue.add_item(db, Item(b"first", "7"))
queue.add_item(db, Item(b"second", "7"))
assert queue.queue_len(db) == 2
first = queue.lease(db, 30)
assert first.data() == b"second"
assert queue.complete(db, first) is True
ghost = queue.lease(db, 30, timeout=1)
assert ghost.id() == "7" and ghost.data() == b""
assert queue.complete(db, ghost) is True
db.delete("lives:leased_by_session:7")

# An expired lease, and a cleaner that puts the item back.
queue.add_item(db, Item(b"slow", "a:b c"))
assert queue.lease(db, 1).data() == b"slow"
queue.light_clean(db)
assert queue.queue_len(db) == 0, "it is still leased"
while db.exists("lives:leased_by_session:a:b c"):
    time.sleep(0.05)
queue.light_clean(db)
assert queue.queue_len(db) == 1 and queue.processing(db) == 0
again = queue.lease(db, 30)
assert again.data() == b"slow" and queue.complete(db, again)
assert db.keys("lives*") == []

# Hundreds of items in one pipeline, which is a transaction.
pipeline = db.pipeline()
for number in range(300):
    queue.add_item_to_pipeline(pipeline, Item(str(number), str(number)))
pipeline.execute()
for number in range(300):
    leased = queue.lease(db, 30)
    assert leased.data() == str(number).encode(), number
    assert queue.complete(db, leased)
assert db.dbsize() == 0, db.keys("*")

# RESP2, another database, and a channel.
old = redis.Redis(host="127.0.0.1", port=port, db=2, protocol=2, decode_responses=True)
with old.pubsub() as listener:
    listener.subscribe("news")
    assert listener.get_message(timeout=20)["type"] == "subscribe"
    assert old.publish("news", "x") == 1
    assert listener.get_message(timeout=20)["data"] == "x"
assert old.set("only here", 1) and db.get("only here") is None
with old.pipeline() as guarded:
    guarded.watch("only here")
    guarded.multi()
    guarded.incr("only here")
    assert guarded.execute() == [2]
assert sorted(old.scan_iter()) == ["only here"]
assert old.info()["redis_version"].startswith("7.")
assert old.delete("only here") == 1
