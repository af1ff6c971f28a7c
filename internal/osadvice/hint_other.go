//go:build !linux

package osadvice

import "os"

func HugePages([]byte) {}

func WriteBack(*os.File, int64, int64) {}

func Reserve(*os.File, int64, int64) {}

func WillNeed(*os.File, int64, int64) {}

func Random(*os.File) {}

func Forget(*os.File) {}
