package command

import "github.com/urfave/cli/v2"

// Shown is flags for completion and manual pages alone, of a command that reads its
// arguments itself: names and sentences, no values.
func Shown(list []cli.Flag) (shown []cli.Flag) {
	for _, f := range list {
		names, usage := f.Names(), ""
		if d, ok := f.(cli.DocGenerationFlag); ok {
			usage = d.GetUsage()
		}
		if _, ok := f.(*cli.BoolFlag); ok {
			shown = append(shown, &cli.BoolFlag{Name: names[0], Aliases: names[1:], Usage: usage})
		} else {
			shown = append(shown, &cli.StringFlag{Name: names[0], Aliases: names[1:], Usage: usage})
		}
	}
	return shown
}
