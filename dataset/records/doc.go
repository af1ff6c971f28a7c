// Package records reads the rows of other programs' data files as JSON objects, a line each: Parquet, tar archives in
// WebDataset's form, and shards of MosaicML's streaming (MDS). Values that are neither text nor numbers nor JSON, as
// images, are left out.
//
// Reading order: lines.go (rows as a stream), parquet.go, webdataset.go, mds.go.
package records
