package training

import (
	"strings"
	"testing"

	"monotron/dataset"
	"monotron/megatron/config"
	"monotron/megatron/spec"
	"monotron/megatron/telemetry"
)

// TestAmount: three digits and a unit.
func TestAmount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1.00k", 9_994: "9.99k", 9_999: "10.0k", 124_439_808: "124M", 999_600: "1.00M", 8_030_261_248: "8.03B", 15e12: "15.0T"} {
		if got := amount(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// TestDataName: prefixes without folders, weights and what preprocess_data adds.
func TestDataName(t *testing.T) {
	for want, c := range map[string]config.Run{
		"wiki":            {Data: dataOf("/big/disk/wiki_text_document")},
		"wiki and 1 more": {Data: dataOf("0.3", "/a/wiki_text_document", "0.7", "/b/books_text_document")},
		"7":               {Data: dataOf("7")},
		"no data":         {},
		"chats":           {Tuning: config.Tuning{Data: "/home/me/chats.jsonl"}},
	} {
		if got := dataName(&c); got != want || strings.Contains(got, "/") {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func dataOf(words ...string) dataset.Config { return dataset.Config{DataPath: words} }

// TestModelText: what the shape says in a line.
func TestModelText(t *testing.T) {
	m := &spec.Model{NumLayers: 2, HiddenSize: 8, FFNHiddenSize: 32, NumAttentionHeads: 2, NumQueryGroups: 1, KVChannels: 4, VocabSize: 10, PaddedVocabSize: 16}
	if got := modelText(m); !strings.HasSuffix(got, ", 2 layers, hidden size 8, 2 heads, 1 query groups, vocabulary 10") {
		t.Error(got)
	}
}

// Claim: names that are not UTF-8 reach trackers as text; OpenTelemetry's encoder refuses all of a message with others.
func TestAboutIsText(t *testing.T) {
	given := []string{"pretrain_gpt", "\xff"}
	got := readable(&telemetry.About{Name: "a\xffb", Notes: "\xfe", Command: given, Flags: []telemetry.Setting{{Name: "x", Value: "\xff"}},
		Facts: []telemetry.Fact{{Label: "data", Text: "wiki\xff, 漢"}}})
	for text, want := range map[string]string{got.Name: "a\uFFFDb", got.Notes: "\uFFFD", got.Command[1]: "\uFFFD", got.Flags[0].Value: "\uFFFD", got.Facts[0].Text: "wiki\uFFFD, 漢"} {
		if text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
	if given[1] != "\xff" {
		t.Error("the command of the run itself is changed")
	}
}
