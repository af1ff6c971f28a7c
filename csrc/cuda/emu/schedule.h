/* The order in which the threads of a block run, from MONOTRON_EMU, words joined
 * by commas:
 *   forward (default), reverse, random  - threads and blocks, in this order
 *   greedy (default), fair              - greedy: a warp runs to the barrier before the
 *                                         next one starts; fair: warps take turns
 *   late (default), early               - an asynchronous copy lands at its wait, or at once
 * Early and late, forward and reverse together find a missing wait and a missing
 * barrier on either side of a buffer's reuse. */
#ifndef MT_EMU_SCHEDULE_H
#define MT_EMU_SCHEDULE_H

#include <cstdint>

namespace mt_emu {

enum Order { FORWARD, REVERSE, RANDOM };

struct Schedule {
  Order order = FORWARD;
  bool greedy = true, late = true;
  uint64_t random = 1;

  /* A permutation of 0..n-1. */
  void permute(int *out, int n);
};

extern Schedule schedule; /* read once, when the library is loaded; the checks change it */

} // namespace mt_emu

#endif
