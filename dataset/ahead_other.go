//go:build !linux

package dataset

import "os"

func sendAhead(*os.File, int64, int64) {}
