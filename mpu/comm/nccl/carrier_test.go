package nccl

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/mpu/comm/commtest"
	"monotron/mpu/comm/inproc"
)

// Claim: ranks get NCCL together or not at all, and what differs is named with its rank.
func TestSeatsAgree(t *testing.T) {
	gpu := func(version string) string { return seat{device: "cuda", nccl: version}.String() }
	on := func(uuid string) string { return seat{device: "cuda", unit: uuid, nccl: "2.28.9"}.String() }
	by := func(products string) string { return seat{device: "cuda", products: products, nccl: "2.28.9"}.String() }
	none := seat{device: "cuda", lack: "NCCL cannot be used: no file"}.String()
	for name, c := range map[string]struct {
		words       []string
		lack, fails string
	}{
		"host":          {words: []string{seat{device: "cpu"}.String(), seat{device: "cpu"}.String()}},
		"all have it":   {words: []string{gpu("2.28.9"), gpu("2.28.9")}},
		"nobody has it": {words: []string{none, none}, lack: "NCCL cannot be used: no file"},
		"one has not":   {words: []string{gpu("2.28.9"), none}, lack: "rank 1: NCCL cannot be used: no file"},
		"versions":      {words: []string{gpu("2.28.9"), gpu("2.28.9"), gpu("2.27.3")}, fails: "rank 0 has NCCL 2.28.9, but rank 2 has 2.27.3"},
		"devices":       {words: []string{gpu("2.28.9"), seat{device: "cpu"}.String()}, fails: "rank 0 computes on cuda, but rank 1 on cpu"},
		"own GPUs":      {words: []string{on("GPU-a"), on("GPU-b"), gpu("2.28.9"), gpu("2.28.9")}},
		"one GPU twice": {words: []string{on("GPU-a"), on("GPU-b"), on("GPU-a")}, fails: "ranks 0 and 2 compute on the same GPU (GPU-a)"},
		"products":      {words: []string{by("cuBLASLt 13.0.2"), by("cuBLASLt 12.9.1")}, fails: "rank 0 uses cuBLASLt 13.0.2 for matrix products, but rank 1 uses cuBLASLt 12.9.1"},
		"nothing said":  {words: []string{"", ""}},
	} {
		lack, err := agree(c.words)
		if lack != c.lack || (err == nil) != (c.fails == "") || (err != nil && !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s: %q, %v, want %q, %q", name, lack, err, c.lack, c.fails)
		}
	}
}

// Claim: every rank of a run whose ranks compute on different devices ends with the
// names of two that do.
func TestDevicesDiffer(t *testing.T) {
	w, errs := inproc.NewWorld(3), make([]error, 3)
	_ = w.Run(func(rank int) error { // the ranks' errors say more
		d := ref.Open()
		defer d.Arena.Close()
		d.Name = []string{"cuda", "cuda", "cpu"}[rank]
		_, errs[rank] = Carry(w, rank, commtest.Ranks(3), d, true, time.Minute)
		return nil
	})
	for rank, err := range errs {
		if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "rank 0 computes on cuda, but rank 2 on cpu") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// onGPU is a device with streams, which nothing is asked of here.
type onGPU struct{ device.HostBackend }

func (onGPU) Describe() string                    { return "a GPU" }
func (onGPU) OnHost() bool                        { return false }
func (onGPU) Run(device.Op, unsafe.Pointer) error { return nil }
func (onGPU) Streams() device.Streams             { return streams{} }

type streams struct{ device.Streams }

// Claim: on GPUs a rank without NCCL ends all, naming what is missing and the flag that
// goes without; with that flag the host carries.
func TestNCCLMissingOnGPUs(t *testing.T) {
	t.Setenv("MONOTRON_NCCL", "/no/such/libnccl.so.2")
	for _, wanted := range []bool{true, false} {
		w, errs := inproc.NewWorld(2), make([]error, 2)
		_ = w.Run(func(rank int) error { // the ranks' errors say more
			d := device.New("cuda", onGPU{})
			defer d.Arena.Close()
			c, err := Carry(w, rank, commtest.Ranks(2), d, wanted, time.Minute)
			if errs[rank] = err; err == nil && !strings.Contains(c.Note(), "through the host's memory") {
				t.Errorf("rank %d: %q", rank, c.Note())
			}
			return nil
		})
		for rank, err := range errs {
			if wanted != (err != nil) || wanted && (exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "NCCL cannot be used") || !strings.Contains(err.Error(), "--distributed-backend gloo")) {
				t.Errorf("NCCL wanted: %v, rank %d: %v", wanted, rank, err)
			}
		}
	}
}

// Claim (docs/cuda.md): --deterministic-mode pins NCCL's sums, but to what somebody has set.
func TestPin(t *testing.T) {
	t.Setenv("NCCL_ALGO", "Tree")
	t.Setenv("NCCL_NVLS_ENABLE", "") // brought back afterwards
	if err := os.Unsetenv("NCCL_NVLS_ENABLE"); err != nil {
		t.Fatal(err)
	}
	if err := Pin(); err != nil {
		t.Fatal(err)
	}
	if algorithm, nvls := os.Getenv("NCCL_ALGO"), os.Getenv("NCCL_NVLS_ENABLE"); algorithm != "Tree" || nvls != "0" {
		t.Errorf("NCCL_ALGO=%s NCCL_NVLS_ENABLE=%s, want Tree and 0", algorithm, nvls)
	}
}

// Claim (docs/cuda.md): NCCL meets over the interface that has the rank's address, but over what
// somebody has set; an address that no interface has leaves it to NCCL.
func TestLead(t *testing.T) {
	t.Setenv("NCCL_SOCKET_IFNAME", "") // brought back afterwards
	led := func(addr string) string {
		if err := os.Unsetenv("NCCL_SOCKET_IFNAME"); err != nil {
			t.Fatal(err)
		}
		if err := Lead(addr); err != nil {
			t.Fatal(err)
		}
		return os.Getenv("NCCL_SOCKET_IFNAME")
	}
	for _, addr := range []string{"127.0.0.1:1", "203.0.113.7:1", "nonsense", ""} {
		if got := led(addr); got != "" {
			t.Errorf("%q: %s", addr, got)
		}
	}
	all, err := net.Interfaces()
	if err != nil {
		t.Skip(err)
	}
	for _, one := range all {
		addrs, err := one.Addrs()
		if err != nil || one.Flags&net.FlagLoopback != 0 || len(addrs) == 0 {
			continue
		}
		addr := net.JoinHostPort(addrs[0].(*net.IPNet).IP.String(), "29500")
		if got := led(addr); got != "="+one.Name {
			t.Errorf("%s of %s: %q", addr, one.Name, got)
		}
		t.Setenv("NCCL_SOCKET_IFNAME", "chosen")
		if err := Lead(addr); err != nil || os.Getenv("NCCL_SOCKET_IFNAME") != "chosen" {
			t.Errorf("what was chosen became %s: %v", os.Getenv("NCCL_SOCKET_IFNAME"), err)
		}
	}
}
