#ifndef MT_STREAMS_H
#define MT_STREAMS_H

#include "op.h"

const mt_streams *mt_cuda_streams();

#endif
