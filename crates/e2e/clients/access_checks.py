"""Checks access control on a Redis port with TLS and authentication: access_checks.py PORT DIRECTORY. Exits with 0 if all
checks pass. DIRECTORY has ca/ca.pem, the client's ca/box.pem and ca/box.key, and the tokens of three roles in
ROLE.secret."""

import pathlib
import sys

import redis

port, directory = int(sys.argv[1]), pathlib.Path(sys.argv[2])
TLS = {"ssl": True, "ssl_ca_certs": str(directory / "ca" / "ca.pem")}
tokens = {role: (directory / f"{role}.secret").read_text().strip() for role in ("reader", "producer", "worker")}


def connect(**options):
    # Errors are expected answers here, so nothing is retried.
    options = {"retry": None, "protocol": 3, **options}
    return redis.Redis(host="127.0.0.1", port=port, decode_responses=True, **options)


def refused(what, kind, word=""):
    try:
        what()
    except kind as error:
        assert word in str(error), error
        return
    raise AssertionError(f"it was not refused: {kind} {word}")


# The port requires TLS, and the client verifies its certificate.
refused(connect(socket_timeout=30).ping, redis.exceptions.RedisError)
refused(connect(ssl=True).ping, redis.exceptions.ConnectionError, "certificate verify failed")

# Clients without a token or with a wrong one are refused, in either protocol.
for protocol in (2, 3):
    stranger = connect(**TLS, protocol=protocol)
    refused(lambda: stranger.get("key"), redis.exceptions.AuthenticationError)
    wrong = connect(**TLS, protocol=protocol, password="wrong")
    refused(wrong.ping, redis.exceptions.AuthenticationError)

# Each role has its rights; the user name is ignored.
reader = connect(**TLS, password=tokens["reader"])
producer = connect(**TLS, username="anyone", password=tokens["producer"], protocol=2)
worker = connect(**TLS, password=tokens["worker"])
denied = redis.exceptions.NoPermissionError
assert producer.lpush("queue", "one") == 1 and producer.set("text", "x")
refused(lambda: producer.rpop("queue"), denied, "rpop")
refused(lambda: reader.set("text", "y"), denied, "set")
assert reader.get("text") == "x" and reader.llen("queue") == 1
assert worker.rpoplpush("queue", "processing") == "one" and worker.lrem("processing", 0, "one") == 1
refused(worker.flushall, denied)
refused(worker.client_list, denied)
refused(lambda: connect(**TLS, password=tokens["worker"], db=1).get("text"), denied)

# Readers may subscribe, and writers may publish.
with reader.pubsub() as listener:
    listener.subscribe("news")
    assert listener.get_message(timeout=30)["type"] == "subscribe"
    assert producer.publish("news", "hello") == 1
    assert listener.get_message(timeout=30)["data"] == "hello"
refused(lambda: reader.publish("news", "hello"), denied)

# Any client may load the script of qless; each of its commands needs its own right.
script = "QlessAPI.put = function(now, me, queue) end -- 'ql:' cjson"
digest = reader.script_load(script)


def call(connection, *words):
    return connection.evalsha(digest, 0, *words)


assert call(producer, "put", "1", "me", "jobs", "j", "Work", "{}", "0") == "j"
refused(lambda: call(reader, "put", "1", "me", "jobs", "k", "Work", "{}", "0"), denied, "put")
assert call(reader, "length", "1", "jobs") == 1
refused(lambda: call(producer, "pop", "1", "jobs", "me", "1"), denied, "pop")
assert "\"jid\":\"j\"" in call(worker, "pop", "1", "jobs", "me", "1")
refused(lambda: call(worker, "config.set", "1", "heartbeat", "5"), denied, "config.set")

# A client certificate works like a token.
box = connect(**TLS, ssl_certfile=str(directory / "ca" / "box.pem"), ssl_keyfile=str(directory / "ca" / "box.key"))
assert box.set("of the box", "1") and box.delete("of the box") == 1
