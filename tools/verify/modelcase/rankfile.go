package modelcase

import (
	"bytes"
	"encoding/json"
)

// rankFile is what one of Megatron's ranks had and did.
type rankFile struct {
	TP, PP, DP int
	CP, EP     int
	ETP, EDP   *int
	Routed     map[string][][]int `json:"routed_here_per_expert_per_layer_and_microbatch"`
	Received   map[string][][]int `json:"received_by_local_expert_per_layer_and_microbatch"`
	Order      string             `json:"forward_backward_order_of_first_iteration"`
	Parameters parameterTable     `json:"parameters"`
	NoDecay    []string           `json:"no_weight_decay"`
}

// parameterTable keeps the order of its JSON object: that of Megatron's modules.
type parameterTable struct {
	names  []string
	shapes map[string][]int64
}

func (t *parameterTable) UnmarshalJSON(raw []byte) error {
	var entries map[string]struct{ Shape []int64 }
	if err := json.Unmarshal(raw, &entries); err != nil {
		return err
	}
	t.shapes = map[string][]int64{}
	for name, e := range entries {
		t.shapes[name] = e.Shape
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return nil // its end: Unmarshal above has checked the syntax
		}
		switch token := token.(type) {
		case json.Delim:
			if token == '{' || token == '[' {
				depth++
			} else {
				depth--
			}
		case string:
			if _, ok := entries[token]; ok && depth == 1 {
				t.names = append(t.names, token)
			}
		}
	}
}
