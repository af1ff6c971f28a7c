"""servers.py PRETRAIN TRACK FOLDER: trains with every tracker, and compares what each shows with the log."""
import http.server
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

pretrain, track, folder = sys.argv[1:]
os.chdir(folder)


def fail(text):
    raise SystemExit("FAILED: " + text)


def free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


port = free()


def mlflow_server():
    """MLflow's own server, when it answers."""
    server = subprocess.Popen([sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--backend-store-uri", "sqlite:///mlflow.db", "--artifacts-destination", "artifacts"],
                              stdout=open("mlflow.out", "a"), stderr=subprocess.STDOUT, start_new_session=True)
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.2)
            continue
        import mlflow
        mlflow.MlflowClient(f"http://127.0.0.1:{port}").search_experiments()  # its first answer takes long
        return server
    fail("mlflow server does not start: " + open("mlflow.out").read()[-2000:])


points = {}


class Receiver(http.server.BaseHTTPRequestHandler):
    """An OTLP receiver that keeps every point."""

    def do_POST(self):
        body = ExportMetricsServiceRequest()
        body.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in body.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for p in metric.gauge.data_points:
                        points.setdefault(metric.name, []).append((p.time_unix_nano, p.as_double))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()

    def log_message(self, *_):
        pass


receiver = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=receiver.serve_forever, daemon=True).start()


def train(name, *flags, during=None):
    """A run with a folder of its own; its log by iteration, evaluations apart, and its notes."""
    line = [pretrain, "--num-layers", "2", "--hidden-size", "32", "--num-attention-heads", "4", "--seq-length", "32", "--max-position-embeddings", "32", "--micro-batch-size", "2",
            "--global-batch-size", "4", "--train-iters", "200", "--lr", "1e-3", "--mock-data", "--tokenizer-type", "NullTokenizer", "--vocab-size", "100", "--eval-interval", "50", "--eval-iters", "1",
            "--log-interval", "1", "--log-extras", "--run-name", name, "--run-notes", "written by the proof", "--sample-prompt", "1 2 3", "--sample-tokens", "4", "--log-jsonl", f"{name}/steps.jsonl", *flags]
    run = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if during:
        during(f"{name}/steps.jsonl")
    _, notes = run.communicate(timeout=600)
    if run.returncode:
        fail(f"{name} ended with {run.returncode}: {notes[-2000:]}")
    steps, evaluations = {}, {}
    for text in open(f"{name}/steps.jsonl"):
        e = json.loads(text)
        (evaluations if e.get("validation") == "validation" else steps if "validation" not in e else {})[e["iteration"]] = e
    return steps, evaluations, notes


def shown(name):
    """A run as MLflow's client reads it."""
    import mlflow
    client = mlflow.MlflowClient(f"http://127.0.0.1:{port}")
    runs = client.search_runs([client.get_experiment_by_name("proof").experiment_id], f"attributes.run_name = '{name}'")
    if len(runs) != 1:
        fail(f"MLflow has {len(runs)} runs of the name {name}")
    return client, runs[0]


def compare_mlflow(name, steps, evaluations):
    client, run = shown(name)
    compared = 0
    for key, field in {"lm loss": lambda e: e["loss"]["lm loss"], "grad-norm": lambda e: e["grad_norm"], "tokens-per-second": lambda e: e["tokens_per_second"], "mfu": lambda e: e["mfu"]}.items():
        history = {m.step: m.value for m in client.get_metric_history(run.info.run_id, key)}
        if set(history) != set(steps):
            fail(f"MLflow has {len(history)} steps of {key}, the log {len(steps)}")
        for i, value in history.items():
            if abs(value - field(steps[i])) > 1e-12 * abs(value):
                fail(f"MLflow: {key} at {i} is {value}, in the log {field(steps[i])}")
            compared += 1
    if {m.step for m in client.get_metric_history(run.info.run_id, "lm loss validation")} != set(evaluations):
        fail("MLflow lacks evaluations")
    if run.info.status != "FINISHED" or run.data.params["lr"] != "0.001" or run.data.tags["mlflow.note.content"] != "written by the proof":
        fail(f"MLflow: status {run.info.status}, parameters {run.data.params}")
    print(f"MLflow: {compared} numbers of {len(steps)} steps are the log's; {len(run.data.params)} parameters, status {run.info.status}", flush=True)


