#include "cudnn_plan.h"

#include <cstdio>
#include <cstring>

namespace cudnn {

namespace {

enum { MOST_CONFIGS = 24 };

/* Engine configurations, the best first: how many there are. */
int configs_of(graph *g, desc_t device, heuristics mode, desc_t (&out)[MOST_CONFIGS]) {
  const char *what = "listing the engines";
  desc_t h = descriptor(g, HEURISTICS, what);
  int32_t held = mode;
  set(g, h, HEUR_GRAPH, DESCRIPTOR, 1, &g->whole, what);
  set(g, h, HEUR_MODE_, HEUR_MODE, 1, &held, what);
  if (device) set(g, h, HEUR_DEVICE, DESCRIPTOR, 1, &device, what);
  finalize(g, h, what);
  int64_t count = 0;
  if (g->error[0] || !check(g, g->call->get(h, HEUR_RESULTS, DESCRIPTOR, 0, &count, nullptr), what)) return 0;
  if (count > MOST_CONFIGS) count = MOST_CONFIGS;
  for (int i = 0; i < count; i++) out[i] = descriptor(g, ENGINE_CONFIG, what);
  if (g->error[0] || count == 0 || !check(g, g->call->get(h, HEUR_RESULTS, DESCRIPTOR, count, &count, out), what)) return 0;
  return (int)count;
}

/* Whether the engine of a configuration says that its results may differ from run to run. */
bool repeats(graph *g, desc_t config) {
  const char *what = "reading the notes of an engine";
  desc_t engine = descriptor(g, ENGINE, what);
  int64_t count = 0;
  int32_t notes[16] = {};
  if (g->error[0] || !check(g, g->call->get(config, CONFIG_ENGINE, DESCRIPTOR, 1, &count, &engine), what)) return false;
  if (!check(g, g->call->get(engine, ENGINE_NUMERICAL_NOTE, type::NUMERICAL_NOTE, 16, &count, notes), what)) return false;
  for (int i = 0; i < count && i < 16; i++)
    if (notes[i] == NONDETERMINISTIC) return false;
  return true;
}

bool build(graph *g, desc_t device, desc_t config, plan *out) {
  const char *what = "building a plan";
  desc_t p = descriptor(g, PLAN, what);
  if (g->handle) set(g, p, PLAN_HANDLE, HANDLE, 1, &g->handle, what);
  if (device) set(g, p, PLAN_DEVICE, DESCRIPTOR, 1, &device, what);
  set(g, p, PLAN_CONFIG, DESCRIPTOR, 1, &config, what);
  finalize(g, p, what);
  int64_t count = 0, bytes = 0;
  if (g->error[0] || !check(g, g->call->get(p, PLAN_WORKSPACE, INT64, 1, &count, &bytes), what)) return false;
  *out = {p, bytes};
  return true;
}

desc_t config_of(graph *g, desc_t device, const pinned &p) {
  const char *what = "setting an engine";
  desc_t engine = descriptor(g, ENGINE, what), config = descriptor(g, ENGINE_CONFIG, what), knobs[6];
  set(g, engine, ENGINE_GRAPH, DESCRIPTOR, 1, &g->whole, what);
  set(g, engine, ENGINE_INDEX, INT64, 1, &p.engine, what);
  if (device) set(g, engine, ENGINE_DEVICE, DESCRIPTOR, 1, &device, what);
  finalize(g, engine, what);
  for (int i = 0; i < p.count; i++) {
    knobs[i] = descriptor(g, KNOB_CHOICE, what);
    set(g, knobs[i], KNOB_CHOICE_TYPE, type::KNOB_TYPE, 1, &p.knobs[i].knob, what);
    set(g, knobs[i], KNOB_CHOICE_VALUE, INT64, 1, &p.knobs[i].value, what);
    finalize(g, knobs[i], what);
  }
  set(g, config, CONFIG_ENGINE, DESCRIPTOR, 1, &engine, what);
  set(g, config, CONFIG_KNOBS, DESCRIPTOR, p.count, knobs, what);
  finalize(g, config, what);
  return config;
}

} // namespace

bool choose(graph *g, desc_t device, const pinned *only, plan *out) {
  if (only) {
    desc_t config = config_of(g, device, *only);
    if (g->error[0]) return false;
    if (repeats(g, config)) return build(g, device, config, out);
    if (!g->error[0]) snprintf(g->error, sizeof g->error, "cuDNN's engine %lld reports that its results do not repeat bit for bit", (long long)only->engine);
    return false;
  }
  char first[sizeof g->error] = "cuDNN has no engine for this graph";
  bool any = false;
  const heuristics modes[] = {MODE_A, MODE_FALLBACK};
  for (heuristics mode : modes) {
    desc_t configs[MOST_CONFIGS];
    int count = configs_of(g, device, mode, configs);
    for (int i = 0; i < count; i++) {
      if (repeats(g, configs[i]) && build(g, device, configs[i], out)) return true;
      if (!any) snprintf(first, sizeof first, "%s", g->error[0] ? g->error : "no engine of cuDNN for this graph repeats bit for bit");
      any = true, g->error[0] = 0; /* the next one may do */
    }
    if (g->error[0] && !any) snprintf(first, sizeof first, "%s", g->error);
    g->error[0] = 0;
  }
  snprintf(g->error, sizeof g->error, "%s", first);
  return false;
}

bool execute(graph *g, const plan &p, int count, const int64_t *uids, void **pointers, void *workspace) {
  const char *what = "running a plan";
  desc_t pack = nullptr;
  if (!check(g, g->call->make(VARIANT_PACK, &pack), what)) return false;
  set(g, pack, PACK_POINTERS, VOID_PTR, count, pointers, what);
  set(g, pack, PACK_UIDS, INT64, count, uids, what);
  set(g, pack, PACK_WORKSPACE, VOID_PTR, 1, &workspace, what);
  finalize(g, pack, what);
  bool done = !g->error[0] && check(g, g->call->execute(g->handle, p.desc, pack), what);
  g->call->drop(pack);
  return done;
}

} // namespace cudnn
