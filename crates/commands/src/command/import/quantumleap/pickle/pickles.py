"""Random values of JSON as Python pickles them: pickles.py SEED COUNT.

A line for each value: its JSON, and its pickles of the protocols 2 to 5 in hexadecimal digits, with tabs between. Some
values are dictionaries of a class of their own, as those of the library geojson are; some are there several times."""

import collections
import json
import pickle
import random
import sys


class Point(dict):
    pass


random = random.Random(int(sys.argv[1]))
shared = {"type": "Text", "value": ["again"]}


def text():
    letters = random.choice(["ab", "a\u00e9\u20ac\U0001f600\0\n\"\\'", "\x7f\x80 "])
    return "".join(random.choice(letters) for _ in range(random.choice([0, 1, 5, 300])))


def number():
    bits = random.choice([1, 7, 8, 15, 16, 31, 32, 63, 64, 200, 2_100])
    return random.choice([-1, 1]) * (random.getrandbits(bits) | 1 << (bits - 1)) - random.choice([0, 1])


def value(depth):
    kind = random.randrange(12 if depth < 5 else 7)
    if kind < 3:
        return [None, True, False][kind]
    if kind == 3:
        return number()
    if kind == 4:
        return random.choice([0.0, -0.0, 1.5, 1e16, 1e22, 5e-324, -1.7976931348623157e308, random.random()])
    if kind == 5:
        return text()
    if kind == 6:
        return shared
    size = random.choice([0, 1, 2, 3, 4, 1_100 if depth == 0 else 5])
    if kind < 9:
        return [value(depth + 1) for _ in range(size)]
    if kind == 9:
        return tuple(value(depth + 1) for _ in range(size))
    members = {text() + str(index): value(depth + 1) for index in range(size)}
    # One without a key would be an object like any other.
    return members if kind == 10 or not members else random.choice([Point, collections.OrderedDict])(members)


sys.set_int_max_str_digits(0) if hasattr(sys, "set_int_max_str_digits") else None
for _ in range(int(sys.argv[2])):
    one = value(0)
    pickles = [pickle.dumps(one, protocol).hex() for protocol in range(2, 6)]
    print("\t".join([json.dumps(one), *pickles]))