def compare_tensorboard(steps, evaluations):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2
    a = EventAccumulator("tb", size_guidance={"scalars": 0, "tensors": 0})
    a.Reload()
    for tag, field in {"lm loss": lambda e: e["loss"]["lm loss"], "tokens-per-second": lambda e: e["tokens_per_second"], "mfu": lambda e: e["mfu"], "mem-max-allocated-bytes": lambda e: e["memory_bytes"]}.items():
        got = {s.step: s.value for s in a.Scalars(tag)}
        want = {i: struct.unpack("f", struct.pack("f", field(e)))[0] for i, e in steps.items()}
        if got != want:
            fail(f"TensorBoard: {tag} is not the log's")
    content = a.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    session = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    if metadata.parse_session_start_info_plugin_data(content) != session or session.hparams["lr"].number_value != 0.001 or session.group_name != "all":
        fail(f"TensorBoard: hyperparameters are {session}")
    texts = {e.step: e.tensor_proto.string_val[0].decode().strip() for e in a.Tensors("sample 1/text_summary")}
    if texts != {i: e["samples"][0]["text"].strip() for i, e in evaluations.items()}:
        fail(f"TensorBoard: texts are {texts}")
    print(f"TensorBoard: {4 * len(steps)} numbers are the log's as float32; {len(session.hparams)} hyperparameters, {len(texts)} texts, {len(a.Tags()['scalars'])} tags", flush=True)


def compare_otlp(steps):
    for name, field in {"lm-loss": lambda e: e["loss"]["lm loss"], "learning-rate": None, "iteration": lambda e: e["iteration"]}.items():
        if len(points.get(name, [])) < len(steps):
            fail(f"OTLP: {len(points.get(name, []))} points of {name}, {len(steps)} steps")
        if field and name == "lm-loss" and [v for _, v in sorted(points[name])] != [field(steps[i]) for i in sorted(steps)]:
            fail(f"OTLP: {name} is not the log's")
    print(f"OTLP: {sum(map(len, points.values()))} points of {len(points)} instruments; lm-loss is the log's", flush=True)


