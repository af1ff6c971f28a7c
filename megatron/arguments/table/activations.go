package table

import (
	"fmt"

	"monotron/csrc/device/activations"
)

// activationFlags choose the MLP's non-linearity: those of the table of activations, and
// what GELU's two forms go by.
var activationFlags = owned(Model, append(activationRows(),
	works("glu-activation", String, "", "Raw.GLU", "use a gated MLP; swiglu is Megatron-DeepSpeed's spelling of --swiglu").choices("swiglu").
		but(notBuilt+"; use --swiglu", "geglu", "liglu", "reglu"),
	works("no-bias-gelu-fusion", Switch, "", "!Raw.BiasGelu", "use the exact form of GELU, with erf, instead of the tanh form; the flag also applies with --disable-bias-linear"),
)...)

func activationRows() (rows []Flag) {
	for _, a := range activations.WithFlag() {
		rows = append(rows, works(a.Row().Flag, Switch, "", fmt.Sprintf("Raw.Activations.%d", a), a.Row().Help))
	}
	return rows
}
