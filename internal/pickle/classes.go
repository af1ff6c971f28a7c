package pickle

// kind says what becomes of a listed name.
type kind int

const (
	record   kind = iota + 1 // a class: an inert Object
	enum                     // an enumeration: an inert Object, also by getattr
	mapping                  // a dict
	function                 // built here, by builders
	dtype                    // torch's element types
	storage                  // torch's storage classes
	mention                  // only named, as an argument of others
)

// classes is everything a pickle may name. Nothing else is accepted, and
// nothing of this is called.
var classes = map[string]kind{
	"argparse.Namespace":           record,
	"types.SimpleNamespace":        record,
	"pathlib.PosixPath":            record,
	"pathlib._local.PosixPath":     record,
	"pathlib.PurePosixPath":        record,
	"_io.BytesIO":                  record,
	"io.BytesIO":                   record,
	"torch._C.Generator":           record,
	"torch.Generator":              record,
	"torch.device":                 record,
	"builtins.complex":             record,
	"__builtin__.complex":          record,
	"builtins.slice":               record,
	"__builtin__.slice":            record,
	"datetime.timedelta":           record,
	"numpy.dtype":                  record,
	"numpy.dtypes.UInt32DType":     record,
	"numpy.ndarray":                mention,
	"torch.Tensor":                 mention,
	"torch.nn.parameter.Parameter": mention,
	"builtins.list":                mention,
	"builtins.int":                 mention,
	"builtins.float":               mention,
	"builtins.str":                 mention,
	"builtins.bool":                mention,
	"__builtin__.list":             mention,
	"__builtin__.int":              mention,
	"__builtin__.long":             mention,
	"__builtin__.float":            mention,
	"__builtin__.str":              mention,
	"__builtin__.bool":             mention,

	"collections.OrderedDict": mapping,
	"collections.defaultdict": mapping,
	"collections.Counter":     mapping,
	"builtins.dict":           mapping,
	"__builtin__.dict":        mapping,

	"torch._utils._rebuild_tensor":               function,
	"torch._utils._rebuild_tensor_v2":            function,
	"torch._utils._rebuild_tensor_v3":            function,
	"torch._utils._rebuild_parameter":            function,
	"torch._utils._rebuild_parameter_with_state": function,
	"torch._tensor._rebuild_from_type_v2":        function,
	"torch._utils._rebuild_sparse_tensor":        function,
	"torch.serialization._get_layout":            function,
	"torch.Size":                                 function,
	"_codecs.encode":                             function,
	"builtins.bytes":                             function,
	"__builtin__.bytes":                          function,
	"builtins.bytearray":                         function,
	"__builtin__.bytearray":                      function,
	"builtins.set":                               function,
	"__builtin__.set":                            function,
	"builtins.frozenset":                         function,
	"__builtin__.frozenset":                      function,
	"builtins.getattr":                           function,
	"__builtin__.getattr":                        function,
	"numpy.core.multiarray._reconstruct":         function,
	"numpy._core.multiarray._reconstruct":        function,
	"numpy.core.multiarray.scalar":               function,
	"numpy._core.multiarray.scalar":              function,
	"numpy._core.numeric._frombuffer":            function,
	"numpy.core.numeric._frombuffer":             function,

	"signal.Signals":                                                       enum,
	"signal.SIGTERM":                                                       mention,
	"signal.SIGINT":                                                        mention,
	"signal.SIGUSR1":                                                       mention,
	"signal.SIGUSR2":                                                       mention,
	"megatron.core.enums.ModelType":                                        enum,
	"megatron.model.enums.ModelType":                                       enum,
	"megatron.model.enums.PositionEmbeddingType":                           enum,
	"megatron.enums.PositionEmbeddingType":                                 enum,
	"megatron.core.transformer.enums.AttnBackend":                          enum,
	"megatron.core.transformer.enums.CudaGraphModule":                      enum,
	"megatron.core.transformer.enums.CudaGraphScope":                       enum,
	"megatron.core.transformer.enums.InferenceCudaGraphScope":              enum,
	"megatron.core.rerun_state_machine.RerunMode":                          enum,
	"megatron.core.rerun_state_machine.RerunState":                         enum,
	"megatron.core.rerun_state_machine.RerunDiagnostic":                    enum,
	"megatron.core.optimizer.optimizer_config.OptimizerConfig":             record,
	"megatron.core.optimizer.optimizer_config.AdamOptimizerConfig":         record,
	"megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata":      record,
	"megatron.core.dist_checkpointing.strategies.torch.MCoreSavePlan":      record,
	"torch.distributed._shard.sharded_tensor.metadata.TensorProperties":    record,
	"torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING": enum,

	"torch.distributed.checkpoint.metadata.Metadata":              record,
	"torch.distributed.checkpoint.metadata.TensorStorageMetadata": record,
	"torch.distributed.checkpoint.metadata.BytesStorageMetadata":  record,
	"torch.distributed.checkpoint.metadata.ChunkStorageMetadata":  record,
	"torch.distributed.checkpoint.metadata.MetadataIndex":         record,
	"torch.distributed.checkpoint.metadata.TensorProperties":      record,
	"torch.distributed.checkpoint.metadata.StorageMeta":           record,
	"torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING":  enum,
	"torch.distributed.checkpoint.filesystem._StorageInfo":        record,
	"torch.distributed.checkpoint.filesystem._StoragePrefix":      record,
	"torch.distributed.checkpoint.planner.SavePlan":               record,
	"torch.distributed.checkpoint.planner.WriteItem":              record,
	"torch.distributed.checkpoint.planner.WriteItemType":          enum,
	"torch.distributed.checkpoint.planner.TensorWriteData":        record,
	"torch.distributed.checkpoint.planner.BytesIOWriteData":       record,
}

// dtypes by torch's names, as safetensors spells them; "" for types whose
// elements nothing here reads.
var dtypes = map[string]string{"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16",
	"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
	"uint16": "U16", "uint32": "U32", "uint64": "U64", "complex64": "C64", "complex128": "C128",
	"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0"}

// torchNames is the way back.
var torchNames = func() map[string]string {
	m := map[string]string{}
	for torch, ours := range dtypes {
		m[ours] = torch
	}
	return m
}()

// widths are the bytes of an element.
var widths = map[string]int64{"F32": 4, "F64": 8, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
	"U16": 2, "U32": 4, "U64": 8, "C64": 8, "C128": 16, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "F8_E8M0": 1}

// storages are torch's storage classes and what they hold.
var storages = map[string]string{"FloatStorage": "F32", "DoubleStorage": "F64", "HalfStorage": "F16", "BFloat16Storage": "BF16",
	"LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8", "BoolStorage": "BOOL",
	"ComplexFloatStorage": "C64", "ComplexDoubleStorage": "C128"}

func init() {
	for name := range dtypes {
		classes["torch."+name] = dtype
	}
	for name := range storages {
		classes["torch."+name] = storage
		classes["torch.cuda."+name] = storage
	}
	classes["torch.storage.UntypedStorage"] = storage
	classes["torch.UntypedStorage"] = storage
}

// TypeOf is safetensors' name of an element type; "" for one that is not read here.
func TypeOf(d DType) string { return dtypes[string(d)] }

// NameOf is torch's element type for safetensors' name.
func NameOf(dtype string) DType { return DType(torchNames[dtype]) }
