"""Lets a Redis of today take the script of reqless, which protects the library that the script adds to."""

import redis

FIRST_LINE = b"local table = setmetatable({}, {__index = table})\n"
register = redis.Redis.register_script


def patched(self, script):
    return register(self, FIRST_LINE + (script.encode() if isinstance(script, str) else script))


redis.Redis.register_script = patched
