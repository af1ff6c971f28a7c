package command

import (
	"os"

	"monotron/internal/exitcode"
)

// Apart refuses files to write that are among those to read, under whatever names; flag says where to write. The
// input - is standard input.
func Apart(flag string, outputs, inputs []string) error {
	var read []os.FileInfo
	for _, path := range inputs {
		info, err := os.Stat(path)
		if path == "-" {
			info, err = os.Stdin.Stat()
		}
		if err != nil {
			info = nil // reading it says what is wrong
		}
		read = append(read, info)
	}
	for _, out := range outputs {
		there, err := os.Stat(out)
		if err != nil || there.IsDir() {
			continue
		}
		for i, info := range read {
			if info == nil || !os.SameFile(there, info) {
				continue
			}
			name := inputs[i]
			if name == "-" {
				name = "standard input"
			}
			return exitcode.Errorf(exitcode.Usage, "--%s: the output %s would replace the input %s; choose another --%[1]s", flag, out, name)
		}
	}
	return nil
}
