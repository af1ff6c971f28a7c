package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// ender is code that may end the process, or panic, all the same: a file, or all
// files of a folder.
type ender struct{ where, what, why string }

const (
	exits  = "exit"
	panics = "panic"
)

// enders are the exceptions, each with its reason.
var enders = []ender{
	{"megatron/pretrain/command.go", exits, "a second signal asks for the end at once, whatever the ranks are at"},
	{"internal/system/process_windows.go", exits, "Windows has no signals: a process ends itself as a signal would end it"},
	{"mpu/health/inject", exits, "--inject exit: the fault of a process, made on purpose"},
	{"tools/launch/agent.go", exits, "passes on the code of a launch that has said why itself"},

	{"csrc/device", panics, "a wrong shape is a mistake of ours and names op and shapes; a lack of memory unwinds to CatchOutOfMemory"},
	{"mpu/comm", panics, "a wrong shape or dtype on one rank alone is a mistake of ours"},
	{"mpu/health/inject", panics, "the end of a rank that shares its process: mpu/ranks makes a verdict of it"},
	{"mpu/ranks/goroutines.go", panics, "passes on a panic that is not its own"},
	{"mpu/topology/groups.go", panics, "a kind without a row in its table"},
	{"mpu/bootstrap/rendezvous", panics, "a message of its own making that has no JSON form: it always has"},
	{"megatron/model/mixture.go", panics, "passes on a lack of memory, with whose tokens it was for"},
	{"megatron/optimizer/runs.go", panics, "an optimizer without an update: TestEveryOptimizerTrains trains each that the flags name"},
	{"megatron/model/mlp.go", panics, "an activation that NewStage has refused"},
	{"megatron/arguments", panics, "the table of flags is wrong: every start of the program shows it"},
	{"tools/internal/command/range.go", panics, "a flag of ours takes any number: every start of the program shows it"},
	{"megatron/model/pass.go", panics, "a rule of RoPE frequencies that NewStage has refused"},
	{"megatron/telemetry/timers.go", panics, "a timer that is started twice"},
	{"megatron/telemetry/trace.go", panics, "a string has no JSON form: it always has"},
	{"megatron/checkpoint/hf/transpose.go", panics, "a width that no dtype has"},
	{"tokenizer", panics, "tables that are built in, and plain values as JSON"},
	{"dataset/pyjson.go", panics, "a type that no caller has"},
	{"internal/store/storetest", panics, "imported by tests only: ends a request as net/http asks for"},
	{"dataset/mapping.go", panics, "passes on a panic that is not its own"},
	{"tools/verify/modelcase/value.go", panics, "a parameter without its layer's number"},
	{"internal/web/page.go", panics, "a part of a page that go:embed has, and a template that a test reads"},
}

// Claim (docs/exit-codes.md): only main ends the process; what fails returns an error
// with its exit code. Main packages and tests are free.
func TestOnlyMainEndsTheProcess(t *testing.T) {
	found, err := endings(repository)
	if err != nil {
		t.Fatal(err)
	}
	used := map[ender]bool{}
	for _, f := range found {
		allowed := false
		for _, e := range enders {
			if e.what == f.what && under(f.where, e.where) {
				allowed, used[e] = true, true
			}
		}
		if !allowed {
			t.Errorf("%s: %s", f.at, f.complaint())
		}
	}
	for _, e := range enders {
		if !used[e] {
			t.Errorf("%s has no %s any more: its row can go", e.where, e.what)
		}
	}
}

// ending is a call that ends the process, or may.
type ending struct {
	where, what string
	at          token.Position
}

func (e ending) complaint() string {
	if e.what == panics {
		return "a panic may reach a user: return an error, or say in enders why it cannot"
	}
	return "ends the process, which only main may: return an error with its exit code (package fault)"
}

// endings lists those of every file under root that is neither a test nor in a main package.
func endings(root string) (all []ending, err error) {
	files := token.NewFileSet()
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil || f.Name.Name == "main" {
			return err
		}
		where, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if what := endingOf(n); what != "" {
				all = append(all, ending{filepath.ToSlash(where), what, files.Position(n.Pos())})
			}
			return true
		})
		return nil
	})
	return all, err
}

// endingOf is what a node does to the process: "", exits, panics.
func endingOf(n ast.Node) string {
	switch f := n.(type) {
	case *ast.CallExpr:
		if name, ok := f.Fun.(*ast.Ident); ok && name.Name == "panic" {
			return panics
		}
	case *ast.SelectorExpr: // called, or handed on
		pkg, ok := f.X.(*ast.Ident)
		if !ok {
			return ""
		}
		switch name := pkg.Name + "." + f.Sel.Name; {
		case name == "os.Exit", name == "syscall.Exit", name == "unix.Exit", strings.HasPrefix(name, "log.Fatal"):
			return exits
		case strings.HasPrefix(name, "log.Panic"):
			return panics
		}
	}
	return ""
}

// TestEndingsAreSeen shows that the test above can fail.
func TestEndingsAreSeen(t *testing.T) {
	for text, want := range map[string]string{
		"os.Exit(1)": exits, `log.Fatalf("%d", 1)`: exits, "syscall.Exit(2)": exits, `panic("x")`: panics, "log.Panic(1)": panics,
		"end(os.Exit)":    exits,
		"os.Remove(name)": "", "w.Exit(1)": "", "recover()": "", "fatal(err)": "",
	} {
		x, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		ast.Inspect(x, func(n ast.Node) bool {
			got += endingOf(n)
			return true
		})
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
