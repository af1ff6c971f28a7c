package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/drawn"
)

// TestExamples runs every script of examples/ in a folder of its own: the
// commands of the documentation are commands that work.
func TestExamples(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join(repository, "examples", "*.sh"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	bin := program(t)
	if testing.Short() { // plain Go is slow
		scripts = drawn.Some(t, scripts, len(scripts)/3)
	} else {
		scripts = drawn.Part(t, scripts, len(scripts)/2)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".sh"), func(t *testing.T) {
			if filepath.Base(script) == "measure.sh" && os.Getenv("EXAMPLES") != "all" {
				t.Skip("measures for minutes; EXAMPLES=all runs it, and tests/proofs/planner/time.sh")
			}
			cmd := exec.Command("sh", "-eu", script)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "REPO="+repository)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			made, err := os.ReadDir(cmd.Dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range made {
				if _, err := os.Stat(filepath.Join(repository, f.Name())); err == nil {
					t.Errorf("it writes %s, which is something else in the repository's folder, where a reader may start it", f.Name())
				}
			}
		})
	}
}

// Claim (README.md): make quickstart trains, kills and resumes a run, and finds what is
// trained twice equal bit for bit. Here on 1.5 MB of the corpus, for 40 steps.
func TestQuickstart(t *testing.T) {
	out := filepath.Join(t.TempDir(), "quickstart")
	cmd := exec.Command("bash", filepath.Join(repository, "scripts", "quickstart.sh"))
	cmd.Env = append(os.Environ(), "BIN="+program(t), "OUT="+out, "TRAIN_SECONDS=1", "CORPUS=1500000", "EVAL_ITERS=1")
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "bit for bit: 6 steps trained twice") {
		t.Fatalf("%v\n%s", err, text)
	}
	if st, err := os.Stat(filepath.Join(out, "report.html")); err != nil || st.Size() == 0 {
		t.Errorf("no report: %v", err)
	}
}

// Claim (docs/quickstart.md): make quickstart-tune tunes a model on pairs of Go's sources, keeps the best
// weights, merges and exports them, and talks with the result. Here with a tiny model that is not fetched.
func TestQuickstartTune(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	dir, bin := t.TempDir(), program(t)
	const model = `seq 1 400 | tr '\n' ' ' | sed 's/.*/{"text": "&"}/' >sample.jsonl
preprocess_data --input sample.jsonl --output-prefix sample --tokenizer-type GPT2BPETokenizer --append-eod
pretrain_gpt --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 512 --max-position-embeddings 512 --micro-batch-size 1 --train-iters 1 --lr 1e-3 --tokenizer-type GPT2BPETokenizer --data-path sample_text_document --split 100,0,0 --eval-iters 0 --save ckpt
monotron convert --input ckpt --to hf --output model
echo '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == "assistant" %}<|endoftext|>{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}' >model/chat_template.jinja`
	first := exec.Command("sh", "-euc", model)
	first.Dir, first.Env = dir, append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	if text, err := first.CombinedOutput(); err != nil {
		t.Fatalf("the model: %v\n%s", err, text)
	}
	cmd := exec.Command("bash", filepath.Join(repository, "scripts", "quickstart-tune.sh"))
	cmd.Env = append(os.Environ(), "BIN="+bin, "OUT="+filepath.Join(dir, "out"), "MODEL="+filepath.Join(dir, "model"), "ROWS=16", "EVAL_ROWS=6", "EPOCHS=1")
	text, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(text), "validation loss") < 3 || !strings.Contains(string(text), "the weights of iteration 2 are kept,") {
		t.Fatalf("%v\n%s", err, text)
	}
	if st, err := os.Stat(filepath.Join(dir, "out", "tuned.gguf")); err != nil || st.Size() == 0 {
		t.Errorf("no GGUF file: %v", err)
	}
}
