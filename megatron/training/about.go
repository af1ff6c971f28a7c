package training

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"monotron/dataset"
	"monotron/megatron/config"
	"monotron/megatron/spec"
	"monotron/megatron/telemetry"
	"monotron/mpu/ranks"
)

// about is what the run is, for its page and for trackers of experiments.
func (j *Job) about(rank *ranks.Rank) *telemetry.About {
	c := &j.Config
	a := &telemetry.About{Name: c.Log.RunName, Named: c.Log.RunName != "", Notes: c.Log.RunNotes, Version: Version, Started: time.Now().UTC(),
		Command: j.Asked.Command, Flags: j.Asked.Flags, MemoryLimit: j.MemoryFree}
	data := dataName(c)
	if !a.Named {
		a.Name = fmt.Sprintf("%s %s on %s", kindOf(&c.Model), amount(c.Model.Parameters()), data)
	}
	device := rank.Device.Name
	if text := rank.Device.Describe(); text != "" {
		device += ": " + text
	}
	a.Facts = []telemetry.Fact{
		{Label: "model", Text: modelText(&c.Model)},
		{Label: "data", Text: dataText(c, data)},
		{Label: "layout", Text: layoutText(c)},
		{Label: "batch", Text: fmt.Sprintf("%d sequences of %d tokens, %d a micro-batch", c.GlobalBatchSize, c.SeqLength, c.MicroBatchSize)},
		{Label: "precision", Text: c.DType().String()},
		{Label: "device", Text: device},
		{Label: "version", Text: Version},
	}
	return readable(a)
}

// readable is a with U+FFFD in place of bytes that are not UTF-8, as names of files may have: protobuf refuses them.
func readable(a *telemetry.About) *telemetry.About {
	valid := func(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
	a.Name, a.Notes = valid(a.Name), valid(a.Notes)
	a.Command, a.Flags = slices.Clone(a.Command), slices.Clone(a.Flags)
	for i, word := range a.Command {
		a.Command[i] = valid(word)
	}
	for i := range a.Flags {
		a.Flags[i].Value = valid(a.Flags[i].Value)
	}
	for i := range a.Facts {
		a.Facts[i].Text = valid(a.Facts[i].Text)
	}
	return a
}

// Asked is how a run was asked for.
type Asked struct {
	Command []string                  // the program first
	Flags   []telemetry.Setting       // that differ from their defaults
	NameOf  func(field string) string // the flag that sets a field of config.Run; nil: fields have their own names
}

func kindOf(m *spec.Model) string {
	if m.Experts != nil {
		return "MoE"
	}
	return "GPT"
}

// amount writes a count of parameters or tokens with three digits: 124M.
func amount(n int64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}} {
		if v := float64(n) / unit.size; v >= 0.9995 {
			return strconv.FormatFloat(v, 'f', digits(v), 64) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// digits are those behind the point that make three in all.
func digits(v float64) int {
	switch {
	case v >= 99.95:
		return 0
	case v >= 9.995:
		return 1
	}
	return 2
}

func modelText(m *spec.Model) string {
	parts := []string{fmt.Sprintf("%s of %s parameters", kindOf(m), amount(m.Parameters()))}
	if m.Experts != nil {
		parts = append(parts, fmt.Sprintf("%s active", amount(m.ActiveParameters())))
	}
	parts = append(parts, fmt.Sprintf("%d layers", m.NumLayers), fmt.Sprintf("hidden size %d", m.HiddenSize), fmt.Sprintf("%d heads", m.NumAttentionHeads))
	if m.NumQueryGroups != m.NumAttentionHeads {
		parts = append(parts, fmt.Sprintf("%d query groups", m.NumQueryGroups))
	}
	if e := m.Experts; e != nil {
		parts = append(parts, fmt.Sprintf("%d experts, %d a token", e.Num, e.TopK))
	}
	return strings.Join(append(parts, fmt.Sprintf("vocabulary %d", m.VocabSize)), ", ")
}

// dataPaths are the prefixes of the data that is trained on, without their weights.
func dataPaths(c *config.Run) []string {
	if c.Tuning.Data != "" {
		return []string{c.Tuning.Data}
	}
	list := slices.Clone(c.Data.DataPath)
	if len(list) == 0 {
		list = slices.Clone(c.Data.TrainDataPath)
	}
	if len(list) > 1 {
		list = slices.DeleteFunc(list, func(word string) bool { _, err := strconv.ParseFloat(word, 64); return err == nil })
	}
	group := c.Data.Groups[dataset.Train]
	return append(list, onlyGiven(append(group.Texts, c.Data.DataArgsPath, c.Data.PerSplitDataArgsPath, group.File)...)...)
}

func onlyGiven(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// dataName is the data in a few words, without folders.
func dataName(c *config.Run) string {
	if c.Data.Mock {
		return "mock data"
	}
	paths := dataPaths(c)
	if len(paths) == 0 {
		return "no data"
	}
	name := filepath.Base(paths[0])
	for _, end := range []string{"_document", "_sentence", "_text"} {
		name = strings.TrimSuffix(name, end)
	}
	if c.Tuning.Data != "" {
		name = strings.TrimSuffix(name, filepath.Ext(name))
	}
	if more := len(paths) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", name, more)
	}
	return name
}

func dataText(c *config.Run, name string) string {
	parts := []string{name}
	if c.Data.Split != "" && c.Tuning.Data == "" {
		parts = append(parts, "split "+c.Data.Split)
	}
	return strings.Join(append(parts, "tokenizer "+cmp.Or(c.Tokenizer.Type, "of the model")), ", ")
}

func layoutText(c *config.Run) string {
	s := c.Layout.Sizes()
	parts := []string{"1 rank"}
	if n := s.World(); n > 1 {
		parts = []string{fmt.Sprintf("%d ranks", n)}
	}
	for _, one := range []struct {
		name string
		size int
	}{{"tensor", s.TP}, {"pipeline", s.PP}, {"context", s.CP}, {"data", s.DP}, {"expert", s.EP}} {
		if one.size > 1 {
			parts = append(parts, fmt.Sprintf("%s %d", one.name, one.size))
		}
	}
	return strings.Join(parts, ", ")
}
