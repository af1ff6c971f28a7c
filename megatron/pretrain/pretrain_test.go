package pretrain

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/training"
)

// asCommand makes the test binary behave as pretrain_gpt: for tests that kill it.
const asCommand = "MONOTRON_TEST_AS_PRETRAIN_GPT"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) == "" {
		folder, err := makeData()
		if err != nil {
			panic(err)
		}
		code := m.Run()
		_ = os.RemoveAll(folder) // a temporary folder
		os.Exit(code)
	}
	err := run(context.Background(), os.Args[1:], openRef, training.Streams{Out: os.Stdout, Notes: logging.Stderr()})
	if err != nil {
		logging.Stderr().Failure(err)
	}
	os.Exit(int(exitcode.CodeOf(err)))
}

func openRef(string) (*device.Device, error) { return ref.Open(), nil }

// tiny is a model that trains some 30 steps a second on the plain Go device.
const tiny = "--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 " +
	"--micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --train-iters 6 --log-interval 1 --eval-interval 4 --eval-iters 2 --device ref --cpu-threads 1 "

// someData are the flags of a small corpus that all tests share. (The indices of
// --mock-data's 100,000 documents take longer than the training.)
var someData string

func makeData() (folder string, err error) {
	if folder, err = os.MkdirTemp("", "pretrain"); err != nil {
		return "", err
	}
	someData = "--data-path " + filepath.Join(folder, "data") + " --split 8,1,1 --tokenizer-type NullTokenizer --vocab-size 50 --make-vocab-size-divisible-by 2 "
	return folder, writeCorpus(folder, "data", 90, 110, 120, 80, 100, 70, 130, 100, 95, 105)
}

// result is how a run of the command ended.
type result struct {
	out, notes string
	err        error
}

func (r result) code() exitcode.Code { return exitcode.CodeOf(r.err) }

// call runs the command in this process. DIR in line stands for dir.
func call(t *testing.T, dir, line string) result {
	t.Helper()
	return callUntil(t, context.Background(), dir, line, nil)
}

// callUntil runs the command and shows see everything it prints.
func callUntil(t *testing.T, ctx context.Context, dir, line string, see func(text string)) result {
	t.Helper()
	var args []string
	for _, word := range strings.Fields(line) {
		args = append(args, strings.ReplaceAll(strings.ReplaceAll(word, "DIR", dir), "~", " "))
	}
	var out, notes bytes.Buffer
	err := run(ctx, args, openRef, training.Streams{Out: &watched{&out, see}, Notes: logging.New(&notes)})
	return result{out.String(), notes.String(), err}
}

type watched struct {
	out *bytes.Buffer
	see func(string)
}

func (w *watched) Write(p []byte) (int, error) {
	if w.see != nil {
		w.see(string(p))
	}
	return w.out.Write(p)
}

// must runs a command that has to succeed.
func must(t *testing.T, dir, line string) result {
	t.Helper()
	r := call(t, dir, line)
	if r.err != nil {
		t.Fatalf("%s: %v", line, r.err)
	}
	return r
}

// weights is the hash of all tensors of the newest checkpoint of folder.
func weights(t *testing.T, folder string) string {
	t.Helper()
	f, err := native.Open(folder, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := f.Hash(func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return h.Hash()
}

var (
	changing = regexp.MustCompile(`\[\d{4}-[^]]*\] |elapsed time per iteration \(ms\): [0-9.]+ \| `)
	losses   = regexp.MustCompile(`(?m)^.*(lm loss).*$`)
)

// numbers are the lines with losses, without the clock's readings.
func numbers(out string) []string {
	return losses.FindAllString(changing.ReplaceAllString(out, ""), -1)
}

// corpus writes dir/name.bin and .idx: one document a length, ids below 50.
func corpus(t *testing.T, dir, name string, lengths ...int) {
	t.Helper()
	if err := writeCorpus(dir, name, lengths...); err != nil {
		t.Fatal(err)
	}
}

func writeCorpus(dir, name string, lengths ...int) error {
	b, err := dataset.NewBuilder(filepath.Join(dir, name), dataset.DTypeFor(50))
	if err != nil {
		return err
	}
	for d, n := range lengths {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32((7*i + d*i/3 + d) % 50)
		}
		if err := b.AddDocument(ids, []int32{int32(n)}); err != nil {
			return err
		}
	}
	return b.Finalize()
}
