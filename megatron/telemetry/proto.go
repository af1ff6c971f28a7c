package telemetry

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// The few messages of TensorBoard's event files, by field number (event.proto,
// summary.proto and tensor.proto of TensorFlow).
const (
	eventWallTime    = 1 // double
	eventStep        = 2 // int64
	eventFileVersion = 3 // string
	eventSummary     = 5 // Summary
	summaryValue     = 1 // repeated Value
	valueTag         = 1 // string
	valueSimple      = 2 // float
	valueTensor      = 8 // TensorProto
	valueMetadata    = 9 // SummaryMetadata
	metadataPlugin   = 1 // PluginData
	pluginName       = 1 // string
	tensorDtype      = 1 // DataType
	tensorShape      = 2 // TensorShapeProto
	shapeDim         = 2 // repeated Dim
	dimSize          = 1 // int64
	tensorString     = 8 // repeated bytes
	dtString         = 7
)

// event is an Event around a payload field.
func event(wallTime float64, step int64, payload []byte) []byte {
	b := protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(wallTime))
	if step != 0 {
		b = protowire.AppendTag(b, eventStep, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(step))
	}
	return append(b, payload...)
}

func versionPayload() []byte {
	return bytesField(nil, eventFileVersion, []byte("brain.Event:2"))
}

func scalarPayload(tag string, value float32) []byte {
	v := bytesField(nil, valueTag, []byte(tag))
	v = protowire.AppendTag(v, valueSimple, protowire.Fixed32Type)
	v = protowire.AppendFixed32(v, math.Float32bits(value))
	return summaryPayload(v)
}

func textPayload(tag, text string) []byte {
	dim := varintField(nil, dimSize, 1)
	tensor := varintField(nil, tensorDtype, dtString)
	tensor = bytesField(tensor, tensorShape, bytesField(nil, shapeDim, dim))
	tensor = bytesField(tensor, tensorString, []byte(text))
	v := bytesField(nil, valueTag, []byte(tag+"/text_summary"))
	v = bytesField(v, valueTensor, tensor)
	v = bytesField(v, valueMetadata, bytesField(nil, metadataPlugin, bytesField(nil, pluginName, []byte("text"))))
	return summaryPayload(v)
}

// hparamsPayload is a session of the table of hyperparameters: the summary _hparams_/session_start_info,
// whose plugin data is an HParamsPluginData (plugins/hparams/plugin_data.proto of TensorBoard) with the flags
// as strings and numbers.
func hparamsPayload(a *About) []byte {
	const (
		version, sessionStart                = 1, 3 // of HParamsPluginData
		hparams, group, started              = 1, 4, 5
		mapKey, mapValue                     = 1, 2
		valueNumber, valueText, valueBool    = 2, 3, 4 // of google.protobuf.Value
		pluginContent, tensorFloats, dtFloat = 2, 5, 1
	)
	session := []byte{}
	for _, f := range a.Flags {
		value := bytesField(nil, valueText, []byte(f.Value))
		if n, err := strconv.ParseFloat(f.Value, 64); err == nil {
			value = doubleField(nil, valueNumber, n)
		} else if f.Value == "true" || f.Value == "false" {
			value = varintField(nil, valueBool, protowire.EncodeBool(f.Value == "true"))
		}
		session = bytesField(session, hparams, bytesField(bytesField(nil, mapKey, []byte(f.Name)), mapValue, value))
	}
	session = bytesField(session, group, []byte(a.Name))
	session = doubleField(session, started, float64(a.Started.UnixMilli())/1000)
	data := bytesField(varintField(nil, version, 0), sessionStart, session)
	plugin := bytesField(bytesField(nil, pluginName, []byte("hparams")), pluginContent, data)
	tensor := bytesField(varintField(nil, tensorDtype, dtFloat), tensorShape, nil)
	tensor = bytesField(tensor, tensorFloats, binary.LittleEndian.AppendUint32(nil, 0))
	v := bytesField(nil, valueTag, []byte("_hparams_/session_start_info"))
	v = bytesField(v, valueTensor, tensor)
	return summaryPayload(bytesField(v, valueMetadata, bytesField(nil, metadataPlugin, plugin)))
}

func doubleField(b []byte, field protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(v))
}

func summaryPayload(value []byte) []byte {
	return bytesField(nil, eventSummary, bytesField(nil, summaryValue, value))
}

func bytesField(b []byte, field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), content)
}

func varintField(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedCRC is TFRecord's checksum: CRC-32C, rotated and offset, so that a
// checksum of data that holds checksums stays good.
func maskedCRC(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// record frames data as TFRecord: length, its checksum, data, its checksum.
func record(data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, len(data)+16), uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, maskedCRC(b))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, maskedCRC(data))
}
