package tests

import (
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// A row says what the packages under one folder may import of ours. Packages
// under one folder may import each other; the longest folder that fits counts.
type row struct {
	folder string
	may    string // folders, each with what lies under it
	why    string
}

// Sets of folders, bottom up.
const (
	base    = "cgroup fault flags hint notes whole "
	line    = base + "dataset tokenizer mpu/topology megatron/schedule megatron/spec megatron/report csrc/device/activations "
	kernels = base + "csrc/device csrc/device/activations "
	ranks   = kernels + "mpu mpu/ranks mpu/comm mpu/topology "
	engines = "mpu/comm/inproc mpu/comm/processes mpu/comm/gpu mpu/comm/preflight "
	parts   = line + ranks + "csrc/gpus megatron/model megatron/optimizer megatron/checkpoint megatron/formats "
	trainer = parts + engines + "megatron/engine megatron/inference megatron/training megatron/estimate megatron/arguments megatron/dashboard "
)

// devices are chosen by name at run time, so only main and tests may name them.
const devices = "csrc/ref csrc/cpu csrc/cuda "

// importTable is the house, top to bottom: arrows point down.
var importTable = []row{
	{"", "tools tools/internal megatron/pretrain csrc/start mpu/ranks/devices " + trainer + devices, "main names the commands and registers the devices"},
	{"tools", "tools/internal " + trainer, "one folder a command; what two tools share belongs below them"},
	{"tools/internal", kernels + "tokenizer ", "how every tool reads its command line and opens its device, no more"},
	{"megatron/pretrain", trainer, "pretrain_gpt only joins arguments and training"},
	{"megatron/estimate", parts + "megatron/engine megatron/inference megatron/training megatron/arguments", "a plan is training's own setup, counted; a layout is legal where training's flags say so"},
	{"megatron/arguments", line + "megatron/model megatron/optimizer megatron/checkpoint megatron/formats megatron/engine megatron/training",
		"fills its owners' Configs; those of engine and training lie beside a step and a loop that it never calls"},
	{"megatron/training", parts + "megatron/engine megatron/inference megatron/dashboard mpu/comm/processes", "a run: decides, and computes nothing itself; samples at evaluation"},
	{"megatron/dashboard", base + "megatron/report megatron/checkpoint mpu/comm", "shows what a run's files say; the run that serves it is a file to it too"},
	{"megatron/engine", line + ranks + "megatron/model megatron/optimizer ", "one step of one rank: neither files nor data sets, nor who asks for the step"},
	{"megatron/inference", parts, "runs a model, never trains one"},
	{"megatron/model", line + ranks, "layers know ranks and kernels; neither optimizer nor files"},
	{"megatron/optimizer", ranks + "megatron/spec", "works on Params, whatever model they belong to"},
	{"megatron/checkpoint", ranks + "megatron/spec megatron/formats tokenizer", "files hold pieces of Params, and the tokenizer that goes with them; all joins the native format to the others"},
	{"megatron/formats", ranks + "megatron/spec tokenizer", "what other programs wrote, and which tokenizer they name; never sees the native format or training"},
	{"internal", "", "what tests of several packages find their files with"},
	{"mpu", kernels + "mpu/comm mpu/topology", "parallel layers over any group and any device"},
	{"mpu/ranks", kernels + engines + "mpu/comm mpu/topology", "makes, watches and ends ranks; knows groups, and nothing of what is done in them"},
	{"mpu/ranks/devices", kernels + "csrc/gpus mpu/comm", "which device a rank computes on; main says which there are"},
	{"mpu/comm", kernels, "what ranks do together, as a value; knows no engine and no layer"},
	{"mpu/comm/sums", kernels + "mpu/comm", "adds what ranks bring, wherever they are: the bits are the same"},
	{"mpu/comm/inproc", kernels + "mpu/comm mpu/comm/sums", "an engine: ranks that are goroutines; knows no other engine"},
	{"mpu/comm/processes", kernels + "csrc/comm mpu/comm mpu/comm/sums", "an engine: ranks that are processes; knows no other engine"},
	{"mpu/comm/gpu", kernels + "csrc/comm mpu/comm", "an engine: NCCL, over any host's groups; knows no other engine"},
	{"mpu/comm/preflight", kernels + "mpu/comm mpu/comm/processes", "looks at a run of processes before its first step"},
	{"mpu/comm/commtest", kernels + "mpu/comm", "imported by tests only: what every engine must compute"},
	{"mpu/topology", base, "arithmetic of ranks"},
	{"csrc/comm", kernels, "C side of comm"},
	{"csrc/ref", kernels, "a device sees tensors only"},
	{"csrc/cpu", kernels, "a device sees tensors only"},
	{"csrc/cuda", kernels, "a device sees tensors only"},
	{"csrc/start", "", "runs before Go does"},
	{"csrc/gpus", base, "asks NVIDIA's driver, runs nothing on it"},
	{"csrc/device", base + "csrc/device/activations", "the seam: knows no device"},
	{"csrc/device/activations", "", "a table of names: model shapes, flags and file formats ask it too"},
	{"csrc/device/devicetest", kernels + "csrc/ref", "imported by tests only; ref is the oracle"},
	{"megatron/schedule", base + "mpu/topology", "pure lists, so that the simulator can run them"},
	{"megatron/spec", base + "mpu/topology csrc/device/activations", "formulas: the cross-check of what is measured"},
	{"megatron/report", base, "writes numbers, computes none"},
	{"dataset", base + "tokenizer", "data stands alone: any trainer could read it"},
	{"tokenizer", base, "text to ids"},
	{"scripts/bench-data", "dataset tokenizer", "a clock around the tokenizer alone"},
	{"tests", "mpu/comm ", "starts the program; reads what its ranks recorded, and knocks at their doors"},
	{"flags", "fault", "reads a command line"},
	{"notes", "fault", "what people are told: a line each on stderr"},
	{"whole", "fault", "how every file comes into being: whole or not at all"},
	{"cgroup", "", "what the system leaves this process"},
	{"hint", "", "asks the system for what only makes a run faster"},
	{"fault", "", "the bottom: every package may return one"},
}

// forTests may be imported by tests only: to choose a device, to meet, to find files.
const forTests = devices + "csrc/device/devicetest internal mpu/comm/commtest mpu/comm/inproc mpu/comm/gpu "

// TestImportsPointDown fails on an import that the table forbids.
func TestImportsPointDown(t *testing.T) {
	arrows, err := readArrows()
	if err != nil {
		t.Fatal(err)
	}
	if len(arrows) < 10 {
		t.Fatalf("found %d imports of ours in the whole tree; the reader is broken", len(arrows))
	}
	for _, a := range arrows {
		if err := a.check(); err != nil {
			t.Error(err)
		}
	}
}

// TestForbiddenArrowsAreCaught shows that the test above can fail.
func TestForbiddenArrowsAreCaught(t *testing.T) {
	for _, a := range []arrow{
		{from: "megatron/model", to: "megatron/training"},
		{from: "megatron/model", to: "tools"},
		{from: "megatron/formats/hf", to: "megatron/training"},
		{from: "megatron/training", to: "csrc/cpu"},
		{from: "megatron/optimizer", to: "megatron/model"},
		{from: "megatron/schedule", to: "mpu", test: true},
		{from: "csrc/device", to: "mpu/comm"},
		{from: "mpu", to: "mpu/comm/inproc"},
		{from: "mpu/comm/gpu", to: "mpu/comm/processes"},
		{from: "dataset", to: "csrc/device"},
		{from: "fault", to: "flags"},
		{from: "tools/bench", to: "tools/verify"},
		{from: "tools/bench", to: "megatron/pretrain"},
		{from: "tools/bench", to: "csrc/device/devicetest"},
		{from: "newfolder", to: "fault"},
	} {
		if a.check() == nil {
			t.Errorf("%s importing %s was let through", a.from, a.to)
		}
	}
	for _, a := range []arrow{
		{from: "", to: "csrc/cpu"},
		{from: "tools/verify", to: "tools/verify/datacase"},
		{from: "tools/verify", to: "tools/internal/command"},
		{from: "megatron/checkpoint", to: "megatron/formats/safetensors"},
		{from: "megatron/training", to: "csrc/ref", test: true},
		{from: "mpu", to: "mpu/comm"},
	} {
		if err := a.check(); err != nil {
			t.Errorf("a legal arrow was refused: %v", err)
		}
	}
}

// TestDesignIsWhole: one row a folder, each with its reason.
func TestDesignIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range importTable {
		if r.why == "" || seen[r.folder] {
			t.Errorf("row %q has no reason or stands twice", r.folder)
		}
		seen[r.folder] = true
	}
}

