"""A collector of OTLP that believes nothing: what the daemons push has to be the message of
opentelemetry-proto, without one unknown name, with the figures of their own /metrics.

    collector.py PORT TOKEN KEY ADMIN_PORT...

Answers 503 to the first push of each daemon, and ends when all were understood twice.
"""

import re
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

PORT, TOKEN, KEY, ADMIN = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
PATIENCE = 60

seen = {}
understood = []


def page_of(port):
    """Series of a page, with names of labels, to values; and the kinds of its metrics."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
    request.add_header("Authorization", f"Bearer {TOKEN}")
    text = urllib.request.urlopen(request, timeout=PATIENCE).read().decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    series = {}
    for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.M):
        pairs = re.findall(r'(\w+)="((?:[^"\\\\]|\\\\.)*)"', labels)
        series[(name, tuple(sorted(pairs)))] = float(value)
    return kinds, series


def judge(body):
    message = json_format.Parse(body, ExportMetricsServiceRequest())
    (resource,) = message.resource_metrics
    about = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert about["service.name"] == "tunnel" and about["host.name"], about
    assert about["service.version"] and len(about["service.instance.id"]) == 36, about
    (scope,) = resource.scope_metrics
    kinds, series = {}, {}
    for metric in scope.metrics:
        assert metric.description and metric.unit in ("1", "s", "By"), metric
        data = getattr(metric, metric.WhichOneof("data"))
        kinds[metric.name] = {"sum": "counter", "gauge": "gauge"}[metric.WhichOneof("data")]
        if kinds[metric.name] == "counter":
            assert data.is_monotonic, metric
            assert data.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE, metric
        assert data.data_points, metric
        for point in data.data_points:
            if kinds[metric.name] == "counter":
                assert 0 < point.start_time_unix_nano <= point.time_unix_nano, point
            labels = tuple(sorted((a.key, a.value.string_value) for a in point.attributes))
            value = getattr(point, point.WhichOneof("value"))
            series[(metric.name, labels)] = float(value)
    return about, kinds, series


def differences(about, kinds, series):
    """Between a push and the page of the same daemon, a moment later."""
    for port in ADMIN:
        told_kinds, told = page_of(port)
        if ("role", about["tunnel.role"]) in [l for n, ls in told if n == "tunnel_build_info" for l in ls]:
            break
    else:
        raise AssertionError(f"no daemon is {about}")
    with_series = {name for name, _ in told}
    told_kinds = {n: k for n, k in told_kinds.items() if n in with_series}
    # What no visitor and no time changes is equal.
    words = ("services_omitted", "budget", "opened_total")
    still = [key for key in series if any(word in key[0] for word in words)]
    assert still, series
    other = [key for key in still if told.get(key) != series[key]]
    return other + list(told.keys() ^ series.keys()) + list(told_kinds.items() ^ kinds.items())


class Collector(BaseHTTPRequestHandler):
    timeout = PATIENCE

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/metrics", self.path
        assert self.headers["Content-Type"] == "application/json", self.headers
        assert self.headers["X-Key"] == KEY, "another key"
        about, kinds, series = judge(body)
        role = about["tunnel.role"]
        seen[role] = seen.get(role, 0) + 1
        different = differences(about, kinds, series)
        # Something may have happened between the two, but not every time.
        assert not different or seen[role] < 6, different
        if seen[role] == 1 or different:
            self.send_response(503)
            self.end_headers()
            return
        print(f"{role}: {len(kinds)} metrics, {len(series)} series", flush=True)
        understood.append(role)
        answer = json_format.MessageToJson(ExportMetricsServiceResponse()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


class Server(HTTPServer):
    timeout = PATIENCE

    def handle_timeout(self):
        sys.exit("nobody pushes")

    def handle_error(self, request, client_address):
        raise


server = Server(("127.0.0.1", PORT), Collector)
while min((understood.count(role) for role in ("server", "client")), default=0) < 2:
    server.handle_request()
