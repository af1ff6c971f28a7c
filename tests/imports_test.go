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
	base    = "internal/argv internal/atomicfile internal/cgroup internal/elementary internal/exitcode internal/fingerprint internal/logging internal/osadvice internal/system internal/web "
	codecs  = "internal/gguf internal/nf4 internal/parallelio internal/pickle internal/safetensors "
	line    = base + "dataset tokenizer mpu/topology megatron/policy megatron/preference megatron/schedule megatron/spec megatron/telemetry csrc/device/activations "
	kernels = base + "csrc/device csrc/device/activations "
	ranks   = kernels + "mpu mpu/ranks mpu/comm mpu/health mpu/bootstrap mpu/topology "
	engines = "mpu/comm/inproc mpu/comm/process mpu/comm/nccl mpu/bootstrap/preflight "
	parts   = line + codecs + ranks + "internal/store csrc/gpus megatron/config megatron/model megatron/optimizer megatron/checkpoint "
	trainer = parts + engines + "megatron/engine megatron/inference megatron/inference/schema megatron/training megatron/plan megatron/arguments megatron/telemetry/dashboard megatron/telemetry/tracker "
)

// devices are chosen by name at run time, so only main and tests may name them.
const devices = "csrc/ref csrc/cpu csrc/cuda "

// importTable lists the folders from top to bottom: imports point down.
var importTable = []row{
	{"", "tools tools/internal megatron/pretrain csrc/start mpu/ranks/devices " + trainer + devices, "main names the commands and registers the devices"},
	{"tools", "tools/internal tools/internal/answering tools/internal/timing " + trainer, "one folder for each command; what two commands share belongs below them"},
	{"tools/internal", kernels + "tokenizer internal/store megatron/checkpoint ", "how every command reads its command line, finds its checkpoint and opens its device, no more"},
	{"tools/internal/answering", "tools/internal " + trainer, "what serve and chat share of a loaded model"},
	{"tools/internal/timing", "tools/internal " + trainer, "what bench and measure both time"},
	{"megatron/pretrain", trainer, "pretrain_gpt joins arguments and training, no more"},
	{"megatron/plan", parts + "megatron/engine megatron/inference megatron/training megatron/arguments", "a plan is training's own setup, counted; a layout is legal where training's flags say so"},
	{"megatron/arguments", line + "internal/store mpu megatron/config megatron/model megatron/optimizer megatron/checkpoint", "fills config; imports neither a step nor a loop"},
	{"megatron/config", line + kernels + "mpu mpu/topology megatron/model megatron/optimizer", "what a run and a step are configured with, and what follows from it"},
	{"megatron/training", parts + "megatron/engine megatron/inference megatron/telemetry/dashboard megatron/telemetry/tracker mpu/comm/process", "a run: decides, and computes nothing itself; samples at evaluation"},
	{"megatron/telemetry/dashboard", base + "megatron/telemetry megatron/checkpoint mpu/comm mpu/health", "shows what a run's files say; it reads them also of the run that serves it"},
	{"megatron/telemetry/tracker", base + "megatron/telemetry", "sends a run's numbers to other programs' servers"},
	{"megatron/engine", line + ranks + "megatron/config megatron/model megatron/optimizer ", "one step of one rank: knows neither files nor datasets"},
	{"megatron/inference", parts + "megatron/inference/schema", "runs a model, never trains one"},
	{"megatron/inference/schema", base + "tokenizer", "bytes and tokens: knows no model"},
	{"megatron/model", line + ranks, "layers know ranks and kernels; neither optimizer nor files"},
	{"megatron/optimizer", ranks + "internal/nf4 internal/parallelio internal/safetensors megatron/spec", "works on Params, whatever model they belong to"},
	{"megatron/checkpoint", codecs + ranks + "internal/store megatron/spec tokenizer", "pieces of Params in files, in every format; formats never import training"},
	{"internal/argv", "internal/exitcode", "reads a command line"},
	{"internal/atomicfile", "internal/exitcode internal/system", "files that appear complete or not at all"},
	{"internal/elementary", "", "functions of numbers"},
	{"internal/fingerprint", "", "sums of bytes: knows no tensor"},
	{"internal/gguf", base + "internal/parallelio internal/safetensors", "a codec: knows no model"},
	{"internal/nf4", base + "internal/parallelio internal/safetensors", "a codec: knows no model"},
	{"internal/drawn", "", "imported by tests only: what a test takes of a long list"},
	{"internal/golden", "", "imported by tests only: finds the reference cases"},
	{"internal/logging", "internal/exitcode", "notes for people, a line each on stderr"},
	{"internal/web", "internal/exitcode internal/logging internal/cgroup", "how every HTTP server of the program listens, and whom it answers"},
	{"internal/parallelio", base, "large files by several goroutines"},
	{"internal/pickle", base + "internal/parallelio internal/safetensors", "a codec: knows no model"},
	{"internal/safetensors", base + "internal/parallelio", "a codec: knows no model"},
	{"internal/exitcode", "", "the bottom: every package may return an error with an exit code"},
	{"internal/cgroup", "internal/system", "the limits that the system sets on this process"},
	{"internal/store", base, "objects in a bucket or a folder: knows neither checkpoints nor datasets"},
	{"internal/store/storetest", "", "imported by tests only: an S3 server with faults"},
	{"internal/system", "", "calls the operating system where Unix and Windows differ"},
	{"internal/osadvice", "", "asks the system for what only makes a run faster"},
	{"mpu", kernels + "mpu/comm mpu/topology", "parallel layers over any group and any device"},
	{"mpu/ranks", kernels + engines + "mpu/comm mpu/health mpu/bootstrap mpu/topology", "makes, watches and ends ranks; knows groups, not what is computed in them"},
	{"mpu/ranks/devices", kernels + "csrc/gpus mpu/bootstrap", "which device a rank computes on; main lists them"},
	{"mpu/comm", kernels, "collectives as values; knows no engine and no layer"},
	{"mpu/comm/reduce", kernels + "mpu/comm", "adds what ranks contribute, wherever they run: the bits are the same"},
	{"mpu/comm/inproc", kernels + "mpu/comm mpu/comm/reduce", "an engine: ranks that are goroutines; knows no other engine"},
	{"mpu/comm/process", kernels + "csrc/comm mpu/comm mpu/comm/reduce mpu/bootstrap", "an engine: ranks that are processes; knows no other engine"},
	{"mpu/comm/nccl", kernels + "csrc/comm mpu/comm", "an engine: NCCL, over any host's groups; knows no other engine"},
	{"mpu/comm/commtest", kernels + "mpu/comm", "imported by tests only: what every engine must compute"},
	{"mpu/health", kernels + "mpu/comm mpu/bootstrap", "records collectives, detects stalls and deaths, makes the verdict, injects faults"},
	{"mpu/bootstrap", base + "mpu/comm", "how processes of a run find each other; failures are comm's"},
	{"mpu/bootstrap/preflight", kernels + "mpu/comm mpu/comm/process mpu/health mpu/bootstrap", "checks a run of processes before its first step"},
	{"mpu/topology", base, "arithmetic of ranks"},
	{"csrc/comm", kernels, "the C side of comm"},
	{"csrc/ref", kernels, "a device sees tensors only"},
	{"csrc/cpu", kernels, "a device sees tensors only"},
	{"csrc/cuda", kernels, "a device sees tensors only"},
	{"csrc/start", "", "runs before Go does"},
	{"csrc/gpus", base, "queries NVIDIA's driver, runs nothing on it"},
	{"csrc/device", base + "csrc/device/activations", "the interface of all devices; knows none of them"},
	{"csrc/device/activations", "", "a table of names, which model shapes, flags and file formats use too"},
	{"csrc/device/devicetest", kernels + "csrc/ref internal/drawn", "imported by tests only; ref is the oracle"},
	{"megatron/policy", base, "formulas of GRPO and what rewards answers: knows neither tensors nor tokens"},
	{"megatron/preference", "", "formulas of losses: knows neither tensors nor rows"},
	{"megatron/schedule", base + "mpu/topology", "pure lists, so that the simulator can run them"},
	{"megatron/spec", base + "mpu/topology csrc/device/activations", "formulas, which check what is measured"},
	{"megatron/telemetry", base, "writes numbers, computes none"},
	{"dataset", base + "internal/store tokenizer", "data is independent of training: any trainer could read it"},
	{"tokenizer", base + "internal/gguf", "text to ids"},
	{"scripts/bench-data", "dataset tokenizer", "times the tokenizer alone"},
	{"tests", "mpu/comm mpu/health mpu/bootstrap ", "starts the program; reads what its ranks recorded, and connects to their ports"},
}

