"""Tasks of QuantumLeap in RQ, for an import: import_rq.py PORT COUNT.

QuantumLeap is not published as a package. The modules, classes and arguments here have the names and form of its own, and
RQ, pydantic, geojson and pg8000 have the versions that it uses.

The script enqueues tasks and lets RQ workers run some: one succeeds, one fails, one waits for a retry, one fails permanently
although it has retries left, and the worker of one dies. COUNT others wait, and so does a job of another program. For each
task that has not succeeded it prints a line with what a list of tasks must show."""

import json
import os
import sys
import types
import uuid
from base64 import b64encode

import geojson
import pydantic
import redis
from pg8000 import dbapi
from rq import Queue, Retry, SimpleWorker
from rq.job import Job

port, count = int(sys.argv[1]), int(sys.argv[2])
db = redis.Redis(host="127.0.0.1", port=port)
default = Queue("default", connection=db)

for name in ("wq", "wq.core", "wq.core.task", "wq.ql", "wq.ql.notify"):
    sys.modules[name] = types.ModuleType(name)
task, notify = sys.modules["wq.core.task"], sys.modules["wq.ql.notify"]


class StopTask(Exception):
    pass


def run_action(target):
    target.run()


class InsertActionInput(pydantic.BaseModel):
    fiware_service: str | None
    fiware_service_path: str | None
    fiware_correlator: str | None
    payload: list[dict]


def segment(text):
    return b64encode(text.encode()).decode() or '""'


class FiwareTaskId:
    def __init__(self, *tags):
        self._id_seq = [tag or "" for tag in tags] + [uuid.uuid4().hex]

    def id_repr(self):
        return ":".join(map(segment, self._id_seq))


class InsertAction:
    def __init__(self, service, path, correlator, payload, retry_intervals=None):
        self._id = FiwareTaskId(service, path, correlator)
        self._input = InsertActionInput(
            fiware_service=service, fiware_service_path=path, fiware_correlator=correlator, payload=payload
        )
        self._retry_int = retry_intervals

    def enqueue(self):
        retry = Retry(max=len(self._retry_int), interval=self._retry_int) if self._retry_int else None
        default.enqueue(
            run_action, self, job_id=self._id.id_repr(), retry=retry, result_ttl=86_400, failure_ttl=604_800
        )

    def run(self):
        room = self._input.payload[0]["id"]
        if room == "dies":
            os._exit(9)
        if room == "stops":
            raise StopTask() from dbapi.ProgrammingError({"S": "ERROR", "C": "42601", "M": "it's wrong"})
        if room in ("fails", "again"):
            raise dbapi.InterfaceError("Can't create a connection to host timescale and port 5432")


for owner, names in ((task, (StopTask, run_action)), (notify, (InsertActionInput, FiwareTaskId, InsertAction))):
    for it in names:
        it.__module__ = owner.__name__
        setattr(owner, it.__name__, it)


def note_exception(job, _kind, error, _trace):
    is_final = isinstance(error, StopTask)
    job.meta.setdefault("exceptions", []).append(error.__cause__ if is_final else error)
    job.save()
    if is_final and job.is_scheduled:
        default.scheduled_job_registry.remove(job)
        default.failed_job_registry.add(job=job, ttl=job.failure_ttl)
    return False


def work():
    SimpleWorker([default], connection=db, exception_handlers=[note_exception]).work(burst=True, logging_level="ERROR")


def entity(room, **more):
    return {
        "id": room,
        "type": "Room",
        "temperature": {"type": "Number", "value": 23.5, "metadata": {}},
        **more,
        "time_index": "2021-05-14T15:57:11.848980",
    }


def print_task(action, status, errors):
    job = Job.fetch(action._id.id_repr(), connection=db)
    document = {
        "task_id": job.id,
        "status": status,
        "errors": errors,
        "retries_left": job.retries_left or None,
        "input": json.loads(action._input.json()),
    }
    print(json.dumps(document))


def room(name, retries=None):
    action = InsertAction("x", "/", None, [entity(name)], retries)
    action.enqueue()
    return action


def fill():
    done, fails, again, stops = room("done"), room("fails"), room("again", [4, 8, 16]), room("stops", [4, 8, 16])
    work()
    dies = room("dies")
    if not os.fork():
        work()
    os.wait()
    assert Job.fetch(dies._id.id_repr(), connection=db).is_started
    assert again._id.id_repr() in default.scheduled_job_registry
    assert stops._id.id_repr() in default.failed_job_registry
    assert done._id.id_repr() in default.finished_job_registry
    interface = "InterfaceError(\"Can't create a connection to host timescale and port 5432\")"
    print_task(fails, "failed", [interface])
    wrong = "ProgrammingError({'S': 'ERROR', 'C': '42601', 'M': \"it's wrong\"})"
    print_task(stops, "failed", [wrong])
    print_task(again, "pending", [])
    print_task(dies, "pending", [])
    odd = {
        "location": {"type": "geo:json", "value": geojson.Point((2.1, 41.3))},
        "area": {"type": "geo:json", "value": geojson.Polygon([[(0, 0), (1, 0), (1, 1), (0, 0)]])},
        "n\u00e4me \U0001f600": {"type": "Text", "value": "'\"\\\n"},
        "large": {"type": "Text", "value": 2**70},
        "list": {"type": "Array", "value": [None, True, -1, 1e22, [], {}]},
    }
    for number in range(count):
        service = ("x", "X y", None)[number % 3]
        path, correlator = ("/", "/a/b")[number % 2], ("c1", None)[number % 2]
        more = odd if number % 10 == 0 else {}
        action = InsertAction(service, path, correlator, [entity(f"room {number}", **more)], [20, 40])
        action.enqueue()
        print_task(action, "pending", [])
    default.enqueue("math.sqrt", 4)


fill()
