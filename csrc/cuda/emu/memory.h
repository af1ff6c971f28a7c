/* Memory of the emulated GPU. Where the CPU has protection keys, only streams may touch
 * it: a host that reads or writes a device pointer dies at that line, as it would with
 * a real GPU. Fresh memory holds NaN. */
#ifndef MT_EMU_MEMORY_H
#define MT_EMU_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mt_emu {

/* A block that cudaMalloc gave; the number distinguishes it from a later one at its address. */
struct Block {
  const void *at;
  uint64_t number;
};
std::vector<Block> blocks_of(const void *arguments, size_t bytes); /* that words among them point into */
bool lives(const Block &b);

void enter_device_memory(); /* the calling thread may touch it from now on */

} // namespace mt_emu

#endif
