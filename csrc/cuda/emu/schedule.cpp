#include "schedule.h"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace mt_emu {

static Schedule chosen() {
  Schedule s;
  const char *text = getenv("MONOTRON_EMU");
  auto has = [&](const char *word) { return text && strstr(text, word); };
  s.order = has("reverse") ? REVERSE : has("random") ? RANDOM : FORWARD;
  s.greedy = !has("fair");
  s.late = !has("early");
  return s;
}

Schedule schedule = chosen();

void Schedule::permute(int *out, int n) {
  for (int i = 0; i < n; i++) out[i] = order == REVERSE ? n - 1 - i : i;
  if (order != RANDOM) return;
  for (int i = n - 1; i > 0; i--) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    std::swap(out[i], out[(random >> 33) % (i + 1)]);
  }
}

} // namespace mt_emu
