package bench

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/tokenizer"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// dataFlags are those of `bench data`.
func dataFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "input", Usage: "bench data: encode this file of JSON lines (default: encoding is not timed)"},
		command.Between(1, command.Threads, &cli.IntFlag{Name: "workers", Value: runtime.NumCPU(), Usage: "bench data: use N workers of preprocess_data"}),
		&cli.BoolFlag{Name: "processor-time", Usage: "bench data: measure processor time instead of wall time, for a shared machine"},
		command.Between(1, 1000000, &cli.IntFlag{Name: "rounds", Value: 3, Usage: "bench data: measure N rounds and report the best"}),
	}
}

// dataResult is what `bench data --json` prints. Sums are MD5s of the arrays, so
// that another program's can be compared with them.
type dataResult struct {
	Processor  string         `json:"processor"`
	Cores      int            `json:"cores"`
	Preprocess *encodeResult  `json:"preprocess,omitempty"`
	Index      []indexResult  `json:"index"`
	Blend      blendResult    `json:"blend"`
	Loader     []loaderResult `json:"loader"`
}

type encodeResult struct {
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"`
	BytesPerS  float64 `json:"bytes_per_second"`
	PeakMemory int64   `json:"peak_memory_bytes"`
}

type indexResult struct {
	Sequences int64             `json:"sequences"`
	Epochs    int64             `json:"epochs"`
	SeqLength int               `json:"seq_length"`
	Samples   int64             `json:"samples"`
	Seconds   float64           `json:"seconds"`
	PerSecond float64           `json:"samples_per_second"`
	MD5       map[string]string `json:"md5"`
}

type blendResult struct {
	Datasets  int               `json:"datasets"`
	Samples   int64             `json:"samples"`
	Seconds   float64           `json:"seconds"`
	PerSecond float64           `json:"samples_per_second"`
	MD5       map[string]string `json:"md5"`
}

type loaderResult struct {
	Workers   int     `json:"workers"`
	TokensPer float64 `json:"tokens_per_second"`
}

// benchData times the data path: text to tokens by this program's preprocess_data,
// index arrays, a blend, the loader.
func benchData(c *cli.Context) error {
	dir, remove, err := timing.TemporaryFolder("bench-data-")
	if err != nil {
		return err
	}
	defer remove()
	// Tokenizing where there is a corpus, then the rest on made-up data.
	watch := stopwatch{c.Int("rounds"), c.Bool("processor-time")}
	r := dataResult{Processor: system.Processor(), Cores: runtime.NumCPU()}
	if c.String("input") != "" {
		if r.Preprocess, err = benchEncode(c, dir); err != nil {
			return err
		}
	}
	if err := benchIndex(watch, dir, &r); err != nil {
		return err
	}
	r.Blend = benchBlend(watch)
	if r.Loader, err = benchLoader(watch, dir); err != nil {
		return err
	}
	out := &command.Printer{W: c.App.Writer}
	if c.Bool("json") {
		out.JSON(r)
		return out.Err
	}
	r.print(out)
	return out.Err
}

func (r dataResult) print(out *command.Printer) {
	out.Printf("%s, %d processors\n", r.Processor, r.Cores)
	if p := r.Preprocess; p != nil {
		out.Printf("preprocess_data  %6.1f MB/s of JSON lines (%.2f s, %d MB of memory)\n", p.BytesPerS/1e6, p.Seconds, p.PeakMemory>>20)
	}
	for _, x := range r.Index {
		out.Printf("index arrays     %6.1f M samples/s (%d sequences, %d epochs, %d samples of %d)\n", x.PerSecond/1e6, x.Sequences, x.Epochs, x.Samples, x.SeqLength)
	}
	out.Printf("blend            %6.1f M samples/s (%d datasets, %d samples)\n", r.Blend.PerSecond/1e6, r.Blend.Datasets, r.Blend.Samples)
	for _, l := range r.Loader {
		out.Printf("loader           %6.1f M tokens/s (%d workers)\n", l.TokensPer/1e6, l.Workers)
	}
}

// stopwatch takes times: the clock's, or of this process's threads.
type stopwatch struct {
	rounds    int
	processor bool
}

// fastest is the least time of several rounds.
func (s stopwatch) fastest(do func() error) (best time.Duration, err error) {
	began := time.Now()
	now := func() time.Duration {
		if s.processor {
			return processorTime()
		}
		return time.Since(began)
	}
	for i := range s.rounds {
		start := now()
		if err := do(); err != nil {
			return 0, err
		}
		if took := now() - start; i == 0 || took < best {
			best = took
		}
	}
	return best, nil
}

// benchEncode runs this program as preprocess_data, start-up included.
func benchEncode(c *cli.Context, dir string) (*encodeResult, error) {
	info, err := os.Stat(c.String("input"))
	if err != nil {
		return nil, exitcode.Errorf(exitcode.NoInput, "--input %s: %w", c.String("input"), err)
	}
	r := &encodeResult{Bytes: info.Size()}
	took, err := stopwatch{rounds: c.Int("rounds")}.fastest(func() error {
		cmd, err := timing.Again(c.Context, "preprocess_data", "--input", c.String("input"), "--output-prefix", filepath.Join(dir, "encoded"),
			"--tokenizer-type", "GPT2BPETokenizer", "--append-eod", "--workers", strconv.Itoa(c.Int("workers")))
		if err != nil {
			return err
		}
		if said, err := cmd.CombinedOutput(); err != nil {
			return exitcode.Errorf(exitcode.BadData, "preprocess_data: %w: %s", err, strings.TrimSpace(string(said)))
		}
		r.PeakMemory = max(r.PeakMemory, system.PeakMemory(cmd.ProcessState))
		return nil
	})
	r.Seconds, r.BytesPerS = took.Seconds(), float64(r.Bytes)/took.Seconds()
	return r, err
}

