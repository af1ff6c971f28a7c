package main

import (
	"bytes"
	"os"
	"testing"
)

// Claim: ops.go and ops.h are what the descriptions say now.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	s, err := read("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.goFile()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"ops.go": text, "ops.h": s.header()} {
		if got, err := os.ReadFile("../../" + name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("csrc/device/%s is not what go generate writes (%v): run go generate ./csrc/device", name, err)
		}
	}
}

// Claim (device.h before it was generated): Go's names in C's form.
func TestNamesInC(t *testing.T) {
	for name, want := range map[string]string{
		"DX": "dx", "DGamma": "dgamma", "DTable": "dtable", "DTypes": "dtypes", "DocStart": "doc_start", "LSE": "lse", "QOffset": "q_offset", "IDs": "ids",
		"LRMult": "lr_mult", "WDMult": "wd_mult", "TransA": "trans_a", "OnePlus": "one_plus", "RMSNormKind": "rms_norm_kind", "BF16": "bf16",
		"HyperCorrection1": "hyper_correction1", "NoEpilogue": "no_epilogue", "M": "m",
	} {
		if got := snake(name); got != want {
			t.Errorf("%s is %s in C, want %s", name, got, want)
		}
	}
}
