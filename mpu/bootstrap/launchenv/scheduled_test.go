package launchenv

import (
	"fmt"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim (docs/launch.md): the variables of schedulers that start one process a host give
// launch its flags.
func TestSchedule(t *testing.T) {
	for _, test := range []struct{ environment, want string }{
		{"PATH=/bin;HOME=/root", "nothing"},
		{"PET_NNODES=2;PET_NODE_RANK=1;PET_NPROC_PER_NODE=4;PET_MASTER_ADDR=job-node-0-0.job;PET_MASTER_PORT=29500", "1 of 2, least 0, 4 ranks, job-node-0-0.job:29500"},
		{"PET_NNODES=2;PET_NODE_RANK=0;PET_NPROC_PER_NODE=auto;PET_MASTER_ADDR=a", "0 of 2, least 0, 8 ranks, a:0"},
		{"PET_NNODES=1:4;PET_NODE_RANK=3;PET_NPROC_PER_NODE=cpu;PET_MASTER_ADDR=a", "3 of 4, least 1, 1 ranks, a:0"},
		{"PET_NNODES=1", "0 of 1, least 0, 0 ranks, :0"},
		{"SKYPILOT_NUM_NODES=2;SKYPILOT_NODE_RANK=1;SKYPILOT_NUM_GPUS_PER_NODE=8;SKYPILOT_NODE_IPS=10.0.0.1\n10.0.0.2", "1 of 2, least 0, 8 ranks, 10.0.0.1:0"},
		{"SKYPILOT_NUM_NODES=1;SKYPILOT_NODE_RANK=0;SKYPILOT_NUM_GPUS_PER_NODE=0;SKYPILOT_NODE_IPS=10.0.0.1", "0 of 1, least 0, 0 ranks, 10.0.0.1:0"},
		{"DSTACK_NODES_NUM=3;DSTACK_NODE_RANK=2;DSTACK_GPUS_PER_NODE=2;DSTACK_MASTER_NODE_IP=10.1.0.9", "2 of 3, least 0, 2 ranks, 10.1.0.9:0"},
		{"VC_WORKER_HOSTS=other-worker-0.other,me.other;VC_WORKER_NUM=2;VC_TASK_INDEX=1", "1 of 2, least 0, 0 ranks, other-worker-0.other:0"},
		{"VC_WORKER_HOSTS=w0.j,me.j;VC_MASTER_HOSTS=m.j", "2 of 3, least 0, 0 ranks, m.j:0"},
	} {
		got := "nothing"
		s, err := Schedule(strings.Split(test.environment, ";"), "me.cluster.local", func() int { return 8 })
		if s != nil {
			got = fmt.Sprintf("%d of %d, least %d, %d ranks, %s:%d", s.Number, s.Hosts, s.Least, s.Ranks, s.Addr, s.Port)
		}
		if err != nil || got != test.want {
			t.Errorf("%s: %s, %v\nwant %s", test.environment, got, err, test.want)
		}
	}
	for environment, want := range map[string]string{
		"PET_NNODES=two":                                     `PET_NNODES="two"`,
		"PET_NNODES=2;PET_MASTER_ADDR=a":                     `PET_NODE_RANK=""`,
		"PET_NNODES=2;PET_NODE_RANK=2;PET_MASTER_ADDR=a":     "PET_NODE_RANK=2",
		"PET_NNODES=2;PET_NODE_RANK=1":                       "PET_MASTER_ADDR",
		"PET_NNODES=1;PET_NPROC_PER_NODE=many":               `PET_NPROC_PER_NODE="many"`,
		"DSTACK_NODES_NUM=0":                                 `DSTACK_NODES_NUM="0"`,
		"VC_WORKER_HOSTS=w0.j,w1.j":                          "VC_WORKER_HOSTS",
		"SKYPILOT_NUM_NODES=2;SKYPILOT_NODE_RANK=-1":         `SKYPILOT_NODE_RANK="-1"`,
		"PET_NNODES=2:x;PET_NODE_RANK=0;PET_MASTER_ADDR=a":   `PET_NNODES="2:x"`,
		"PET_NNODES=1;PET_MASTER_PORT=0;PET_MASTER_ADDR=a:b": `PET_MASTER_PORT="0"`,
	} {
		if s, err := Schedule(strings.Split(environment, ";"), "me", func() int { return 0 }); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", environment, s, err, want)
		}
	}
}
