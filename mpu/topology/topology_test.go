package topology

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim: the groups of 16 ranks, tp 2, pp 4, dp 2: tp, dp and pp as the docstring
// of Megatron's initialize_model_parallel lists them (megatron/core/parallel_state.py),
// the rest from these by hand.
func TestMegatronsExample(t *testing.T) {
	s := Sizes{TP: 2, CP: 1, EP: 1, DP: 2, PP: 4}
	for kind, want := range map[Kind][][]int{
		DP:                {{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}},
		TP:                {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}},
		PP:                {{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}},
		Model:             {{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}},
		Embedding:         {{0, 12}, {1, 13}, {2, 14}, {3, 15}},
		PositionEmbedding: {{0}, {1}, {2}, {3}},
		CP:                singles(16),
	} {
		if got := s.Groups(kind); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}

func singles(n int) (all [][]int) {
	for r := range n {
		all = append(all, []int{r})
	}
	return all
}

// Claim: context parallelism lies between tensor and data (worked by hand for
// tp 2, cp 2, dp 2), and gradients are summed over both.
func TestContextParallelLists(t *testing.T) {
	s := Sizes{TP: 2, CP: 2, EP: 1, DP: 2, PP: 1}
	for kind, want := range map[Kind][][]int{
		CP:     {{0, 2}, {1, 3}, {4, 6}, {5, 7}},
		DP:     {{0, 4}, {1, 5}, {2, 6}, {3, 7}},
		DPCP:   {{0, 2, 4, 6}, {1, 3, 5, 7}},
		TPCP:   {{0, 1, 2, 3}, {4, 5, 6, 7}},
		TPDP:   {{0, 1, 4, 5}, {2, 3, 6, 7}},
		TPDPCP: {{0, 1, 2, 3, 4, 5, 6, 7}},
		PP:     singles(8),
	} {
		if got := s.Groups(kind); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}

// Claim (Megatron-LM, parallel_state.py): experts have a grid of their own, etp-ep-edp-pp,
// EDP = world/(ETP·EP·PP), over the same pipelines; by hand for tp 2, dp 4, pp 2.
func TestExpertGrid(t *testing.T) {
	s := Sizes{TP: 2, CP: 1, EP: 4, ETP: 1, DP: 4, PP: 2}
	if s.ExpertDP() != 2 {
		t.Errorf("expert copies: %d", s.ExpertDP())
	}
	for kind, want := range map[Kind][][]int{
		EP:       {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}},
		ExpertTP: singles(16),
		ExpertDP: {{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}},
		TPEPPP:   {{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}},
		TP:       {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}},
	} {
		if got := s.Groups(kind); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
	if got := s.ExpertAt(13); got != (ExpertCoordinates{TP: 0, EP: 1, DP: 1, PP: 1}) {
		t.Errorf("rank 13 among the experts: %+v", got)
	}
}

// Claim: without expert parallelism the experts' groups are the dense ones.
func TestExpertGridOfOne(t *testing.T) {
	s := Sizes{TP: 2, CP: 2, EP: 1, DP: 3, PP: 2}
	if !reflect.DeepEqual(s.Groups(ExpertTP), s.Groups(TP)) || !reflect.DeepEqual(s.Groups(ExpertDP), s.Groups(DPCP)) {
		t.Errorf("%v and %v", s.Groups(ExpertTP), s.Groups(ExpertDP))
	}
}

// Claim: --use-tp-pp-dp-mapping swaps data and pipeline.
func TestOrderWithPipelineInside(t *testing.T) {
	s := Sizes{TP: 2, CP: 1, EP: 1, DP: 2, PP: 2, PPBeforeDP: true}
	if got := s.Groups(PP); !reflect.DeepEqual(got, [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}) {
		t.Errorf("pp: %v", got)
	}
	if got := s.Groups(DP); !reflect.DeepEqual(got, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}) {
		t.Errorf("dp: %v", got)
	}
}

// Claim: in every layout rank and coordinates are each other's inverse, rank follows
// Megatron's formula, and the groups of a kind split the ranks they hold.
func TestEveryLayout(t *testing.T) {
	for tp := 1; tp <= 3; tp++ {
		for cp := 1; cp <= 2; cp++ {
			for dp := 1; dp <= 4; dp++ {
				for pp := 1; pp <= 3; pp++ {
					for ep := 1; ep <= 2; ep++ {
						s := Sizes{TP: tp, CP: cp, DP: dp, PP: pp, EP: ep, QueryGroups: 1, Instances: dp}
						if s.Check() == nil {
							checkLayout(t, s)
							s.PPBeforeDP = true
							checkLayout(t, s)
						}
					}
				}
			}
		}
	}
}

