"""A client that owes nothing to ours: stubs from proto/, made here, against a running cluster.

Asks all managers over one channel. Opens through one, reads through another, sends an event, closes
through a third, watches. Reads a document that is larger than a message may be.
Prints a line "ok ..." for each thing that it saw, and fails at the first that is wrong.
"""

import argparse
import importlib
import json
import pathlib
import queue
import sys
import threading
import urllib.request
import uuid

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2 as reflection_alpha_pb2
from grpc_tools import protoc

# Seconds for one call or one awaited change; it only ends what hangs.
PATIENCE = 30


def make_stubs(proto, stubs):
    """Generates stubs from the .proto files and makes them importable."""
    stubs.mkdir(parents=True, exist_ok=True)
    files = [str(it.relative_to(proto)) for it in sorted(proto.glob("rota/v1/*.proto"))]
    arguments = ["protoc", f"-I{proto}", f"--python_out={stubs}", f"--grpc_python_out={stubs}"]
    if protoc.main(arguments + files) != 0:
        sys.exit("the .proto files cannot be compiled")
    sys.path.insert(0, str(stubs))


def check(condition, text, seen=None):
    """Fails unless the condition holds; else says what was seen to be so."""
    if not condition:
        sys.exit(f"not so: {text}; seen: {seen}")
    print(f"ok {text}", flush=True)


def served_by_reflection(channel):
    """Names of the services that a manager tells by reflection (version 1 of that service)."""
    request = reflection_alpha_pb2.ServerReflectionRequest(list_services="")
    # The messages of version 1 are those of v1alpha; only the name of the service differs.
    call = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_alpha_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_alpha_pb2.ServerReflectionResponse.FromString,
    )
    answers = call(iter([request]), timeout=PATIENCE)
    return {it.name for it in next(answers).list_services_response.service}


def typed_refusal(error):
    """The ErrorInfo in the details of a refused call."""
    metadata = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return info
    return None


class Changes:
    """A watch of the whole ring, read in the background."""

    def __init__(self, sessions, session_pb2):
        self.answers = queue.Queue()
        # Longer than all that is done here; cancelled at the end.
        self.stream = sessions.Watch(session_pb2.WatchRequest(), timeout=20 * PATIENCE)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for answer in self.stream:
                self.answers.put(answer)
        except grpc.RpcError as error:
            self.answers.put(error)

    def until(self, wanted):
        """The first answer that is wanted."""
        while True:
            answer = self.answers.get(timeout=PATIENCE)
            if isinstance(answer, grpc.RpcError):
                sys.exit(f"the watch broke: {answer}")
            if wanted(answer):
                return answer


def channel_of(addresses):
    """One channel over all managers, in turns: the usual way to name a list of addresses.

    The C core (Python, C++, Ruby, PHP) takes the whole list for its :authority, which is none: HTTP
    servers refuse it as a protocol error. So the authority is given.
    """
    options = [("grpc.default_authority", addresses[0]), ("grpc.lb_policy_name", "round_robin")]
    return grpc.insecure_channel("ipv4:" + ",".join(addresses), options=options)


def use_a_list(channel, session_pb2, session_pb2_grpc):
    sessions = session_pb2_grpc.SessionsStub(channel)
    # More than there are managers, so that each is asked.
    lists = [sessions.List(session_pb2.ListRequest(), timeout=PATIENCE) for _ in range(6)]
    check(not any(it.stale for it in lists), "asked all managers over one channel", lists)