// forTests may be imported by tests only: to choose a device, to meet, to find files.
const forTests = devices + "csrc/device/devicetest internal/drawn internal/golden internal/store/storetest mpu/comm/commtest mpu/comm/inproc mpu/comm/nccl "

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
		{from: "megatron/arguments", to: "megatron/training"},
		{from: "megatron/arguments", to: "megatron/engine"},
		{from: "megatron/model", to: "tools"},
		{from: "megatron/checkpoint/hf", to: "megatron/training"},
		{from: "megatron/training", to: "csrc/cpu"},
		{from: "megatron/optimizer", to: "megatron/model"},
		{from: "megatron/schedule", to: "mpu", test: true},
		{from: "csrc/device", to: "mpu/comm"},
		{from: "mpu", to: "mpu/comm/inproc"},
		{from: "mpu/comm/nccl", to: "mpu/comm/process"},
		{from: "dataset", to: "csrc/device"},
		{from: "internal/exitcode", to: "internal/argv"},
		{from: "tools/bench", to: "tools/verify"},
		{from: "tools/bench", to: "megatron/pretrain"},
		{from: "tools/bench", to: "csrc/device/devicetest"},
		{from: "newfolder", to: "internal/exitcode"},
	} {
		if a.check() == nil {
			t.Errorf("%s importing %s was let through", a.from, a.to)
		}
	}
	for _, a := range []arrow{
		{from: "", to: "csrc/cpu"},
		{from: "tools/verify", to: "tools/verify/datacase"},
		{from: "tools/verify", to: "tools/internal/command"},
		{from: "megatron/checkpoint/native", to: "internal/safetensors"},
		{from: "megatron/training", to: "csrc/ref", test: true},
		{from: "mpu", to: "mpu/comm"},
	} {
		if err := a.check(); err != nil {
			t.Errorf("a legal arrow was refused: %v", err)
		}
	}
}

// TestDesignIsComplete: one row a folder, each with its reason.
func TestDesignIsComplete(t *testing.T) {
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
