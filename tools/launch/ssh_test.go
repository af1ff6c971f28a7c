package launch

import "testing"

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
		if elsewhere(entry) != want {
			t.Errorf("%s: %v", entry, !want)
		}
	}
}
