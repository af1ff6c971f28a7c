#ifndef MT_GRAPHS_H
#define MT_GRAPHS_H

#include "../device/device.h"

const mt_graphs *mt_cuda_graphs();

#endif
