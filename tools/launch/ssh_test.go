package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/comm/failure"
)

// Claim (docs/failures.md): after the verdict that a rank is silent, a host that does not answer
// holds the run up for some seconds, and not for as long as ssh waits for it.
func TestHostThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	verdict := &failure.Verdict{Kind: failure.Silence, Rank: 1, Code: exitcode.IO, Text: "rank 1 has not responded for 20 s"}
	var said bytes.Buffer
	failure.Tell(&said, verdict.Err())
	for name, text := range map[string]string{
		"said": said.String(),
		"ssh":  fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *hears*) cat %s/said >&2; exit 74;; esac\nexec sleep 300\n", dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	f := &fleet{options: &options{grace: 7 * time.Second, local: 1, prefix: "none"}, hosts: []remoteHost{{name: "hears"}, {name: "deaf"}}, self: "/monotron", addr: "hears"}
	ended := make(chan error, 1)
	go func() {
		_, err := f.attempt(nil, newConsole(io.Discard, io.Discard, "none"))
		ended <- err
	}()
	select {
	case err := <-ended:
		if exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), verdict.Text) || !f.lost {
			t.Errorf("%v, lost %v", err, f.lost)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("ssh to the host that does not answer is waited for")
	}
}

// Claim: hosts get what libraries and networks are found by, GPUs by number, and nothing
// that is meant for one host.
func TestVariablesForOtherHosts(t *testing.T) {
	for entry, want := range map[string]bool{
		"MONOTRON_NCCL=/x": true, "NCCL_DEBUG=INFO": true, "LD_LIBRARY_PATH=/x": true, "VIRTUAL_ENV=/v": true, "CONDA_PREFIX=/c": true,
		"CUDA_HOME=/usr/local/cuda": true, "CUDA_DEVICE_MAX_CONNECTIONS=1": true, "FI_PROVIDER=efa": true, "UCX_NET_DEVICES=mlx5_0:1": true,
		"CUDA_VISIBLE_DEVICES=0,1": true, "CUDA_VISIBLE_DEVICES=": true, "CUDA_VISIBLE_DEVICES=-1": true,
		"CUDA_VISIBLE_DEVICES=GPU-5f2a": false, "CUDA_VISIBLE_DEVICES=0,MIG-1": false,
		"PATH=/bin": false, "HOME=/root": false, "VIRTUAL_ENV_PROMPT=v": false, "LD_LIBRARY_PATH_64=/x": false,
	} {
		if onOtherHost(entry) != want {
			t.Errorf("%s: %v", entry, !want)
		}
	}
}
