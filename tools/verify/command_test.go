package verify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
)

// run calls the command as main does.
func run(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out strings.Builder
	open := func(name string) (*device.Device, error) {
		if name != "ref" {
			return nil, exitcode.Errorf(exitcode.Usage, "no device %q", name)
		}
		return ref.Open(), nil
	}
	app := &cli.App{Name: "monotron", Writer: &out, ErrWriter: &out, Commands: []*cli.Command{Command(open)}, ExitErrHandler: func(*cli.Context, error) {}}
	err = app.Run(append([]string{"monotron", "verify", "case"}, args...))
	return out.String(), err
}

// Claim: flags stand before or after PATH; the last line counts; a passing case
// exits 0, one over tolerance 1, a missing one 66, a wrong line 2.
func TestExitCodes(t *testing.T) {
	wrong := t.TempDir()
	if err := os.CopyFS(wrong, os.DirFS("modelcase/testdata/gpt2-tanh")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(wrong, "case.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(raw), `"loss": 5.82`, `"loss": 5.83`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code exitcode.Code
		last string
	}{
		{[]string{"modelcase/testdata/gpt2-tanh", "--device", "ref"}, exitcode.Done, " passed, 0 failed\n"},
		{[]string{"--device", "ref", wrong}, exitcode.Differs, ", 1 failed\n"},
		{[]string{"--device", "ref", "--all", wrong}, exitcode.Differs, ", 1 failed\n"},
		{[]string{"--device", "ref", "nowhere"}, exitcode.NoInput, ""},
		{[]string{"--device", "abacus", wrong}, exitcode.Usage, ""},
		{[]string{"--device", "ref", "--only", "nothing", "datacase/testdata/cases.json"}, exitcode.Usage, ""},
		{[]string{"--device", "ref", "datacase/testdata/cases.json"}, exitcode.Done, " passed, 0 failed\n"},
		{[]string{"--device", "ref"}, exitcode.Usage, ""},
		{[]string{"--colour", "red", wrong}, exitcode.Usage, ""},
	} {
		out, err := run(t, c.args...)
		if exitcode.CodeOf(err) != c.code || !strings.HasSuffix(out, c.last) {
			t.Errorf("%v: code %d, %v\n%s", c.args, exitcode.CodeOf(err), err, out)
		}
	}
}

// Claim: --json prints one object that lists every number.
func TestJSON(t *testing.T) {
	out, err := run(t, "modelcase/testdata/qwen2", "--device", "ref", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Case, Device string
		Passed       int
		Checks       []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Case != "qwen2" || report.Device != "ref" || report.Passed != len(report.Checks) {
		t.Errorf("%v: %.300s", err, out)
	}
}

// Claim: words of --only that no layout has are answered with those there are.
func TestUnknownLayout(t *testing.T) {
	for add, want := range map[string]string{
		"--only zzz":             "the names are: dp2; dp2 optim; ",
		"--only zzz --mutate":    "no layout of up to 2 ranks into which --mutate can inject a fault has all the words of --only \"zzz\"; the names are: pp2 vp2; dp2 optim; ",
		"--stride 0":             "--stride must be from 1 to",
		"--only tp2 --steps 1 x": `unexpected argument "x"; write every value after its flag`,
	} {
		var out strings.Builder
		app := &cli.App{Name: "monotron", Writer: &out, ErrWriter: &out, ExitErrHandler: func(*cli.Context, error) {},
			Commands: []*cli.Command{Command(func(string) (*device.Device, error) { return ref.Open(), nil })}}
		err := app.Run(append([]string{"monotron", "verify", "--world-size", "2", "--shape", "gpt2", "--steps", "1"}, strings.Fields(add)...))
		if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", add, err, want)
		}
	}
}

// Claim: a picture that cannot be written is an error before any layout is trained; no device is opened.
func TestPictureIsCheckedFirst(t *testing.T) {
	var out strings.Builder
	open := func(string) (*device.Device, error) {
		t.Error("a device was opened")
		return ref.Open(), nil
	}
	app := &cli.App{Name: "monotron", Writer: &out, ErrWriter: &out, Commands: []*cli.Command{Command(open)}, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run([]string{"monotron", "verify", "--world-size", "1", "--png", filepath.Join(t.TempDir(), "none", "x.png")})
	if exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), "--png: ") || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}