def use_a_session(channels, session_pb2, session_pb2_grpc, machine_pb2, machine_pb2_grpc):
    first, second, third = (session_pb2_grpc.SessionsStub(it) for it in channels)
    changes = Changes(second, session_pb2)
    changes.until(lambda it: it.caught_up)

    # Names that nobody else uses, so that it can be run again and again.
    crossing, site = (f"{it} {uuid.uuid4()}" for it in ("crossing", "site"))
    request = session_pb2.OpenRequest(id=crossing, **{"class": "traffic-light"})
    opened = first.Open(request, timeout=PATIENCE)
    check(opened.outcome == session_pb2.OUTCOME_CREATED, "opened through one manager", opened)

    session = second.Get(session_pb2.GetRequest(id=crossing), timeout=PATIENCE).session
    same = session.address == opened.session.address and session.life == opened.session.life
    check(same, "read through another manager", session)

    with grpc.insecure_channel(session.address) as channel:
        event = machine_pb2.SendRequest(id=crossing, event="next")
        moved = machine_pb2_grpc.MachinesStub(channel).Send(event, timeout=PATIENCE)
    check((moved.to, moved.changes) == ("red-amber", 1), "moved by an event", moved)

    closed = third.Close(session_pb2.CloseRequest(id=crossing), timeout=PATIENCE)
    check(closed.finished, "closed through a third manager", closed)

    ended = changes.until(
        lambda it: it.session.id == crossing
        and it.session.state == session_pb2.SESSION_STATE_CLOSED
    )
    by_client = ended.session.reason == session_pb2.REASON_CLOSED_BY_CLIENT
    check(by_client, "seen to end by the watch through the second manager", ended)
    changes.stream.cancel()

    opened = third.Open(session_pb2.OpenRequest(id=site, **{"class": "http"}), timeout=PATIENCE)
    page = urllib.request.urlopen(f"http://{opened.session.address}/", timeout=PATIENCE)
    check(page.status == 200, "talked to the program that runs in a session", page.status)
    second.Close(session_pb2.CloseRequest(id=site), timeout=PATIENCE)

    try:
        first.Open(session_pb2.OpenRequest(id="", **{"class": "http"}), timeout=PATIENCE)
        sys.exit("an empty id was taken")
    except grpc.RpcError as error:
        info = typed_refusal(error)
        told = error.code() == grpc.StatusCode.INVALID_ARGUMENT and info is not None
        typed = told and (info.reason, info.domain) == ("INVALID_ARGUMENT", "rota")
        check(typed and info.metadata["retry"] == "never", "refused with a typed reason", info)


def use_a_large_document(channel, documents_pb2, documents_pb2_grpc):
    """Eight items of 800 KB each: more than grpcio takes in one message, whose limit stands as it is."""
    documents = documents_pb2_grpc.DocumentsStub(channel)
    name = documents_pb2.DocumentName(**{"class": "Film"}, docid=f"film {uuid.uuid4()}")
    for key in range(8):
        put = [{"class": "R", "key": str(key), "json": "a" * 800_000}]
        change = {"class": "Film", "docid": name.docid, "life": "ensure", "put": put}
        write = documents_pb2.OperateRequest(
            operation="document.write",
            parameters=json.dumps({"changes": [change]}),
            docid=name.docid,
        )
        documents.Operate(write, timeout=PATIENCE)
    sync = documents_pb2.SyncRequest(documents=[documents_pb2.DocumentSync(name=name)])
    update = documents.Sync(sync, timeout=PATIENCE).updates[0]
    check(update.WhichOneof("update") == "too_large", "told that a document is too large", update)

    export = documents_pb2.ExportDocumentRequest(document=name, items_only=True)
    records = list(documents.ExportDocument(export, timeout=PATIENCE))
    first, more = records[0], [it.more for it in records if it.HasField("more")]
    items = [it for part in [first.update.full, *more] for it in part.items]
    read = len(items) == 8 and len(more) == first.more_count and records[-1].HasField("end")
    check(read, "read it in several records", (len(items), len(more), first.more_count))


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    proto = pathlib.Path(__file__).parent.parent.parent / "proto"
    add = parser.add_argument
    add("--proto", type=pathlib.Path, default=proto, help="folder of the .proto files")
    add("--stubs", type=pathlib.Path, required=True, help="folder for what is made of them")
    managers = "addresses of three managers, comma-separated; ipv4: may stand in front"
    add("--managers", required=True, help=managers)
    options = parser.parse_args()
    make_stubs(options.proto, options.stubs)
    modules = ["session_pb2", "session_pb2_grpc", "machine_pb2", "machine_pb2_grpc"]
    modules = [importlib.import_module(f"rota.v1.{it}") for it in modules]
    addresses = options.managers.removeprefix("ipv4:").split(",")
    if len(addresses) != 3:
        parser.error(f"--managers names {len(addresses)} managers, not three")
    channels = [grpc.insecure_channel(it) for it in addresses]

    services = [served_by_reflection(it) for it in channels]
    health = [
        health_pb2_grpc.HealthStub(it).Check(
            health_pb2.HealthCheckRequest(service="rota.v1.Sessions"), timeout=PATIENCE
        )
        for it in channels
    ]
    told = all("rota.v1.Sessions" in it for it in services)
    well = all(it.status == health_pb2.HealthCheckResponse.SERVING for it in health)
    check(told and well, "found by reflection and healthy", (services, health))
    together = channel_of(addresses)
    use_a_list(together, *modules[:2])
    use_a_session(channels, *modules)
    names = ["documents_pb2", "documents_pb2_grpc"]
    use_a_large_document(channels[0], *(importlib.import_module(f"rota.v1.{it}") for it in names))
    for channel in [*channels, together]:
        channel.close()


if __name__ == "__main__":
    main()
