/* Memory of the emulated GPU. Where the CPU has protection keys, only streams may touch
 * it: a host that reads or writes a device pointer dies at that line, as it would beside
 * a real GPU. Fresh memory holds NaN. */
#ifndef MT_EMU_MEMORY_H
#define MT_EMU_MEMORY_H

namespace mt_emu {

void enter_device_memory(); /* the calling thread may touch it from now on */

} // namespace mt_emu

#endif
