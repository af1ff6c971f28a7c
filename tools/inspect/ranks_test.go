package inspect

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
)

// ask runs inspect samples on mock data.
func ask(line string) (list []reading, err error) {
	var out, notes bytes.Buffer
	app := &cli.App{Name: "inspect", Commands: []*cli.Command{Samples()}, Writer: &out, ErrWriter: &notes, ExitErrHandler: func(*cli.Context, error) {}}
	words := "inspect samples --mock-data --split 1,0,0 --seq-length 8 --train-samples 64 --tokenizer-type NullTokenizer --vocab-size 20 --ranks " + line
	if err := app.Run(strings.Fields(words)); err != nil {
		return nil, err
	}
	for d := json.NewDecoder(&out); d.More(); {
		var r reading
		if err := d.Decode(&r); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// Claim: in each iteration the data-parallel ranks read each sample of the global batch
// once, in Megatron's order; all ranks of the world are named, each once.
func TestWhichRankReadsWhichSample(t *testing.T) {
	const layout = "--world-size 8 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 8 "
	list, err := ask(layout + "--first 1 --count 2")
	if err != nil {
		t.Fatal(err)
	}
	want := []reading{
		{2, 0, 0, []int{0, 1, 4, 5}, []int64{8, 9}}, {2, 1, 0, []int{0, 1, 4, 5}, []int64{12, 13}},
		{3, 0, 0, []int{0, 1, 4, 5}, []int64{16, 17}}, {3, 1, 0, []int{0, 1, 4, 5}, []int64{20, 21}},
		{2, 0, 1, []int{2, 3, 6, 7}, []int64{10, 11}}, {2, 1, 1, []int{2, 3, 6, 7}, []int64{14, 15}},
		{3, 0, 1, []int{2, 3, 6, 7}, []int64{18, 19}}, {3, 1, 1, []int{2, 3, 6, 7}, []int64{22, 23}},
	}
	same := func(a, b reading) bool {
		return a.Iteration == b.Iteration && a.Micro == b.Micro && a.DP == b.DP && slices.Equal(a.Ranks, b.Ranks) && slices.Equal(a.Samples, b.Samples)
	}
	if !slices.EqualFunc(list, want, same) {
		t.Errorf("%+v", list)
	}
	cyclic, err := ask(layout + "--dataloader-type cyclic --count 8")
	if err != nil {
		t.Fatal(err)
	}
	var all []int64
	for _, r := range cyclic {
		all = append(all, r.Samples...)
	}
	slices.Sort(all)
	if len(all) != 64 || len(slices.Compact(all)) != 64 {
		t.Errorf("an epoch reads %d samples, %d of them different", len(all), len(slices.Compact(all)))
	}
	for _, bad := range []string{"--world-size 3 --tensor-model-parallel-size 2", "--global-batch-size 3 --micro-batch-size 2", "--first 1000000000", "--dataloader-type x", "--world-size 0"} {
		if _, err := ask(bad); exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
