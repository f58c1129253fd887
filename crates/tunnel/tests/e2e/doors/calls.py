"""A gRPC service and its caller, by grpcio. `serve PORT [KEY CERTIFICATE]` or
`call ADDRESS NAME [CERTIFICATE]`. Messages are bytes, so nothing is generated."""

import queue, sys, threading, time
from concurrent import futures

import grpc


def raw(data):
    return data


METHODS = {}


def method(kind):
    def register(function):
        maker = getattr(grpc, kind + "_rpc_method_handler")
        METHODS[function.__name__] = maker(function, request_deserializer=raw, response_serializer=raw)
        return function
    return register


@method("unary_unary")
def Echo(request, context):
    metadata = dict(context.invocation_metadata())
    context.send_initial_metadata((("x-first", metadata.get("x-asked", "")),))
    context.set_trailing_metadata((("x-last", "trailer"),))
    return request


@method("unary_unary")
def Fail(request, context):
    context.set_trailing_metadata((("x-why", "because"),))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")


@method("unary_stream")
def Count(request, context):
    for n in range(int(request)):
        yield b"%d" % n


# Whether such a call of `Hang` came.
@method("unary_unary")
def Hung(request, context):
    return b"yes" if request in HUNG else b"no"


@method("stream_unary")
def Sum(requests, context):
    return b"%d" % sum(len(request) for request in requests)


@method("stream_stream")
def Chat(requests, context):
    for request in requests:
        yield b"re: " + request


HUNG = set()


@method("unary_unary")
def Hang(request, context):
    gone = threading.Event()
    began = time.time()
    if not context.add_callback(gone.set):
        # The call was given up before.
        gone.set()
    HUNG.add(request)
    gone.wait(20)
    # A call that its caller gives up ends here long before.
    print("gone %s after %.0f s" % (request.decode(), time.time() - began), flush=True)
    return b""


def serve(port, *tls):
    server = grpc.server(futures.ThreadPoolExecutor(20))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", METHODS),))
    if tls:
        key, certificate = (open(file, "rb").read() for file in tls)
        server.add_secure_port("127.0.0.1:" + port, grpc.ssl_server_credentials([(key, certificate)]))
    else:
        server.add_insecure_port("127.0.0.1:" + port)
    server.start()
    print("serving", flush=True)
    server.wait_for_termination()


def call(address, name, *tls):
    options = [("grpc.default_authority", name), ("grpc.ssl_target_name_override", name)]
    if tls:
        credentials = grpc.ssl_channel_credentials(open(tls[0], "rb").read())
        channel = grpc.secure_channel(address, credentials, options[1:])
    else:
        channel = grpc.insecure_channel(address, options[:1])

    def of(kind, name):
        return getattr(channel, kind)("/test.Test/" + name, request_serializer=raw, response_deserializer=raw)

    message, done = of("unary_unary", "Echo").with_call(
        b"x" * 1000000, metadata=(("x-asked", "metadata"),), timeout=20)
    assert message == b"x" * 1000000, len(message)
    assert dict(done.initial_metadata())["x-first"] == "metadata"
    assert dict(done.trailing_metadata())["x-last"] == "trailer"
    try:
        of("unary_unary", "Fail")(b"", timeout=20)
        assert False, "no failure"
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
        assert error.details() == "not today", error
        assert dict(error.trailing_metadata())["x-why"] == "because"
    counted = list(of("unary_stream", "Count")(b"2000", timeout=20))
    assert counted == [b"%d" % n for n in range(2000)], len(counted)
    total = of("stream_unary", "Sum")((b"x" * 10000 for _ in range(500)), timeout=20)
    assert total == b"5000000", total
    # Each message is sent after the answer to the one before.
    messages = queue.Queue()
    answers = of("stream_stream", "Chat")(iter(messages.get, None), timeout=20)
    for n in range(20):
        messages.put(b"%d" % n)
        assert next(answers) == b"re: %d" % n
    messages.put(None)
    assert list(answers) == []
    # A deadline may come before its call reaches the target: a longer one then.
    port = address.rsplit(":")[-1]
    for deadline in (1, 2, 4, 8, 16):
        each = b"deadline-%s-%s-%d" % (name.encode(), port.encode(), deadline)
        began = time.time()
        try:
            of("unary_unary", "Hang")(each, timeout=deadline)
            assert False, "no deadline"
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
            # The target answers after 20 s.
            assert time.time() - began < 20
        if of("unary_unary", "Hung")(each, timeout=20) == b"yes":
            break
    else:
        assert False, "no call with a deadline reached the target"
    print("given up:", each.decode())
    each = b"cancel-%s-%s" % (name.encode(), port.encode())
    hanging = of("unary_unary", "Hang").future(each)
    while of("unary_unary", "Hung")(each, timeout=20) != b"yes":
        assert not hanging.done(), hanging
        time.sleep(0.05)
    hanging.cancel()
    print("given up:", each.decode())
    # Many calls at once share the connections.
    many = [of("unary_unary", "Echo").future(b"%d" % n, timeout=20) for n in range(100)]
    assert [one.result() for one in many] == [b"%d" % n for n in range(100)]
    print("all calls are right", flush=True)


{"serve": serve, "call": call}[sys.argv[1]](*sys.argv[2:])
