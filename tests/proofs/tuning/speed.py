"""Trains a model with TRL for some steps in bf16 and prints the seconds of a step, the first two left out.

usage: speed.py MODEL ROWS full|lora|dpo STEPS LENGTH

ROWS are JSON lines: input_ids for full and lora, pairs (prompt, chosen, rejected) for dpo, which trains an adapter."""
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
import torch
import transformers
from datasets import load_dataset
from peft import LoraConfig
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

transformers.logging.set_verbosity_error()
model, rows, kind, steps, length = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
marks = []


class Clock(transformers.TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        marks.append(time.perf_counter())


torch.manual_seed(1)
settings = dict(output_dir=tempfile.mkdtemp(), max_steps=steps, per_device_train_batch_size=1, max_length=length, learning_rate=1e-5, bf16=True, use_cpu=True, report_to="none",
                save_strategy="no", logging_strategy="no", disable_tqdm=True, gradient_checkpointing=False)
objects = dict(model=transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16), train_dataset=load_dataset("json", data_files=rows, split="train"), callbacks=[Clock()],
               processing_class=transformers.AutoTokenizer.from_pretrained(model),
               peft_config=None if kind == "full" else LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
if kind == "dpo":
    # The reference's log-probabilities are computed before the first step, as ours are.
    trainer = DPOTrainer(args=DPOConfig(precompute_ref_log_probs=True, precompute_ref_batch_size=1, **settings), **objects)
else:
    trainer = SFTTrainer(args=SFTConfig(dataset_kwargs={"skip_prepare_dataset": True}, **settings), **objects)
trainer.train()
print((marks[-1] - marks[1]) / (len(marks) - 2))
