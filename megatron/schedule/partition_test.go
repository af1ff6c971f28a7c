package schedule

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// outline writes parts as layouts do, one stage a word, chunks apart by /.
func outline(parts [][]Part) string {
	var words []string
	for _, stage := range parts {
		var chunks []string
		for _, p := range stage {
			text := ""
			if p.Embedding {
				text += "E"
			}
			if len(p.Layers) > 0 {
				text += fmt.Sprintf("%d-%d", p.Layers[0], p.Layers[len(p.Layers)-1])
			}
			if p.Head {
				text += "L"
			}
			chunks = append(chunks, text)
		}
		words = append(words, strings.Join(chunks, "/"))
	}
	return strings.Join(words, " ")
}

// Claim: stages hold the layers Megatron gives them (get_num_layers_to_build and
// get_transformer_layer_offset, core 0.20; the examples of its comments: 8 layers,
// 2 stages, 2 and 4 chunks), and BLOOM's 70 layers lie on 12 stages as its authors
// say (arXiv 2211.05100, section 3.4: both embeddings count as a layer).
func TestPartsOfMegatron(t *testing.T) {
	for _, c := range []struct {
		split Split
		want  string
	}{
		{Split{Layers: 2, Stages: 1}, "E0-1L"},
		{Split{Layers: 8, Stages: 4}, "E0-1 2-3 4-5 6-7L"},
		{Split{Layers: 8, Stages: 2, VirtualStages: 2}, "E0-1/4-5 2-3/6-7L"},
		{Split{Layers: 8, Stages: 2, VirtualStages: 4}, "E0-0/2-2/4-4/6-6 1-1/3-3/5-5/7-7L"},
		{Split{Layers: 24, Stages: 4, LayersPerChunk: 3}, "E0-2/12-14 3-5/15-17 6-8/18-20 9-11/21-23L"},
		{Split{Layers: 8, Stages: 4, First: 1, Last: 3}, "E0-0 1-2 3-4 5-7L"},
		{Split{Layers: 4, Stages: 2, First: 1}, "E0-0 1-3L"},
		{Split{Layers: 4, Stages: 2, First: 3, Last: 1}, "E0-2 3-3L"},
		{Split{Layers: 12, Stages: 3, First: 2, Last: 2, VirtualStages: 2}, "E0-0/6-6 1-4/7-10 5-5/11-11L"},
		{Split{Layers: 6, Stages: 4, EmbeddingCounts: true, HeadCounts: true}, "E0-0 1-2 3-4 5-5L"},
		{Split{Layers: 4, Stages: 6, EmbeddingCounts: true, HeadCounts: true}, "E 0-0 1-1 2-2 3-3 L"},
		{Split{Layers: 7, Stages: 2, VirtualStages: 2, HeadCounts: true}, "E0-1/4-5 2-3/6-6L"},
		{Split{Layers: 4, Stages: 2, Layout: "Et|(t|)*2tL"}, "E0-0/2-2 1-1/3-3L"},
		{Split{Layers: 58, Stages: 31, Layout: "Ett|(tt|)*28,|L"}, "E0-1 " + pairs(2, 28) + " L"},
		{Split{Layers: 4, Stages: 2, Ahead: 2, Layout: "Etttt|m*2L"}, "E0-3 L"},
		{Split{Layers: 6, Stages: 2, Layout: "E t*3|t|tt|L"}, "E0-2/4-5 3-3/L"},
		{Split{Layers: 70, Stages: 12, Method: ByLayersAndEmbeddings}, "E0-4 5-10 11-16 17-22 23-28 29-34 35-40 41-46 47-52 53-58 59-64 65-69L"},
		{Split{Layers: 4, Stages: 6, Method: Uniform}, "E 0-0 1-1 2-2 3-3 L"},
		{Split{Layers: 7, Stages: 2, Method: ByLayers}, "E0-3 4-6L"},
		{Split{Layers: 6, Stages: 3, Method: ByParameters, Weights: []float64{5, 1, 1, 1, 1, 1, 1, 5}}, "E0-0 1-5 L"},
		{Split{Layers: 6, Stages: 4, Method: ByParameters, Weights: []float64{9, 1, 1, 1, 1, 1, 1, 9}}, "E 0-2 3-5 L"},
	} {
		parts, err := c.split.Parts()
		if err != nil || outline(parts) != c.want {
			t.Errorf("%+v: %s, %v, want %s", c.split, outline(parts), err, c.want)
		}
	}
}

