package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/csrc/gpus"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/megatron/training"
)

// onlyRef is what main hands over in a build without C.
func onlyRef(name string) (*device.Device, error) {
	if name != "ref" {
		return nil, errors.New("no " + name + " here")
	}
	return ref.Open(), nil
}

func run(t *testing.T, open func(string) (*device.Device, error), args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	app := &cli.App{Name: "monotron", Writer: &out, Commands: []*cli.Command{Command(open)},
		ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run(append([]string{"monotron", "doctor"}, args...))
	return out.String(), err
}

// TestOneDeviceIsEnough: something missing is not a failure; the JSON names it.
func TestOneDeviceIsEnough(t *testing.T) {
	out, err := run(t, onlyRef, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if r.Version == "" || len(r.Findings) != 8 || len(r.Devices) != 3 {
		t.Errorf("%+v", r)
	}
	for _, d := range r.Devices {
		if (d.Name == "ref") != (d.Error == "" && d.Speed["f32"] > 0 && d.Speed["bf16"] > 0) {
			t.Errorf("%+v", d)
		}
	}
	for _, f := range r.Findings {
		if f.Found == "" || (f.State == Missing && f.Works == "") {
			t.Errorf("%+v: says neither what is here nor what works", f)
		}
	}
}

// TestText: the same for a person.
func TestText(t *testing.T) {
	out, err := run(t, onlyRef)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"monotron " + training.Version, "processor", "oneDNN", "no cuda here", "GFLOP/s in bf16"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// TestNothingWorks: without any device the exit code is not 0, and the report
// stands all the same.
func TestNothingWorks(t *testing.T) {
	out, err := run(t, func(name string) (*device.Device, error) { return nil, errors.New("broken " + name) })
	if exitcode.CodeOf(err) != exitcode.Internal || !strings.Contains(out, "broken ref") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestArgumentsAreRefused(t *testing.T) {
	if _, err := run(t, onlyRef, "now"); exitcode.CodeOf(err) != exitcode.Usage {
		t.Error(err)
	}
}

func noDriver() (gpus.Survey, error) { return gpus.Survey{}, errors.New("no driver") }

var twoGPUs = gpus.Survey{Driver: "580.1", CUDA: "13.0", GPUs: []gpus.GPU{
	{Index: 0, Name: "A", UUID: "GPU-a", Capability: "9.0", Memory: 2 << 30, Free: 1 << 30, Temperature: 40, Clock: 5, MaxClock: 10},
	{Index: 1, Name: "B", UUID: "GPU-b", Capability: "8.0", Memory: 2 << 30, Free: 2 << 30, Temperature: 30, Clock: 10, MaxClock: 10},
}}

// TestTroubledGPUs: memory errors, slow clocks and a CUDA_VISIBLE_DEVICES that
// names nothing are notes with what they cost or how to mend them.
func TestTroubledGPUs(t *testing.T) {
	sick := gpus.Survey{GPUs: slices.Clone(twoGPUs.GPUs)}
	sick.GPUs[1].Uncorrected, sick.GPUs[0].Slowed = 1, []string{"heat (hardware)"}
	h := host{gpus: func() (gpus.Survey, error) { return sick, nil }}
	if f := h.gpu(); f.State != Note || !strings.Contains(f.Costs, "GPU 1: its memory has errors") || !strings.Contains(f.Costs, "GPU 0: runs at 5 of 10 MHz") {
		t.Errorf("%+v", f)
	}
	h.visible = gpus.Environment{Value: "1", Set: true}
	if f := h.gpu(); !strings.Contains(f.Found, "shows 1 of 2") || strings.Contains(f.Costs, "GPU 0") {
		t.Errorf("a GPU that is not shown is told: %+v", f)
	}
	h.visible.Value = "2"
	if f := h.gpu(); f.State != Note || f.Fix == "" || !strings.Contains(f.Found, "GPU 2 does not exist") {
		t.Errorf("%+v", f)
	}
}

// TestBareMachine: a container with nothing in it gives findings, not failures.
func TestBareMachine(t *testing.T) {
	h := host{root: t.TempDir(), cwd: "/no/such/folder", gpus: noDriver}
	states := map[string]State{}
	for _, f := range []Finding{h.memory(), h.sharedMemory(), h.hugePages(), h.disk(), h.gpu(), h.processor()} {
		states[f.Name] = f.State
	}
	for name, want := range map[string]State{"memory": Note, "/dev/shm": Missing, "huge pages": Note, "disk": Note, "GPU": Missing, "processor": Note} {
		if states[name] != want {
			t.Errorf("%s is %q; want %q", name, states[name], want)
		}
	}
}

// TestFullMachine reads the files of a machine with a GPU, AMX and a memory limit.
func TestFullMachine(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"dev/nvidia0":              "",
		"proc/cpuinfo":             "processor\t: 0\nmodel name\t: Test CPU\nflags\t\t: fpu avx2 avx512f amx_bf16\n",
		"proc/meminfo":             "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n",
		"proc/self/cgroup":         "0::/a\n",
		"sys/fs/cgroup/memory.max": "4294967296\n",
		"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	h := host{root: root, cwd: root, gpus: func() (gpus.Survey, error) { return twoGPUs, nil }}
	for _, c := range []struct {
		f    Finding
		want string
	}{
		{h.gpu(), "driver 580.1 (CUDA 13.0); GPU 0: A (sm_90), 1.0 of 2.0 GiB free, 5 of 10 MHz, 40 C; GPU 1: B (sm_80), 2.0 of 2.0 GiB free, 10 of 10 MHz, 30 C"},
		{h.memory(), "16.0 GiB, 8.0 GiB free; this container may use 4.0 GiB"},
		{h.hugePages(), "given on request"},
	} {
		if c.f.State != OK || c.f.Found != c.want {
			t.Errorf("%+v; want %q", c.f, c.want)
		}
	}
	if f := h.processor(); !strings.HasPrefix(f.Found, "Test CPU, ") || !strings.HasSuffix(f.Found, "; AVX2, AVX-512, AMX bf16") {
		t.Errorf("%+v", f)
	}
	h.gpus = noDriver
	if f := h.gpu(); f.State != Missing || f.Fix == "" {
		t.Errorf("a GPU without a driver: %+v", f)
	}
}
