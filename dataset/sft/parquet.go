package sft

import (
	"errors"
	"fmt"
	"io"
	"os"

	"monotron/dataset/records"
	"monotron/internal/exitcode"
)

// parquetFile is a file's rows, with their numbers.
type parquetFile struct {
	name string
	file *os.File
	rows *records.Parquet
	read int64 // so far
}

// openParquet opens a Parquet file; nil: it is none, or opening it says why.
func openParquet(path string) (_ *parquetFile, err error) {
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return nil, nil
	}
	file, err := exitcode.Open(path)
	if err != nil {
		return nil, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(exitcode.Errorf(exitcode.BadData, "%s: %w", path, err), file.Close())
		}
	}()
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !records.IsParquet(file, st.Size()) {
		return nil, exitcode.With(exitcode.IO, file.Close())
	}
	rows, err := records.OpenParquet(file, st.Size())
	return &parquetFile{name: path, file: file, rows: rows}, err
}

func (s *parquetFile) next() (rows []given, err error) {
	list, err := s.rows.Next()
	var bad *records.RowError
	switch {
	case errors.As(err, &bad):
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", s.where(bad.Row), bad.Err)
	case err == io.EOF:
		return nil, err
	case err != nil:
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", s.name, err)
	}
	for _, text := range list {
		s.read++
		rows = append(rows, given{s.read, text})
	}
	return rows, nil
}

func (s *parquetFile) where(number int64) string { return fmt.Sprintf("%s: row %d", s.name, number) }

func (s *parquetFile) Close() error {
	return errors.Join(s.rows.Close(), exitcode.With(exitcode.IO, s.file.Close()))
}
