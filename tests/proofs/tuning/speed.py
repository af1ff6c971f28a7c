"""Trains a model with TRL on rows of input_ids for some steps, in bf16, and prints the seconds of a step, the first two left out.

usage: speed.py MODEL ROWS full|lora STEPS LENGTH"""
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
import torch
import transformers
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

transformers.logging.set_verbosity_error()
model, rows, kind, steps, length = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
marks = []


class Clock(transformers.TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        marks.append(time.perf_counter())


torch.manual_seed(1)
config = SFTConfig(output_dir=tempfile.mkdtemp(), max_steps=steps, per_device_train_batch_size=1, max_length=length, learning_rate=1e-5, bf16=True, use_cpu=True, report_to="none",
                   save_strategy="no", logging_strategy="no", disable_tqdm=True, dataset_kwargs={"skip_prepare_dataset": True}, gradient_checkpointing=False)
trainer = SFTTrainer(model=transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16), args=config, train_dataset=load_dataset("json", data_files=rows, split="train"), callbacks=[Clock()],
                     processing_class=transformers.AutoTokenizer.from_pretrained(model),
                     peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM") if kind == "lora" else None)
trainer.train()
print((marks[-1] - marks[1]) / (len(marks) - 2))