func checkLayout(t *testing.T, s Sizes) {
	t.Helper()
	for rank := range s.World() {
		p := s.At(rank)
		if s.Rank(p) != rank {
			t.Errorf("%+v: rank %d at %+v is rank %d", s, rank, p, s.Rank(p))
		}
		if !s.PPBeforeDP && rank != p.TP+s.TP*(p.CP+s.CP*(p.DP+s.DP*p.PP)) {
			t.Errorf("%+v: rank %d at %+v", s, rank, p)
		}
	}
	for _, kind := range Kinds() {
		in := make([]int, s.World())
		for _, g := range s.Groups(kind) {
			if !slices.IsSorted(g) {
				t.Errorf("%+v: %s group %v does not ascend", s, kind, g)
			}
			for _, rank := range g {
				in[rank]++
				if !slices.Equal(s.Group(kind, rank), g) {
					t.Errorf("%+v: rank %d sees %s group %v, rank %d %v", s, g[0], kind, g, rank, s.Group(kind, rank))
				}
			}
		}
		some := slices.Contains([]Kind{Embedding, PositionEmbedding, Shard, Across}, kind)
		for rank, n := range in {
			if n > 1 || (n == 0 && !some) {
				t.Errorf("%+v: rank %d is in %d groups of %s", s, rank, n, kind)
			}
		}
	}
}

// Claim: copies of an optimizer state take neighbours of the data-parallel group;
// by hand for tp 2, dp 4, two copies. One copy has no groups of its own.
func TestInstances(t *testing.T) {
	s := Sizes{TP: 2, CP: 1, EP: 1, DP: 4, PP: 1, Instances: 2}
	for kind, want := range map[Kind][][]int{
		Shard:  {{0, 2}, {1, 3}, {4, 6}, {5, 7}},
		Across: {{0, 4}, {1, 5}, {2, 6}, {3, 7}},
	} {
		if got := s.Groups(kind); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
	s.Instances = 1
	if shard, across := s.Group(Shard, 3), s.Group(Across, 3); shard != nil || across != nil {
		t.Errorf("one copy: %v %v", shard, across)
	}
}

// Claim: ranks share a query group where there are fewer groups than ranks, neighbours
// first; by hand for tp 4.
func TestQuerySharers(t *testing.T) {
	s := Sizes{TP: 4, CP: 1, EP: 1, DP: 2, PP: 1}
	for groups, want := range map[int][][]int{
		0: singles(8), 4: singles(8), 8: singles(8),
		2: {{0, 1}, {2, 3}, {4, 5}, {6, 7}},
		1: {{0, 1, 2, 3}, {4, 5, 6, 7}},
	} {
		s.QueryGroups = groups
		if got := s.Groups(QuerySharers); !reflect.DeepEqual(got, want) {
			t.Errorf("%d query groups: %v, want %v", groups, got, want)
		}
	}
}

// Claim: impossible sizes are named, all at once.
func TestCheck(t *testing.T) {
	err := Sizes{TP: 0, CP: 1, EP: 1, DP: -1, PP: 1, ETP: 1}.Check()
	if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "tensor-parallel size is 0") || !strings.Contains(err.Error(), "data-parallel size is -1") {
		t.Error(err)
	}
	err = Sizes{TP: 2, CP: 1, EP: 3, DP: 2, PP: 1}.Check()
	if err == nil || !strings.Contains(err.Error(), "the number of ranks, 4, is not a multiple of expert tensor-parallel size 2 x expert-parallel size 3") {
		t.Error(err)
	}
	if err := (Sizes{TP: 2, CP: 1, EP: 2, DP: 2, PP: 1}).Check(); err != nil {
		t.Error(err)
	}
}

// listed is how many bytes the lists of all groups take, with what is made on the way.
func listed(s Sizes) (bytes uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, kind := range Kinds() {
		s.Groups(kind)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Claim: the work of listing all groups grows with the ranks, not with their square: four times the ranks, some 100,000, take
// four times the bytes, also where the optimizer's state has copies, experts have ranks of their own, or pipelines come first.
func TestListsGrowWithTheRanks(t *testing.T) {
	for name, s := range map[string]Sizes{
		"dense":    {TP: 8, CP: 2, EP: 1, DP: 521, PP: 3},
		"copies":   {TP: 8, CP: 2, EP: 1, DP: 522, PP: 3, Instances: 2},
		"experts":  {TP: 4, CP: 1, EP: 8, ETP: 1, DP: 1042, PP: 6},
		"pp first": {TP: 2, CP: 1, EP: 1, DP: 3126, PP: 4, PPBeforeDP: true, Instances: 6},
		"groups":   {TP: 8, CP: 1, EP: 1, DP: 1042, PP: 3, QueryGroups: 2},
	} {
		large := s
		large.DP *= 4
		few, many := listed(s), listed(large)
		if ratio := float64(many) / float64(few); ratio > 5 || large.World() < 100_000 {
			t.Errorf("%s: %d ranks take %d bytes, %d ranks %.1f times as many", name, s.World(), few, large.World(), ratio)
		}
	}
}
