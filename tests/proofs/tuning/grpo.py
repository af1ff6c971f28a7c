"""Prints cases of GRPO's loss as TRL's own GRPOTrainer._compute_loss has them: a JSON list.

megatron/policy/testdata/trl.json is its output with TRL 1.16; policy_test.go compares with it.
grpo.py --check FILE gives TRL the probabilities and rewards of a file's cases instead, and compares what it makes of them, to rounding:
what torch draws from a seed, and how it rounds, depends on the processor's instructions (ATEN_CPU_CAPABILITY=default shows it)."""
import collections
import json
import sys
import types

import torch
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import nanstd


def advantages(rewards, group, scale):  # as in GRPOTrainer._generate_and_score_completions
    mean = torch.nanmean(rewards.view(-1, group), dim=1).repeat_interleave(group)
    if scale == "batch":
        std = nanstd(rewards).expand_as(rewards)
    else:
        std = nanstd(rewards.view(-1, group), dim=1).repeat_interleave(group)
    out = rewards - mean
    if scale != "none":
        out = out / (std + 1e-4)
    return out, torch.isclose(std, torch.zeros_like(std)).double().mean()


def drawn(seed):
    torch.manual_seed(seed)
    rows, most = 6, 7
    lengths = torch.randint(1, most + 1, (rows,))
    now = -3 * torch.rand(rows, most, dtype=torch.float64)
    old, ref = now + 0.5 * torch.randn(rows, most).double(), now + 0.5 * torch.randn(rows, most).double()
    return lengths, now, old, ref, torch.randint(0, 3, (rows,)).double()


def given(c):  # of a case in the file
    lengths = torch.tensor([len(row) for row in c["policy"]])
    wide = lambda rows: torch.tensor([row + [-1.0] * (c["max_completion_length"] - 2 - len(row)) for row in rows], dtype=torch.float64)
    return lengths, wide(c["policy"]), wide(c["sampled"]), wide(c["reference"]), torch.tensor(c["rewards"], dtype=torch.float64)


def case(inputs, loss, level, scale, beta):
    lengths, now, old, ref, rewards = inputs
    rows, most, group = len(lengths), 7, 3
    mask = (torch.arange(most)[None] < lengths[:, None]).double()
    now.requires_grad_()
    adv, same = advantages(rewards, group, scale)
    self = types.SimpleNamespace(
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None, importance_sampling_level=level, beta=beta, loss_type=loss,
        epsilon_low=0.2, epsilon_high=0.28, use_vllm=False, vllm_importance_sampling_correction=False, current_gradient_accumulation_steps=1,
        _entropy_bonus_enabled=False, max_completion_length=most + 2, model=types.SimpleNamespace(training=True),
        args=types.SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
        accelerator=types.SimpleNamespace(num_processes=1, reduce=lambda x, reduction: x, gather=lambda x: x),
        _metrics={"train": collections.defaultdict(list)}, _get_per_token_logps_and_entropies=lambda *a, **k: (now, torch.zeros_like(now), None))
    ids = torch.zeros(rows, most, dtype=torch.long)
    value = GRPOTrainer._compute_loss(self, None, {
        "prompt_ids": ids, "prompt_mask": ids, "completion_ids": ids, "completion_mask": mask, "advantages": adv, "old_per_token_logps": old,
        "ref_per_token_logps": ref, "num_items_in_batch": mask.sum()})
    value.backward()
    cut = lambda t: [t[i, :n].tolist() for i, n in enumerate(lengths)]
    return {"loss_type": loss, "level": level, "scale": scale, "beta": beta, "low": 0.2, "high": 0.28, "max_completion_length": most + 2, "group": group,
            "rewards": rewards.tolist(), "advantages": adv.tolist(), "same": same.item(), "policy": cut(now.detach()), "sampled": cut(old), "reference": cut(ref),
            "loss": value.item(), "gradient": cut(now.grad), "metrics": {k: v[0] for k, v in self._metrics["train"].items()}}


def apart(a, b):  # of numbers at the same places, the largest relative difference; of anything else infinity
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and not isinstance(a, bool):
        return abs(a - b) / max(1.0, abs(a), abs(b))
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return max((apart(a[k], b[k]) for k in a), default=0)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return max((apart(x, y) for x, y in zip(a, b)), default=0)
    return 0 if a == b else float("inf")


if sys.argv[1:2] == ["--check"]:
    want = json.load(open(sys.argv[2]))
    off = apart([json.loads(json.dumps(case(given(c), c["loss_type"], c["level"], c["scale"], c["beta"]))) for c in want], want)
    print(f"TRL gives {sys.argv[2]}: {len(want)} cases, apart by {off:.1e} at most")
    sys.exit(0 if off <= 1e-12 else 1)
print(json.dumps([case(drawn(i), *settings) for i, settings in enumerate(
    (loss, level, scale, beta) for loss in ("dapo", "grpo", "dr_grpo") for level in ("token", "sequence")
    for scale in ("group", "batch", "none") for beta in (0.0, 0.04))], indent=None))
