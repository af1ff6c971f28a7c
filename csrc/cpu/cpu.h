/* What every CPU kernel file shares. An op is one .c file that defines
 * `const mt_op mt_cpu_<op>`; kernels have no threads of their own. Whichever file works by an
 * enumeration defines `const uint32_t mt_cpu_known_<it>`: an op is called with nothing else. */
#ifndef MT_CPU_H
#define MT_CPU_H

#include "../device/device.h"

#define MT_CPU_WORKSPACE (8 << 20) /* bytes a pool thread has for one tile's buffers */

#endif