// arrow is one import, both ends as folders of this repository.
type arrow struct {
	from, to string
	test     bool
	at       token.Position
}

func (a arrow) check() error {
	from, ok := rowOf(a.from)
	if !ok {
		return fmt.Errorf("%s: folder %s has no row in importTable: say what it may import and why", a.at, a.from)
	}
	to, _ := rowOf(a.to)
	if to.folder == from.folder && toolOf(a.from) == toolOf(a.to) {
		return nil
	}
	may := strings.Fields(from.may)
	if a.test {
		may = append(may, strings.Fields(forTests)...)
	}
	if !slices.Contains(may, to.folder) {
		return fmt.Errorf("%s: %s must not import %s (%s)", a.at, a.from, a.to, from.why)
	}
	return nil
}

// toolOf is the tool that a package belongs to; no tool's for others.
func toolOf(pkg string) string {
	rest, ok := strings.CutPrefix(pkg, "tools/")
	if !ok {
		return ""
	}
	tool, _, _ := strings.Cut(rest, "/")
	return tool
}

func rowOf(pkg string) (best row, ok bool) {
	for _, r := range importTable {
		if r.folder == pkg || (r.folder != "" && under(pkg, r.folder) && len(r.folder) >= len(best.folder)) {
			best, ok = r, true
		}
	}
	return best, ok
}

func under(pkg, folder string) bool { return pkg == folder || strings.HasPrefix(pkg, folder+"/") }

// readArrows parses the import lines of every Go file, whatever its build tags.
func readArrows() ([]arrow, error) {
	var arrows []arrow
	files := token.NewFileSet()
	err := walkSources(func(path string) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		found, err := arrowsOf(files, path)
		arrows = append(arrows, found...)
		return err
	})
	sort.Slice(arrows, func(i, j int) bool { return arrows[i].at.String() < arrows[j].at.String() })
	return arrows, err
}

func arrowsOf(files *token.FileSet, path string) ([]arrow, error) {
	f, err := parser.ParseFile(files, filepath.Join(repository, path), nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	from := filepath.ToSlash(filepath.Dir(path))
	if from == "." {
		from = ""
	}
	var arrows []arrow
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if to, ours := strings.CutPrefix(name, "monotron/"); ours {
			arrows = append(arrows, arrow{from, to, strings.HasSuffix(path, "_test.go"), files.Position(spec.Pos())})
		}
	}
	return arrows, nil
}