def records(path):
    """Records of a .wandb file: behind 7 bytes, LevelDB's log format (blocks of 32768 bytes; checksum, length, kind, data)."""
    data, at, whole = open(path, "rb").read(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a record in one part, or its last
            yield whole
            whole = b""


def compare_wandb(steps):
    from wandb.proto import wandb_internal_pb2
    out = subprocess.run([sys.executable, track, "all", "--project", "proof"], capture_output=True, text=True, env=os.environ | {"WANDB_DIR": folder, "WANDB_SILENT": "true"})
    if out.returncode:
        fail("track.py: " + out.stderr[-2000:])
    (path,) = [os.path.join(d, f) for d, _, files in os.walk("wandb") for f in files if f.endswith(".wandb") and not os.path.islink(d)]
    got, name, config = {}, "", 0
    for data in records(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            got[row["_step"]] = row
        if record.HasField("run"):
            name, config = record.run.display_name, max(config, len(record.run.config.update))
    if set(got) != set(steps) or any(got[i]["lm loss"] != steps[i]["loss"]["lm loss"] or got[i]["grad-norm"] != steps[i]["grad_norm"] for i in steps):
        fail(f"wandb: {len(got)} steps are not the log's")
    print(f"wandb: {len(got)} steps of {name!r} in its offline folder are the log's; {config} settings ({out.stdout.strip().splitlines()[-1]})", flush=True)


def compare_trackio(steps):
    """What trackio's database has, where the package is installed."""
    import importlib.util
    import sqlite3
    if not importlib.util.find_spec("trackio"):
        print("trackio: not installed, skipped", flush=True)
        return
    out = subprocess.run([sys.executable, track, "all", "--with", "trackio", "--project", "proof"], capture_output=True, text=True, env=os.environ | {"TRACKIO_DIR": os.path.join(folder, "trackio")})
    if out.returncode:
        fail("track.py: " + out.stderr[-2000:])
    rows = {step: json.loads(text) for step, text in sqlite3.connect("trackio/proof.db").execute("select step, metrics from metrics where run_name = 'all'")}
    if set(rows) != set(steps) or any(rows[i]["lm loss"] != steps[i]["loss"]["lm loss"] or rows[i]["grad-norm"] != steps[i]["grad_norm"] for i in steps):
        fail(f"trackio: {len(rows)} steps are not the log's")
    print(f"trackio: {len(rows)} steps in its database are the log's", flush=True)


def compare_collector(program):
    """What OpenTelemetry's own collector writes of a run, with its receiver otlp and its exporter file."""
    at = free()
    with open("collector.yaml", "w") as f:
        f.write(f"receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{at}'}}}}}}}}\nexporters: {{file: {{path: '{folder}/collected.json'}}}}\n"
                "service: {telemetry: {metrics: {level: none}}, pipelines: {metrics: {receivers: [otlp], exporters: [file]}}}\n")
    collector = subprocess.Popen([program, "--config", f"file:{folder}/collector.yaml"], stdout=open("collector.out", "w"), stderr=subprocess.STDOUT)
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", at)).close()
                break
            except OSError:
                if collector.poll() is not None:
                    fail("the collector ended: " + open("collector.out").read()[-2000:])
                time.sleep(0.2)
        steps, _, notes = train("collected", "--otlp-endpoint", f"http://127.0.0.1:{at}")
    finally:
        collector.terminate()  # it writes what it has
        collector.wait()
    got, resource = {}, {}
    for line in open("collected.json"):
        for r in json.loads(line)["resourceMetrics"]:
            resource = {a["key"]: a["value"]["stringValue"] for a in r["resource"]["attributes"]}
            for m in [m for scope in r["scopeMetrics"] for m in scope["metrics"]]:
                got.setdefault(m["name"], []).extend((int(p["timeUnixNano"]), float(p["asDouble"])) for p in m["gauge"]["dataPoints"])
    if [v for _, v in sorted(got["lm-loss"])] != [steps[i]["loss"]["lm loss"] for i in sorted(steps)] or resource["run.name"] != "collected":
        fail(f"the collector has {len(got.get('lm-loss', []))} points of lm-loss, and the run {resource.get('run.name')}")
    print(f"OpenTelemetry's collector: {sum(map(len, got.values()))} points of {len(got)} metrics; lm-loss is the log's", flush=True)


server = mlflow_server()
try:
    common = ["--mlflow-tracking-uri", f"http://127.0.0.1:{port}", "--mlflow-experiment", "proof"]
    steps, evaluations, notes = train("all", *common, "--otlp-endpoint", f"http://127.0.0.1:{receiver.server_port}", "--tensorboard-dir", "tb")
    said = [n for n in notes.splitlines() if n.startswith("--") and "training has ended; the remaining steps are sent" not in n and "--mock-data each set" not in n]
    if said:
        fail(f"trackers warned: {said}")
    compare_mlflow("all", steps, evaluations)
    compare_tensorboard(steps, evaluations)
    compare_otlp(steps)
    compare_wandb(steps)
    compare_trackio(steps)
    if os.environ.get("OTELCOL"):
        compare_collector(os.environ["OTELCOL"])

    def gone(log):
        """Kills the server in the middle of the run, and starts it again."""
        global server
        while not os.path.exists(log) or sum(1 for _ in open(log)) < 40:
            time.sleep(0.02)
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        while sum(1 for _ in open(log)) < 120:
            time.sleep(0.02)
        server = mlflow_server()

    long = ["--num-layers", "4", "--hidden-size", "256", "--seq-length", "256", "--max-position-embeddings", "256", "--train-iters", "400"]
    steps, _, _ = train("calm", *long)
    again, evaluated, notes = train("broken", *common, *long, during=gone)
    said = [n for n in notes.splitlines() if "mlflow" in n]
    if [e["loss"] for e in again.values()] != [e["loss"] for e in steps.values()] or len(again) != 400:
        fail("the run whose server was killed learned something else")
    print("the server was killed at a step near 40 and came back: the run's losses are the same. It said:", flush=True)
    print("\n".join("  " + n[-300:] for n in said), flush=True)
    client, run = shown("broken")
    there = {m.step for m in client.get_metric_history(run.info.run_id, "lm loss")}
    lost = set(again) - there
    print(f"MLflow has {len(there)} of {len(again)} steps of it", flush=True)
    if not said or (lost and not any("could not be sent" in n or "are missing" in n for n in said)):
        fail("the gap was not reported")
finally:
    os.killpg(server.pid, signal.SIGKILL)
print("trackers: ok")