// pairs names n stages of two layers; the last of them is empty.
func pairs(first, n int) string {
	var words []string
	for i := range n {
		words = append(words, fmt.Sprintf("%d-%d", first+2*i, first+2*i+1))
	}
	return strings.Join(append(words, ""), " ")
}

// Claim: whatever is accepted gives every layer one owner, in order along the
// virtual stages, embedding first and head last (docs/pipeline.md).
func TestEveryLayerHasOneOwner(t *testing.T) {
	accepted := 0
	for _, s := range manySplits() {
		parts, err := s.Parts()
		if err != nil {
			continue
		}
		accepted++
		next, chunks := 0, len(parts[0])
		for v := range s.Stages * chunks {
			p := parts[v%s.Stages][v/s.Stages]
			if p.Embedding != (v == 0) || p.Head != (v == s.Stages*chunks-1) {
				t.Fatalf("%+v: virtual stage %d: %+v", s, v, p)
			}
			for _, layer := range p.Layers {
				if layer != next {
					t.Fatalf("%+v: virtual stage %d holds layer %d, next is %d", s, v, layer, next)
				}
				next++
			}
		}
		if next != s.Layers {
			t.Fatalf("%+v: %d layers have an owner", s, next)
		}
	}
	if accepted < 200 {
		t.Errorf("only %d splits were accepted", accepted)
	}
}

func manySplits() (all []Split) {
	for layers := 1; layers <= 13; layers++ {
		for stages := 1; stages <= 8; stages++ {
			for chunks := 1; chunks <= 3; chunks++ {
				s := Split{Layers: layers, Stages: stages, VirtualStages: chunks}
				all = append(all, s)
				for _, method := range []string{ByLayers, ByLayersAndEmbeddings, Uniform, ByParameters} {
					m := s
					m.Method = method
					all = append(all, m)
				}
				counted := s
				counted.EmbeddingCounts, counted.HeadCounts = true, stages%2 == 0
				ends := s
				ends.First, ends.Last = chunks, chunks*(stages%3)
				all = append(all, counted, ends)
			}
		}
	}
	return all
}

