/* The CPU's kernel table. */
#include "cpu.h"

#define DECLARE(id, name) extern const mt_op mt_cpu_##name;
MT_EACH_OP(DECLARE)

#define DECLARE_KNOWN(name) extern const uint32_t mt_cpu_known_##name;
MT_EACH_ENUMERATION(DECLARE_KNOWN)

const char *mt_cpu_describe(void);
int32_t mt_cpu_instruction(int32_t dtype, int64_t rounds, mt_instruction *out);

const mt_device_api *mt_cpu_api(void) {
  static mt_device_api api;
  api.version = MT_DEVICE_VERSION;
  api.bytes = sizeof api;
  api.workspace_bytes = MT_CPU_WORKSPACE;
  api.ops = MT_OPS;
  api.sum = MT_OPS_SUM;
  api.host_memory = 1;
  api.describe = mt_cpu_describe;
  api.instruction = mt_cpu_instruction;
#define ENTER(id, name) api.op[id] = mt_cpu_##name;
  MT_EACH_OP(ENTER)
#define ENTER_KNOWN(name) api.known.name = mt_cpu_known_##name;
  MT_EACH_ENUMERATION(ENTER_KNOWN)
  return &api;
}
