package main

// generate lets the trained model go on with the beginning of a Go function.
func generate() error {
	return show("bin/monotron", append([]string{"generate", "--load", checkpoints, "--prompt", "// Close closes the file.\nfunc (f *File) Close(",
		"--max-new-tokens", "160", "--temperature", "0.7", "--top-k", "40", "--seed", "1"}, tokenizerFlags...)...)
}
