"""Prints cases of GRPO's loss as TRL's own GRPOTrainer._compute_loss has them: a JSON list.

megatron/policy/testdata/trl.json is its output with TRL 1.16; policy_test.go compares with it."""
import collections
import json
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


def case(seed, loss, level, scale, beta):
    torch.manual_seed(seed)
    rows, most, group = 6, 7, 3
    lengths = torch.randint(1, most + 1, (rows,))
    mask = (torch.arange(most)[None] < lengths[:, None]).double()
    now = (-3 * torch.rand(rows, most, dtype=torch.float64)).requires_grad_()
    old, ref = now.detach() + 0.5 * torch.randn(rows, most).double(), now.detach() + 0.5 * torch.randn(rows, most).double()
    rewards = torch.randint(0, 3, (rows,)).double()
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


print(json.dumps([case(i, loss, level, scale, beta) for i, (loss, level, scale, beta) in enumerate(
    (loss, level, scale, beta) for loss in ("dapo", "grpo", "dr_grpo") for level in ("token", "sequence")
    for scale in ("group", "batch", "none") for beta in (0.0, 0.04))], indent=None))
