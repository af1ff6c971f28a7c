package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// window reads sliding attention: a query sees sliding_window keys, itself included.
func (c *reading) window(f *fields) {
	switch c.Family {
	case Mistral, Mixtral, Phi3, Starcoder2:
		if f.SlidingWindow != nil {
			c.windows("sliding_window", f.SlidingWindow, repeated(c.Model.NumLayers, true))
		}
	case Qwen2, Qwen3:
		if on := c.qwenWindows(f); slices.Contains(on, true) {
			c.windows("sliding_window", f.SlidingWindow, on)
		}
	case SmolLM3:
		if on := c.whereNotRotated(f); slices.Contains(on, true) {
			c.windows("sliding_window", f.SlidingWindow, on)
		}
	case Qwen2MoE:
		if on := c.everySecond(f); slices.Contains(on, true) {
			c.windows("sliding_window", f.SlidingWindow, on)
		}
	case Qwen3MoE:
		if given(f.UseSlidingWindow, false) && f.SlidingWindow != nil {
			c.windows("sliding_window", f.SlidingWindow, repeated(c.Model.NumLayers, true))
		}
	case OLMoE:
		if f.SlidingWindow != nil { // some of its attentions read it, others do not
			c.fail("sliding_window %d in an olmoe model is not supported", *f.SlidingWindow)
		}
	}
}

// whereNotRotated are SmolLM 3's layers with a window: those that layer_types says, or else
// those without RoPE.
func (c *reading) whereNotRotated(f *fields) []bool {
	use := given(f.UseSlidingWindow, false) && f.SlidingWindow != nil
	switch {
	case len(f.LayerTypes) > 0:
		return c.layerTypes(f.LayerTypes, use)
	case !use:
		return nil
	}
	return c.Model.NoRope
}

// everySecond are Qwen2-MoE's layers with a window: those that layer_types says, or else
// every second one of the first max_window_layers.
func (c *reading) everySecond(f *fields) (on []bool) {
	use := given(f.UseSlidingWindow, false) && f.SlidingWindow != nil
	if len(f.LayerTypes) > 0 {
		return c.layerTypes(f.LayerTypes, use)
	}
	for i := range c.Model.NumLayers {
		on = append(on, use && i%2 == 0 && (f.MaxWindowLayers == nil || int64(i) < *f.MaxWindowLayers))
	}
	return on
}

// windows sets the window of the layers that have it.
func (c *reading) windows(name string, size *int64, on []bool) {
	c.Model.WindowLeft = c.size(name, math.MaxInt32, size) - 1
	if slices.Contains(on, false) {
		c.Model.Windowed = on
	}
}

func repeated(n int, value bool) []bool {
	list := make([]bool, n)
	for i := range list {
		list[i] = value
	}
	return list
}

// qwenWindows are the layers that layer_types says, or else all but the first
// max_window_layers.
func (c *reading) qwenWindows(f *fields) []bool {
	n, use := c.Model.NumLayers, given(f.UseSlidingWindow, false) && f.SlidingWindow != nil
	if len(f.LayerTypes) > 0 {
		return c.layerTypes(f.LayerTypes, use)
	}
	full := int64(n)
	if use && f.MaxWindowLayers != nil {
		full = max(0, min(*f.MaxWindowLayers, full))
	}
	return append(repeated(int(full), false), repeated(n-int(full), true)...)
}

func (c *reading) layerTypes(kinds []string, window bool) (on []bool) {
	if len(kinds) != c.Model.NumLayers {
		c.fail("layer_types has %d entries for %d layers", len(kinds), c.Model.NumLayers)
		return nil
	}
	for _, kind := range kinds {
		on = append(on, kind == "sliding_attention")
		if kind != "sliding_attention" && kind != "full_attention" {
			c.fail("layer_types: %q is not supported", kind)
			return nil
		}
	}
	if slices.Contains(on, true) && !window {
		c.fail("layer_types has sliding_attention, but use_sliding_window is false")
		return nil
	}
	return on
}

// attentionTypes is a part of GPT-Neo's attention_types: [["global", "local"], 12],
// kinds and how often they follow each other.
type attentionTypes struct {
	kinds []string
	times int64
}

// UnmarshalJSON reads the pair.
func (a *attentionTypes) UnmarshalJSON(text []byte) error {
	var pair []json.RawMessage
	err := json.Unmarshal(text, &pair)
	if err == nil && len(pair) != 2 {
		err = fmt.Errorf("attention_types: the entry %.80s is not of the form [[\"global\", \"local\"], N]", text)
	}
	if err != nil || bytes.Equal(bytes.TrimSpace(text), []byte("null")) {
		return err
	}
	return errors.Join(json.Unmarshal(pair[0], &a.kinds), json.Unmarshal(pair[1], &a.times))
}

// neoWindows are GPT-Neo's local layers.
func (c *reading) neoWindows(f *fields) (on []bool) {
	types := f.AttentionTypes
	if types == nil { // the class's default, for 24 layers
		types = []attentionTypes{{[]string{"global", "local"}, 12}}
	}
	for _, t := range types {
		for range min(t.times, maxLayers) {
			for _, kind := range t.kinds {
				if kind != "global" && kind != "local" {
					c.fail("attention_types: %q is neither global nor local", kind)
					return nil
				}
				if on = append(on, kind == "local"); len(on) > maxLayers {
					c.fail("attention_types names more than %d layers", maxLayers)
					return nil
				}
			}
		}
	}
	if len(on) != c.Model.NumLayers {
		c.fail("attention_types names %d layers, but the model has %d", len(on), c.Model.NumLayers)
	}
	return on
}
