"""Patches redis-py so that a current Redis accepts the script of reqless, which extends a Lua library that Redis now
protects."""

import redis

FIRST_LINE = b"local table = setmetatable({}, {__index = table})\n"
register = redis.Redis.register_script


def patched(self, script):
    return register(self, FIRST_LINE + (script.encode() if isinstance(script, str) else script))


redis.Redis.register_script = patched
