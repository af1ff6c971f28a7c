package table

import (
	"fmt"

	"monotron/csrc/device/activations"
)

// activationFlags choose the MLP's non-linearity: those of the table of activations, and
// what GELU's two forms go by.
var activationFlags = owned(Model, append(activationRows(),
	works("glu-activation", String, "", "Raw.GLU", "choose a gated MLP activation, as Megatron-DeepSpeed spells --swiglu").choices("swiglu").
		but(notBuilt+"; use --swiglu", "geglu", "liglu", "reglu"),
	works("no-bias-gelu-fusion", Switch, "", "!Raw.BiasGelu", "use exact erf GELU instead of the tanh form (also with --disable-bias-linear)"),
)...)

func activationRows() (rows []Flag) {
	for _, a := range activations.WithFlag() {
		rows = append(rows, works(a.Row().Flag, Switch, "", fmt.Sprintf("Raw.Activations.%d", a), a.Row().Help))
	}
	return rows
}