// benchLength is the length of sequence i of the made-up data, from 1 to
// 1999; another program can make the same.
func benchLength(i uint32) uint32 { return 1 + i*2654435761%1999 }

// benchIndex builds the three arrays of a made-up dataset whose tokens are a hole
// in a file, for one epoch and for ten.
func benchIndex(watch stopwatch, dir string, r *dataResult) error {
	const sequences, seq = 1_000_000, 1024
	prefix := filepath.Join(dir, "made-up")
	tokens, err := makeUp(prefix, sequences)
	if err != nil {
		return err
	}
	tok, err := tokenizer.NewNull(1000, -1, tokenizer.NoPad)
	if err != nil {
		return err
	}
	// The first epoch needs no repeated documents; ten are drawn together.
	for _, epochs := range []int64{1, 10} {
		n := (epochs*tokens - 1) / seq
		cfg := dataset.Config{DataPath: []string{prefix}, Split: "1", SequenceLength: seq, Seed: 1234, NoCache: true}
		var g *dataset.GPT
		took, err := watch.fastest(func() error {
			train, _, _, err := dataset.Build(cfg, tok, [3]*int64{&n})
			if err == nil {
				g = train.(*dataset.GPT)
			}
			return err
		})
		if err != nil {
			return err
		}
		r.Index = append(r.Index, indexResult{
			Sequences: sequences, Epochs: g.Epochs, SeqLength: seq, Samples: g.Len(), Seconds: took.Seconds(), PerSecond: float64(g.Len()) / took.Seconds(),
			MD5: map[string]string{"document_index": sum(g.DocumentIndex), "sample_index": sum(g.SampleIndex), "shuffle_index": sum(g.ShuffleIndex)},
		})
	}
	return nil
}

func sum(a dataset.Array) string { return fmt.Sprintf("%x", md5.Sum(a.Data)) }

// makeUp writes the index of n sequences, a document each, and a .bin that is a
// hole; it says how many tokens there are.
func makeUp(prefix string, n uint32) (tokens int64, err error) {
	le := binary.LittleEndian
	idx := append([]byte("MMIDIDX\x00\x00"), make([]byte, 25)...)
	le.PutUint64(idx[9:], 1)
	idx[17] = byte(dataset.U16)
	le.PutUint64(idx[18:], uint64(n))
	le.PutUint64(idx[26:], uint64(n)+1)
	for i := range n {
		idx = le.AppendUint32(idx, benchLength(i))
	}
	for i := range n {
		idx = le.AppendUint64(idx, uint64(2*tokens))
		tokens += int64(benchLength(i))
	}
	for i := range uint64(n) + 1 {
		idx = le.AppendUint64(idx, i)
	}
	if err := os.WriteFile(prefix+".idx", idx, 0o644); err != nil {
		return 0, exitcode.With(exitcode.IO, err)
	}
	if err := os.WriteFile(prefix+".bin", nil, 0o644); err != nil {
		return 0, exitcode.With(exitcode.IO, err)
	}
	return tokens, exitcode.With(exitcode.IO, os.Truncate(prefix+".bin", 2*tokens))
}

// benchBlend interleaves 100 datasets of different weights.
func benchBlend(watch stopwatch) blendResult {
	const datasets, samples = 100, 10_000_000
	weights := make([]float64, datasets)
	for i := range weights {
		weights[i] = float64(benchLength(uint32(i)))
	}
	var member, number dataset.Array
	took, _ := watch.fastest(func() error {
		member, number = dataset.BlendOrder(weights, samples)
		return nil
	})
	return blendResult{Datasets: datasets, Samples: samples, Seconds: took.Seconds(), PerSecond: samples / took.Seconds(),
		MD5: map[string]string{"dataset_index": sum(member), "dataset_sample_index": sum(number)}}
}

// benchLoader reads samples of 1024 tokens from a file that is in memory.
func benchLoader(watch stopwatch, dir string) (list []loaderResult, err error) {
	const micro, seq, batches = 8, 1024, 512
	// A pair of documents of many lengths.
	prefix := filepath.Join(dir, "tokens")
	b, err := dataset.NewBuilder(prefix, dataset.U16)
	if err != nil {
		return nil, err
	}
	defer b.Abort()
	for i := range uint32(16 << 10) {
		if err := b.AddDocument(make([]int32, benchLength(i)), []int32{int32(benchLength(i))}); err != nil {
			return nil, err
		}
	}
	if err := b.Finalize(); err != nil {
		return nil, err
	}
	tok, err := tokenizer.NewNull(1000, -1, tokenizer.NoPad)
	if err != nil {
		return nil, err
	}
	n := int64(micro * batches)
	train, _, _, err := dataset.Build(dataset.Config{DataPath: []string{prefix}, Split: "1", SequenceLength: seq, Seed: 1, NoCache: true}, tok, [3]*int64{&n})
	if err != nil {
		return nil, err
	}
	// The loader in the caller's goroutine, then with workers.
	for _, workers := range []int{0, 1, 2} {
		sampler, err := dataset.NewSampler(dataset.SamplerConfig{Total: train.Len(), MicroBatch: micro, DP: 1})
		if err != nil {
			return nil, err
		}
		took, err := watch.fastest(func() error {
			l := dataset.NewLoader(train, func(at int64) ([]int64, error) { return sampler.Batch(at, nil) }, micro, workers)
			for at := int64(0); at < n; at += micro {
				if _, _, err := l.MicroBatch(at); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		list = append(list, loaderResult{Workers: workers, TokensPer: float64(n) * seq / took.Seconds()})
	}
	return list, nil
}
