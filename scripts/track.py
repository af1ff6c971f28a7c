#!/usr/bin/env python3
"""Sends a run's log to wandb or trackio by their own packages.

    scripts/track.py FOLDER [--with wandb|trackio] [--project NAME] [--online]

FOLDER holds what pretrain_gpt --log-jsonl wrote (or give the file). The names of the numbers are those that Megatron-LM gives
wandb. wandb runs offline unless --online is given: it then writes the folder wandb/, which `wandb sync` sends.
Of a run that was resumed, steps that were trained again count as last trained.
"""
import argparse
import importlib
import json
import os
import sys


def log_of(path):
    """The log at path, or the only one in that folder."""
    if not os.path.isdir(path):
        return path
    logs = [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith(".jsonl")]
    if len(logs) != 1:
        sys.exit(f"{path} has {len(logs)} files .jsonl; give the one of the run")
    return logs[0]


def entries(path):
    """Lines of the log in order, those behind a step that was trained again left out."""
    kept = []
    with open(path) as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # cut short by a crash
            if not isinstance(entry, dict) or "iteration" not in entry:
                continue
            if "validation" not in entry:
                while kept and kept[-1]["iteration"] >= entry["iteration"]:
                    kept.pop()
            kept.append(entry)
    return kept


# Megatron's names, and the field of the log that each is.
TRAINING = {"learning-rate": "learning_rate", "batch-size": "global_batch_size", "loss-scale": "loss_scale", "grad-norm": "grad_norm", "params-norm": "params_norm",
            "num-zeros": "num_zeros", "iteration-time": "seconds", "throughput": "tflops_per_device", "tokens-per-second": "tokens_per_second", "mfu": "mfu",
            "mem-max-allocated-bytes": "memory_bytes"}


def numbers(entry):
    """What a line says, by Megatron's names."""
    split = entry.get("validation")
    ending = {None: "", "train": " train estimate"}.get(split, f" {split}")
    out = {name + ending: value for name, value in (entry.get("loss") or {}).items()}
    if split is None:
        out.update({name: entry.get(field) for name, field in TRAINING.items()})
        out.update(entry.get("balancing_loss") or {})
        out["consumed-tokens"] = entry.get("consumed_tokens")
    elif split == "validation":
        out["bits-per-byte validation"] = entry.get("bits_per_byte")
    for field, value in entry.items():
        if field.startswith(("rewards_", "logps_")) or field in ("kl", "nll_loss", "log_odds_chosen"):
            out[field.replace("_", "-") + ending] = value
    return {name: value for name, value in out.items() if isinstance(value, (int, float))}


def about(log):
    """What the run is, where it said so."""
    path = os.path.splitext(log)[0] + ".run.json"
    if not os.path.exists(path):
        return {"name": os.path.basename(os.path.dirname(os.path.abspath(log)))}
    with open(path) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description="send a run's log to wandb or trackio")
    parser.add_argument("folder", help="folder of the log, or the log")
    parser.add_argument("--with", dest="package", default="wandb", choices=["wandb", "trackio"], help="package that gets it (default: wandb)")
    parser.add_argument("--project", default="monotron", help="project of the run (default: monotron)")
    parser.add_argument("--online", action="store_true", help="send it now (default: wandb writes a folder for wandb sync)")
    arguments = parser.parse_args()
    log = log_of(arguments.folder)
    run, all_entries = about(log), entries(log)
    if not all_entries:
        sys.exit(f"{log} has no step")
    config = {flag["name"]: flag["value"] for flag in run.get("flags") or []} | {fact["label"]: fact["text"] for fact in run.get("facts") or []}
    package = importlib.import_module(arguments.package)
    extras = {"mode": "online" if arguments.online else "offline", "notes": run.get("notes")} if arguments.package == "wandb" else {}
    target = package.init(project=arguments.project, name=run["name"], config=config, **extras)
    steps = {}
    for entry in all_entries:
        step = steps.setdefault(entry["iteration"], {})
        step.update(numbers(entry))
        if entry.get("samples") and arguments.package == "wandb":
            step["samples"] = package.Table(columns=["prompt", "text"], data=[[s["prompt"], s["text"]] for s in entry["samples"]])
    log_step = target.log if hasattr(target, "log") else package.log
    for iteration, values in sorted(steps.items()):
        log_step(values, step=iteration)
    (target.finish if hasattr(target, "finish") else package.finish)()
    print(f"{len(steps)} steps of {run['name']} went to {arguments.package}")


if __name__ == "__main__":
    main()
