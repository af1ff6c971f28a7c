#!/bin/bash
# Claim: what MLflow's server, TensorBoard, an OTLP receiver and the packages of wandb and trackio show of one run is the run's log, to
# the last digit of each format; MLflow's server killed in the middle changes no step, and the gap is reported or filled. TRACKERS
# names a Python with mlflow, tensorboard, wandb, opentelemetry-proto and, if at all, trackio (python3 -m venv; pip install). OTELCOL
# names an OpenTelemetry collector with the receiver otlp and the exporter file, as otelcol-contrib is; without it there is none.
source "$(dirname "$0")/../common.sh"
trackers=${TRACKERS:-$python}
"$trackers" -c 'import mlflow, tensorboard, wandb, opentelemetry.proto' 2>/dev/null || { echo "skipped: give TRACKERS a python with mlflow, tensorboard, wandb, opentelemetry-proto"; exit 0; }
"$trackers" tests/proofs/trackers/servers.py "$PWD/bin/pretrain_gpt" "$PWD/scripts/track.py" "$work"