// Claim: a refused split lists every problem, and the layout it proposes is one
// that is accepted.
func TestRefusedSplits(t *testing.T) {
	proposed := 0
	for _, s := range manySplits() {
		_, err := s.Parts()
		if err == nil {
			continue
		}
		_, layout, ok := strings.Cut(err.Error(), "--pipeline-model-parallel-layout '")
		if !ok {
			continue
		}
		layout, _, _ = strings.Cut(layout, "'")
		proposed++
		if parts, err := (Split{Layers: s.Layers, Stages: s.Stages, Layout: layout}).Parts(); err != nil || len(parts[0]) != s.VirtualStages {
			t.Errorf("%+v: proposed %s: %v", s, layout, err)
		}
	}
	if proposed < 100 {
		t.Errorf("only %d layouts were proposed", proposed)
	}
	for _, c := range []struct {
		split Split
		want  []string
	}{
		{Split{Layers: 10, Stages: 4}, []string{"10 layers cannot be divided evenly among 4 pipeline stages: use --pipeline-model-parallel-size 2 or 5, --num-layers 8 or 12, --pp-partition-method 'type:transformer|embedding', or --pipeline-model-parallel-layout 'Ettt|ttt|tt|ttL'"}},
		{Split{Layers: 24, Stages: 4, LayersPerChunk: 4}, []string{"use --num-layers-per-virtual-pipeline-stage 3 or 6"}},
		{Split{Layers: 2, Stages: 8}, []string{"the embedding and the head): use --pipeline-model-parallel-size 4"}},
		{Split{Layers: 4, Stages: 5, Method: ByLayers}, []string{"at most 4 parts, but there are 5 pipeline stages of 1 chunks: use --pipeline-model-parallel-size 4"}},
		{Split{Layers: 4, Stages: 2, Method: "random"}, []string{"uniform or parameters, not random"}},
		{Split{Layers: 4, Stages: 1, First: 2}, []string{"need --pipeline-model-parallel-size of at least 2"}},
		{Split{Layers: 9, Stages: 4, First: 1, Last: 3}, []string{"ends with a sum of 3 or 5"}},
		{Split{Layers: 4, Stages: 2, First: 3, Last: 3}, []string{"leave -2 of 4 layers"}},
		{Split{Layers: 1 << 40, Stages: 1 << 30}, []string{"pipeline stages; both numbers must be from 1 to"}},
		{Split{Layers: 4, Stages: 2, VirtualStages: 2, LayersPerChunk: 1, Layout: "Ett|ttL", First: 1, HeadCounts: true}, []string{"cannot be combined; give one", "and --pp-partition-method cannot be combined; give only one", "needs an even split"}},
		{Split{Layers: 4, Stages: 2, Layout: "ttm|LE|t"}, []string{"has 3 layers", "multi-token", "only E", "only L", "has 3 stages", "fits: --pipeline-model-parallel-layout 'Ett|ttL'"}},
		{Split{Layers: 4, Stages: 1, Layout: "Ett|ttL"}, []string{"at least 2"}},
		{Split{Layers: 4, Stages: 2, Layout: "((((((((((Et))))))))))|L"}, []string{"8 deep"}},
		{Split{Layers: 4, Stages: 2, Layout: "(Et*9999|)*9999L"}, []string{"more than 200000 stages"}},
		{Split{Layers: 4, Stages: 2, Ahead: 2, Layout: "Ett|ttmL"}, []string{"has 1 layers of multi-token prediction (m), but --mtp-num-layers is 2", "'Ett|ttmmL'"}},
		{Split{Layers: 4, Stages: 2, Ahead: 1, Layout: "Ettttm|L"}, []string{"on a stage other than that of the output layer (L); end the layout with mL", "'Ett|ttmL'"}},
		{Split{Layers: 4, Stages: 2, Ahead: 1, Layout: "Ett|mttL"}, []string{"end the layout with mL", "'Ett|ttmL'"}},
		{Split{Layers: 4, Stages: 2, Layout: "Et*x|L"}, []string{"after *"}},
		{Split{Layers: 4, Stages: 2, Layout: "(Et"}, []string{"a closing parenthesis is missing"}},
		{Split{Layers: 4, Stages: 2, Layout: "Et)"}, []string{"a closing parenthesis has no opening parenthesis"}},
		{Split{Layers: 4, Stages: 2, Layout: "Eq|L"}, []string{`"q" is not a part`}},
		{Split{Layers: 4, Stages: 2, Layout: " "}, []string{"the layout is empty"}},
	} {
		_, err := c.split.Parts()
		var many interface{ Unwrap() []error }
		if !errors.As(err, &many) || len(many.Unwrap()) != len(c.want) {
			t.Errorf("%+v: %v, want %d problems", c.split, err, len(c.want))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(many.Unwrap()[i].Error(), want) {
				t.Errorf("%+v: %v, want %q", c.split, many.Unwrap()[i], want)
			}
		}
	}
}

// FuzzLayout: no text from outside makes the reader of layouts panic or swell.
func FuzzLayout(f *testing.F) {
	for _, seed := range []string{"Et*3|(tt|)*3m|L", "Ett|ttL", "((t)*9)*9", "E*", "|||", "Et*0|L"} {
		f.Add(seed, 4, 2)
	}
	f.Fuzz(func(t *testing.T, layout string, layers, stages int) {
		parts, err := Split{Layers: layers, Stages: stages, Layout: layout}.Parts()
		if err == nil && layout != "" && (len(parts) != stages || layers > maxParts) {
			t.Errorf("%q: %d stages", layout, len(parts))
		}
	})
}
